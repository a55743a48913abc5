// Tests of what the gradient of an expert block needs: kept products and the activation's gradient.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "isas.h"
#include "moe_experts/experts_case.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

// Two tokens, two experts, one inner element: the second choice of the first token has no expert.
TEST(MoeExpertsForward, ByHand) {
  const std::vector<float> tokens = {1, 2}, weights = {1, 1, 1, 1}, w13 = {3, 5}, w2 = {10, 100};
  const std::vector<std::int32_t> ids = {1, 2, 0, 1};
  std::vector<float> out(2, -1.f), products(4, -1.f);
  MoeExpertsParams params;
  params.activation = ExpertActivation::relu;
  params.gated = false;
  moe_experts_forward(view(tokens.data(), {2, 1}), view(ids.data(), {2, 2}), view(weights.data(), {2, 2}),
                      view(w13.data(), {2, 1, 1}), view(w2.data(), {2, 1, 1}), nullptr, nullptr,
                      view(out.data(), {2, 1}), view(products.data(), {4, 1}), params);
  EXPECT_EQ(products, (std::vector<float>{6, 5, 10, 0}));  // expert 0: token 1; expert 1: tokens 0 and 1
  EXPECT_EQ(out, (std::vector<float>{500, 1060}));
}

template <class T>
void expect_kept(const ExpertBlock& block, const MoeExpertsParams& params) {
  Experts<T, T> c(block, params, false, true);
  const std::int64_t rows = block.tokens * block.choices, up = c.up_rows();
  for (Isa isa : supported_isas())
    for (const int threads : {1, 3}) {
      Context context({.threads = threads, .isa = isa});
      c.run(context);
      std::vector<T> out(c.out.size()), products(static_cast<std::size_t>(rows * up), cast<T>(7));
      const ConstTensor first = view(c.b13.data(), {block.experts, up}),
                        second = view(c.b2.data(), {block.experts, block.hidden});
      moe_experts_forward(view(c.tokens.data(), {block.tokens, block.hidden}),
                          view(c.ids.data(), {block.tokens, block.choices}),
                          view(c.weights.data(), {block.tokens, block.choices}),
                          c.weight(c.w13, up, block.hidden), c.weight(c.w2, block.hidden, block.inner), first,
                          second, view(out.data(), {block.tokens, block.hidden}),
                          view(products.data(), {rows, up}), params, context);
      EXPECT_TRUE(same_bits(out, c.out));
      std::vector<double> expected(products.size(), 0.0);
      std::size_t row = 0;
      for (std::int64_t e = 0; e < block.experts; ++e)
        for (std::int64_t q = 0; q < rows; ++q) {
          if (c.ids[static_cast<std::size_t>(q)] != e) continue;
          for (std::int64_t r = 0; r < up; ++r) {
            double sum = number(c.b13[static_cast<std::size_t>(e * up + r)]);
            for (std::int64_t h = 0; h < block.hidden; ++h)
              sum += number(c.tokens[static_cast<std::size_t>(q / block.choices * block.hidden + h)]) *
                     number(c.w13[static_cast<std::size_t>((e * up + r) * block.hidden + h)]);
            expected[row * static_cast<std::size_t>(up) + static_cast<std::size_t>(r)] = sum;
          }
          ++row;
        }
      EXPECT_LT(error_of(products, expected), kTolerance<T>);
    }
}

TEST(MoeExpertsForward, KeepsTheProductsOfEveryExpert) {
  MoeExpertsParams interleaved, plain;
  interleaved.interleaved = true;
  plain.gated = false;
  for (const auto& params : {MoeExpertsParams{}, interleaved, plain}) {
    expect_kept<float>({13, 2, 4, 37, 19}, params);
    expect_kept<bf16>({13, 2, 4, 37, 19}, params);
    expect_kept<f16>({40, 3, 5, 150, 33}, params);
  }
  if (kThreadSanitizer) return;  // the next call takes seconds, and its threads do nothing else
  // More than one part of tokens: 3000 * 4 * (64 + 3000) floats exceed the limit of intermediate values.
  expect_kept<float>({3000, 4, 3, 3000, 1}, plain);
}

