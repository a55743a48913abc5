// Compares voxelize and voxelize_hard with their definition: borders, rounding, limits of voxels and points.
#include <gtest/gtest.h>
#include <array>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "dynamic_scatter/test_cases.h"

namespace turnout::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// voxel_size and point_cloud_range as given, in the type Side.
template <class Side>
struct Sides {
  Side size[3], range[6];

  std::array<double, 3> sizes() const { return {size[0], size[1], size[2]}; }
  std::array<double, 6> ranges() const {
    return {range[0], range[1], range[2], range[3], range[4], range[5]};
  }
  template <class Real>
  reference::Grid<Real> grid() const {
    reference::Grid<Real> result;
    for (int j = 0; j < 3; ++j) result.voxel_size[j] = static_cast<Real>(size[j]);
    for (int j = 0; j < 6; ++j) result.point_cloud_range[j] = static_cast<Real>(range[j]);
    return result;
  }
};

// Points of T: x, y, z and other features.
template <class T>
struct Points {
  std::int64_t features;
  std::vector<T> values = {};

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / features; }
  ConstTensor tensor() const { return view(values.data(), {rows(), features}); }
  void add(std::initializer_list<double> xyz) {
    for (const double v : xyz) values.push_back(rounded<T>(static_cast<LaneOf<T>>(v)));
    while (static_cast<std::int64_t>(values.size()) % features != 0)
      values.push_back(feature<T>(values.size()));
  }
  std::vector<std::vector<LaneOf<T>>> lanes() const {
    std::vector<std::vector<LaneOf<T>>> all;
    for (std::int64_t i = 0; i < rows(); ++i) {
      all.emplace_back();
      for (std::int64_t f = 0; f < features; ++f)
        all.back().push_back(core::to_float(values.data()[i * features + f]));
    }
    return all;
  }
};

template <class Index, class T, class Side>
void compare_coordinates(const Points<T>& points, const Sides<Side>& sides, const How& how = {}) {
  const auto grid = sides.template grid<LaneOf<T>>();
  std::vector<Index> expected;
  for (const auto& point : points.lanes())
    for (const std::int64_t c : grid.coordinates(point.data())) expected.push_back(static_cast<Index>(c));
  for (const Isa isa : how.isas) {
    for (const int threads : how.threads) {
      SCOPED_TRACE(testing::Message()
                   << name_of(dtype_of<T>) << ", " << name_of(isa) << ", threads " << threads);
      Context context({.threads = threads, .isa = isa});
      Guarded<Index> coors(points.rows() * 3, how.offset);
      voxelize(points.tensor(), view(coors.data(), {points.rows(), 3}), sides.sizes(), sides.ranges(),
               context);
      expect_same(coors, expected, "coors");
    }
  }
}

template <class Index, class T, class Side>
void compare_hard(const Points<T>& points, const Sides<Side>& sides, std::int64_t max_voxels,
                  std::int64_t max_points, const How& how = {}) {
  const auto hard =
      reference::voxelize_hard(points.lanes(), sides.template grid<LaneOf<T>>(),
                               static_cast<std::size_t>(max_points), static_cast<std::size_t>(max_voxels));
  const std::int64_t f = points.features;
  auto expected = sized<T>(max_voxels * max_points * f);
  auto expected_coors = sized<Index>(max_voxels * 3), expected_num = sized<Index>(max_voxels);
  auto expected_map = sized<Index>(points.rows(), -1);
  std::int64_t v = 0;
  for (const reference::HardVoxel& voxel : hard) {
    for (const std::int64_t x : voxel.all_points) expected_map.data()[x] = static_cast<Index>(v);
    std::int64_t k = v * max_points;
    for (const std::int64_t x : voxel.points)
      std::copy_n(points.values.data() + x * f, f, expected.data() + k++ * f);
    for (std::int64_t d = 0; d < 3; ++d)
      expected_coors.data()[v * 3 + d] = static_cast<Index>(voxel.coors.data()[d]);
    expected_num.data()[v++] = static_cast<Index>(voxel.points.size());
  }
  for (const Isa isa : how.isas) {
    for (const int threads : how.threads) {
      SCOPED_TRACE(testing::Message() << points.rows() << " points, " << max_voxels << " x " << max_points
                                      << ", " << name_of(isa) << ", threads " << threads);
      Context context({.threads = threads, .isa = isa});
      Guarded<T> voxels(max_voxels * max_points * f, how.offset);
      Guarded<Index> coors(max_voxels * 3, how.offset), num(max_voxels, how.offset),
          map(points.rows(), how.offset);
      std::fill_n(voxels.data(), voxels.size(), rounded<T>(kOld));
      std::fill_n(coors.data(), coors.size(), Index{kOld});
      std::fill_n(num.data(), num.size(), Index{kOld});
      const auto run = [&](const Tensor& point2voxel_map) {
        return voxelize_hard(points.tensor(), view(voxels.data(), {max_voxels, max_points, f}),
                             view(coors.data(), {max_voxels, 3}), view(num.data(), {max_voxels}),
                             point2voxel_map, sides.sizes(), sides.ranges(), context);
      };
      const Tensor map_view = view(map.data(), {points.rows()});
      EXPECT_EQ(run(map_view), v);
      expect_same(map, expected_map, "point2voxel_map");
      std::fill_n(voxels.data(), voxels.size(), rounded<T>(kOld));
      EXPECT_EQ(run(nullptr), v);
      expect_same(voxels, expected, "voxels");
      expect_same(coors, expected_coors, "coors");
      expect_same(num, expected_num, "num_points_per_voxel");
    }
  }
}

