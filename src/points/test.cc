// Examples of sampling and neighbours that can be checked by hand, and random calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "points/list_case.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::int64_t rows_of(const std::vector<float>& cloud) { return static_cast<std::int64_t>(cloud.size()) / 3; }

// Points on the x axis.
std::vector<float> on_axis(const std::vector<float>& x) {
  std::vector<float> cloud;
  for (const float v : x) cloud.insert(cloud.end(), {v, 0, 0});
  return cloud;
}

using Rows = std::vector<std::int64_t>;

Rows sampled(std::vector<float> cloud, std::int64_t samples, std::vector<float>* distances = nullptr,
             std::vector<float> initial = {}) {
  Rows idx(static_cast<std::size_t>(samples), -7);
  const std::int64_t count = rows_of(cloud);
  ConstTensor start = nullptr;
  if (!initial.empty()) start = view(initial.data(), {count});
  Tensor to = nullptr;
  if (distances != nullptr) {
    distances->assign(static_cast<std::size_t>(count), -7);
    to = view(distances->data(), {count});
  }
  furthest_point_sample(view(cloud.data(), {count, 3}), start, view(idx.data(), {samples}), to);
  return idx;
}

TEST(FurthestPointSample, Example) {
  std::vector<float> distances;
  EXPECT_EQ(sampled(on_axis({0, 1, 2, 3, 10}), 4, &distances), (Rows{0, 4, 3, 1}));
  // Those to the first three samples: the last one is not entered.
  EXPECT_EQ(distances, (std::vector<float>{0, 1, 1, 0, 0}));
  EXPECT_EQ(sampled(on_axis({0, 1, 2, 3, 10}), 1, &distances), (Rows{0}));
  EXPECT_EQ(distances, std::vector<float>(5, 1e10f));
}

TEST(FurthestPointSample, LowestRowOfEqualDistances) {
  EXPECT_EQ(sampled(on_axis({0, 1, -1, 1, -1}), 3), (Rows{0, 1, 2}));
  EXPECT_EQ(sampled(on_axis({5, 5, 5}), 5), (Rows{0, 0, 0, 0, 0}));  // all distances are 0
}

TEST(FurthestPointSample, NanIsChosenForEver) {
  EXPECT_EQ(sampled(on_axis({0, 1, kNan, 3}), 5), (Rows{0, 2, 2, 2, 2}));
  EXPECT_EQ(sampled(on_axis({kNan, 1, 2}), 3), (Rows{0, 0, 0}));
}

TEST(FurthestPointSample, InitialDistances) {
  EXPECT_EQ(sampled(on_axis({0, 1, 2, 3}), 3, nullptr, {1e10f, 1e10f, kNan, -2}), (Rows{0, 1, 0}));
  EXPECT_EQ(sampled(on_axis({0, 1, 2}), 2, nullptr, {-1, -1, -1}), (Rows{0, 0}));
}

