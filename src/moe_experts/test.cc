// Compares grouped products and the expert block with their definitions in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "isas.h"
#include "moe_experts/experts_case.h"

namespace turnout::test {
namespace {

template <class T>
struct Grouped {
  std::int64_t depth, columns;
  std::vector<std::int64_t> offs;
  std::int64_t rows;
  bool transposed, with_bias;
  std::vector<T> input, weight, bias, out;

  Grouped(std::int64_t d, std::int64_t c, std::vector<std::int64_t> ends, std::int64_t all, bool t, bool b)
      : depth(d), columns(c), offs(std::move(ends)), rows(all), transposed(t), with_bias(b) {
    std::mt19937 random(static_cast<unsigned>(d * 31 + c));
    const auto groups = static_cast<std::int64_t>(offs.size());
    input = values<T>(random, rows * depth);
    weight = values<T>(random, groups * depth * columns);
    bias = values<T>(random, groups * columns);
    out.resize(static_cast<std::size_t>(rows * columns), cast<T>(7));
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(offs.size()); }
  std::size_t at(std::int64_t g, std::int64_t d, std::int64_t c) const {
    return static_cast<std::size_t>(transposed ? (g * columns + c) * depth + d
                                               : (g * depth + d) * columns + c);
  }
  ConstTensor weights() const {
    ConstTensor w = view(weight.data(), {groups(), depth, columns});
    if (transposed) {
      w.stride[1] = 1;
      w.stride[2] = depth;
    }
    return w;
  }
  void run(Context& context) {
    const ConstTensor b = view(bias.data(), {groups(), columns});
    grouped_mm(view(input.data(), {rows, depth}), weights(), view(offs.data(), {groups()}),
               with_bias ? b : nullptr, view(out.data(), {rows, columns}), context);
  }
  std::vector<double> expected() const {
    return reference::grouped_mm(
        numbers(input), rows, offs, depth, columns,
        [&](std::int64_t g, std::int64_t d, std::int64_t c) { return number(weight[at(g, d, c)]); },
        [&](std::int64_t g, std::int64_t c) {
          return with_bias ? number(bias[static_cast<std::size_t>(g * columns + c)]) : 0.0;
        });
  }
};

// Checked by hand: two groups of one row each, and a row without a group.
TEST(GroupedMm, ByHand) {
  const std::vector<float> input = {1, 2, 3, 4, 5, 6}, weight = {1, 0, 0, 1, 2, 0, 0, 2},
                           bias = {0, 0, 10, 20};
  const std::vector<std::int32_t> offs = {1, 2};
  std::vector<float> out(6, -1.f);
  const ConstTensor b = view(bias.data(), {2, 2});
  grouped_mm(view(input.data(), {3, 2}), view(weight.data(), {2, 2, 2}), view(offs.data(), {2}), b,
             view(out.data(), {3, 2}));
  EXPECT_EQ(out, (std::vector<float>{1, 2, 16, 28, 0, 0}));
  std::vector<float> weight_grad(8), bias_grad(4);
  const Tensor of_bias = view(bias_grad.data(), {2, 2});
  grouped_mm_backward_weight(view(input.data(), {3, 2}), view(input.data(), {3, 2}), view(offs.data(), {2}),
                             view(weight_grad.data(), {2, 2, 2}), of_bias);
  EXPECT_EQ(weight_grad, (std::vector<float>{1, 2, 2, 4, 9, 12, 12, 16}));
  EXPECT_EQ(bias_grad, (std::vector<float>{1, 2, 3, 4}));
}

template <class T>
class GroupedMmOf : public testing::Test {};
using Floats = testing::Types<float, double, f16, bf16>;
TYPED_TEST_SUITE(GroupedMmOf, Floats);

TYPED_TEST(GroupedMmOf, EqualsTheDefinition) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {
      {1, 1}, {7, 5}, {64, 33}, {100, 48}, {2100, 17}};
  for (const auto& [depth, columns] : sizes)
    for (const bool transposed : {false, true})
      for (const bool with_bias : {false, true}) {
        Grouped<TypeParam> c(depth, columns, {3, 3, 10, 17, 17 + 200}, 220, transposed, with_bias);
        const auto expected = c.expected();
        for (Isa isa : supported_isas()) {
          Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
          c.run(one);
          EXPECT_LT(error_of(c.out, expected), kTolerance<TypeParam>)
              << depth << " " << columns << transposed;
          const auto first = c.out;
          c.run(three);
          EXPECT_TRUE(same_bits(first, c.out));
        }
      }
}

// A row has the same bits alone and among others.
TEST(GroupedMm, RowsDoNotDependOnEachOther) {
  for (const bool transposed : {false, true}) {
    Grouped<float> many(1500, 50, {40}, 40, transposed, false);
    Context context({.threads = 2});
    many.run(context);
    for (const std::int64_t rows : {1, 5, 13}) {
      Grouped<float> few = many;
      few.rows = rows;
      few.offs = {rows};
      few.run(context);
      EXPECT_TRUE(std::equal(few.out.begin(), few.out.begin() + rows * 50, many.out.begin()));
    }
  }
}

TEST(GroupedMm, RefusesOffs) {
  Grouped<float> c(4, 4, {2, 5, 3}, 6, false, false);
  Context context;
  const auto message = [&]() -> std::string {
    try {
      c.run(context);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(), "grouped_mm: offs[2] is 3, expected 5 .. 6, ascending");
  c.offs = {2, 5, 7};
  EXPECT_EQ(message(), "grouped_mm: offs[2] is 7, expected 5 .. 6, ascending");
  c.offs = {-1, 5, 6};
  EXPECT_EQ(message(), "grouped_mm: offs[0] is -1, expected 0 .. 6, ascending");
  EXPECT_TRUE(std::all_of(c.out.begin(), c.out.end(), [](float v) { return v == 7; }));
}

TYPED_TEST(GroupedMmOf, GradientEqualsTheDefinition) {
  std::mt19937 random(3);
  const std::vector<std::int64_t> offs = {0, 5, 5, 300};
  const std::int64_t rows = 310, groups = 4;
  for (const auto& [depth, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 2}, {70, 40}}) {
    const auto input = values<TypeParam>(random, rows * depth),
               grad = values<TypeParam>(random, rows * columns);
    const auto grads =
        reference::grouped_mm_backward_weight(numbers(input), numbers(grad), offs, depth, columns);
    const auto of_weight = grads.begin() + groups * depth * columns;
    const std::vector<double> expected(grads.begin(), of_weight), of_bias(of_weight, grads.end());
    for (Isa isa : supported_isas())
      for (int threads : {1, 3}) {
        Context context({.threads = threads, .isa = isa});
        std::vector<TypeParam> weight_grad(expected.size()), bias_grad(of_bias.size());
        const Tensor b = view(bias_grad.data(), {groups, columns});
        grouped_mm_backward_weight(view(input.data(), {rows, depth}), view(grad.data(), {rows, columns}),
                                   view(offs.data(), {groups}),
                                   view(weight_grad.data(), {groups, depth, columns}), b, context);
        EXPECT_LT(error_of(weight_grad, expected), 3 * kTolerance<TypeParam>);
        EXPECT_LT(error_of(bias_grad, of_bias), 3 * kTolerance<TypeParam>);
      }
  }
}

// Gradient rows so long that a thread sums eight at a time.
TEST(GroupedMm, GradientInSeveralBlocks) {
  std::mt19937 random(4);
  const std::int64_t rows = 5, groups = 2, depth = 19, columns = 8200;
  const std::vector<std::int64_t> offs = {2, 5};
  const auto input = values<float>(random, rows * depth), grad = values<float>(random, rows * columns);
  auto expected = reference::grouped_mm_backward_weight(numbers(input), numbers(grad), offs, depth, columns);
  expected.resize(static_cast<std::size_t>(groups * depth * columns));
  for (const int threads : {1, 3}) {
    Context context({.threads = threads});
    std::vector<float> weight_grad(expected.size());
    grouped_mm_backward_weight(view(input.data(), {rows, depth}), view(grad.data(), {rows, columns}),
                               view(offs.data(), {groups}),
                               view(weight_grad.data(), {groups, depth, columns}), nullptr, context);
    EXPECT_LT(error_of(weight_grad, expected), kTolerance<float>);
  }
}

template <class T, class W>
void expect_equal(const ExpertBlock& block, const MoeExpertsParams& params, bool transposed, bool with_bias) {
  Experts<T, W> c(block, params, transposed, with_bias);
  const auto expected = c.expected();
  for (Isa isa : supported_isas()) {
    Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
    c.run(one);
    // Two bf16 numbers keep 16 bits of an f32 operand.
    const bool splits = isa == Isa::avx512_bf16 && std::is_same_v<W, bf16>;
    EXPECT_LT(error_of(c.out, expected), splits ? std::max(kTolerance<T>, 2e-5) : kTolerance<T>)
        << block.tokens << " tokens, activation " << static_cast<int>(params.activation) << ", gated "
        << params.gated << ", interleaved " << params.interleaved << ", transposed " << transposed
        << ", bias " << with_bias;
    const auto first = c.out;
    c.run(three);
    EXPECT_TRUE(same_bits(first, c.out));
  }
}

TEST(MoeExperts, EveryActivationAndLayout) {
  for (int a = 0; a < 5; ++a)
    for (const bool gated : {true, false})
      for (const bool interleaved : {false, true})
        for (const bool transposed : {false, true}) {
          const auto activation = static_cast<ExpertActivation>(a);
          const bool is_oai = activation == ExpertActivation::swigluoai;
          if (!gated && (is_oai || interleaved)) continue;
          const MoeExpertsParams params{activation, gated, interleaved, 1.702, is_oai ? 1.5 : 1e30};
          expect_equal<float, float>({13, 2, 4, 37, 19}, params, transposed, true);
        }
}

TEST(MoeExperts, EveryDType) {
  for (const std::int64_t tokens : {1, 3, 40}) {
    const ExpertBlock block{tokens, 3, 5, 70, 33};
    for (const bool transposed : {false, true}) {
      expect_equal<float, f16>(block, {}, transposed, true);
      expect_equal<float, bf16>(block, {}, transposed, false);
      expect_equal<f16, f16>(block, {}, transposed, true);
      expect_equal<bf16, bf16>(block, {}, transposed, true);
    }
  }
}

// Several blocks of rows and columns, and several slices of the depth.
TEST(MoeExperts, Blocks) {
  expect_equal<float, float>({500, 1, 2, 40, 1100}, {}, false, false);
  expect_equal<bf16, bf16>({9, 2, 3, 2050, 16}, {}, false, true);
  expect_equal<float, float>({2000, 1, 1, 16, 8}, {}, false, false);  // full blocks of rows
}

TEST(MoeExperts, NothingToDo) {
  expect_equal<float, float>({3, 0, 4, 8, 5}, {}, false, false);
  expect_equal<float, float>({3, 2, 0, 8, 5}, {}, false, false);
  expect_equal<float, float>({3, 2, 4, 8, 0}, {}, false, true);
  expect_equal<float, float>({0, 2, 4, 8, 5}, {}, false, false);
}

TEST(MoeExperts, Refusals) {
  const auto message = [](const MoeExpertsParams& params, std::int64_t less) -> std::string {
    Experts<float, float> c({2, 1, 2, 4, 3}, params, false, false);
    c.block.inner -= less;
    try {
      Context context;
      const ConstTensor w13 = view(c.w13.data(), {2, c.up_rows() + (params.gated ? 2 : 1) * less, 4});
      moe_experts(view(c.tokens.data(), {2, 4}), view(c.ids.data(), {2, 1}), view(c.weights.data(), {2, 1}),
                  w13, view(c.w2.data(), {2, 4, c.block.inner}), nullptr, nullptr, view(c.out.data(), {2, 4}),
                  params, context);
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(std::all_of(c.out.begin(), c.out.end(), [](float v) { return v == 7; }));
      return error.what();
    }
  };
  EXPECT_EQ(message({}, 0), "");
  EXPECT_EQ(message({}, 1), "moe_experts: w13.shape[1] is 6, expected 4 = 2 * w2.shape[2]");
  EXPECT_EQ(message({.gated = false}, 1), "moe_experts: w13.shape[1] is 3, expected 2 = w2.shape[2]");
  EXPECT_EQ(message({.activation = ExpertActivation::swigluoai, .gated = false}, 0),
            "moe_experts: gated is no, expected yes with swigluoai");
  EXPECT_EQ(message({.gated = false, .interleaved = true}, 0),
            "moe_experts: interleaved is yes, expected no if gated is no");
  EXPECT_EQ(message({.limit = 0}, 0), "moe_experts: limit is 0, expected a number above 0");
  EXPECT_EQ(message({.alpha = std::numeric_limits<float>::infinity()}, 0),
            "moe_experts: alpha is inf, expected a finite number");
}

// 16-bit tokens need weights of the same dtype.
TEST(MoeExperts, RefusesWeightsOfAnotherType) {
  Experts<f16, bf16> c({2, 1, 2, 4, 3}, {}, false, false);
  Context context;
  try {
    c.run(context);
    FAIL() << "f16 tokens with bf16 weights were accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "moe_experts: w13 has dtype bf16, expected f16, the dtype of hidden_states");
  }
  EXPECT_EQ(number(c.out[0]), 7);
}

}  // namespace
}  // namespace turnout::test
