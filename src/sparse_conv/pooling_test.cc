// Compares pooling along given pairs with its definition: dtypes x ISA x threads x orders of pairs.
#include <gtest/gtest.h>

#include "sparse_conv/convolution_case.h"

namespace turnout::test {
namespace {

template <class T>
void compare_pools(unsigned seed) {
  using Lane = core::matrix::LaneOf<T>;
  for (Order order : {Order::sorted, Order::shuffled, Order::one_row, Order::empty}) {
    for (std::int64_t channels : {1, 7, 16, 40}) {
      std::mt19937 random(++seed);
      const std::int64_t rows = channels == 40 ? 3000 : 90, out_rows = rows * 2 / 3;
      const Pairs pairs = make_pairs(order, 9, rows, out_rows, seed);
      const PairTensors given(pairs, seed % 2 == 1);
      Values<T> features(rows, channels, random, 1), grad(out_rows, channels, random);
      // Ties, zeros of both signs, NaN.
      const Lane special[] = {0,
                              Lane(-0.0),
                              1,
                              1,
                              std::numeric_limits<Lane>::quiet_NaN(),
                              -1,
                              -std::numeric_limits<Lane>::infinity()};
      for (std::int64_t i = 0; i < features.memory.size(); ++i) {
        if (i % 3 != 0) continue;
        const Lane v = special[static_cast<std::size_t>(i / 3) % std::size(special)];
        features.memory[i] = rounded<T>(v);
        features.lanes.values[static_cast<std::size_t>(i)] = v;
      }
      for (PoolInit init : {PoolInit::zero, PoolInit::lowest}) {
        const Lane lowest = std::is_same_v<T, f16>    ? Lane(-65504)
                            : std::is_same_v<T, bf16> ? static_cast<Lane>(-0x1.FEp127)
                                                      : std::numeric_limits<Lane>::lowest();
        const auto out =
            reference::indice_max_pool_forward(features.lanes, pairs, static_cast<std::size_t>(out_rows),
                                               init == PoolInit::zero ? Lane{0} : lowest);
        const auto in_grad = reference::indice_max_pool_backward(features.lanes, out, grad.lanes, pairs);
        for (Isa isa : supported_isas()) {
          for (int threads : {1, 2, 5}) {
            Context context({.threads = threads, .isa = isa});
            Guarded<T> features_out(out_rows * channels, 1), input_grad(rows * channels);
            const Tensor out_view = view(features_out.data(), {out_rows, channels});
            indice_max_pool_forward(features.tensor(rows, channels), given.pairs(), given.num(), out_view,
                                    init, context);
            indice_max_pool_backward(features.tensor(rows, channels), out_view,
                                     grad.tensor(out_rows, channels), given.pairs(), given.num(),
                                     view(input_grad.data(), {rows, channels}), context);
            // Only comparisons and sums, so SSE4 gives the same bits.
            expect_rows(true, features_out, out.values, {}, 0);
            expect_rows(true, input_grad, in_grad.values, {}, 0);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}
template <class T>
void compare_means(unsigned seed) {
  for (Order order : {Order::sorted, Order::shuffled, Order::one_row, Order::empty}) {
    for (std::int64_t channels : {1, 7, 40}) {
      std::mt19937 random(++seed);
      const std::int64_t rows = channels == 40 ? 3000 : 90, out_rows = rows * 2 / 3;
      const Pairs pairs = make_pairs(order, 9, rows, out_rows, seed);
      const PairTensors given(pairs, seed % 2 == 1);
      Values<T> features(rows, channels, random, 1), grad(out_rows, channels, random);
      const auto out =
          reference::indice_avg_pool_forward(features.lanes, pairs, static_cast<std::size_t>(out_rows));
      const auto in_grad =
          reference::indice_avg_pool_backward(grad.lanes, pairs, static_cast<std::size_t>(rows));
      for (Isa isa : supported_isas()) {
        for (int threads : {1, 2, 5}) {
          Context context({.threads = threads, .isa = isa});
          Guarded<T> features_out(out_rows * channels, 1), input_grad(rows * channels);
          indice_avg_pool_forward(features.tensor(rows, channels), given.pairs(), given.num(),
                                  view(features_out.data(), {out_rows, channels}), context);
          indice_avg_pool_backward(grad.tensor(out_rows, channels), given.pairs(), given.num(),
                                   view(input_grad.data(), {rows, channels}), context);
          expect_rows(true, features_out, out.values, {}, 0);
          expect_rows(true, input_grad, in_grad.values, {}, 0);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}
TEST(IndiceAvgPool, EqualsTheDefinition) {
  compare_means<float>(900);
  compare_means<double>(920);
  compare_means<f16>(940);
  compare_means<bf16>(960);
}

TEST(IndiceMaxPool, EqualsTheDefinitionF32) { compare_pools<float>(500); }
TEST(IndiceMaxPool, EqualsTheDefinitionF64) { compare_pools<double>(600); }
TEST(IndiceMaxPool, EqualsTheDefinitionF16) { compare_pools<f16>(700); }
TEST(IndiceMaxPool, EqualsTheDefinitionBf16) { compare_pools<bf16>(800); }

}  // namespace
}  // namespace turnout::test
