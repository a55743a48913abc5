// Tests the forward function of the dynamic scatter through the C interface: results, what is changed in
// place, what an empty call writes, and the workspaces of both directions.
#include "dynamic_scatter/c_test_cases.h"

#include <climits>

#include "c_workspace.h"
#include "dynamic_scatter/dynamic_scatter.h"

namespace turnout::test {
namespace {

TEST_F(CDynamicScatter, ShippedExample) {
  for (const auto mode : {kDMax, kDMean}) {
    ScatterForward call = shipped(4);
    ASSERT_EQ(call.run(mode), kOk) << turnoutLastError();
    EXPECT_EQ(call.voxel_coors, (Ints{8, 6, 14, 8, 15, 3, 9, 14, 15, 12, 5, 9}));
    EXPECT_EQ(call.map, (Ints{3, 0, 1, -1, -1, 2}));
    EXPECT_EQ(call.counts, (Ints{1, 1, 1, 1}));
    EXPECT_EQ(call.num, (Ints{4}));
    EXPECT_EQ(call.voxel_feats, (Floats{2, 3, 6, 1}));
    EXPECT_EQ(call.coors, (Ints{12, 5, 9, 8, 6, 14, 8, 15, 3, -1, -1, -1, -1, -1, -1, 9, 14, 15}));
  }
}

TEST_F(CDynamicScatter, RowsAfterTheLastVoxel) {
  for (const auto mode : {kDMax, kDMean}) {
    ScatterForward call = shipped(6);
    ASSERT_EQ(call.run(mode), kOk) << turnoutLastError();
    EXPECT_EQ(call.num, (Ints{4}));
    const float filled = mode == kDMax ? -kInfinity : 0;
    EXPECT_EQ(call.voxel_feats, (Floats{2, 3, 6, 1, filled, filled}));
    EXPECT_TRUE(is_unwritten(Ints(call.voxel_coors.begin() + 12, call.voxel_coors.end())));
    EXPECT_TRUE(is_unwritten(Ints(call.counts.begin() + 4, call.counts.end())));
  }
}

TEST_F(CDynamicScatter, TooManyVoxelsAreBadBeforeAnythingIsWritten) {
  ScatterForward call = shipped(3);
  EXPECT_EQ(call.run(kDMax), kBad);
  expect_message("voxel_feats.shape[0] is 3, expected 4 or more");
  call.expect_untouched();
  ScatterForward none = shipped(0);
  EXPECT_EQ(none.run(kDMean), kBad);
  none.expect_untouched();
}

TEST_F(CDynamicScatter, ASumIsBad) {
  ScatterForward call = shipped(4);
  EXPECT_EQ(call.run(MLUOP_REDUCE_DSUM), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpDynamicPointToVoxelForward: reduce_type is 0, expected one of 1 .. 2 (mean max)");
  EXPECT_EQ(call.run(static_cast<mluOpReduceMode_t>(3)), kBad);
  call.expect_untouched();
}

TEST_F(CDynamicScatter, ForwardEqualsTheDefinition) {
  for (int threads : {1, 2, 5}) {
    handle->context.set_threads(threads);
    for (const auto mode : {kDMax, kDMean}) {
      random(1, 1, 0).expect_equal_to_definition(mode);
      random(300, 1, 3).expect_equal_to_definition(mode);
      random(300, 5, 2).expect_equal_to_definition(mode);
      random(2000, 130, 9).expect_equal_to_definition(mode);
      random(70000, 3, 20).expect_equal_to_definition(mode);  // several ranges of points to mark
    }
  }
}

TEST_F(CDynamicScatter, ExtremeCoordinates) {
  const Ints coors = {INT_MAX, INT_MAX, INT_MAX, INT_MIN, 0,       0, 0, 0, INT_MAX, 0, 0, -1,
                      INT_MAX, INT_MAX, INT_MAX, 0,       INT_MIN, 5, 0, 0, 0,       0, 0, INT_MAX - 1};
  for (const auto mode : {kDMax, kDMean})
    ScatterForward(handle, 1, 8, coors, random_floats(8, 1)).expect_equal_to_definition(mode);
}

TEST_F(CDynamicScatter, FeaturesThatAreNotFinite) {
  const Ints coors = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 3};
  const Floats feats = {kNotANumber, 1, kNotANumber, kNotANumber, -kInfinity, kInfinity};
  ScatterForward most(handle, 1, 4, coors, feats);
  ASSERT_EQ(most.run(kDMax), kOk);
  EXPECT_EQ(most.voxel_feats, (Floats{1, -kInfinity, -kInfinity, kInfinity}));
  ScatterForward mean(handle, 1, 4, coors, feats);
  ASSERT_EQ(mean.run(kDMean), kOk);
  EXPECT_TRUE(mean.voxel_feats[0] != mean.voxel_feats[0] && mean.voxel_feats[1] != mean.voxel_feats[1]);
  EXPECT_EQ(mean.voxel_feats[3], kInfinity);
}

// Without voxels the results may have no rows.
TEST_F(CDynamicScatter, NoPointIsInAVoxel) {
  for (std::int64_t room : {0, 2}) {
    ScatterForward call(handle, 2, room, {-1, 0, 0, 3, -7, 2}, {1, 2, 3, 4});
    call.expect_equal_to_definition(kDMax);
    EXPECT_EQ(call.num[0], 0);
    EXPECT_EQ(call.coors, Ints(6, -1));
  }
}

TEST_F(CDynamicScatter, WithoutPointsOrChannelsVoxelNumIsZero) {
  ScatterForward no_points(handle, 3, 0, {}, {});
  ScatterForward no_channels(handle, 0, 2, {0, 0, 0, -1, 5, 5}, {});
  for (ScatterForward* call : {&no_points, &no_channels}) {
    EXPECT_EQ(call->required, 0u);
    ASSERT_EQ(call->run(kDMean, nullptr, 10, nullptr, call->num.data()), kOk) << turnoutLastError();
    EXPECT_EQ(call->num, (Ints{0}));
    call->num = {kUnwrittenInt};
    EXPECT_EQ(call->run(kDMax, nullptr, 0, nullptr, nullptr), kOk);
    // voxel_num may be at any address.
    char somewhere[5] = {1, 1, 1, 1, 1};
    EXPECT_EQ(call->run(kDMax, nullptr, 0, nullptr, somewhere + 1), kOk);
    EXPECT_EQ(std::string(somewhere, 5), std::string("\1\0\0\0\0", 5));
    EXPECT_EQ(call->run(kDMax, nullptr, 0), kOk);
    call->num = {kUnwrittenInt};
    call->expect_untouched();
  }
}

TEST_F(CDynamicScatter, NoResultSharesMemory) {
  ScatterForward call = shipped(4);
  const auto run = [&](void* coors, void* num) {
    return call.run(kDMax, call.workspace.data(), call.required, coors, num);
  };
  EXPECT_EQ(run(call.feats.data() + 0, call.num.data()), kBad);
  EXPECT_EQ(run(call.coors.data(), call.coors.data() + 17), kBad);
  EXPECT_STREQ(
      turnoutLastError(),
      "mluOpDynamicPointToVoxelForward: coors overlaps voxel_num in memory, expected separate buffers");
  EXPECT_EQ(run(call.coors.data(), call.feats.data() + 5), kBad);
  EXPECT_EQ(run(call.coors.data(), call.counts.data() + 3), kBad);
  EXPECT_EQ(run(reinterpret_cast<char*>(call.coors.data()) + 1, call.num.data()), kBad);
  expect_message("coors.data is not aligned");
  EXPECT_EQ(run(call.coors.data(), nullptr), kBad);
  expect_message("voxel_num.data is null");
  call.expect_untouched();
  EXPECT_EQ(run(call.coors.data(), call.num.data()), kOk);
}

TEST_F(CDynamicScatter, WorkspaceProtocol) {
  ScatterForward forward = shipped(4);
  ScatterBackward backward = small();
  for (bool is_forward : {true, false}) {
    const std::size_t required = is_forward ? forward.required : backward.required;
    const std::string name =
        is_forward ? "mluOpDynamicPointToVoxelForward" : "mluOpDynamicPointToVoxelBackward";
    const auto run = [&](void* memory, std::size_t size) {
      return is_forward ? forward.run(kDMax, memory, size) : backward.run(kDMax, memory, size);
    };
    ASSERT_GT(required, 0u);
    EXPECT_EQ(run(nullptr, required), kBad);
    EXPECT_EQ(turnoutLastError(), name + ": workspace is NULL and workspace_size is " +
                                      std::to_string(required) + ", expected memory");
    std::vector<char> memory(required);
    EXPECT_EQ(run(nullptr, 0), kBad);
    EXPECT_EQ(run(memory.data(), 0), kBad);
    EXPECT_EQ(run(memory.data(), required - 1), kBad);
    EXPECT_EQ(turnoutLastError(), name + ": workspace_size is " + std::to_string(required - 1) +
                                      " bytes, expected " + std::to_string(required) + " or more");
    Floats shared(required);
    Floats& feats = is_forward ? forward.feats : backward.feats;
    std::copy(feats.begin(), feats.end(), shared.begin());
    feats.swap(shared);
    EXPECT_EQ(run(feats.data(), required), kBad);
    expect_message("workspace overlaps feats");
    feats.swap(shared);
  }
  forward.expect_untouched();
  EXPECT_TRUE(is_unwritten(backward.grad_feats));
}

// The plan uses only the caller's workspace, at any address.
TEST_F(CDynamicScatter, NothingAroundTheWorkspaceIsTouched) {
  for (std::size_t offset : kWorkspaceOffsets) {
    ScatterForward forward = random(500, 7, 4);
    ScatterBackward backward = after(forward);
    for (bool is_forward : {true, false}) {
      const std::size_t required = is_forward ? forward.required : backward.required;
      PaintedWorkspace workspace(required, offset);
      ASSERT_EQ(is_forward ? forward.run(kDMax, workspace.begin(), required)
                           : backward.run(kDMax, workspace.begin(), required),
                kOk)
          << turnoutLastError();
      workspace.expect_used_and_nothing_around_it();
    }
    expect_bits(backward.grad_feats, backward.definition());
  }
}

TEST_F(CDynamicScatter, TheSizeIsThatOfThePlan) {
  ScatterForward forward = random(500, 7, 4);
  EXPECT_EQ(forward.required, families::dynamic_scatter::CoordinateGrouping(500).scratch_bytes() + 63);
  // For any number of voxels.
  const std::size_t most = after(forward).required;
  const auto backward = [](std::int64_t points, std::int64_t voxels, int threads) {
    return families::dynamic_scatter::BackwardPlan(points, voxels, Reduce::max, threads).scratch_bytes();
  };
  for (std::int64_t voxels : {0, 1, 5, 20, 100, 499, 500})
    EXPECT_LE(backward(500, voxels, handle->context.threads()) + 63, most) << voxels;
  for (const int threads : {1, 2, 5})
    for (std::int64_t voxels = 1; voxels <= 200000; voxels = voxels * 3 / 2 + 1)
      EXPECT_LE(backward(200000, voxels, threads), backward(200000, 200000, threads));
}

TEST_F(CDynamicScatter, QueriesLookAtNoShape) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Descriptor vector(MLUOP_DTYPE_INT8, {7}), negative(MLUOP_DTYPE_HALF, {-1, 2}),
      large(MLUOP_DTYPE_FLOAT, {huge, huge}), none(MLUOP_DTYPE_FLOAT, {huge, 0}),
      at_limit(MLUOP_DTYPE_FLOAT, {std::int64_t{1} << 31, 1});
  mluOpTensorDescriptor_t unset = nullptr;
  ASSERT_EQ(mluOpCreateTensorDescriptor(&unset), kOk);
  for (mluOpTensorDescriptor_t x :
       {static_cast<mluOpTensorDescriptor_t>(vector), static_cast<mluOpTensorDescriptor_t>(negative),
        static_cast<mluOpTensorDescriptor_t>(large), static_cast<mluOpTensorDescriptor_t>(none),
        static_cast<mluOpTensorDescriptor_t>(at_limit), unset}) {
    std::size_t sizes[3] = {1, 1, 1};
    const auto mode = static_cast<mluOpReduceMode_t>(-4);
    EXPECT_EQ(mluOpGetDynamicPointToVoxelForwardWorkspaceSize(handle, x, vector, &sizes[0]), kOk);
    EXPECT_EQ(
        mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(handle, mode, vector, x, x, x, x, x, &sizes[1]),
        kOk);
    EXPECT_EQ(mluOpGetDynamicScatterBackwardWorkspaceSize(handle, mode, x, &sizes[2]), kOk);
    for (std::size_t size : sizes) EXPECT_EQ(size, 0u);
  }
  EXPECT_EQ(mluOpDestroyTensorDescriptor(unset), kOk);
}

}  // namespace
}  // namespace turnout::test
