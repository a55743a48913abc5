// Examples of segments, minima of groups, ranks and bird's-eye views that can be checked by hand.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "last_log_line.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(SegmentCsr, Reductions) {
  Floats src{4, 1, 1, 7, kNan, kInf}, out(4);
  Longs indptr{0, 3, 3, 4, 6}, arg(4);
  const auto run = [&](SegmentReduce reduce) {
    segment_csr(view(src.data(), {6}), view(indptr.data(), {5}), view(out.data(), {4}), view(arg.data(), {4}),
                reduce);
    return out;
  };
  EXPECT_EQ(run(SegmentReduce::min), (Floats{1, 0, 7, 0}));  // NaN and inf are never the smallest
  EXPECT_EQ(arg, (Longs{1, 6, 3, 6}));                       // the first of equals; 6 means none
  EXPECT_EQ(run(SegmentReduce::max), (Floats{4, 0, 7, kInf}));
  EXPECT_EQ(arg, (Longs{0, 6, 3, 5}));
  src[4] = 1;
  src[5] = 2;
  EXPECT_EQ(run(SegmentReduce::sum), (Floats{6, 0, 7, 3}));
  EXPECT_EQ(run(SegmentReduce::mean), (Floats{2, 0, 7, 1.5f}));
}

TEST(SegmentCsr, RowsBeforeAndAfterTheSegmentsDoNotCount) {
  Floats src{9, 1, 2, 9}, out(2), gathered(4, 7.f);
  Longs indptr{1, 2, 3};
  segment_csr(view(src.data(), {4, 1}), view(indptr.data(), {3}), view(out.data(), {2, 1}), nullptr);
  EXPECT_EQ(out, (Floats{1, 2}));
  gather_csr(view(out.data(), {2, 1}), view(indptr.data(), {3}), view(gathered.data(), {4, 1}));
  EXPECT_EQ(gathered, (Floats{0, 1, 2, 0}));
  indptr = {1, 0, 3};
  try {
    segment_csr(view(src.data(), {4, 1}), view(indptr.data(), {3}), view(out.data(), {2, 1}), nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "segment_csr: indptr[1] is 0, expected 1 .. 4");
  }
}

TEST(ScatterMin, MirrorsTheMaximum) {
  Floats src{3, 2, 2, kNan, kInf, -kInf}, out(4);
  Longs index{0, 0, 0, 1, 1, 3}, argmin(4);
  scatter_min(view(src.data(), {6}), view(index.data(), {6}), view(out.data(), {4}),
              view(argmin.data(), {4}));
  EXPECT_EQ(out, (Floats{2, 0, 0, -kInf}));
  EXPECT_EQ(argmin, (Longs{1, 6, 6, 5}));
}

TEST(IngroupIndices, SmallAndLargeNumbers) {
  const std::int64_t far = std::int64_t{1} << 60;
  Longs groups{3, 1, 3, 3, 1}, large{far, 7, far, far + 1, 7}, out(5);
  ingroup_indices(view(groups.data(), {5}), view(out.data(), {5}));
  EXPECT_EQ(out, (Longs{0, 0, 1, 2, 1}));
  ingroup_indices(view(large.data(), {5}), view(out.data(), {5}));
  EXPECT_EQ(out, (Longs{0, 0, 1, 0, 1}));
  large[2] = -1;
  EXPECT_THROW(ingroup_indices(view(large.data(), {5}), view(out.data(), {5})), Error);
  EXPECT_EQ(out, (Longs{0, 0, 1, 0, 1}));
}

TEST(IngroupIndices, MultiplesOfALargePowerOfTwo) {
  constexpr std::int64_t kGroups = 20'000;
  Longs groups, expected, out(2 * kGroups);
  for (std::int64_t i = 0; i < 2 * kGroups; ++i) {
    groups.push_back(i % kGroups << 44);
    expected.push_back(i / kGroups);
  }
  ingroup_indices(view(groups.data(), {2 * kGroups}), view(out.data(), {2 * kGroups}));
  EXPECT_EQ(out, expected);
}

TEST(BevPool, ExampleAndGradient) {
  Floats feats{1, 10, 2, 20, 4, 40}, out(2 * 2 * 3), grad(6);
  Longs coords{0, 1, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0};  // h, w, d, b
  bev_pool(view(feats.data(), {3, 2}), view(coords.data(), {3, 4}), view(out.data(), {1, 2, 1, 2, 3}));
  EXPECT_EQ(out, (Floats{0, 5, 0, 0, 0, 2, 0, 50, 0, 0, 0, 20}));
  bev_pool_backward(view(out.data(), {1, 2, 1, 2, 3}), view(coords.data(), {3, 4}),
                    view(grad.data(), {3, 2}));
  EXPECT_EQ(grad, (Floats{5, 50, 2, 20, 5, 50}));
  coords[5] = 3;
  try {
    bev_pool(view(feats.data(), {3, 2}), view(coords.data(), {3, 4}), view(out.data(), {1, 2, 1, 2, 3}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "bev_pool: coords[1, 1] is 3, expected 0 .. 2, below the width");
  }
}

// Few rows, a transposed gradient, one channel, and a gradient that does not fit the cache.
TEST(BevPool, EveryPlanOfTheGradient) {
  struct Shape {
    std::int64_t rows, batch, channels, height, width;
    const char* plan;
  };
  const LastLogLine line;
  for (const auto& [rows, batch, channels, height, width, plan] :
       {Shape{20, 2, 5, 9, 13, "by point"}, Shape{300, 2, 5, 9, 13, "by point"},
        Shape{300, 2, 1, 9, 13, "by point"}, Shape{9000, 1, 16, 200, 170, "by cell"}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << channels << " channels");
    const std::int64_t plane = height * width;
    Floats grad_out(static_cast<std::size_t>(batch * channels * plane));
    std::iota(grad_out.begin(), grad_out.end(), 0.0F);
    Longs coords;
    Floats expected;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t b = i % batch, h = i * 7 % height, w = i * i % width;
      coords.insert(coords.end(), {h, w, 0, b});
      for (std::int64_t c = 0; c < channels; ++c)
        expected.push_back(static_cast<float>((b * channels + c) * plane + h * width + w));
    }
    for (const int threads : {1, 3}) {
      Context context({.threads = threads});
      Floats grad(expected.size(), -1);
      bev_pool_backward(view(grad_out.data(), {batch, channels, 1, height, width}),
                        view(coords.data(), {rows, 4}), view(grad.data(), {rows, channels}), context);
      EXPECT_EQ(grad, expected);
      EXPECT_TRUE(line.has(plan)) << line.text();
    }
  }
}

}  // namespace
}  // namespace turnout::test
