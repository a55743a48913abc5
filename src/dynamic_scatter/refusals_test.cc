// Tests which calls are rejected, with which message, and that they write nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dynamic_scatter/test_cases.h"

namespace turnout::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min();
constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();

// The message of a rejected call, which an observer must also get; "" if the call succeeds.
std::string message_of(const std::function<void(Context&)>& call) {
  Context context({.threads = 1});
  std::string heard;
  context.set_observer(
      [](const CallRecord& record, void* user) {
        *static_cast<std::string*>(user) = record.error != nullptr ? record.error : "";
      },
      &heard);
  try {
    call(context);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_param);
    EXPECT_EQ(heard, error.what());
    return error.what();
  }
  EXPECT_EQ(heard, "");
  return "";
}

template <class T>
bool is_untouched(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](const T& value) {
    if constexpr (std::is_integral_v<T>) {
      return value == kOld;
    } else {
      return core::to_float(value) == kOld;
    }
  });
}

// -- grids -------------------------------------------------------------------------------------------------

// Tries one grid with both operators, whose messages differ only in their name.
template <class T>
std::string grid_message(const std::vector<double>& size, const std::vector<double>& range) {
  const std::vector<T> points(3);
  const ConstTensor p = view(points.data(), {1, 3});
  std::vector<std::int32_t> coors(3, kOld), num(1, kOld);
  std::vector<T> voxels(6, rounded<T>(kOld));
  const std::string one = message_of([&](Context& context) {
    voxelize(p, view(coors.data(), {1, 3}), size, range, context);
  });
  EXPECT_TRUE(one.empty() || is_untouched(coors));
  std::fill(coors.begin(), coors.end(), kOld);
  const std::string hard = message_of([&](Context& context) {
    voxelize_hard(p, view(voxels.data(), {1, 2, 3}), view(coors.data(), {1, 3}), view(num.data(), {1}),
                  nullptr, size, range, context);
  });
  EXPECT_TRUE(hard.empty() || (is_untouched(coors) && is_untouched(voxels) && is_untouched(num)));
  if (one.empty() || hard.empty()) {
    EXPECT_EQ(one, hard);
    return "";
  }
  EXPECT_EQ(one.substr(one.find(':')), hard.substr(hard.find(':')));
  EXPECT_EQ(one.substr(0, one.find(':')), "voxelize");
  EXPECT_EQ(hard.substr(0, hard.find(':')), "voxelize_hard");
  return one;
}

TEST(DynamicScatterRefusals, Grids) {
  const auto message = [](const std::vector<double>& size, const std::vector<double>& range) {
    return grid_message<float>(size, range);
  };
  const std::vector<double> range = {0, 0, 0, 4, 4, 4};
  EXPECT_EQ(message({1, 1, 1}, range), "");
  EXPECT_EQ(message({0, 1, 1}, range), "voxelize: voxel_size[0] is 0, expected a positive finite number");
  EXPECT_EQ(message({1, -0.5f, 1}, range),
            "voxelize: voxel_size[1] is -0.5, expected a positive finite number");
  EXPECT_EQ(message({1, 1, kInfinity}, range),
            "voxelize: voxel_size[2] is inf, expected a positive finite number");
  EXPECT_EQ(message({kNan, 1, 1}, range),
            "voxelize: voxel_size[0] is nan, expected a positive finite number");
  EXPECT_EQ(message({1, 1, 1}, {0, 0, 0, 0, 4, 4}),
            "voxelize: point_cloud_range is 0 .. 0 in direction x, which is 0 voxels, "
            "expected 1 .. 2147483647");
  EXPECT_EQ(message({1, 1, 1}, {0, 5, 0, 4, 4, 4}),
            "voxelize: point_cloud_range is 5 .. 4 in direction y, which is -1 voxels, "
            "expected 1 .. 2147483647");
  EXPECT_EQ(message({1, 1, 9}, {0, 0, 0, 4, 4, 4}),
            "voxelize: point_cloud_range is 0 .. 4 in direction z, which is 0 voxels, "
            "expected 1 .. 2147483647");
  EXPECT_EQ(message({1, 1, 8}, {0, 0, 0, 4, 4, 4}), "");  // a half is rounded up
  EXPECT_EQ(message({1, 1, 1}, {0, 0, 0, 4, 2147483648.0f, 4}),
            "voxelize: point_cloud_range is 0 .. 2147483648 in direction y, which is "
            "2147483648 voxels, expected 1 .. 2147483647");
  EXPECT_EQ(message({1, 1, 1}, {0, 0, 0, 4, 2147483520.0f, 4}), "");
  EXPECT_EQ(message({1, 1, 1}, {0, 0, 0, kInfinity, 4, 4}),
            "voxelize: point_cloud_range is 0 .. inf in direction x, which is inf voxels, expected 1 "
            ".. 2147483647");
  EXPECT_EQ(message({1, 1, 1}, {0, 0, -kInfinity, 4, 4, 4}),
            "voxelize: point_cloud_range is -inf .. 4 in direction z, which is inf voxels, expected 1 "
            ".. 2147483647");
  EXPECT_EQ(message({1, 1, 1}, {0, kNan, 0, 4, 4, 4}),
            "voxelize: point_cloud_range[1] is nan, expected a number");
}

