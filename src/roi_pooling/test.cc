// Examples of RoI pooling that can be checked by hand, random calls and errors.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "roi_pooling/roi_case.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Sizes = std::vector<std::int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// A box of 4 x 2 x 2 around the origin in 2 x 1 x 1 cells: two points in the left half, one in the right.
struct Halves {
  Floats roi{0, 0, 0, 4, 2, 2, 0}, points{-1, 0, 0, -1.5f, 0.5f, 0.9f, 1, 0, -1, 3, 0, 0};
  Sizes size{2, 1, 1};
  Floats pool(Floats features, PoolMethod method, std::int64_t max_points = 9) {
    Floats pooled(2, 7.f);
    roiaware_pool3d(view(roi.data(), {1, 7}), view(points.data(), {4, 3}), view(features.data(), {4, 1}),
                    view(pooled.data(), {1, 2, 1}), size, max_points, method);
    return pooled;
  }
  Floats gradient(Floats features, PoolMethod method) {
    Floats grad{1, 10}, grads(4, 7.f);
    roiaware_pool3d_backward(view(grad.data(), {1, 2, 1}), view(roi.data(), {1, 7}),
                             view(points.data(), {4, 3}), view(features.data(), {4, 1}),
                             view(grads.data(), {4, 1}), size, 9, method);
    return grads;
  }
};

TEST(RoiawarePool3d, MaximaAndMeans) {
  Halves halves;
  EXPECT_EQ(halves.pool({1, 3, 5, 9}, PoolMethod::max), (Floats{3, 5}));
  EXPECT_EQ(halves.pool({1, 3, 5, 9}, PoolMethod::avg), (Floats{2, 5}));
  EXPECT_EQ(halves.pool({1, 3, 5, 9}, PoolMethod::max, 1), (Floats{1, 5}));
  EXPECT_EQ(halves.pool({1, 3, 5, 9}, PoolMethod::avg, 0), (Floats{0, 0}));
  EXPECT_EQ(halves.gradient({1, 3, 5, 9}, PoolMethod::max), (Floats{0, 1, 10, 0}));
  EXPECT_EQ(halves.gradient({3, 3, 5, 9}, PoolMethod::max), (Floats{1, 0, 10, 0}));  // the first of equals
  EXPECT_EQ(halves.gradient({1, 3, 5, 9}, PoolMethod::avg), (Floats{0.5f, 0.5f, 10, 0}));
}

TEST(RoiawarePool3d, NumbersThatNeverAreTheLargest) {
  Halves halves;
  EXPECT_EQ(halves.pool({kNan, -3, -kInf, 9}, PoolMethod::max), (Floats{-3, 0}));
  EXPECT_EQ(halves.gradient({kNan, -3, -kInf, 9}, PoolMethod::max), (Floats{0, 1, 0, 0}));
  const float lowest = std::numeric_limits<float>::lowest();
  EXPECT_EQ(halves.pool({lowest, lowest, kInf, 9}, PoolMethod::max), (Floats{lowest, kInf}));
}

// A point on a border between cells is in the upper one, and one on the upper border in the last.
TEST(RoiawarePoints, CellsOfPointsOnBorders) {
  Floats roi{0, 0, 0, 4, 4, 4, 0}, points{-1, 0, 0, 0, 0, 2, 1, -2, -2, 2, 0, 0};
  const Sizes size{4, 2, 2};
  std::vector<std::int64_t> cell(9, -7), point(9, -7);
  const std::int64_t pairs = roiaware_points(view(roi.data(), {1, 7}), view(points.data(), {4, 3}),
                                             view(cell.data(), {9}), view(point.data(), {9}), size);
  ASSERT_EQ(pairs, 4);  // a margin of 1e-5 holds the points on the border
  EXPECT_EQ(Sizes(cell.begin(), cell.begin() + 5), (Sizes{7, 11, 12, 15, -7}));
  EXPECT_EQ(Sizes(point.begin(), point.begin() + 5), (Sizes{0, 1, 2, 3, -7}));
  EXPECT_EQ(roiaware_points(view(roi.data(), {1, 7}), view(points.data(), {4, 3}), view(cell.data(), {9}),
                            view(point.data(), {9}), size, 127, BoxZ::bottom, 0),
            2);  // from 0 to 4 in z, without a margin
}

TEST(RoiawarePoints, RefusesTooLittleRoom) {
  Floats roi{0, 0, 0, 4, 4, 4, 0}, points{0, 0, 0, 1, 1, 1};
  std::vector<std::int64_t> cell(1, -7), point(1, -7);
  try {
    roiaware_points(view(roi.data(), {1, 7}), view(points.data(), {2, 3}), view(cell.data(), {1}),
                    view(point.data(), {1}), Sizes{1, 1, 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "roiaware_points: cell_of.shape[0] is 1, expected at least 2, the points in cells");
  }
  EXPECT_EQ(cell[0], -7);
}

TEST(RoipointPool3d, RepeatsPointsAndMarksEmptyBoxes) {
  Floats points{9, 9, 9, 0.5f, 0, 0, -0.5f, 0, 0}, features{1, 2, 3}, pooled(2 * 5 * 4, 7.f);
  Floats boxes{0, 0, 0, 2, 2, 2, 0, 50, 0, 0, 2, 2, 2, 0};
  std::vector<std::int32_t> empty(2, 7);
  roipoint_pool3d(view(points.data(), {1, 3, 3}), view(features.data(), {1, 3, 1}),
                  view(boxes.data(), {1, 2, 7}), view(pooled.data(), {1, 2, 5, 4}),
                  view(empty.data(), {1, 2}));
  Floats expected;
  for (int s = 0; s < 5; ++s)
    for (const float v : {s % 2 == 0 ? 0.5f : -0.5f, 0.f, 0.f, s % 2 == 0 ? 2.f : 3.f}) expected.push_back(v);
  expected.resize(40, 0.f);
  EXPECT_EQ(pooled, expected);
  EXPECT_EQ(empty, (std::vector<std::int32_t>{0, 1}));
}

TEST(RoiPooling, EqualsDefinition) {
  std::mt19937 random(1);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (int i = 0; i < 300; ++i) ASSERT_EQ(compare_with_definition(below, i % 20 == 0 ? 100 : 12), "") << i;
}

// Several chunks of points.
TEST(RoiPooling, ManyPoints) {
  std::mt19937 random(2);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  RoiScene<float> scene(below, 20, 30000);
  const Sizes size{3, 3, 3};
  std::vector<std::int64_t> cell(20 * 30000), point(cell.size()), cells(cell.size()), points(cell.size());
  const auto count = static_cast<std::int64_t>(cell.size());
  const std::int64_t expected = definition::roiaware_points(
      view(scene.boxes.data(), {20, 7}), view(scene.points.data(), {30000, 3}), view(cells.data(), {count}),
      view(points.data(), {count}), size, 100, BoxZ::center, 1e-5);
  Context context({.threads = 3});
  ASSERT_EQ(roiaware_points(view(scene.boxes.data(), {20, 7}), view(scene.points.data(), {30000, 3}),
                            view(cell.data(), {count}), view(point.data(), {count}), size, 100, BoxZ::center,
                            1e-5, context),
            expected);
  EXPECT_GT(expected, 1000);
  EXPECT_EQ(cell, cells);
  EXPECT_EQ(point, points);
}

}  // namespace
}  // namespace turnout::test
