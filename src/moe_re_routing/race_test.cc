// If counts or indices change during a call, every write stays inside the outputs.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "guarded.h"
#include "racing.h"
#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::chrono::milliseconds kTime{300};

template <class Count>
void race_counts() {
  constexpr std::int64_t kRanks = 16, kExperts = 32, kRows = kRanks * kExperts, kHidden = 24;
  Guarded<std::int8_t> tokens(kRows * kHidden), permuted(kRows * kHidden);
  Guarded<float> scales(kRows), permuted_scales(kRows);
  Guarded<std::int32_t> idx(kRows);
  Guarded<Count> counts(kRanks * kExperts), num(kExperts);
  for (std::int64_t i = 0; i < counts.size(); ++i) counts[i] = 1;
  const ConstTensor scales_in = view(scales.data(), {kRows});
  const Tensor scales_out = view(permuted_scales.data(), {kRows});
  const Flipper<Count> flipper(counts.data(), counts.size());
  call_for(kTime, [&] {
    moe_re_routing(view(tokens.data(), {kRows, kHidden}), view(counts.data(), {kRanks, kExperts}), scales_in,
                   view(permuted.data(), {kRows, kHidden}), scales_out, view(idx.data(), {kRows}),
                   view(num.data(), {kExperts}));
  });
}

TEST(MoeReRoutingRaces, CountsThatChange) {
  if (kThreadSanitizer) GTEST_SKIP() << "the test causes a data race on purpose";
  expect_survives([] {
    race_counts<std::int32_t>();
    race_counts<std::int64_t>();
  });
}

template <class Index>
struct Inverse {
  static constexpr std::int64_t kRows = 4096, kHidden = 400;  // enough bytes for several threads
  Guarded<std::int8_t> permuted{kRows * kHidden}, tokens{kRows * kHidden};
  Guarded<Index> idx{kRows};

  Inverse() { std::iota(idx.data(), idx.data() + kRows, Index{0}); }
  void call(Context& context, TokenIdx type) {
    moe_re_routing_inverse(view(permuted.data(), {kRows, kHidden}), view(idx.data(), {kRows}),
                           view(tokens.data(), {kRows, kHidden}), type, context);
  }
};

TEST(MoeReRoutingRaces, AnIndexThatChangesBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    for (const TokenIdx type : {TokenIdx::gather, TokenIdx::scatter}) {
      Inverse<std::int32_t> narrow;
      flip_in_each_loop<std::int32_t>(narrow.idx.data(), {0, 1, 777, narrow.kRows - 1},
                                      [&](Context& context) { narrow.call(context, type); });
      Inverse<std::int64_t> wide;
      flip_in_each_loop<std::int64_t>(wide.idx.data(), {0, 777, wide.kRows - 1},
                                      [&](Context& context) { wide.call(context, type); });
    }
  });
}

}  // namespace
}  // namespace turnout::test