// A grid is checked in the type that coordinates are computed in.
TEST(DynamicScatterRefusals, GridsInTheTypeOfTheirPoints) {
  const std::vector<double> ones = {1, 1, 1}, wide = {0, 0, 0, 2147483647.0, 4, 4};
  EXPECT_EQ(grid_message<double>(ones, wide), "");
  const std::string float_message =
      "voxelize: point_cloud_range is 0 .. 2147483648 in direction x, which is "
      "2147483648 voxels, expected 1 .. 2147483647";
  EXPECT_EQ(grid_message<float>(ones, wide), float_message);
  EXPECT_EQ(grid_message<f16>(ones, wide), float_message);
  EXPECT_EQ(grid_message<float>({1, 1e-60, 1}, {0, 0, 0, 4, 4, 4}),
            "voxelize: voxel_size[1] is 0, expected a positive finite number");
  EXPECT_EQ(grid_message<double>({1, 1e-60, 1}, {0, 0, 0, 4, 4e-60, 4}), "");
}

// -- gradients ---------------------------------------------------------------------------------------------

// A valid call that tests modify: four points, three rows for voxels, one channel.
template <class Map>
struct Backward {
  std::vector<Map> map = {0, 1, -1, 0}, count = {2, 1, 1}, num = {3};
  std::vector<float> grad = std::vector<float>(3), feats = std::vector<float>(4),
                     voxel_feats = std::vector<float>(3);
  bool has_feats = true, has_voxel_feats = true, has_count = true, has_num = false;

  std::string message(Reduce reduce_type) const {
    const ConstTensor f = view(feats.data(), {4, 1}), w = view(voxel_feats.data(), {3, 1}),
                      n = view(count.data(), {3}), v = view(num.data(), {1});
    std::vector<float> grad_feats(4, kOld);
    const std::string text = message_of([&](Context& context) {
      dynamic_scatter_backward(view(grad.data(), {3, 1}), has_feats ? f : nullptr,
                               has_voxel_feats ? w : nullptr, view(map.data(), {4}), has_count ? n : nullptr,
                               has_num ? v : nullptr, view(grad_feats.data(), {4, 1}), reduce_type, context);
    });
    EXPECT_EQ(grad_feats, std::vector<float>(4, text.empty() ? 0 : kOld)) << text;
    return text;
  }
};

TEST(DynamicScatterRefusals, WhatAReductionNeedsMustBeThere) {
  Backward<std::int32_t> b;
  b.has_feats = b.has_voxel_feats = b.has_count = false;
  EXPECT_EQ(b.message(Reduce::sum), "");
  EXPECT_EQ(b.message(Reduce::mean),
            "dynamic_scatter_backward: voxel_points_count is missing, expected a tensor with reduce_type "
            "mean");
  EXPECT_EQ(b.message(Reduce::max),
            "dynamic_scatter_backward: feats is missing, expected a tensor with reduce_type max");
  b.has_feats = true;
  EXPECT_EQ(b.message(Reduce::max),
            "dynamic_scatter_backward: voxel_feats is missing, expected a tensor with reduce_type max");
  b.has_voxel_feats = true;
  EXPECT_EQ(b.message(Reduce::max), "");
  b.has_count = true;
  b.has_feats = b.has_voxel_feats = false;
  EXPECT_EQ(b.message(Reduce::mean), "");
}

template <class Map>
void check_numbers(std::int64_t least, std::int64_t most) {
  Backward<Map> b;
  b.has_num = true;
  for (const Reduce reduce_type : kReductions) {
    const auto message = [&](std::int64_t value) {
      b.num[0] = static_cast<Map>(value);
      return b.message(reduce_type);
    };
    EXPECT_EQ(message(3), "");
    EXPECT_EQ(message(2), "");
    for (const std::int64_t value : {std::int64_t{4}, std::int64_t{-1}, least, most})
      EXPECT_EQ(message(value), "dynamic_scatter_backward: voxel_num[0] is " + std::to_string(value) +
                                    ", expected 0 .. 3 = grad_voxel_feats.shape[0]");
    EXPECT_EQ(message(1), "dynamic_scatter_backward: point2voxel_map[1] is 1, expected -1 .. 0");
    EXPECT_EQ(message(0), "dynamic_scatter_backward: point2voxel_map[0] is 0, expected -1 .. -1");
  }
}

