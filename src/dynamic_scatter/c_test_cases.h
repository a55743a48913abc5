// One call of each C function of the dynamic scatter with its arguments, and the definition to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bindings/mluop/call.h"
#include "c_descriptors.h"
#include "dynamic_scatter/reference.h"

namespace turnout::test {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

inline constexpr auto kDMax = MLUOP_REDUCE_DMAX;
inline constexpr auto kDMean = MLUOP_REDUCE_DMEAN;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
inline constexpr std::int32_t kUnwrittenInt = 77;
inline constexpr float kUnwrittenFloat = 77;

inline std::size_t count_of(std::int64_t rows, std::int64_t columns = 1) {
  return static_cast<std::size_t>(rows * columns);
}

// NULL for a tensor without elements.
template <class T>
T* data_of(std::vector<T>& v) {
  return v.empty() ? nullptr : v.data();
}

template <class T>
bool is_unwritten(const std::vector<T>& v) {
  return std::all_of(v.begin(), v.end(), [](T value) { return value == static_cast<T>(kUnwrittenInt); });
}

// NaN equals NaN, and -0 is not +0.
inline void expect_bits(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << i << ": " << got[i] << ", expected " << want[i];
}

// Few different values, so that some are equal.
inline Floats random_floats(std::size_t count, unsigned seed) {
  std::minstd_rand random(seed);
  Floats values(count);
  for (float& value : values) value = static_cast<float>((random() >> 4) % 64) / 4 - 8;
  return values;
}
// Components -1 .. limit.
inline Ints random_coors(std::int64_t points, int limit, unsigned seed) {
  std::minstd_rand random(seed);
  Ints coors(count_of(points, 3));
  for (std::int32_t& c : coors)
    c = static_cast<std::int32_t>((random() >> 4) % static_cast<unsigned>(limit + 2)) - 1;
  return coors;
}

// A call with painted results and a workspace of the queried size.
struct ScatterForward {
  mluOpHandle_t handle;
  std::int64_t points, channels, room;
  Floats feats;
  Ints coors;
  Ints given_coors = coors;
  Floats voxel_feats;
  Ints voxel_coors, map, counts, num{kUnwrittenInt};
  Descriptor feats_desc, coors_desc, voxel_feats_desc, voxel_coors_desc, map_desc, counts_desc, num_desc;
  std::size_t required = 0;
  std::vector<char> workspace;

  ScatterForward(mluOpHandle_t h, std::int64_t c, std::int64_t m, Ints rows, Floats values)
      : handle(h),
        points(static_cast<std::int64_t>(rows.size()) / 3),
        channels(c),
        room(m),
        feats(std::move(values)),
        coors(std::move(rows)),
        voxel_feats(count_of(m, c), kUnwrittenFloat),
        voxel_coors(count_of(m, 3), kUnwrittenInt),
        map(count_of(points), kUnwrittenInt),
        counts(count_of(m), kUnwrittenInt),
        feats_desc(MLUOP_DTYPE_FLOAT, {points, c}),
        coors_desc(MLUOP_DTYPE_INT32, {points, 3}),
        voxel_feats_desc(MLUOP_DTYPE_FLOAT, {m, c}),
        voxel_coors_desc(MLUOP_DTYPE_INT32, {m, 3}),
        map_desc(MLUOP_DTYPE_INT32, {points}),
        counts_desc(MLUOP_DTYPE_INT32, {m}),
        num_desc(MLUOP_DTYPE_INT32, {1}) {
    EXPECT_EQ(feats.size(), count_of(points, channels));
    EXPECT_EQ(mluOpGetDynamicPointToVoxelForwardWorkspaceSize(handle, feats_desc, coors_desc, &required), kOk)
        << turnoutLastError();
    workspace.resize(required);
  }

  mluOpStatus_t run(mluOpReduceMode_t mode) { return run(mode, data_of(workspace), required); }
  mluOpStatus_t run(mluOpReduceMode_t mode, void* memory, std::size_t size) {
    return run(mode, memory, size, data_of(coors), num.data());
  }
  mluOpStatus_t run(mluOpReduceMode_t mode, void* memory, std::size_t size, void* coors_at, void* num_at) {
    return mluOpDynamicPointToVoxelForward(handle, mode, feats_desc, data_of(feats), coors_desc, coors_at,
                                           memory, size, voxel_feats_desc, data_of(voxel_feats),
                                           voxel_coors_desc, data_of(voxel_coors), map_desc, data_of(map),
                                           counts_desc, data_of(counts), num_desc, num_at);
  }

