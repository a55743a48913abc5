// Compares dynamic_scatter with its definition bit for bit: shapes x dtypes x ISA x threads x patterns.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dynamic_scatter/test_cases.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// -- by hand -----------------------------------------------------------------------------------------------

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

// Compares bits, to distinguish -0 from 0.
Ints bits(const Floats& values) {
  Ints all(values.size());
  std::memcpy(all.data(), values.data(), values.size() * sizeof(float));
  return all;
}

TEST(DynamicScatterByHand, SixPointsFourVoxels) {
  const Ints coors = {12, 5, 9, 8, 6, 14, 8, 15, 3, -1, 18, 7, 5, 12, -1, 9, 14, 15};
  const Floats feats = {1, 2, 3, 4, 5, 6};
  Floats voxel_feats(6, kOld);
  Ints voxel_coors(18, kOld), map(6, kOld), count(6, kOld);
  const auto forward = [&](Reduce reduce_type) {
    return dynamic_scatter_forward(view(feats.data(), {6, 1}), view(coors.data(), {6, 3}),
                                   view(voxel_feats.data(), {6, 1}), view(voxel_coors.data(), {6, 3}),
                                   view(map.data(), {6}), view(count.data(), {6}), reduce_type);
  };
  EXPECT_EQ(forward(Reduce::max), 4);
  EXPECT_EQ(voxel_coors, (Ints{8, 6, 14, 8, 15, 3, 9, 14, 15, 12, 5, 9, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(map, (Ints{3, 0, 1, -1, -1, 2}));
  EXPECT_EQ(count, (Ints{1, 1, 1, 1, 7, 7}));
  EXPECT_EQ(voxel_feats, (Floats{2, 3, 6, 1, -kInfinity, -kInfinity}));
  EXPECT_EQ(forward(Reduce::mean), 4);
  EXPECT_EQ(voxel_feats, (Floats{2, 3, 6, 1, 0, 0}));
}

// The points of one voxel, two channels each.
struct OneVoxel {
  Floats feats;
  std::int64_t points() const { return static_cast<std::int64_t>(feats.size() / 2); }

  Floats forward(Reduce reduce_type) const {
    const Ints coors = sized<std::int32_t>(points(), 5);
    Ints voxel_coors(1), map = sized<std::int32_t>(points()), count(1);
    Floats result(2);
    EXPECT_EQ(dynamic_scatter_forward(view(feats.data(), {points(), 2}), view(coors.data(), {points(), 1}),
                                      view(result.data(), {1, 2}), view(voxel_coors.data(), {1, 1}),
                                      view(map.data(), {points()}), view(count.data(), {1}), reduce_type),
              1);
    EXPECT_EQ(voxel_coors[0], 5);
    EXPECT_EQ(count[0], points());
    return result;
  }
  Floats backward(const Floats& grad, const Floats& voxel_feats, Reduce reduce_type = Reduce::max) const {
    const Ints map = sized<std::int32_t>(points(), 0), count = {static_cast<std::int32_t>(points())};
    Floats result(feats.size(), kOld);
    const ConstTensor f = view(feats.data(), {points(), 2}), w = view(voxel_feats.data(), {1, 2}),
                      n = view(count.data(), {1});
    dynamic_scatter_backward(view(grad.data(), {1, 2}), f, voxel_feats.empty() ? nullptr : w,
                             view(map.data(), {points()}), n, nullptr, view(result.data(), {points(), 2}),
                             reduce_type);
    return result;
  }
};

TEST(DynamicScatterByHand, Reductions) {
  const OneVoxel voxel{{1, -8, 2, -4, 6, -3}};
  EXPECT_EQ(voxel.forward(Reduce::sum), (Floats{9, -15}));
  EXPECT_EQ(voxel.forward(Reduce::mean), (Floats{3, -5}));
  EXPECT_EQ(voxel.forward(Reduce::max), (Floats{6, -3}));
  EXPECT_EQ(voxel.backward({9, 12}, {}, Reduce::sum), (Floats{9, 12, 9, 12, 9, 12}));
  EXPECT_EQ(voxel.backward({9, 12}, {}, Reduce::mean), (Floats{3, 4, 3, 4, 3, 4}));
  EXPECT_EQ(voxel.backward({9, 12}, {6, -3}), (Floats{0, 0, 0, 0, 9, 12}));
}

// Sums start at the first point, in float: 1 is lost in 2^24 unless the two large ones are added first.
TEST(DynamicScatterByHand, SumsGoFromTheFirstPointOn) {
  EXPECT_EQ((OneVoxel{{0x1p24f, 1, 1, 1, -0x1p24f, 1}}.forward(Reduce::sum)), (Floats{0, 3}));
  EXPECT_EQ((OneVoxel{{0x1p24f, 1, -0x1p24f, 1, 1, 1}}.forward(Reduce::sum)), (Floats{1, 3}));
  // Sums start at 0: a sum of -0 is +0.
  EXPECT_EQ(bits(OneVoxel{{-0.0f, 1, -0.0f, 1}}.forward(Reduce::sum)), bits({0.0f, 2}));
}

TEST(DynamicScatterByHand, TheFirstOfEqualPointsHasTheGradient) {
  EXPECT_EQ((OneVoxel{{3, 3, 3, 3, 3, 3}}.backward({9, 12}, {3, 3})), (Floats{9, 12, 0, 0, 0, 0}));
  // Channel by channel.
  EXPECT_EQ((OneVoxel{{1, 5, 3, 4, 3, 5}}.backward({9, 12}, {3, 5})), (Floats{0, 12, 9, 0, 0, 0}));
}

TEST(DynamicScatterByHand, BothZerosAreEqual) {
  EXPECT_EQ((OneVoxel{{-0.0f, 1, 0.0f, 1}}.backward({9, 12}, {0.0f, 1})), (Floats{9, 12, 0, 0}));
  EXPECT_EQ((OneVoxel{{0.0f, 1, 0.0f, 1}}.backward({9, 12}, {-0.0f, 1})), (Floats{9, 12, 0, 0}));
  // The first one is the maximum.
  EXPECT_EQ(bits(OneVoxel{{-0.0f, 0.0f, 0.0f, -0.0f}}.forward(Reduce::max)), bits({-0.0f, 0.0f}));
}

TEST(DynamicScatterByHand, NanIsPassedOverAndEqualToNothing) {
  EXPECT_EQ((OneVoxel{{kNan, kNan, 2, kNan, 1, kNan}}.forward(Reduce::max)), (Floats{2, -kInfinity}));
  EXPECT_EQ((OneVoxel{{kNan, kNan, 2, kNan}}.backward({9, 12}, {2, kNan})), (Floats{0, 0, 9, 0}));
  EXPECT_EQ((OneVoxel{{kNan, kNan, 2, kNan}}.backward({9, 12}, {2, -kInfinity})), (Floats{0, 0, 9, 0}));
  EXPECT_TRUE(std::isnan(OneVoxel{{1, kNan, 2, 1}}.forward(Reduce::sum)[1]));
}

TEST(DynamicScatterByHand, InfinitiesAreNumbers) {
  const OneVoxel voxel{{-kInfinity, 1, -kInfinity, kInfinity, -kInfinity, kInfinity}};
  EXPECT_EQ(voxel.forward(Reduce::max), (Floats{-kInfinity, kInfinity}));
  EXPECT_EQ(voxel.backward({9, 12}, {-kInfinity, kInfinity}), (Floats{9, 0, 0, 12, 0, 0}));
}

TEST(DynamicScatterByHand, AValueThatNoPointHasGivesNoGradient) {
  // Not even to the point whose value is the maximum.
  EXPECT_EQ((OneVoxel{{1, 5, 3, 4}}.backward({9, 12}, {3.5f, 5})), (Floats{0, 12, 0, 0}));
  EXPECT_EQ((OneVoxel{{1, 5, 3, 4}}.backward({9, 12}, {7, 7})), (Floats{0, 0, 0, 0}));
}

TEST(DynamicScatterByHand, GradientsAreCopiedBitByBit) {
  const std::uint32_t odd_nan = 0xFFA5A5A5;
  float nan;
  std::memcpy(&nan, &odd_nan, sizeof(nan));
  EXPECT_EQ(bits(OneVoxel{{1, 1, 1, 1}}.backward({-0.0f, nan}, {1, 1})), bits({-0.0f, nan, 0.0f, 0.0f}));
  EXPECT_EQ(bits(OneVoxel{{1, 1}}.backward({-0.0f, nan}, {}, Reduce::sum)), bits({-0.0f, nan}));
  EXPECT_EQ(bits(OneVoxel{{1, 1}}.backward({-0.0f, kInfinity}, {}, Reduce::mean)), bits({-0.0f, kInfinity}));
}

// Voxels in any order, one without points; points in no voxel between the others.
TEST(DynamicScatterByHand, AnyMapWillDo) {
  const Ints map = {2, -1, 0, 2, 0, -1}, count = {2, 0, 2};
  const Floats feats = {4, 9, 6, 5, 7, 9}, voxel_feats = {7, 1, 5}, grad = {10, 20, 30};
  const ConstTensor f = view(feats.data(), {6, 1}), w = view(voxel_feats.data(), {3, 1}),
                    n = view(count.data(), {3});
  const auto backward = [&](Reduce reduce_type) {
    Floats result(6, kOld);
    dynamic_scatter_backward(view(grad.data(), {3, 1}), f, w, view(map.data(), {6}), n, nullptr,
                             view(result.data(), {6, 1}), reduce_type);
    return result;
  };
  EXPECT_EQ(backward(Reduce::max), (Floats{0, 0, 0, 30, 10, 0}));
  EXPECT_EQ(backward(Reduce::sum), (Floats{30, 0, 10, 30, 10, 0}));
  EXPECT_EQ(backward(Reduce::mean), (Floats{15, 0, 5, 15, 5, 0}));
}

// -- against the definition --------------------------------------------------------------------------------

std::string text_of(std::int64_t points, std::int64_t channels, std::int64_t dims, Pattern pattern) {
  return std::to_string(points) + " x " + std::to_string(channels) + ", dims " + std::to_string(dims) +
         ", pattern " + std::to_string(static_cast<int>(pattern));
}

// Every number of points with every number of channels, and every pattern with a few of them; other
// parameters alternate.
template <class T, class Index, class Map = std::int32_t>
void check_shapes(unsigned seed) {
  for (const std::int64_t points : {0, 1, 2, 7, 40, 333}) {
    for (const std::int64_t channels : {0, 1, 3, 4, 17, 64, 67}) {
      for (const Pattern pattern : kPatterns) {
        if (pattern != Pattern::random && (points < 40 || channels == 17 || channels == 64)) continue;
        if (kReducedShapes && pattern != Pattern::random && channels == 67) continue;
        const std::int64_t dims = 1 + ++seed % 4;
        compare<T, Index, Map>(make_case<T, Index>(pattern, points, channels, dims, seed),
                               text_of(points, channels, dims, pattern),
                               {.offset = seed % 9, .spare = seed % 3});
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(DynamicScatter, F32I32) { check_shapes<float, std::int32_t>(0); }
TEST(DynamicScatter, F32I64) { check_shapes<float, std::int64_t, std::int64_t>(1); }
TEST(DynamicScatter, F64I32) { check_shapes<double, std::int32_t, std::int64_t>(2); }
TEST(DynamicScatter, F64I64) { check_shapes<double, std::int64_t>(3); }
TEST(DynamicScatter, F16I32) { check_shapes<f16, std::int32_t>(4); }
TEST(DynamicScatter, F16I64) { check_shapes<f16, std::int64_t, std::int64_t>(5); }
TEST(DynamicScatter, BF16I32) { check_shapes<bf16, std::int32_t, std::int64_t>(6); }
TEST(DynamicScatter, BF16I64) { check_shapes<bf16, std::int64_t>(7); }

// Channels that are cut into pieces, and rows that just fit a tile of the streamed reduction or do not fit.
TEST(DynamicScatter, LongRows) {
  compare(make_case<float, std::int32_t>(Pattern::random, 9, 1025, 1, 1), "1025");
  compare(make_case<double, std::int32_t>(Pattern::few_voxels, 7, 3001, 2, 2), "3001");
  compare(make_case<bf16, std::int64_t>(Pattern::some_invalid, 11, 2049, 1, 3), "2049");
  compare(make_case<float, std::int32_t>(Pattern::all_different, 132, 4000, 1, 4), "tiles of one row",
          {.threads = {1, 3}, .offset = 3});
  compare(make_case<float, std::int32_t>(Pattern::all_different, 106, 4999, 1, 5), "no tiles",
          {.threads = {1, 3}, .offset = 5});
}

// Outputs of 2 MB and more with unaligned rows, and enough points for several threads.
TEST(DynamicScatter, ThreadsAndStreams) {
  compare(make_case<float, std::int32_t>(Pattern::all_different, 50'000, 11, 1, 5), "all different",
          {.offset = 3});
  compare(make_case<float, std::int32_t>(Pattern::some_invalid, 50'000, 11, 4, 6), "some invalid",
          {.offset = 1});
  compare<bf16, std::int64_t, std::int64_t>(
      make_case<bf16, std::int64_t>(Pattern::half_far_apart, 36'000, 30, 3, 7), "far apart",
      {.threads = {1, 3}, .offset = 7});
  compare(make_case<f16, std::int32_t>(Pattern::one_voxel, 40'000, 27, 2, 8), "one voxel",
          {.threads = {2}, .offset = 5});
  compare(make_case<double, std::int32_t>(Pattern::sorted, 40'000, 7, 3, 9), "sorted",
          {.threads = {2}, .offset = 1});
}

// Rows of whole cache lines, aligned and not, and pieces of rows of which only some are aligned.
TEST(DynamicScatter, StreamsOnALine) {
  for (const std::int64_t offset : {0, 8}) {
    compare(make_case<float, std::int32_t>(Pattern::random, 34'000, 16, 3, 1), "f32",
            {.threads = {2}, .offset = offset});
    compare(make_case<double, std::int32_t>(Pattern::all_different, 34'000, 8, 1, 2), "f64",
            {.threads = {1}, .offset = offset});
    compare(make_case<bf16, std::int32_t>(Pattern::few_voxels, 34'000, 32, 2, 3), "bf16",
            {.threads = {2}, .offset = offset});
    compare(make_case<float, std::int32_t>(Pattern::few_voxels, 510, 1034, 1, 4), "pieces",
            {.threads = {3}, .offset = offset});
  }
}

}  // namespace
}  // namespace turnout::test
