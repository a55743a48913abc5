// Examples of sampling and neighbours that can be checked by hand, and random calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "points/point_case.h"
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
                 "furthest_point_sample: samples is 1, expected 0, because xyz has no points");
  }
  EXPECT_EQ(idx, -7);
}

TEST(FurthestPointSample, StackedRowsAreGlobal) {
  std::vector<float> cloud = on_axis({0, 1, 2, 3, 50, 54, 52});
  std::vector<std::int32_t> counts{4, 0, 3}, wanted{2, 0, 3};
  std::vector<std::int64_t> idx(5, -7);
  furthest_point_sample_stacked(view(cloud.data(), {7, 3}), view(counts.data(), {3}), view(wanted.data(), {3}),
                                nullptr, view(idx.data(), {5}));
  EXPECT_EQ(idx, (Rows{0, 3, 4, 5, 6}));
  const auto refused = [&](std::vector<std::int32_t> points, std::vector<std::int32_t> samples) -> std::string {
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
  EXPECT_EQ(refused({4, 0, 3}, {1, 1, 3}),
            op + "sample_counts[1] is 1, expected 0, because counts[1] is 0");
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

TEST(Points, RandomCallsAreLikeTheDefinitions) {
  std::mt19937 random(20261118);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (const core::Operator& op : families::points::operators())
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(compare_with_definition(op.signature->op, below, i < 120 ? 40 : i < 146 ? 400 : 3000), "");
    }
}

}  // namespace
}  // namespace turnout::test