  void expect_untouched() const {
    EXPECT_TRUE(is_unwritten(voxel_feats) && is_unwritten(voxel_coors) && is_unwritten(map) &&
                is_unwritten(counts) && is_unwritten(num));
    EXPECT_EQ(coors, given_coors);
  }

  // Runs the function and compares all results, including elements that must not be written.
  void expect_equal_to_definition(mluOpReduceMode_t mode) {
    std::vector<reference::Coordinates> rows;
    Ints want_coors = given_coors;
    for (std::size_t x = 0; x < coors.size(); x += 3) {
      rows.emplace_back(given_coors.begin() + static_cast<std::int64_t>(x),
                        given_coors.begin() + static_cast<std::int64_t>(x) + 3);
      if (std::any_of(rows.back().begin(), rows.back().end(), [](std::int64_t c) { return c < 0; }))
        std::fill_n(want_coors.begin() + static_cast<std::int64_t>(x), 3, -1);
    }
    Floats want_feats(voxel_feats.size(), mode == kDMax ? -kInfinity : 0);
    Ints want_voxel_coors = voxel_coors, want_map(map.size(), -1), want_counts = counts;
    std::size_t v = 0;
    for (const auto& [where, members] : reference::voxels_of(rows)) {
      for (std::size_t d = 0; d < 3; ++d) want_voxel_coors[v * 3 + d] = static_cast<std::int32_t>(where[d]);
      want_counts[v] = static_cast<std::int32_t>(members.size());
      for (std::int64_t x : members) want_map[static_cast<std::size_t>(x)] = static_cast<std::int32_t>(v);
      for (std::int64_t c = 0; c < channels; ++c) {
        Floats values;
        for (std::int64_t x : members) values.push_back(feats[count_of(x, channels) + count_of(c)]);
        want_feats[v * count_of(channels) + count_of(c)] =
            reference::reduced(values, static_cast<Reduce>(mode));
      }
      ++v;
    }
    ASSERT_EQ(run(mode), kOk) << turnoutLastError();
    EXPECT_STREQ(turnoutLastError(), "");
    expect_bits(voxel_feats, want_feats);
    EXPECT_EQ(voxel_coors, want_voxel_coors);
    EXPECT_EQ(map, want_map);
    EXPECT_EQ(counts, want_counts);
    EXPECT_EQ(num[0], static_cast<std::int32_t>(v));
    EXPECT_EQ(coors, want_coors);
  }
};

// Likewise; voxel_num is the number of rows unless a test changes it.
struct ScatterBackward {
  mluOpHandle_t handle;
  std::int64_t points, channels, room;
  Floats grad_voxel_feats, feats, voxel_feats;
  Ints map, counts, num;
  Floats grad_feats;
  Descriptor voxels_desc, feats_desc, map_desc, counts_desc, num_desc;
  std::size_t required = 0;
  std::vector<char> workspace;
  bool other_spelling = false;

  ScatterBackward(mluOpHandle_t h, std::int64_t c, std::int64_t m, Ints voxel_of, Floats grads, Floats values,
                  Floats reduced)
      : handle(h),
        points(static_cast<std::int64_t>(voxel_of.size())),
        channels(c),
        room(m),
        grad_voxel_feats(std::move(grads)),
        feats(std::move(values)),
        voxel_feats(std::move(reduced)),
        map(std::move(voxel_of)),
        counts(count_of(m), -5),  // not read
        num{static_cast<std::int32_t>(m)},
        grad_feats(count_of(points, c), kUnwrittenFloat),
        voxels_desc(MLUOP_DTYPE_FLOAT, {m, c}),
        feats_desc(MLUOP_DTYPE_FLOAT, {points, c}),
        map_desc(MLUOP_DTYPE_INT32, {points}),
        counts_desc(MLUOP_DTYPE_INT32, {m}),
        num_desc(MLUOP_DTYPE_INT32, {1}) {
    EXPECT_EQ(feats.size(), grad_feats.size());
    EXPECT_TRUE(voxel_feats.size() == count_of(m, c) && grad_voxel_feats.size() == count_of(m, c));
    EXPECT_EQ(
        mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(handle, kDMax, voxels_desc, feats_desc, voxels_desc,
                                                         map_desc, counts_desc, num_desc, &required),
        kOk)
        << turnoutLastError();
    std::size_t same = 0;
    EXPECT_EQ(mluOpGetDynamicScatterBackwardWorkspaceSize(handle, MLUOP_REDUCEMODE_MAX, feats_desc, &same),
              kOk);
    EXPECT_EQ(same, required);
    workspace.resize(required);
  }

