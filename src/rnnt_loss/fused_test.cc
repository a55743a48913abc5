// Compares the fused joiner and pruned log-probabilities with their definition in double.
#include <gtest/gtest.h>

#include <random>
#include <type_traits>

#include "isas.h"
#include "rnnt_loss/fused_case.h"

namespace turnout::test {
namespace {

template <class T>
class RnntFused : public testing::Test {};
using Floats = testing::Types<float, double, f16, bf16>;
TYPED_TEST_SUITE(RnntFused, Floats);

TYPED_TEST(RnntFused, LikeItsDefinition) {
  using T = TypeParam;
  constexpr double kSteps = sizeof(T) == 8 ? 1e-12 : 1e-5;
  constexpr double kGradients = sizeof(T) == 8            ? 1e-11
                                : std::is_same_v<T, f16>  ? 2e-3
                                : std::is_same_v<T, bf16> ? 2e-2
                                                          : 2e-5;
  std::mt19937 random(1);
  for (const auto& [b, t, s, c, r, j] :
       {std::tuple(2, 5, 3, 4, 2, 7), std::tuple(3, 30, 5, 37, 4, 33), std::tuple(1, 3, 0, 2, 1, 1),
        std::tuple(2, 0, 0, 3, 1, 4), std::tuple(19, 3, 2, 5, 3, 8)}) {
    for (const auto activation : {RnntActivation::none, RnntActivation::tanh, RnntActivation::relu}) {
      FusedCase<T> fused(b, t, s, c, r, j, random() % 2 == 0 && t >= s, activation, random);
      if (random() % 2 == 0) fused.steps.fill_boundary(random);
      const auto expected = fused.expected();
      for (Isa isa : supported_isas()) {
        typename FusedCase<T>::Result first;
        for (int threads : {1, 2, 5}) {
          SCOPED_TRACE(testing::Message()
                       << b << " " << t << " " << s << " " << name_of(isa) << " " << threads);
          Context context({.threads = threads, .isa = isa});
          const auto got = fused.run(context);
          if (threads > 1) {
            EXPECT_TRUE(same_bits(got.px, first.px) && same_bits(got.am_grad, first.am_grad) &&
                        same_bits(got.lm_grad, first.lm_grad) &&
                        same_bits(got.weight_grad, first.weight_grad) &&
                        same_bits(got.bias_grad, first.bias_grad));
            continue;
          }
          first = got;
          EXPECT_LE(rnnt_difference(got.px, expected.steps.px), kSteps);
          EXPECT_LE(rnnt_difference(got.py, expected.steps.py), kSteps);
          EXPECT_LE(rnnt_difference(got.normalizer, expected.steps.normalizer), kSteps);
          EXPECT_EQ(got.nan_at, expected.steps.nan_at);
          EXPECT_LE(rnnt_difference(got.am_grad, expected.am_grad), kGradients);
          EXPECT_LE(rnnt_difference(got.lm_grad, expected.lm_grad), kGradients);
          EXPECT_LE(rnnt_difference(got.weight_grad, expected.weight_grad), kGradients);
          EXPECT_LE(rnnt_difference(got.bias_grad, expected.bias_grad), kGradients);
        }
      }
    }
  }
}

// Enough work for several threads, without a bias.
TEST(RnntFused, ManyTiles) {
  std::mt19937 random(2);
  FusedCase<float> fused(5, 60, 6, 50, 4, 70, false, RnntActivation::tanh, random);
  std::fill(fused.bias.begin(), fused.bias.end(), 0.0f);
  const auto expected = fused.expected();
  Context one({.threads = 1}), five({.threads = 5});
  const auto got = fused.run(one, false), again = fused.run(five, false);
  EXPECT_LE(rnnt_difference(got.weight_grad, expected.weight_grad), 2e-5);
  EXPECT_TRUE(same_bits(got.px, again.px) && same_bits(got.weight_grad, again.weight_grad) &&
              same_bits(got.lm_grad, again.lm_grad));
  EXPECT_EQ(got.bias_grad[0], 7);  // not touched
}

// If the batch is empty, the gradients of the weights are 0.
TEST(RnntFused, EmptyBatch) {
  std::mt19937 random(3);
  FusedCase<float> fused(0, 4, 2, 5, 2, 3, false, RnntActivation::relu, random);
  const auto got = fused.run(default_context());
  EXPECT_EQ(got.weight_grad, many<float>(15));
  EXPECT_EQ(got.bias_grad, many<float>(5));
}

TEST(RnntFused, NanStays) {
  std::mt19937 random(4);
  for (const auto activation : {RnntActivation::none, RnntActivation::tanh, RnntActivation::relu}) {
    FusedCase<float> fused(2, 4, 2, 5, 3, 9, false, activation, random);
    fused.joiner.am[static_cast<std::size_t>((4 + 2) * 9 + 1)] = std::numeric_limits<float>::quiet_NaN();
    for (Isa isa : supported_isas()) {
      Context context({.threads = 1, .isa = isa});
      EXPECT_EQ(fused.run(context).nan_at, (std::vector<std::int64_t>{-1, 2 * 3})) << name_of(isa);
    }
  }
}

}  // namespace
}  // namespace turnout::test