TEST(FurthestPointSample, NoPoints) {
  std::int32_t idx = -7;
  float none = 0;
  const ConstTensor empty = view(&none, {0, 3});
  furthest_point_sample(empty, nullptr, view(&idx, {0}));
  try {
    furthest_point_sample(empty, nullptr, view(&idx, {1}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "furthest_point_sample: samples is 1, expected 0, because there are no points");
  }
  EXPECT_EQ(idx, -7);
}

TEST(FurthestPointSample, StackedRowsAreGlobal) {
  std::vector<float> cloud = on_axis({0, 1, 2, 3, 50, 54, 52});
  std::vector<std::int32_t> counts{4, 0, 3}, wanted{2, 0, 3};
  std::vector<std::int64_t> idx(5, -7);
  furthest_point_sample_stacked(view(cloud.data(), {7, 3}), view(counts.data(), {3}),
                                view(wanted.data(), {3}), nullptr, view(idx.data(), {5}));
  EXPECT_EQ(idx, (Rows{0, 3, 4, 5, 6}));
  const auto refused = [&](std::vector<std::int32_t> points,
                           std::vector<std::int32_t> samples) -> std::string {
    try {
      furthest_point_sample_stacked(view(cloud.data(), {7, 3}), view(points.data(), {3}),
                                    view(samples.data(), {3}), nullptr, view(idx.data(), {5}));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string op = "furthest_point_sample_stacked: ";
  EXPECT_EQ(refused({4, -1, 4}, {2, 0, 3}), op + "counts[1] is -1, expected 0 or more");
  EXPECT_EQ(refused({4, 0, 4}, {2, 0, 3}),
            op + "counts[2] is 4, expected 0 .. 3, the remainder of the 7 rows of xyz");
  EXPECT_EQ(refused({4, 0, 2}, {2, 0, 3}), op + "counts sums to 6, expected the 7 rows of xyz");
  EXPECT_EQ(refused({4, 0, 3}, {1, 1, 3}), op + "sample_counts[1] is 1, expected 0, because counts[1] is 0");
}

TEST(FurthestPointSample, ByDistances) {
  std::vector<float> matrix{0, 1, 4, 1, 0, 1, 4, 1, 0};
  std::vector<std::int32_t> idx(3, -7);
  furthest_point_sample_by_distances(view(matrix.data(), {3, 3}), nullptr, view(idx.data(), {3}));
  EXPECT_EQ(idx, (std::vector<std::int32_t>{0, 2, 1}));
  std::vector<float> negative(9, -3);  // no candidate exceeds -1
  furthest_point_sample_by_distances(view(negative.data(), {3, 3}), nullptr, view(idx.data(), {3}));
  EXPECT_EQ(idx, (std::vector<std::int32_t>{0, 0, 0}));
}

struct Balls {
  std::vector<std::int32_t> idx, found;
};
Balls balls(std::vector<float> cloud, std::vector<float> queries, double radius, std::int64_t nsample,
            double min_radius = 0) {
  const std::int64_t asked = rows_of(queries);
  Balls result;
  result.idx.assign(static_cast<std::size_t>(asked * nsample), -7);
  result.found.assign(static_cast<std::size_t>(asked), -7);
  ball_query(view(cloud.data(), {rows_of(cloud), 3}), view(queries.data(), {asked, 3}),
             view(result.idx.data(), {asked, nsample}), view(result.found.data(), {asked}), radius,
             min_radius);
  return result;
}
using Idx = std::vector<std::int32_t>;

TEST(BallQuery, Example) {
  const Balls some = balls(on_axis({0, 1, 2, 3}), on_axis({1.1f, 9}), 1.2, 4);
  EXPECT_EQ(some.idx, (Idx{0, 1, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(some.found, (Idx{3, 0}));
  EXPECT_EQ(balls(on_axis({0, 1, 2, 3}), on_axis({1.1f}), 1.2, 2).idx, (Idx{0, 1}));
}

TEST(BallQuery, BordersOfRadii) {
  // The outer border is not inside, the inner one is, and so is the centre.
  EXPECT_EQ(balls(on_axis({2, 1, 0, 0.5f}), on_axis({0}), 2, 4, 1).idx, (Idx{1, 2, 1, 1}));
  EXPECT_EQ(balls(on_axis({0}), on_axis({0}), 0, 1).found, (Idx{0}));
  // 0.8f * 0.8f is above the float of 0.64.
  EXPECT_EQ(balls(on_axis({0.8f, std::nextafter(0.8f, 0.0f)}), on_axis({0}), 0.8, 2).idx, (Idx{1, 1}));
}

TEST(BallQuery, NanIsInNoBall) {
  EXPECT_EQ(balls({kNan, 0, 0, 0, kNan, 0, 0, 0, kNan, 1, 0, 0}, on_axis({0}), 5, 1).idx, (Idx{3}));
  EXPECT_EQ(balls(on_axis({0}), on_axis({kNan}), kInf, 1).found, (Idx{0}));
  EXPECT_EQ(balls(on_axis({kInf, 1e30f, 3}), on_axis({0}), kInf, 3).idx, (Idx{2, 2, 2}));  // d2 is infinite
}

TEST(BallQuery, RowsOfStacksAreLocal) {
  std::vector<float> cloud = on_axis({0, 1, 50, 51}), queries = on_axis({1, 51});
  std::vector<std::int64_t> counts{2, 0, 2}, new_counts{1, 0, 1};
  std::vector<std::int32_t> idx(4, -7), found(2, -7);
  ball_query_stacked(view(cloud.data(), {4, 3}), view(counts.data(), {3}), view(queries.data(), {2, 3}),
                     view(new_counts.data(), {3}), view(idx.data(), {2, 2}), view(found.data(), {2}), 0.5);
  EXPECT_EQ(idx, (Idx{1, 1, 1, 1}));
  EXPECT_EQ(found, (Idx{1, 1}));
}

TEST(VoxelQuery, ExampleAndRefusals) {
  std::vector<float> cloud = on_axis({0.5f, 1.5f, 4.5f}), query = on_axis({1.5f});
  std::vector<std::int32_t> grid{0, 1, -1, -1, 2}, at{0, 0, 0, 1}, idx(3, -7), found(1, -7);
  const auto run = [&]() -> std::string {
    try {
      voxel_query(view(cloud.data(), {3, 3}), view(query.data(), {1, 3}), view(at.data(), {1, 4}),
                  view(grid.data(), {1, 1, 1, 5}), view(idx.data(), {1, 3}), view(found.data(), {1}), 3, 0, 0,
                  2);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(run(), "");  // the point in voxel 4 is at the radius, but not in the range
  EXPECT_EQ(idx, (Idx{0, 1, 0}));
  EXPECT_EQ(found, (Idx{2}));
  at[3] = 2;
  EXPECT_EQ(run(), "");
  EXPECT_EQ(idx, (Idx{0, 1, 2}));  // the border is inside
  at = {1, 0, 0, 1};
  idx.assign(3, -7);
  EXPECT_EQ(run(), "voxel_query: new_coords[0, 0] is 1, expected 0 .. 0");
  at[0] = 0;
  grid[1] = 3;
  EXPECT_EQ(run(), "voxel_query: point_indices[0, 0, 0, 1] is 3, expected at most 2");
  EXPECT_EQ(idx, (Idx{-7, -7, -7}));
}

TEST(ThreeNn, EqualDistancesAndMissingPoints) {
  std::vector<float> known = on_axis({1, -1, 3, 1, kNan, kInf}), unknown = on_axis({0, kNan}), dist2(6, -7);
  Idx idx(6, -7);
  three_nn(view(unknown.data(), {2, 3}), view(known.data(), {6, 3}), view(dist2.data(), {2, 3}),
           view(idx.data(), {2, 3}));
  EXPECT_EQ(idx, (Idx{0, 1, 3, 0, 0, 0}));
  EXPECT_EQ(dist2, (std::vector<float>{1, 1, 1, kInf, kInf, kInf}));
  std::vector<std::int32_t> one{0, 1}, of{4, 2};
  three_nn_stacked(view(unknown.data(), {1, 3}), view(one.data(), {2}), view(known.data(), {6, 3}),
                   view(of.data(), {2}), view(dist2.data(), {1, 3}), view(idx.data(), {1, 3}));
  EXPECT_EQ(Idx(idx.begin(), idx.begin() + 3), (Idx{4, 4, 4}));  // the first row of the cloud
}

TEST(Knn, LimitOfDistances) {
  std::vector<float> cloud = on_axis({1e5f, 99999, 2}), query = on_axis({0}), dist2(3, -7);
  Idx idx(3, -7);
  knn(view(cloud.data(), {3, 3}), view(query.data(), {1, 3}), view(idx.data(), {1, 3}),
      view(dist2.data(), {1, 3}));
  EXPECT_EQ(idx, (Idx{2, 1, 0}));
  EXPECT_EQ(dist2, (std::vector<float>{4, 99999.0f * 99999.0f, 1e10f}));  // 1e5 squared is not below 1e10
}

TEST(Points, RandomCallsAreLikeTheDefinitions) {
  std::mt19937 random(20261118);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (const core::Operator& op : families::points::operators())
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(compare_any(op.signature->op, below, i < 110 ? 40 : i < 138 ? 400 : 2500), "");
    }
}

}  // namespace
}  // namespace turnout::test