  // Takes the results of a finished forward call.
  explicit ScatterBackward(const ScatterForward& forward)
      : ScatterBackward(forward.handle, forward.channels, forward.room, forward.map,
                        random_floats(forward.voxel_feats.size(), 9), forward.feats, forward.voxel_feats) {
    counts = forward.counts;
    num = forward.num;
  }

  mluOpStatus_t run(mluOpReduceMode_t mode = kDMax) { return run(mode, data_of(workspace), required); }
  mluOpStatus_t run(mluOpReduceMode_t mode, void* memory, std::size_t size) {
    return run(mode, memory, size, data_of(grad_feats));
  }
  mluOpStatus_t run(mluOpReduceMode_t mode, void* memory, std::size_t size, void* grad_feats_at) {
    const auto function = [&](auto f) {
      return f(handle, mode, voxels_desc, data_of(grad_voxel_feats), feats_desc, data_of(feats), voxels_desc,
               data_of(voxel_feats), map_desc, data_of(map), counts_desc, data_of(counts), num_desc,
               num.data(), memory, size, feats_desc, grad_feats_at);
    };
    return other_spelling ? function(mluOpDynamicScatterBackward)
                          : function(mluOpDynamicPointToVoxelBackward);
  }

  Floats definition() const {
    Floats grads(feats.size());
    std::vector<bool> done(voxel_feats.size());
    for (std::size_t x = 0; x < map.size(); ++x)
      for (std::size_t c = 0; map[x] >= 0 && c < count_of(channels); ++c) {
        const std::size_t from = static_cast<std::size_t>(map[x]) * count_of(channels) + c;
        const std::size_t to = x * count_of(channels) + c;
        if (done[from] || !(feats[to] == voxel_feats[from])) continue;
        grads[to] = grad_voxel_feats[from];
        done[from] = true;
      }
    return grads;
  }
  void expect_equal_to_definition() {
    ASSERT_EQ(run(), kOk) << turnoutLastError();
    EXPECT_STREQ(turnoutLastError(), "");
    expect_bits(grad_feats, definition());
  }
};

class CDynamicScatter : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // The case that MLU-OPS ships, with one channel.
  ScatterForward shipped(std::int64_t room) const {
    return {
        handle, 1, room, {12, 5, 9, 8, 6, 14, 8, 15, 3, -1, 18, 7, 5, 12, -1, 9, 14, 15}, {1, 2, 3, 4, 5, 6}};
  }
  ScatterForward random(std::int64_t points, std::int64_t channels, int limit) const {
    return {handle, channels, points, random_coors(points, limit, 3),
            random_floats(count_of(points, channels), 5)};
  }
  // Two voxels of two channels, with equal features, a negative zero, and a point in no voxel.
  ScatterBackward small() const {
    return {handle,          2, 2, {1, 0, -1, 1, 0}, {10, 20, 30, 40}, {3, 0.0f, 7, 8, 7, 8, 3, 5, 7, 9},
            {7, 9, 3, -0.0f}};
  }
  // Results of a forward call, for a backward one.
  ScatterBackward after(ScatterForward& forward) const {
    EXPECT_EQ(forward.run(kDMax), kOk) << turnoutLastError();
    return ScatterBackward(forward);
  }

  mluOpHandle_t handle = nullptr;
};

inline void expect_message(const std::string& part) {
  EXPECT_NE(std::string(turnoutLastError()).find(part), std::string::npos) << turnoutLastError();
}

}  // namespace turnout::test
