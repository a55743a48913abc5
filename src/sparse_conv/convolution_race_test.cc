// Tests that no access leaves the tensors if pairs, counts or kept indices change during a call.
#include <gtest/gtest.h>

#include <vector>

#include "guarded.h"
#include "racing.h"
#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::chrono::milliseconds kTime{100};

// A convolution of kRows rows along kOffsets lists of pairs, large enough for several threads.
struct Convolution {
  static constexpr std::int64_t kRows = 33'001, kOffsets = 3, kChannels = 8;
  Guarded<float> features{kRows * kChannels}, features_out{kRows * kChannels};
  Guarded<float> filters{kOffsets * kChannels * kChannels}, filters_grad{kOffsets * kChannels * kChannels};
  Guarded<std::int32_t> pairs{kOffsets * 2 * kRows}, num{kOffsets};
  std::vector<std::int64_t> index;

  explicit Convolution(bool ascending) {
    for (std::int64_t k = 0; k < kOffsets; ++k) {
      num[k] = kRows;
      for (std::int64_t j = 0; j < kRows; ++j) {
        pairs[2 * k * kRows + j] = static_cast<std::int32_t>((j + k) % kRows);
        pairs[(2 * k + 1) * kRows + j] = static_cast<std::int32_t>(ascending ? j : j * 7 % kRows);
      }
    }
    Context context({.threads = 1});
    const IndiceConvolutionIndex by_row(pair_tensor(), num_tensor(), {.rows = kRows, .out_rows = kRows},
                                        context);
    index.resize(static_cast<std::size_t>(by_row.size()));
    by_row.write(view(index));
  }

  ConstTensor pair_tensor() { return view(pairs.data(), {kOffsets, 2, kRows}); }
  ConstTensor num_tensor() { return view(num.data(), {kOffsets}); }
  void forward(Context& context, bool keeps_index) {
    const ConstTensor kept = view(index);
    indice_convolution_forward(view(features.data(), {kRows, kChannels}),
                               view(filters.data(), {kOffsets, kChannels, kChannels}), pair_tensor(),
                               num_tensor(), nullptr, keeps_index ? kept : nullptr,
                               view(features_out.data(), {kRows, kChannels}), {}, context);
  }
  void filter_gradient(Context& context) {
    indice_convolution_backward_filter(
        view(features.data(), {kRows, kChannels}), view(features_out.data(), {kRows, kChannels}),
        pair_tensor(), num_tensor(), view(filters_grad.data(), {kOffsets, kChannels, kChannels}), {},
        context);
  }
  void mean(Context& context) {
    indice_avg_pool_forward(view(features.data(), {kRows, kChannels}), pair_tensor(), num_tensor(),
                            view(features_out.data(), {kRows, kChannels}), context);
  }
};
constexpr std::int64_t kRows = Convolution::kRows;

TEST(ConvolutionRaces, PairsThatChangeBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    for (const bool ascending : {false, true}) {
      Convolution c(ascending);
      const std::vector<std::int64_t> places = {0, kRows + 20'000, 4 * kRows - 1};
      for (const auto call : {&Convolution::filter_gradient, &Convolution::mean})
        flip_in_each_loop<std::int32_t>(c.pairs.data(), places,
                                        [&](Context& context) { (c.*call)(context); });
      const auto forward = [&](Context& context) { c.forward(context, false); };
      flip_in_each_loop<std::int32_t>(c.pairs.data(), places, forward);
      flip_in_each_loop<std::int32_t>(c.num.data(), {1}, forward);
    }
  });
}

TEST(ConvolutionRaces, AKeptIndexThatChangesBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    Convolution c(true);
    const auto size = static_cast<std::int64_t>(c.index.size());
    flip_in_each_loop<std::int64_t>(c.index.data(), {1, size / 2, size - 1},
                                    [&](Context& context) { c.forward(context, true); });
  });
}

TEST(ConvolutionRaces, PairsThatChangeAtAnyTime) {
  if (kThreadSanitizer) GTEST_SKIP() << "the caller's data race is intended";
  expect_survives([] {
    for (const bool ascending : {false, true}) {
      Convolution c(ascending);
      Context context({.threads = 1});
      const Flipper<std::int32_t> of_pairs(c.pairs.data(), c.pairs.size()), of_num(c.num.data(), 3);
      const Flipper<std::int64_t> of_index(c.index.data(), static_cast<std::int64_t>(c.index.size()));
      call_for(kTime, [&] { c.forward(context, false); });
      call_for(kTime, [&] { c.forward(context, true); });
      call_for(kTime, [&] { c.filter_gradient(context); });
      call_for(kTime, [&] { c.mean(context); });
    }
  });
}

}  // namespace
}  // namespace turnout::test
