// Examples of lists of neighbours and of vector pooling that can be checked by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "points/point_case.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Lists {
  Ints rows;
  Longs starts;
  std::int64_t entries;
};
Lists listed(Floats cloud, Ints counts, Floats queries, Ints query_counts, double radius,
             std::int64_t nsample, NeighborRegion region, std::int64_t room = 9) {
  const auto points = static_cast<std::int64_t>(cloud.size()) / 3;
  const auto asked = static_cast<std::int64_t>(queries.size()) / 3;
  const auto batch = static_cast<std::int64_t>(counts.size());
  Lists lists{Ints(static_cast<std::size_t>(room), -7), Longs(static_cast<std::size_t>(asked + 1), -7), 0};
  lists.entries = neighbor_lists(view(cloud.data(), {points, 3}), view(counts.data(), {batch}),
                                 view(queries.data(), {asked, 3}), view(query_counts.data(), {batch}),
                                 view(lists.rows.data(), {room}), view(lists.starts.data(), {asked + 1}),
                                 radius, nsample, region);
  lists.rows.resize(static_cast<std::size_t>(lists.entries));
  return lists;
}

// The last point is a corner of the cube, which is not in the ball; borders are inside of both.
const Floats kCloud{1, 0, 0, 0, kNan, 0, 5, 5, 5, -1, 0, 0, 1, 1, -1};

TEST(NeighborLists, CubeAndBall) {
  const Lists cube = listed(kCloud, {5}, {0, 0, 0, 5, 5, 5}, {2}, 1, 100, NeighborRegion::cube);
  EXPECT_EQ(cube.rows, (Ints{0, 3, 4, 2}));
  EXPECT_EQ(cube.starts, (Longs{0, 3, 4}));
  EXPECT_EQ(listed(kCloud, {5}, {0, 0, 0, 5, 5, 5}, {2}, 1, 100, NeighborRegion::ball).rows, (Ints{0, 3, 2}));
  EXPECT_EQ(listed(kCloud, {5}, {0, 0, 0, 5, 5, 5}, {2}, 1, 2, NeighborRegion::cube).rows, (Ints{0, 3, 2}));
  EXPECT_EQ(listed(kCloud, {5}, {kNan, 0, 0}, {1}, 1, 100, NeighborRegion::cube).entries, 0);
}

TEST(NeighborLists, RowsOfStackedCloudsAreGlobal) {
  const Lists lists = listed(kCloud, {3, 0, 2}, {0, 0, 0, 0, 0, 0}, {1, 0, 1}, 1, 100, NeighborRegion::cube);
  EXPECT_EQ(lists.rows, (Ints{0, 3, 4}));
  EXPECT_EQ(lists.starts, (Longs{0, 1, 3}));
}

// Lists of a few points are sorted, dense ones are marked as bits; both may be cut at nsample.
TEST(NeighborLists, SparseAndDenseListsOfAScene) {
  constexpr std::int64_t kPoints = 1500, kQueries = 150;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> place(0, 10);
  Floats cloud(3 * kPoints), queries(3 * kQueries);
  for (float& v : cloud) v = place(random);
  for (float& v : queries) v = place(random);
  for (const double radius : {0.5, 2.0, 6.0}) {
    for (const std::int64_t nsample : {kPoints, std::int64_t{40}}) {
      Ints rows;
      Longs starts{0};
      for (std::int64_t q = 0; q < kQueries; ++q) {
        for (std::int64_t i = 0; i < kPoints; ++i) {
          bool is_near = true;
          for (std::int64_t k = 0; k < 3; ++k)
            is_near &= std::abs(cloud[3 * i + k] - queries[3 * q + k]) <= static_cast<float>(radius);
          if (is_near && static_cast<std::int64_t>(rows.size()) - starts.back() < nsample)
            rows.push_back(static_cast<std::int32_t>(i));
        }
        starts.push_back(static_cast<std::int64_t>(rows.size()));
      }
      const Lists lists = listed(cloud, {kPoints}, queries, {kQueries}, radius, nsample, NeighborRegion::cube,
                                 kPoints * kQueries);
      EXPECT_EQ(lists.starts, starts);
      EXPECT_EQ(lists.rows, rows) << radius << ", " << nsample;
    }
  }
}

TEST(NeighborLists, Refused) {
  EXPECT_EQ(message_of([] {
              listed(kCloud, {5}, {0, 0, 0}, {1}, 1, 100, NeighborRegion::cube, 2);
            }),
            "neighbor_lists: rows.shape[0] is 2, expected at least 3, the neighbours of all queries");
  EXPECT_EQ(message_of([] {
              listed(kCloud, {4}, {0, 0, 0}, {1}, 1, 100, NeighborRegion::cube);
            }),
            "neighbor_lists: counts sums to 4, expected the 5 rows of xyz");
}