// -- by hand -----------------------------------------------------------------------------------------------

// A point that a full voxel drops still has the voxel's number; a point of a dropped voxel or outside has -1.
TEST(VoxelizeHard, TheMapOfPoints) {
  const Sides<float> sides{{1, 1, 1}, {0, 0, 0, 4, 4, 4}};
  Points<float> points{3};
  for (const double x : {2.5, 0.5, 2.6, 9.0, 2.7, 3.5, 0.6}) points.add({x, 1.5, 1.5});
  for (const std::int64_t max_points : {0, 1, 2}) {
    std::vector<float> voxels(static_cast<std::size_t>(2 * max_points * 3));
    std::int64_t coors[6], num[2];
    std::vector<std::int64_t> map(7, kOld);
    const Tensor map_view = view(map.data(), {7});
    EXPECT_EQ(voxelize_hard(points.tensor(), view(voxels.data(), {2, max_points, 3}), view(coors, {2, 3}),
                            view(num, {2}), map_view, sides.sizes(), sides.ranges()),
              2);
    EXPECT_EQ(map, (std::vector<std::int64_t>{0, 1, 0, -1, 0, -1, 1}));
  }
}

// The coordinate of a point in a range low .. high of x; y and z are in voxel 1.
template <class T, class Side>
std::int32_t cell_of(double x, Side low, Side high, Side size) {
  const Sides<Side> sides{{size, 1, 1}, {low, 0, 0, high, 4, 4}};
  Points<T> point{3};
  point.add({x, 1.5, 1.5});
  std::int32_t coors[3] = {kOld, kOld, kOld};
  voxelize(point.tensor(), view(&coors[0], {1, 3}), sides.sizes(), sides.ranges());
  if (coors[2] < 0) {
    EXPECT_EQ(coors[0], -1);
    EXPECT_EQ(coors[1], -1);
  } else {
    EXPECT_EQ(coors[0], 1);
    EXPECT_EQ(coors[1], 1);
  }
  return coors[2];
}

TEST(Voxelize, CoordinatesAreTurnedAround) {
  const Sides<float> sides{{0.5f, 1, 2}, {-2, 0, 10, 2, 3, 20}};
  Points<float> points{4};
  points.add({-1.75, 2.5, 13, 99});
  points.add({1.9, 0, 10, kNan});  // only x, y, z determine the voxel
  points.add({1.9, 3, 10, 0});     // y is at its end
  points.add({-2.1, -1, 9, 0});    // all three are outside
  std::vector<std::int32_t> coors(12);
  voxelize(points.tensor(), view(coors.data(), {4, 3}), sides.sizes(), sides.ranges());
  EXPECT_EQ(coors, (std::vector<std::int32_t>{1, 2, 0, 0, 0, 7, -1, -1, -1, -1, -1, -1}));
}

