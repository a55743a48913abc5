// Compares every way to group points by voxel with a sort of their rows.
#include "dynamic_scatter/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sanitizer.h"

namespace turnout::test {
namespace {

template <class Index>
struct Cloud {
  std::int64_t dims;
  std::vector<Index> coors;

  std::int64_t points() const { return static_cast<std::int64_t>(coors.size()) / dims; }
  const Index* row(std::int64_t x) const { return coors.data() + x * dims; }
  bool is_none(std::int64_t x) const {
    return std::any_of(row(x), row(x + 1), [](Index i) { return i < 0; });
  }
  bool is_less(std::int64_t a, std::int64_t b) const {
    return std::lexicographical_compare(row(a), row(a + 1), row(b), row(b + 1));
  }
};

// Points spread over a space of the given extents. Every `none`-th is in no voxel, and every third is in the
// cell of the point before it. The first and the last cell have points.
template <class Index>
Cloud<Index> make_cloud(std::int64_t points, const std::vector<std::int64_t>& extents, std::int64_t none) {
  Cloud<Index> cloud{static_cast<std::int64_t>(extents.size()), {}};
  std::mt19937_64 random(static_cast<std::uint64_t>(points + none));
  for (std::int64_t x = 0; x < points; ++x) {
    const bool is_none = none == 1 || (none > 0 && x >= 2 && x % none == none - 1);
    for (std::int64_t d = 0; d < cloud.dims; ++d) {
      const std::int64_t extent = extents[static_cast<std::size_t>(d)];
      auto value = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent));
      if (x < 2) value = x == 0 ? 0 : extent - 1;
      if (x >= 3 && x % 3 == 0) value = cloud.row(x - 1)[d];
      if (is_none && d == x % cloud.dims) value = -1 - x;
      cloud.coors.push_back(static_cast<Index>(value));
    }
  }
  return cloud;
}

template <class Index>
void check(const Cloud<Index>& cloud, const std::string& found_by, const std::vector<int>& all_threads) {
  const std::int64_t points = cloud.points();
  std::vector<std::int32_t> order(static_cast<std::size_t>(points)), map(order.size(), -1), starts;
  std::iota(order.begin(), order.end(), 0);
  const auto none =
      std::stable_partition(order.begin(), order.end(), [&](auto x) { return !cloud.is_none(x); });
  std::stable_sort(order.begin(), none, [&](auto a, auto b) { return cloud.is_less(a, b); });
  for (auto x = order.begin(); x != none; ++x) {
    if (x == order.begin() || cloud.is_less(x[-1], x[0]))
      starts.push_back(static_cast<std::int32_t>(x - order.begin()));
    map[static_cast<std::size_t>(*x)] = static_cast<std::int32_t>(starts.size()) - 1;
  }
  const auto voxels = static_cast<std::int64_t>(starts.size());
  starts.push_back(static_cast<std::int32_t>(none - order.begin()));

  for (const int threads : all_threads) {
    SCOPED_TRACE(testing::Message() << points << " points, " << cloud.dims << " columns of " << sizeof(Index)
                                    << " bytes, threads " << threads);
    Context context({.threads = threads});
    const families::dynamic_scatter::CoordinateGrouping grouping(points);
    core::Scratch kept(context, grouping.kept_bytes()), passing(context, grouping.passing_bytes());
    const families::dynamic_scatter::VoxelGroups groups =
        grouping.run(context, view(cloud.coors.data(), {points, cloud.dims}), kept, passing);
    EXPECT_EQ(groups.found_by, found_by);
    EXPECT_EQ(groups.points, points);
    ASSERT_EQ(groups.voxels, voxels);
    EXPECT_TRUE(std::equal(map.begin(), map.end(), groups.map));
    EXPECT_TRUE(std::equal(order.begin(), order.end(), groups.order));
    EXPECT_TRUE(std::equal(starts.begin(), starts.end(), groups.starts));

    const families::dynamic_scatter::MapGrouping by_map(points, voxels, threads);
    core::Scratch counting(context, by_map.scratch_bytes());
    const families::dynamic_scatter::VoxelGroups again = by_map.run(context, map.data(), counting);
    EXPECT_TRUE(std::equal(order.begin(), order.end(), again.order));
    EXPECT_TRUE(std::equal(starts.begin(), starts.end(), again.starts));
  }
}

template <class Index>
void check_spaces(std::int64_t points, const std::vector<int>& threads) {
  for (const std::int64_t none : {0, 2, 7}) {
    check(make_cloud<Index>(points, {points}, none), "ranked cells", threads);
    check(make_cloud<Index>(points, {30, points / 8 + 1}, none), "ranked cells", threads);
    check(make_cloud<Index>(points, {1, 50, points + 1}, none), "ranked cells", threads);
    check(make_cloud<Index>(points, {3, 2, points / 3 + 1, 41}, none), "ranked cells", threads);
    // Tables of about as many words as points: those of several threads do not fit.
    check(make_cloud<Index>(points, {points * 2500}, none), "ranked cells", threads);
    check(make_cloud<Index>(points, {points * 3500}, none), "ranked cells", threads);
    check(make_cloud<Index>(points, {points * 10000}, none), "sorted cells", threads);
    check(make_cloud<Index>(points, {2000, 1 + points, 300, 4}, none), "sorted cells", threads);
    const std::int64_t far = std::numeric_limits<Index>::max();
    check(make_cloud<Index>(points, {far, far, far, far}, none), "sorted rows", threads);
  }
}

TEST(VoxelGroups, FewPoints) {
  for (const std::int64_t points : {3, 64, 1000}) {
    check_spaces<std::int32_t>(points, {1, 2});
    check_spaces<std::int64_t>(points, {1, 2});
  }
}

// Enough points for several threads, one more than a multiple of any block size.
TEST(VoxelGroups, ManyPoints) {
  check_spaces<std::int32_t>(82'001, {1, 2, 5});
  check_spaces<std::int64_t>(33'001, {1, 3});
}

TEST(VoxelGroups, NoneInAnyVoxel) {
  for (const std::int64_t points : {1, 40'000})
    check(make_cloud<std::int32_t>(points, {5, 5}, 1), "ranked cells", {1, 2});
}

// Cells have 32-bit numbers, the last of which is for points in no voxel.
TEST(VoxelGroups, AsManyCellsAsNumbers) {
  if (kReducedShapes)
    GTEST_SKIP() << "half a million points are many for a sanitizer; the steps are the same";
  constexpr std::int64_t kPoints = 530'000, kEdge = 1 << 16;
  for (const std::int64_t none : {0, 5}) {
    check(make_cloud<std::int32_t>(kPoints, {kEdge, kEdge - 1}, none), "ranked cells", {1, 2});
    check(make_cloud<std::int64_t>(kPoints, {kEdge * kEdge - 2}, none), "ranked cells", {2});
    check(make_cloud<std::int64_t>(kPoints, {kEdge * kEdge - 1}, none), "sorted cells", {2});
    check(make_cloud<std::int32_t>(kPoints, {kEdge, kEdge}, none), "sorted cells", {2});
  }
}

}  // namespace
}  // namespace turnout::test