struct Nearest {
  Floats dist2;
  Ints idx;
};
Nearest nearest(Floats cloud, Floats centers, Ints rows, Ints starts) {
  const auto points = static_cast<std::int64_t>(cloud.size()) / 3;
  const auto queries = static_cast<std::int64_t>(starts.size()) - 1;
  const std::int64_t cells = static_cast<std::int64_t>(centers.size()) / 3 / queries;
  Nearest result{Floats(centers.size(), -7), Ints(centers.size(), -7)};
  three_nn_of_lists(view(cloud.data(), {points, 3}), view(centers.data(), {queries, cells, 3}),
                    view(rows.data(), {static_cast<std::int64_t>(rows.size())}),
                    view(starts.data(), {queries + 1}), view(result.dist2.data(), {queries, cells, 3}),
                    view(result.idx.data(), {queries, cells, 3}));
  return result;
}

TEST(ThreeNnOfLists, CopiesOfTheFirstReplaceMissingOnes) {
  const Floats cloud{0, 0, 0, 1, 0, 0, 2, 0, 0, 4, 0, 0, kNan, 0, 0};
  // Two centers of one query with four points; of points at equal distances, the first of the list.
  const Nearest all = nearest(cloud, {4, 0, 0, 1, 0, 0}, {2, 0, 3, 1}, {0, 4});
  EXPECT_EQ(all.idx, (Ints{3, 2, 1, 1, 2, 0}));
  EXPECT_EQ(all.dist2, (Floats{0, 4, 9, 0, 1, 1}));
  // Lists of two points, of one that is NaN, and of none.
  const Nearest few = nearest(cloud, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {3, 1, 4}, {0, 2, 3, 3});
  EXPECT_EQ(few.idx, (Ints{1, 3, 1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(few.dist2, (Floats{1, 16, 1, kInf, kInf, kInf, kInf, kInf, kInf}));
}

TEST(ThreeNnOfLists, Refused) {
  const Floats cloud{0, 0, 0, 1, 0, 0};
  const auto refused = [&](const Ints& rows, const Ints& starts) {
    return message_of([&] { nearest(cloud, {0, 0, 0, 0, 0, 0}, rows, starts); });
  };
  EXPECT_EQ(refused({0, 2}, {0, 1, 2}), "three_nn_of_lists: rows[1] is 2, expected 0 .. 1");
  EXPECT_EQ(refused({0, 1}, {1, 1, 2}), "three_nn_of_lists: starts[0] is 1, expected 0");
  EXPECT_EQ(refused({0, 1}, {0, 3, 2}), "three_nn_of_lists: starts[1] is 3, expected 0 .. 2");
  EXPECT_EQ(refused({0, 1}, {0, -1, 2}), "three_nn_of_lists: starts[1] is -1, expected 0 .. 2");
  EXPECT_EQ(refused({0, 1}, {0, 1, 1}),
            "three_nn_of_lists: starts[2] is 1, expected 2, the elements of rows");
}

struct Pooled {
  Floats pooled, local;
  Ints counts, grouped;
};
// One query at the origin, radius 1, cells {2, 2, 1}.
Pooled pool(Floats cloud, Floats features, std::int64_t slots, VectorPoolMode mode,
            std::int64_t nsample = 100) {
  const auto points = static_cast<std::int64_t>(cloud.size()) / 3;
  Ints rows, starts{0, static_cast<std::int32_t>(points)};
  for (std::int64_t i = 0; i < points; ++i) rows.push_back(static_cast<std::int32_t>(i));
  Floats query{0, 0, 0};
  const std::int64_t grid[] = {2, 2, 1};
  Pooled result{Floats(static_cast<std::size_t>(4 * slots), -7), Floats(12, -7), Ints(4, -7),
                Ints(static_cast<std::size_t>(3 * points), -7)};
  vector_pool(view(cloud.data(), {points, 3}),
              view(features.data(), {points, static_cast<std::int64_t>(features.size()) / points}),
              view(query.data(), {1, 3}), view(rows.data(), {points}), view(starts.data(), {2}),
              view(result.pooled.data(), {1, 4, slots}), view(result.local.data(), {1, 4, 3}),
              view(result.counts.data(), {1, 4}), view(result.grouped.data(), {points, 3}), 1, grid, mode,
              nsample);
  return result;
}

// In cells 0, 0 and 3; outside; and at +1 in y, which is in the next row of cells along x.
const Floats kLocal{-0.5f, -0.5f, 0, -0.25f, -0.25f, 0.5f, 0.5f, 0.5f, 0, 0, 0, 3, -0.5f, 1, 0};

TEST(VectorPool, Example) {
  const Pooled sum = pool(kLocal, {1, 2, 4, 8, 16}, 1, VectorPoolMode::sum);
  EXPECT_EQ(sum.pooled, (Floats{3, 0, 16, 4}));
  EXPECT_EQ(sum.local, (Floats{-0.75f, -0.75f, 0.5f, 0, 0, 0, -0.5f, 1, 0, 0.5f, 0.5f, 0}));
  EXPECT_EQ(sum.counts, (Ints{2, 0, 1, 1}));
  EXPECT_EQ(sum.grouped, (Ints{0, 0, 0, 1, 0, 0, 2, 0, 3, 3, 0, -1, 4, 0, 2}));
  const Pooled mean = pool(kLocal, {1, 2, 4, 8, 16}, 1, VectorPoolMode::mean);
  EXPECT_EQ(mean.pooled, (Floats{1.5f, 0, 16, 4}));
  EXPECT_EQ(mean.local, (Floats{-0.375f, -0.375f, 0.25f, 0, 0, 0, -0.5f, 1, 0, 0.5f, 0.5f, 0}));
  const Pooled first = pool(kLocal, {1, 2, 4, 8, 16}, 1, VectorPoolMode::first);
  EXPECT_EQ(first.pooled, (Floats{1, 0, 16, 4}));
  EXPECT_EQ(first.local, (Floats{-0.5f, -0.5f, 0, 0, 0, 0, -0.5f, 1, 0, 0.5f, 0.5f, 0}));
  EXPECT_EQ(first.grouped, (Ints{0, 0, 0, 1, 0, -1, 2, 0, 3, 3, 0, -1, 4, 0, 2}));
  // Two neighbours are taken; those that have no cell do not count.
  EXPECT_EQ(pool(kLocal, {1, 2, 4, 8, 16}, 1, VectorPoolMode::first, 2).pooled, (Floats{1, 0, 0, 4}));
  EXPECT_EQ(pool(kLocal, {1, 2, 4, 8, 16}, 1, VectorPoolMode::sum, 2).pooled, (Floats{3, 0, 0, 0}));
}

TEST(VectorPool, TheLastCellIsTheLimit) {
  const Pooled corner = pool({1, 1, 1}, {5}, 1, VectorPoolMode::sum);
  EXPECT_EQ(corner.pooled, (Floats{0, 0, 0, 5}));
  EXPECT_EQ(pool({kNan, 0, 0}, {5}, 1, VectorPoolMode::sum).counts, (Ints{0, 0, 0, 0}));
}

TEST(VectorPool, ChannelsOfASlot) {
  // Channels 0, 2, 4 belong to slot 0; channels 1 and 3 to slot 1.
  const Floats at{-0.5f, -0.5f, 0}, features{1, 2, 4, 8, 16};
  EXPECT_EQ(pool(at, features, 2, VectorPoolMode::sum).pooled, (Floats{21, 10, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pool(at, features, 2, VectorPoolMode::first).pooled, (Floats{16, 8, 0, 0, 0, 0, 0, 0}));
}

Floats gradient(Floats grad, Ints counts, Ints grouped, std::int64_t points, std::int64_t channels,
                std::int64_t slots, VectorPoolMode mode) {
  const auto cells = static_cast<std::int64_t>(counts.size());
  Floats result(static_cast<std::size_t>(points * channels), -7);
  vector_pool_backward(view(grad.data(), {1, cells, slots}), view(counts.data(), {1, cells}),
                       view(grouped.data(), {static_cast<std::int64_t>(grouped.size()) / 3, 3}),
                       view(result.data(), {points, channels}), mode);
  return result;
}

TEST(VectorPoolBackward, Example) {
  const Ints grouped{0, 0, 0, 1, 0, 0, 2, 0, 1, 3, 0, -1, 0, 0, 1};
  EXPECT_EQ(gradient({2, 8}, {2, 1}, grouped, 4, 1, 1, VectorPoolMode::mean), (Floats{9, 1, 8, 0}));
  EXPECT_EQ(gradient({2, 8}, {2, 1}, grouped, 4, 1, 1, VectorPoolMode::sum), (Floats{10, 2, 8, 0}));
  // The mean of a cell whose count is 0 or less divides by 1.
  EXPECT_EQ(gradient({2, 8}, {0, -3}, {0, 0, 0, 1, 0, 1}, 2, 1, 1, VectorPoolMode::mean), (Floats{2, 8}));
  // Channel i belongs to the slot i mod 2; with `first`, only channels 3 and 4 were assigned.
  EXPECT_EQ(gradient({2, 8}, {1}, {0, 0, 0}, 1, 5, 2, VectorPoolMode::sum), (Floats{2, 8, 2, 8, 2}));
  EXPECT_EQ(gradient({2, 8}, {1}, {0, 0, 0}, 1, 5, 2, VectorPoolMode::first), (Floats{0, 0, 0, 8, 2}));
}

TEST(VectorPoolBackward, Refused) {
  const auto refused = [](const Ints& grouped) {
    return message_of([&] { gradient({2, 8}, {1, 1}, grouped, 2, 1, 1, VectorPoolMode::sum); });
  };
  const std::string op = "vector_pool_backward: ";
  EXPECT_EQ(refused({0, 0, 0, 2, 0, 0}), op + "grouped[1, 0] is 2, expected 0 .. 1");
  EXPECT_EQ(refused({0, -1, 0}), op + "grouped[0, 1] is -1, expected 0 .. 0");
  EXPECT_EQ(refused({0, 0, 2}), op + "grouped[0, 2] is 2, expected at most 1");
}

}  // namespace
}  // namespace turnout::test