TEST(Voxelize, TheLowerBorderIsInsideAndTheUpperIsNot) {
  EXPECT_EQ((cell_of<float, float>(0, 0, 4, 1)), 0);
  EXPECT_EQ((cell_of<float, float>(-0.0, 0, 4, 1)), 0);
  EXPECT_EQ((cell_of<float, float>(-1e-30, 0, 4, 1)), -1);
  EXPECT_EQ((cell_of<float, float>(std::nextafter(1.0f, 0.0f), 0, 4, 1)), 0);
  EXPECT_EQ((cell_of<float, float>(1, 0, 4, 1)), 1);
  EXPECT_EQ((cell_of<float, float>(std::nextafter(4.0f, 0.0f), 0, 4, 1)), 3);
  EXPECT_EQ((cell_of<float, float>(4, 0, 4, 1)), -1);
}

// The number of voxels is rounded, halves away from zero: a voxel at the end of the range exists only if at
// least half of it is inside.
TEST(Voxelize, TheNumberOfVoxelsIsRounded) {
  EXPECT_EQ((cell_of<float, float>(2.75, 0, 2.5f, 1)), 2);
  EXPECT_EQ((cell_of<float, float>(3, 0, 2.5f, 1)), -1);
  EXPECT_EQ((cell_of<float, float>(3.75, 0, 3.5f, 1)), 3);
  EXPECT_EQ((cell_of<float, float>(2.25, 0, 2.375f, 1)), -1);
  EXPECT_EQ((cell_of<float, float>(0.75, 0, 0.5f, 1)), 0);
}

TEST(Voxelize, QuotientsAreRoundedInTheTypeOfThePoints) {
  // 0.1f is larger than 0.1, so that 0.5 / 0.1f is 4.99999993: 5 in float.
  EXPECT_EQ((cell_of<float, float>(0.5, 0, 1, 0.1f)), 5);
  EXPECT_EQ((cell_of<double, float>(0.5, 0, 1, 0.1f)), 4);
  // 0.3 / 0.1 is 2.9999999999999996 in double.
  EXPECT_EQ((cell_of<double, double>(0.3, 0, 1, 0.1)), 2);
  EXPECT_EQ((cell_of<float, double>(0.3, 0, 1, 0.1)), 3);
  // A point below the end of the range whose quotient is rounded to the end is in no voxel.
  const float below = std::nextafter(6.3f, 0.0f);
  EXPECT_EQ((cell_of<float, float>(below, 0, 6.3f, 0.7f)), -1);
  EXPECT_EQ((cell_of<double, float>(below, 0, 6.3f, 0.7f)), 8);
  // Differences are rounded as well: -1e-9 is lost in 50.
  EXPECT_EQ((cell_of<float, float>(-1e-9, -50, 50, 1)), 50);
  EXPECT_EQ((cell_of<double, double>(-1e-9, -50, 50, 1)), 49);
}

TEST(Voxelize, HalvesAreTakenAsTheyAre) {
  EXPECT_EQ((cell_of<f16, float>(3.99, 0, 4, 1)), 3);      // 3.990234375
  EXPECT_EQ((cell_of<f16, float>(3.9999, 0, 4, 1)), -1);   // 4
  EXPECT_EQ((cell_of<bf16, double>(3.98, 0, 4, 1)), 3);    // 3.984375
  EXPECT_EQ((cell_of<bf16, double>(3.999, 0, 4, 1)), -1);  // 4
  EXPECT_EQ((cell_of<f16, float>(0.3, 0, 4, 0.1f)), 3);    // 0.300048828125
}

TEST(Voxelize, WhatIsNoNumberIsInNoVoxel) {
  const Sides<float> sides{{1, 1, 1}, {0, 0, 0, 4, 4, 4}};
  for (const double odd : {kNan, -kNan, kInfinity, -kInfinity, 1e30, -1e30, 3e9, -3e9, 1e38, -1e38}) {
    Points<float> points{3};
    points.add({odd, 1, 1});
    points.add({1, odd, 1});
    points.add({1, 1, odd});
    points.add({odd, odd, odd});
    std::vector<std::int64_t> coors(12, kOld);
    voxelize(points.tensor(), view(coors.data(), {4, 3}), sides.sizes(), sides.ranges());
    EXPECT_EQ(coors, std::vector<std::int64_t>(12, -1)) << odd;
  }
}

