// Tests the backward function of the dynamic scatter through the C interface, under both its names: results,
// rejected voxels and maps, and calls without voxels, points or channels.
#include "dynamic_scatter/c_test_cases.h"

#include <array>
#include <climits>

#include "last_log_line.h"

namespace turnout::test {
namespace {

TEST_F(CDynamicScatter, BackwardWorkedExample) {
  for (bool other_spelling : {false, true}) {
    ScatterBackward call = small();
    call.other_spelling = other_spelling;
    ASSERT_EQ(call.run(), kOk) << turnoutLastError();
    EXPECT_EQ(call.grad_feats, (Floats{30, 40, 10, 0, 0, 0, 0, 0, 0, 20}));
    call.expect_equal_to_definition();
  }
}

TEST_F(CDynamicScatter, BackwardOfForwardEqualsTheDefinition) {
  for (int threads : {1, 2, 5}) {
    handle->context.set_threads(threads);
    for (auto [points, channels, limit] : {std::array{1, 1, 0}, {300, 1, 3}, {300, 5, 2}, {2000, 130, 9}}) {
      ScatterForward forward = random(points, channels, limit);
      ScatterBackward call = after(forward);
      // Rows after the last voxel are not read.
      const std::size_t used = count_of(call.num[0], channels);
      std::fill(call.voxel_feats.begin() + static_cast<std::int64_t>(used), call.voxel_feats.end(),
                kNotANumber);
      std::fill(call.grad_voxel_feats.begin() + static_cast<std::int64_t>(used), call.grad_voxel_feats.end(),
                kNotANumber);
      call.expect_equal_to_definition();
      call.other_spelling = true;
      call.expect_equal_to_definition();
    }
  }
}

// Every voxel has a point, and the forward call gives its maxima: nearly all of them pass a gradient on.
TEST_F(CDynamicScatter, ScaleOfTheSeed) {
  const std::int64_t points = 17176, voxels = 13743, channels = 128;
  Ints coors;
  for (std::int64_t x = 0; x < points; ++x) {
    const auto voxel = static_cast<std::int32_t>(x * 7919 % voxels);
    const bool is_dropped = x >= voxels && x % 97 == 0;
    coors.insert(coors.end(), {voxel / 400, is_dropped ? -1 : voxel % 20, voxel / 20 % 20});
  }
  for (int threads : {1, 2}) {
    handle->context.set_threads(threads);
    ScatterForward forward(handle, channels, voxels, coors, random_floats(count_of(points, channels), 2));
    forward.expect_equal_to_definition(kDMax);
    ASSERT_EQ(forward.num[0], voxels);
    ScatterBackward call(forward);
    const LastLogLine line;
    call.expect_equal_to_definition();
    EXPECT_EQ(line.value("algorithm"), "by voxel, streamed") << line.text();
    const auto zeros = std::count(call.grad_feats.begin(), call.grad_feats.end(), 0.0f);
    EXPECT_LT(zeros, points * channels / 4);
  }
}

TEST_F(CDynamicScatter, OneVoxelAndOneEach) {
  ScatterBackward one(handle, 2, 1, {0, 0, 0}, {5, 6}, Floats(6, 1), {1, 1});
  ASSERT_EQ(one.run(), kOk);
  EXPECT_EQ(one.grad_feats, (Floats{5, 6, 0, 0, 0, 0}));
  ScatterBackward each(handle, 1, 3, {2, 0, 1}, {5, 6, 7}, {1, 2, 3}, {2, 3, 1});
  ASSERT_EQ(each.run(), kOk);
  EXPECT_EQ(each.grad_feats, (Floats{7, 5, 6}));
  ScatterBackward none(handle, 1, 3, {-1, -1, -1}, {5, 6, 7}, {1, 2, 3}, {1, 2, 3});
  ASSERT_EQ(none.run(), kOk);
  EXPECT_EQ(none.grad_feats, Floats(3, 0));
  each.voxel_feats = {9, 9, 9};  // nothing is equal
  ASSERT_EQ(each.run(), kOk);
  EXPECT_EQ(each.grad_feats, Floats(3, 0));
}

// NaN is never equal, infinities are; gradients are stored, not added to zero.
TEST_F(CDynamicScatter, ValuesThatAreNotFiniteAndTheSignOfZero) {
  ScatterBackward call(handle, 1, 5, {0, 1, 2, 3, 4}, {1, 2, kNotANumber, -kInfinity, -0.0f},
                       {kNotANumber, kInfinity, -kInfinity, 0.0f, 5},
                       {kNotANumber, kInfinity, -kInfinity, -0.0f, 5});
  ASSERT_EQ(call.run(), kOk);
  expect_bits(call.grad_feats, {0, 2, kNotANumber, -kInfinity, -0.0f});
}

TEST_F(CDynamicScatter, VoxelNumIsInRange) {
  for (std::int32_t num : {3, -1, INT_MAX, INT_MIN}) {
    ScatterBackward call = small();
    call.num = {num};
    EXPECT_EQ(call.run(), kBad);
    expect_message("voxel_num[0] is " + std::to_string(num) +
                   ", expected 0 .. 2 = grad_voxel_feats.shape[0]");
    EXPECT_TRUE(is_unwritten(call.grad_feats));
  }
  ScatterBackward none = small();
  none.num = {0};
  none.map = Ints(5, -1);
  ASSERT_EQ(none.run(), kOk) << turnoutLastError();
  EXPECT_EQ(none.grad_feats, Floats(10, 0));
}

TEST_F(CDynamicScatter, TheFirstPointOfNoSuchVoxelIsNamed) {
  for (std::int32_t wrong : {-2, 1, 2, INT_MAX, INT_MIN}) {
    ScatterBackward call = small();
    call.num = {1};
    call.map = {0, -1, wrong, 0, 7};
    EXPECT_EQ(call.run(), kBad);
    expect_message("point2voxel_map[2] is " + std::to_string(wrong) + ", expected -1 .. 0");
    EXPECT_TRUE(is_unwritten(call.grad_feats));
  }
}

TEST_F(CDynamicScatter, WithoutRoomForVoxelsGradientsAreZero) {
  ScatterBackward call(handle, 2, 0, {-1, -1, -1}, {}, Floats(6, 3), {});
  ASSERT_GT(call.required, 0u);
  ASSERT_EQ(call.run(), kOk) << turnoutLastError();
  EXPECT_EQ(call.grad_feats, Floats(6, 0));
  call.grad_feats = Floats(6, kUnwrittenFloat);
  call.num = {1};
  EXPECT_EQ(call.run(), kBad);
  call.num = {0};
  call.map[1] = 0;
  EXPECT_EQ(call.run(), kBad);
  EXPECT_TRUE(is_unwritten(call.grad_feats));
}

TEST_F(CDynamicScatter, WithoutPointsOrChannelsNothingIsLookedAt) {
  ScatterBackward no_points(handle, 3, 0, {}, {}, {}, {}), no_channels(handle, 0, 2, {5, 5}, {}, {}, {});
  for (ScatterBackward* call : {&no_points, &no_channels}) {
    EXPECT_EQ(call->required, 0u);
    call->num = {-9};
    EXPECT_EQ(call->run(kDMax, nullptr, 10), kOk) << turnoutLastError();
    EXPECT_EQ(call->num, (Ints{-9}));
  }
  // Many points without channels are not a large tensor.
  const Descriptor wide(MLUOP_DTYPE_FLOAT, {std::int64_t{1} << 40, 0}), none(MLUOP_DTYPE_FLOAT, {0, 0}),
      map(MLUOP_DTYPE_INT32, {std::int64_t{1} << 40}), counts(MLUOP_DTYPE_INT32, {0});
  EXPECT_EQ(mluOpDynamicPointToVoxelBackward(handle, kDMax, none, nullptr, wide, nullptr, none, nullptr, map,
                                             nullptr, counts, nullptr, no_points.num_desc, nullptr, nullptr,
                                             0, wide, nullptr),
            kOk)
      << turnoutLastError();
}

TEST_F(CDynamicScatter, MessagesNameTheFunctionThatWasCalled) {
  ScatterBackward call = small();
  for (const auto mode : {MLUOP_REDUCE_DSUM, kDMean}) {
    const std::string rest = ": reduce_type is " + std::to_string(mode) + ", expected 2 (max)";
    call.other_spelling = false;
    EXPECT_EQ(call.run(mode), kBad);
    EXPECT_EQ(turnoutLastError(), "mluOpDynamicPointToVoxelBackward" + rest);
    call.other_spelling = true;
    EXPECT_EQ(call.run(mode), kBad);
    EXPECT_EQ(turnoutLastError(), "mluOpDynamicScatterBackward" + rest);
  }
  EXPECT_TRUE(is_unwritten(call.grad_feats));
}

TEST_F(CDynamicScatter, GradFeatsSharesNoMemory) {
  ScatterBackward call = small();
  // grad_feats must end within the same allocation: the workspace may follow it in memory.
  for (Ints* shared : {&call.map, &call.counts, &call.num}) shared->reserve(4 + call.grad_feats.size());
  for (void* shared : {static_cast<void*>(call.feats.data()), static_cast<void*>(call.map.data() + 4),
                       static_cast<void*>(call.counts.data() + 1), static_cast<void*>(call.num.data())}) {
    EXPECT_EQ(call.run(kDMax, call.workspace.data(), call.required, shared), kBad);
    expect_message("grad_feats overlaps");
  }
  EXPECT_EQ(call.run(kDMax, call.workspace.data(), call.required,
                     reinterpret_cast<char*>(call.grad_feats.data()) + 2),
            kBad);
  expect_message("grad_feats.data is not aligned");
  EXPECT_EQ(call.map, (Ints{1, 0, -1, 1, 0}));
}

}  // namespace
}  // namespace turnout::test