TEST(DynamicScatterRefusals, VoxelNum) {
  check_numbers<std::int32_t>(kMin32, kMax32);
  check_numbers<std::int64_t>(kMin64, kMax64);
}

template <class Map>
void check_maps(std::int64_t least, std::int64_t most) {
  for (const Reduce reduce_type : kReductions) {
    for (const std::int64_t value : {std::int64_t{3}, std::int64_t{-2}, least, most}) {
      for (std::size_t x = 0; x < 4; ++x) {
        Backward<Map> b;
        b.map[x] = static_cast<Map>(value);
        EXPECT_EQ(b.message(reduce_type), "dynamic_scatter_backward: point2voxel_map[" + std::to_string(x) +
                                              "] is " + std::to_string(value) + ", expected -1 .. 2");
        b.map[3] = -7;  // a later one is not named
        EXPECT_EQ(b.message(reduce_type), "dynamic_scatter_backward: point2voxel_map[" + std::to_string(x) +
                                              "] is " + std::to_string(x == 3 ? -7 : value) +
                                              ", expected -1 .. 2");
      }
    }
  }
}

TEST(DynamicScatterRefusals, Maps) {
  check_maps<std::int32_t>(kMin32, kMax32);
  check_maps<std::int64_t>(kMin64, kMax64);
  Backward<std::int64_t> b;  // 64-bit values are not truncated to 32 bits
  b.map[2] = std::int64_t{1} << 32;
  EXPECT_EQ(b.message(Reduce::max),
            "dynamic_scatter_backward: point2voxel_map[2] is 4294967296, expected -1 .. 2");
}

template <class Map>
void check_counts(std::int64_t least) {
  Backward<Map> b;
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, least}) {
    b.count = {2, static_cast<Map>(value), 1};
    EXPECT_EQ(b.message(Reduce::mean), "dynamic_scatter_backward: voxel_points_count[1] is " +
                                           std::to_string(value) +
                                           ", expected 1 or more: point 1 is in that voxel");
    b.count = {static_cast<Map>(value), 0, 1};
    EXPECT_EQ(b.message(Reduce::mean), "dynamic_scatter_backward: voxel_points_count[0] is " +
                                           std::to_string(value) +
                                           ", expected 1 or more: point 0 is in that voxel");
    EXPECT_EQ(b.message(Reduce::max), "");  // other reductions do not read counts
    EXPECT_EQ(b.message(Reduce::sum), "");
    b.count = {2, 1, static_cast<Map>(value)};
    EXPECT_EQ(b.message(Reduce::mean), "");  // no point is in voxel 2
  }
}

TEST(DynamicScatterRefusals, Counts) {
  check_counts<std::int32_t>(kMin32);
  check_counts<std::int64_t>(kMin64);
}

// The scratch memory that a map is copied into may still contain a longer map of an earlier call.
TEST(DynamicScatterRefusals, CountsLookAtTheOwnPointsAlone) {
  Context context({.threads = 1});
  const std::vector<std::int32_t> count = {3, 1, 0};
  const std::vector<float> grad = {3, 1, 7};
  const auto backward = [&](const std::vector<std::int32_t>& map, Reduce reduce_type) {
    const ConstTensor counts = view(count.data(), {3});
    std::vector<float> grad_feats(map.size());
    dynamic_scatter_backward(view(grad.data(), {3, 1}), nullptr, nullptr, view(map.data(), {map.size()}),
                             counts, nullptr, view(grad_feats.data(), {map.size(), 1}), reduce_type, context);
    return grad_feats;
  };
  EXPECT_EQ(backward({0, 0, 0, 1, 2, 2, 2, 2}, Reduce::sum), (std::vector<float>{3, 3, 3, 1, 7, 7, 7, 7}));
  EXPECT_EQ(backward({0, 0, 0, 1}, Reduce::mean), (std::vector<float>{1, 1, 1, 1}));
}

// The order of checks: missing tensors, the number of voxels, the map, the counts.
TEST(DynamicScatterRefusals, TheFirstFaultIsNamed) {
  Backward<std::int32_t> b;
  b.has_num = true;
  b.has_count = false;
  b.num = {5};
  b.map = {0, 9, 0, 0};
  b.count = {0, 0, 0};
  const auto names = [&](const char* what) {
    EXPECT_NE(b.message(Reduce::mean).find(what), std::string::npos) << what;
  };
  names("voxel_points_count is missing");
  b.has_count = true;
  names("voxel_num[0] is 5");
  b.num = {3};
  names("point2voxel_map[1] is 9");
  b.map[1] = 1;
  names("voxel_points_count[0] is 0");
}

// -- room --------------------------------------------------------------------------------------------------