// As many voxels as int32 can count, and larger quotients.
TEST(Voxelize, CoordinatesUpToTheEndOfInt32) {
  EXPECT_EQ((cell_of<double, double>(2147483646.5, 0, 2147483647, 1)), 2147483646);
  EXPECT_EQ((cell_of<double, double>(2147483647, 0, 2147483647, 1)), -1);
  EXPECT_EQ((cell_of<double, double>(1e10, 0, 2147483647, 1)), -1);
  EXPECT_EQ((cell_of<float, float>(2147483392.0f, 0, 2147483520.0f, 1)), 2147483392);
  EXPECT_EQ((cell_of<float, float>(2147483648.0f, 0, 2147483520.0f, 1)), -1);
  EXPECT_EQ((cell_of<float, float>(3e38f, 0, 1, 1e-9f)), -1);  // the quotient is infinite
}

// -- against the definition --------------------------------------------------------------------------------

// Points around every border of every voxel, some representable numbers away, and outside the range.
template <class T, class Side>
Points<T> around_borders(const Sides<Side>& sides, std::int64_t features, std::int64_t rows, unsigned seed) {
  using Real = LaneOf<T>;
  const auto grid = sides.template grid<Real>();
  std::mt19937_64 random(seed);
  Points<T> points{features};
  for (std::int64_t i = 0; i < rows; ++i) {
    double xyz[3];
    for (int j = 0; j < 3; ++j) {
      const auto cells = static_cast<std::uint64_t>(grid.extent(j));
      const auto cell = static_cast<Real>(static_cast<std::int64_t>(random() % (cells + 3)) - 1);
      Real at = grid.point_cloud_range[j] + cell * grid.voxel_size[j];
      for (auto steps = random() % 4; steps > 0; --steps)
        at = std::nextafter(at, random() % 2 == 0 ? Real(-1e9) : Real(1e9));
      xyz[j] = random() % 3 == 0 ? at + grid.voxel_size[j] / 3 : at;
    }
    points.add({xyz[0], xyz[1], xyz[2]});
  }
  return points;
}

template <class T, class Side>
void compare_around_borders(unsigned seed) {
  const Sides<Side> all[] = {
      {{Side(0.1), Side(0.1), Side(0.2)}, {Side(-51.2), Side(-51.2), -5, Side(51.2), Side(51.2), 3}},
      {{Side(0.32), Side(0.075), 4}, {Side(-74.88), -54, -2, Side(74.88), 54, 4}},
      {{Side(0.7), Side(1.1), Side(0.3)}, {Side(0.1), Side(-0.3), Side(1e-3), 5, 7, 2}}};
  for (const Sides<Side>& sides : all) {
    ++seed;
    compare_coordinates<std::int32_t>(around_borders<T>(sides, 3 + seed % 3, 2000, seed), sides,
                                      {.threads = {1}, .offset = seed % 4});
    compare_coordinates<std::int64_t>(around_borders<T>(sides, 3 + seed % 5, 70, seed), sides,
                                      {.threads = {2}, .offset = seed % 3});
  }
}

TEST(Voxelize, AroundBorders) {
  compare_around_borders<float, float>(0);
  compare_around_borders<float, double>(10);
  compare_around_borders<double, float>(20);
  compare_around_borders<double, double>(30);
  compare_around_borders<f16, float>(40);
  compare_around_borders<bf16, float>(50);
}

