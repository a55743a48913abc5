// Hand-checked examples of gradients, combine and [samples, choices] dispatch: rows without locations, the
// sign of zero, empty tensors, buffers of the wrong size.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "turnout/turnout.h"

namespace turnout::test {
namespace {

// Without locations and with a capacity of 1 an index is a row.
TEST(MoeMovements, RowsInsteadOfExpertsAndSlots) {
  const float input[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t rows[] = {3, 0, -1, 2, 9, 1};
  const float gates[] = {1, 10, 5, 2, 5, 3};
  std::vector<float> dispatch(8, -1), output(6, -1);
  const ConstTensor weights = view(gates, {3, 2});
  moe_dispatch(view(input, {3, 2}), view(rows, {3, 2}), nullptr, weights, view(dispatch.data(), {4, 2}),
               {.capacity = 1, .num_experts = 4});
  EXPECT_EQ(dispatch, (std::vector<float>{10, 20, 15, 18, 6, 8, 1, 2}));
  moe_token_unpermute(view(dispatch.data(), {4, 2}), view(rows, {3, 2}), nullptr,
                      view(output.data(), {3, 2}));
  EXPECT_EQ(output, (std::vector<float>{11, 22, 6, 8, 15, 18}));
}

TEST(MoeMovements, WorkedExampleOfTheGradients) {
  // Token 0 goes to expert 1, slot 0, token 1 is beyond the capacity, token 2 goes to expert 0, slot 1.
  const float gates[] = {2, 3, -1}, input[] = {1, 2, 3, 4, 5, 6}, grad[] = {9, 9, 1, 10, 100, 1000, 9, 9};
  const std::int32_t indices[] = {1, 1, 0}, locations[] = {0, 2, 1};
  std::vector<float> grad_input(6, 7), grad_gates(3, 7);
  moe_dispatch_backward(view(gates, {3}), view(indices, {3}), view(locations, {3}), view(input, {3, 2}),
                        view(grad, {4, 2}), view(grad_input.data(), {3, 2}), view(grad_gates.data(), {3}),
                        {.capacity = 2, .num_experts = 2});
  EXPECT_EQ(grad_input, (std::vector<float>{200, 2000, 0, 0, -1, -10}));
  EXPECT_EQ(grad_gates, (std::vector<float>{2100, 0, 65}));
}

// With one choice, -0 is kept; with several, a dropped one adds +0.
TEST(MoeMovements, SignOfZero) {
  const float rows[] = {-0.0f, 1};
  const auto sum = [&](std::vector<std::int32_t> indices) {
    float output = 7;
    const auto choices = static_cast<std::int64_t>(indices.size());
    moe_combine(view(rows, {2, 1}), view(indices.data(), {1, choices}), nullptr, nullptr,
                view(&output, {1, 1}), 1);
    return output;
  };
  EXPECT_TRUE(std::signbit(sum({0})));
  EXPECT_TRUE(std::signbit(sum({0, 0})));
  for (const auto& dropped : {std::vector<std::int32_t>{0, -1}, {-1, 0}, {0, 2, 0}, {-1}}) {
    const float zero = sum(dropped);
    EXPECT_EQ(zero, 0);
    EXPECT_FALSE(std::signbit(zero));
  }
}

TEST(MoeMovements, WithoutLocationsTheFirstSlotIsMeant) {
  const std::vector<float> rows = {0, 1, 2, 3, 4, 5};  // two experts with three slots of one column
  const std::vector<std::int32_t> indices = {1, 0, 2, 1};
  std::vector<float> tokens(4, 7), dispatch(6, 7);
  moe_combine(view(rows.data(), {6, 1}), view(indices.data(), {4}), nullptr, nullptr,
              view(tokens.data(), {4, 1}), 3);
  EXPECT_EQ(tokens, (std::vector<float>{3, 0, 0, 3}));
  tokens = {5, 6, 7, 8};
  moe_dispatch(view(std::as_const(tokens).data(), {4, 1}), view(indices.data(), {4}), nullptr, nullptr,
               view(dispatch.data(), {6, 1}), {.capacity = 3, .num_experts = 2});
  EXPECT_EQ(dispatch, (std::vector<float>{6, 0, 0, 8, 0, 0}));
}

TEST(MoeMovements, EmptyTensors) {
  std::vector<float> tokens(6, 7), gates(3, 7);
  const std::vector<float> weights(3, 1);
  const std::vector<std::int32_t> routing(3);
  const ConstTensor ones = view(weights.data(), {3});
  // Without rows all tokens are dropped.
  moe_combine(Tensor(nullptr, DType::f32, {0, 2}), view(routing.data(), {3}), nullptr, ones,
              view(tokens.data(), {3, 2}), 0);
  EXPECT_EQ(tokens, std::vector<float>(6, 0));
  moe_combine_backward(view(tokens.data(), {3, 2}), Tensor(nullptr, DType::f32, {2, 0, 2}),
                       view(routing.data(), {3}), nullptr, ones, Tensor(nullptr, DType::f32, {0, 2}),
                       view(gates.data(), {3}), 0);
  EXPECT_EQ(gates, std::vector<float>(3, 0));
  // Without columns products are 0.
  gates.assign(3, 7);
  moe_dispatch_backward_gate(view(routing.data(), {3}), view(routing.data(), {3}),
                             Tensor(nullptr, DType::f32, {3, 0}), Tensor(nullptr, DType::f32, {2, 0}),
                             view(gates.data(), {3}), {.capacity = 1, .num_experts = 2});
  EXPECT_EQ(gates, std::vector<float>(3, 0));
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MoeMovements, BuffersThatDoNotFit) {
  std::vector<float> rows(24), tokens(6);
  const std::vector<std::int32_t> routing(3);
  const auto combine = [&](const ConstTensor& expert_output, std::int64_t capacity) {
    return message_of([&] {
      moe_combine(expert_output, view(routing.data(), {3}), nullptr, nullptr, view(tokens.data(), {3, 2}),
                  capacity);
    });
  };
  EXPECT_EQ(combine(view(rows.data(), {4, 3, 2}), 3), "");
  EXPECT_EQ(combine(view(rows.data(), {3, 4, 2}), 3),
            "moe_combine: expert_output.shape[1] is 4, expected 3 = capacity");
  EXPECT_EQ(combine(view(rows.data(), {7, 2}), 3),
            "moe_combine: expert_output.shape[0] is 7, expected a multiple of 3 = capacity");
  Tensor strided = view(rows.data(), {2, 3, 2});
  strided.stride[0] = 2;
  EXPECT_NE(combine(strided, 3).find("expert_output is strided"), std::string::npos);
}

}  // namespace
}  // namespace turnout::test