TEST(DynamicScatterRefusals, MoreVoxelsThanRows) {
  const std::vector<float> feats(5);
  const std::vector<std::int32_t> coors = {4, 2, -1, 4, 9};
  for (const Reduce reduce_type : kReductions) {
    for (const std::int64_t room : {0, 1, 2}) {
      auto voxel_feats = sized<float>(room, kOld);
      auto voxel_coors = sized<std::int32_t>(room, kOld), map = sized<std::int32_t>(5, kOld),
           count = sized<std::int32_t>(room, kOld);
      const std::string text = message_of([&](Context& context) {
        dynamic_scatter_forward(view(feats.data(), {5, 1}), view(coors.data(), {5, 1}),
                                view(voxel_feats.data(), {room, 1}), view(voxel_coors.data(), {room, 1}),
                                view(map.data(), {5}), view(count.data(), {room}), reduce_type, context);
      });
      EXPECT_EQ(text, "dynamic_scatter_forward: voxel_feats.shape[0] is " + std::to_string(room) +
                          ", expected 3 or more: the number of voxels");
      EXPECT_TRUE(is_untouched(voxel_feats) && is_untouched(voxel_coors) && is_untouched(map) &&
                  is_untouched(count));
    }
  }
}

// The results of an index must have exactly as many rows as voxels.
TEST(DynamicScatterRefusals, RowsOfAnIndex) {
  const std::vector<float> feats(4);
  const std::vector<std::int32_t> coors = {4, 2, -1, 4};
  Context own({.threads = 1});
  const VoxelIndex index(view(coors.data(), {4, 1}), own);
  std::vector<float> rows(4, kOld);
  std::vector<std::int32_t> cells(4, kOld), map(4, kOld), count(4, kOld);
  const ConstTensor f = view(feats.data(), {4, 1}), w = view(feats.data(), {2, 1});
  const auto message = [&](const std::function<void()>& call) {
    std::string text;
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_param);
      text = error.what();
    }
    EXPECT_TRUE(is_untouched(rows) && is_untouched(cells) && is_untouched(map) && is_untouched(count));
    return text;
  };
  EXPECT_EQ(message([&] {
              index.reduce(f, view(rows.data(), {3, 1}));
            }),
            "VoxelIndex.reduce: voxel_feats.shape[0] is 3, expected 2 = voxels");
  EXPECT_EQ(message([&] {
              index.reduce(view(feats.data(), {3, 1}), view(rows.data(), {2, 1}));
            }),
            "VoxelIndex.reduce: feats.shape[0] is 3, expected 4 = points");
  EXPECT_EQ(message([&] {
              index.write(view(cells.data(), {2, 1}), view(map.data(), {4}), view(count.data(), {1}));
            }),
            "VoxelIndex.write: voxel_points_count.shape[0] is 1, expected 2 = voxels");
  EXPECT_EQ(message([&] {
              index.reduce_backward(w, nullptr, w, view(rows.data(), {4, 1}));
            }),
            "VoxelIndex.reduce_backward: feats is missing, expected a tensor with reduce_type max");
  EXPECT_EQ(message([&] {
              index.reduce_backward(w, f, nullptr, view(rows.data(), {4, 1}));
            }),
            "VoxelIndex.reduce_backward: voxel_feats is missing, expected a tensor with reduce_type max");
  EXPECT_EQ(message([&] {
              const VoxelIndex five(view(coors.data(), {0, 5}), own);
            }),
            "VoxelIndex: coors.shape[1] is 5, expected at most 4");
  EXPECT_EQ(message([&] {
              const VoxelIndex none(view(coors.data(), {4, 0}), own);
            }),
            "VoxelIndex: coors.shape[1] is 0, expected 1 or more");
}

// Voxel numbers are int32 internally. More voxels are rejected before any memory is read.
TEST(DynamicScatterRefusals, MoreVoxelsThanNumbers) {
  constexpr std::int64_t kVoxels = std::int64_t{1} << 31;
  const std::vector<std::int64_t> map = {kVoxels - 1}, num = {kVoxels};
  const std::vector<float> grad(1);
  std::vector<float> grad_feats(1, kOld);
  const ConstTensor voxel_num = view(num.data(), {1});
  for (const bool has_num : {false, true}) {
    EXPECT_EQ(
        message_of([&](Context& context) {
          dynamic_scatter_backward({grad.data(), DType::f32, {kVoxels, 1}}, nullptr, nullptr,
                                   view(map.data(), {1}), nullptr, has_num ? voxel_num : nullptr,
                                   view(grad_feats.data(), {1, 1}), Reduce::sum, context);
        }),
        "dynamic_scatter_backward: grad_voxel_feats.shape[0] is 2147483648, expected at most 2147483647");
    EXPECT_TRUE(is_untouched(grad_feats));
  }
}

}  // namespace
}  // namespace turnout::test