TEST(Voxelize, AnyNumberOfPointsAndFeatures) {
  const Sides<float> sides{{0.5f, 0.25f, 1}, {-4, -4, -2, 4, 4, 2}};
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100})
    for (const std::int64_t features : {3, 4, 5, 9})
      compare_coordinates<std::int32_t>(around_borders<float>(sides, features, rows, 3), sides,
                                        {.threads = {1}, .offset = rows % 5});
  compare_coordinates<std::int32_t>(around_borders<float>(sides, 4, 30'001, 4), sides);
  compare_coordinates<std::int64_t>(around_borders<bf16>(sides, 5, 30'001, 5), sides);
}

// -- with limits -------------------------------------------------------------------------------------------

TEST(VoxelizeHard, ByHand) {
  const Sides<float> sides{{1, 1, 1}, {0, 0, 0, 4, 4, 4}};
  Points<float> points{4};
  points.add({3.5, 0, 0, 10});   // voxel 0
  points.add({9, 0, 0, 11});     // outside
  points.add({0.5, 1, 2, 12});   // voxel 1
  points.add({3.25, 0, 0, 13});  // voxel 0
  points.add({2, 2, 2, 14});     // a third voxel, which is dropped
  points.add({0.75, 1, 2, 15});  // voxel 1 still takes points
  points.add({3.75, 0, 0, 16});  // voxel 0 is full
  points.add({2.5, 2, 2, 17});   // still dropped
  std::vector<float> voxels(16, kOld);
  std::vector<std::int32_t> coors(6, kOld), num(2, kOld);
  const auto run = [&](std::int64_t max_voxels, std::int64_t max_points) {
    return voxelize_hard(points.tensor(), view(voxels.data(), {max_voxels, max_points, 4}),
                         view(coors.data(), {max_voxels, 3}), view(num.data(), {max_voxels}), nullptr,
                         sides.sizes(), sides.ranges());
  };
  EXPECT_EQ(run(2, 2), 2);
  EXPECT_EQ(voxels, (std::vector<float>{3.5, 0, 0, 10, 3.25, 0, 0, 13, 0.5, 1, 2, 12, 0.75, 1, 2, 15}));
  EXPECT_EQ(coors, (std::vector<std::int32_t>{0, 0, 3, 2, 1, 0}));
  EXPECT_EQ(num, (std::vector<std::int32_t>{2, 2}));
  // With one voxel, the first is kept.
  EXPECT_EQ(run(1, 4), 1);
  EXPECT_EQ(voxels, (std::vector<float>{3.5, 0, 0, 10, 3.25, 0, 0, 13, 3.75, 0, 0, 16, 0, 0, 0, 0}));
  EXPECT_EQ(num[0], 3);
}

// With max_points 0 voxels are still found; with max_voxels 0 nothing is.
TEST(VoxelizeHard, RoomForNothing) {
  const Sides<float> sides{{1, 1, 1}, {0, 0, 0, 4, 4, 4}};
  Points<float> points{3};
  points.add({1, 2, 3});
  points.add({0, 0, 0});
  std::vector<std::int64_t> coors(9, kOld), num(3, kOld);
  EXPECT_EQ(voxelize_hard(points.tensor(), Tensor(nullptr, DType::f32, {3, 0, 3}), view(coors.data(), {3, 3}),
                          view(num.data(), {3}), nullptr, sides.sizes(), sides.ranges()),
            2);
  EXPECT_EQ(coors, (std::vector<std::int64_t>{3, 2, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(num, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(voxelize_hard(points.tensor(), Tensor(nullptr, DType::f32, {0, 5, 3}),
                          Tensor(nullptr, DType::i32, {0, 3}), Tensor(nullptr, DType::i32, {0}), nullptr,
                          sides.sizes(), sides.ranges()),
            0);
}

template <class T, class Index>
void compare_limits(unsigned seed) {
  const Sides<float> sides{{1, 2, 1}, {-3, -4, 0, 4, 4, 2}};  // 56 voxels
  for (const std::int64_t rows : {0, 1, 50, 400}) {
    for (const std::int64_t max_voxels : {0, 1, 7, 60}) {
      for (const std::int64_t max_points : {0, 1, 3, 50}) {
        ++seed;
        compare_hard<Index>(around_borders<T>(sides, 3 + seed % 4, rows, seed), sides, max_voxels, max_points,
                            {.threads = {1 + static_cast<int>(seed % 2)}, .offset = seed % 7});
      }
    }
  }
}

TEST(VoxelizeHard, Limits) {
  compare_limits<float, std::int32_t>(0);
  compare_limits<float, std::int64_t>(100);
  compare_limits<double, std::int32_t>(200);
  compare_limits<f16, std::int32_t>(300);
  compare_limits<bf16, std::int64_t>(400);
}

// Results of 2 MB and more that do not begin on a cache line, streamed on several threads.
TEST(VoxelizeHard, ThreadsAndStreams) {
  const Sides<float> sides{{1, 1, 1}, {0, 0, 0, 9, 9, 9}};  // 729 voxels
  const auto points = around_borders<float>(sides, 5, 40'000, 1);
  compare_hard<std::int32_t>(points, sides, 800, 170, {.offset = 3});     // 2.7 MB, more room than voxels
  compare_hard<std::int32_t>(points, sides, 500, 230, {.threads = {3}});  // fewer
  compare_hard<std::int32_t>(points, sides, 40'000, 3, {.threads = {1, 2}, .offset = 5});
}

}  // namespace
}  // namespace turnout::test