// relu, one row: gate 2 and -1, up 3 and 4, gradient of h 5 and 7, weight 10.
TEST(ExpertActivationBackward, ByHand) {
  const std::vector<float> products = {2, -1, 3, 4}, inner_grad = {5, 7}, weights = {10};
  std::vector<float> grad(4), inner(2), weights_grad(1);
  ExpertActivationParams params;
  params.activation = ExpertActivation::relu;
  expert_activation_backward(view(products.data(), {1, 4}), view(inner_grad.data(), {1, 2}),
                             view(weights.data(), {1}), view(grad.data(), {1, 4}), view(inner.data(), {1, 2}),
                             view(weights_grad.data(), {1}), params);
  EXPECT_EQ(grad, (std::vector<float>{150, 0, 100, 0}));
  EXPECT_EQ(inner, (std::vector<float>{60, 0}));
  EXPECT_EQ(weights_grad, (std::vector<float>{30}));
}

template <class T>
void expect_gradients(std::int64_t rows, std::int64_t inner, const MoeExpertsParams& form) {
  std::mt19937 random(static_cast<unsigned>(rows + inner));
  const std::int64_t both = form.gated ? 2 * inner : inner;
  const auto products = values<T>(random, rows * both, 2), inner_grad = values<T>(random, rows * inner);
  const auto weights = values<float>(random, rows);
  const auto expected = reference::expert_activation_backward(numbers(products), numbers(inner_grad),
                                                              numbers(weights), inner, form);
  const ExpertActivationParams params{form.activation, form.gated, form.interleaved, form.alpha, form.limit};
  for (Isa isa : supported_isas()) {
    std::vector<T> grads[2], inners[2];
    std::vector<float> of_weights[2];
    for (const int threads : {1, 3}) {
      Context context({.threads = threads, .isa = isa});
      auto &grad = grads[threads / 2], &weighted = inners[threads / 2];
      auto& weights_grad = of_weights[threads / 2];
      grad.resize(products.size());
      weighted.resize(inner_grad.size());
      weights_grad.resize(weights.size());
      expert_activation_backward(view(products.data(), {rows, both}), view(inner_grad.data(), {rows, inner}),
                                 view(weights.data(), {rows}), view(grad.data(), {rows, both}),
                                 view(weighted.data(), {rows, inner}), view(weights_grad.data(), {rows}),
                                 params, context);
      EXPECT_LT(error_of(grad, expected.products), kTolerance<T>);
      EXPECT_LT(error_of(weighted, expected.inner), kTolerance<T>);
      EXPECT_LT(error_of(weights_grad, expected.weights), 2e-6);
    }
    EXPECT_TRUE(same_bits(grads[0], grads[1]) && same_bits(inners[0], inners[1]) &&
                same_bits(of_weights[0], of_weights[1]));
  }
}

TEST(ExpertActivationBackward, EqualsTheDefinition) {
  for (int a = 0; a < 5; ++a)
    for (const bool gated : {true, false})
      for (const bool interleaved : {false, true}) {
        const auto activation = static_cast<ExpertActivation>(a);
        const bool is_oai = activation == ExpertActivation::swigluoai;
        if (!gated && (is_oai || interleaved)) continue;
        const MoeExpertsParams form{activation, gated, interleaved, 1.702, is_oai ? 1.5 : 1e30};
        for (const std::int64_t inner : {0, 1, 16, 37}) {
          expect_gradients<float>(5, inner, form);
          expect_gradients<bf16>(5, inner, form);
          expect_gradients<f16>(5, inner, form);
        }
        expect_gradients<float>(900, 40, form);  // several threads
      }
}

TEST(ExpertActivationBackward, RefusesOtherForms) {
  const std::vector<float> products(6), inner_grad(4), weights(2);
  std::vector<float> grad(6, 7.f), inner(4), weights_grad(2);
  try {
    expert_activation_backward(view(products.data(), {2, 3}), view(inner_grad.data(), {2, 2}),
                               view(weights.data(), {2}), view(grad.data(), {2, 3}),
                               view(inner.data(), {2, 2}), view(weights_grad.data(), {2}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "expert_activation_backward: products.shape[1] is 3, expected 4 = 2 * inner_grad.shape[1]");
  }
  EXPECT_EQ(grad, std::vector<float>(6, 7.f));
}

}  // namespace
}  // namespace turnout::test
