// Tests voxelization through the C interface: results, rejected arguments, what an empty call writes, and the
// workspace protocol.
#include "c_workspace.h"
#include "dynamic_scatter/c_test_cases.h"
#include "dynamic_scatter/dynamic_scatter.h"

namespace turnout::test {
namespace {

// A call with painted results and a workspace of the queried size.
struct HardVoxels {
  mluOpHandle_t handle;
  std::int64_t rows, features;
  std::int32_t max_points, max_voxels, dims = 3;
  bool deterministic = true;
  Floats points, voxel_size{1, 1, 1}, range{0, 0, 0, 4, 4, 4}, voxels;
  Ints coors, num_points, num{kUnwrittenInt};
  Descriptor points_desc, size_desc, range_desc, voxels_desc, coors_desc, num_points_desc, num_desc;
  std::size_t required = 0;
  std::vector<char> workspace;

  HardVoxels(mluOpHandle_t h, std::int64_t f, std::int32_t most_points, std::int32_t most_voxels,
             Floats values)
      : handle(h),
        rows(f == 0 ? 2 : static_cast<std::int64_t>(values.size()) / f),
        features(f),
        max_points(most_points),
        max_voxels(most_voxels),
        points(std::move(values)),
        voxels(count_of(most_voxels, most_points * f), kUnwrittenFloat),
        coors(count_of(most_voxels, 3), kUnwrittenInt),
        num_points(count_of(most_voxels), kUnwrittenInt),
        points_desc(MLUOP_DTYPE_FLOAT, {rows, f}),
        size_desc(MLUOP_DTYPE_FLOAT, {3}),
        range_desc(MLUOP_DTYPE_FLOAT, {6}),
        voxels_desc(MLUOP_DTYPE_FLOAT, {most_voxels, most_points, f}),
        coors_desc(MLUOP_DTYPE_INT32, {most_voxels, 3}),
        num_points_desc(MLUOP_DTYPE_INT32, {most_voxels}),
        num_desc(MLUOP_DTYPE_INT32, {1}) {
    if (query(&required) == kOk) workspace.resize(required);
  }

  mluOpStatus_t query(std::size_t* size) const {
    return mluOpGetVoxelizationWorkspaceSize(handle, points_desc, size_desc, range_desc, max_points,
                                             max_voxels, dims, deterministic, voxels_desc, coors_desc,
                                             num_points_desc, num_desc, size);
  }
  mluOpStatus_t run() { return run(data_of(workspace), required); }
  mluOpStatus_t run(void* memory, std::size_t size) {
    return run(memory, size, data_of(coors), data_of(num_points), num.data());
  }
  mluOpStatus_t run(void* memory, std::size_t size, void* coors_at, void* num_points_at, void* num_at) {
    return mluOpVoxelization(handle, points_desc, data_of(points), size_desc, voxel_size.data(), range_desc,
                             range.data(), max_points, max_voxels, dims, deterministic, memory, size,
                             voxels_desc, data_of(voxels), coors_desc, coors_at, num_points_desc,
                             num_points_at, num_desc, num_at);
  }

  void expect_untouched() const {
    EXPECT_TRUE(is_unwritten(voxels) && is_unwritten(coors) && is_unwritten(num_points) && is_unwritten(num));
  }
  void expect_refused(const std::string& message) {
    EXPECT_EQ(run(), kBad);
    expect_message(message);
    expect_untouched();
  }

  void expect_equal_to_definition() {
    reference::Grid<float> grid;
    std::copy_n(voxel_size.begin(), 3, grid.voxel_size);
    std::copy_n(range.begin(), 6, grid.point_cloud_range);
    std::vector<Floats> each;
    for (auto p = points.begin(); p != points.end(); p += features) each.emplace_back(p, p + features);
    const auto want = reference::voxelize_hard(each, grid, count_of(max_points), count_of(max_voxels));
    Floats want_voxels(voxels.size());
    Ints want_coors(coors.size()), want_num_points(num_points.size());
    for (std::size_t v = 0; v < want.size(); ++v) {
      want_num_points[v] = static_cast<std::int32_t>(want[v].points.size());
      for (std::size_t d = 0; d < 3; ++d) want_coors[v * 3 + d] = static_cast<std::int32_t>(want[v].coors[d]);
      auto to = want_voxels.begin() + static_cast<std::int64_t>(v) * max_points * features;
      for (std::int64_t x : want[v].points)
        to = std::copy(each[count_of(x)].begin(), each[count_of(x)].end(), to);
    }
    ASSERT_EQ(run(), kOk) << turnoutLastError();
    EXPECT_STREQ(turnoutLastError(), "");
    expect_bits(voxels, want_voxels);
    EXPECT_EQ(coors, want_coors);
    EXPECT_EQ(num_points, want_num_points);
    EXPECT_EQ(num[0], static_cast<std::int32_t>(want.size()));
  }
};

class CVoxelization : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // Three voxels with two, one and one points; the second point is outside, the last in the first voxel.
  HardVoxels small(std::int32_t max_points = 2, std::int32_t max_voxels = 3) const {
    return {handle, 3, max_points, max_voxels, {3.5f, 2, 1, 4, 0, 0, 0, 0, 0.5f, 1, 1, 1, 3, 2.25f, 1.75f}};
  }

  mluOpHandle_t handle = nullptr;
};

TEST_F(CVoxelization, WorkedExample) {
  HardVoxels call = small();
  ASSERT_EQ(call.run(), kOk) << turnoutLastError();
  EXPECT_EQ(call.num, (Ints{3}));
  EXPECT_EQ(call.coors, (Ints{1, 2, 3, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(call.num_points, (Ints{2, 1, 1}));
  EXPECT_EQ(call.voxels, (Floats{3.5f, 2, 1, 3, 2.25f, 1.75f, 0, 0, 0.5f, 0, 0, 0, 1, 1, 1, 0, 0, 0}));
}

TEST_F(CVoxelization, WithoutRoomForAllVoxelsOrPoints) {
  HardVoxels voxels = small(2, 1);  // the last point is still stored
  ASSERT_EQ(voxels.run(), kOk) << turnoutLastError();
  EXPECT_EQ(voxels.num, (Ints{1}));
  EXPECT_EQ(voxels.voxels, (Floats{3.5f, 2, 1, 3, 2.25f, 1.75f}));
  HardVoxels points = small(1, 5);
  ASSERT_EQ(points.run(), kOk) << turnoutLastError();
  EXPECT_EQ(points.num, (Ints{3}));
  EXPECT_EQ(points.num_points, (Ints{1, 1, 1, 0, 0}));
  EXPECT_EQ(points.coors, (Ints{1, 2, 3, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST_F(CVoxelization, EqualsTheDefinition) {
  for (int threads : {1, 2, 5}) {
    handle->context.set_threads(threads);
    for (std::int64_t features : {3, 4, 9}) {
      HardVoxels call(handle, features, 5, 100, random_floats(count_of(2000, features), 6));
      call.range = {-7.25f, -3, -8, 6, 7.9f, 3};
      call.voxel_size = {0.75f, 2, 3.3f};
      call.points[7] = kNotANumber, call.points[100] = kInfinity, call.points[200] = -kInfinity;
      call.expect_equal_to_definition();
      EXPECT_EQ(call.num[0], 100);
      HardVoxels roomy(handle, features, 5, 3000, call.points);
      roomy.range = call.range, roomy.voxel_size = call.voxel_size;
      roomy.expect_equal_to_definition();
    }
  }
}

TEST_F(CVoxelization, NoPointIsInsideTheRange) {
  HardVoxels call(handle, 3, 2, 2, {-1, 0, 0, 0, 0, 4, 1, kNotANumber, 1});
  call.expect_equal_to_definition();
  EXPECT_EQ(call.num, (Ints{0}));
}

TEST_F(CVoxelization, WhatIsNotDeterministicOrNotThreeDimensionalIsBad) {
  HardVoxels loose = small();
  loose.deterministic = false;
  std::size_t size = 9;
  EXPECT_EQ(loose.query(&size), kBad);
  EXPECT_EQ(size, 9u);
  loose.expect_refused("mluOpVoxelization: deterministic is 0, expected 1 (true)");
  for (std::int32_t dims : {2, 4}) {
    HardVoxels flat = small();
    flat.dims = dims;
    EXPECT_EQ(flat.query(&size), kBad);
    flat.expect_refused("NDim is " + std::to_string(dims) + ", expected 3");
  }
}

TEST_F(CVoxelization, EmptyPointsAreBad) {
  for (std::int32_t max_points : {0, 2}) {
    HardVoxels no_points(handle, 3, max_points, 2, {});
    std::size_t size = 9;
    EXPECT_EQ(no_points.query(&size), kBad);
    no_points.expect_refused("points.shape[0] is 0, expected 1 or more");
    HardVoxels no_features(handle, 0, max_points, 2, {});
    no_features.expect_refused("points.shape[1] is 0, expected 1 or more");
  }
}

// Two features are an error only if the call is not empty.
TEST_F(CVoxelization, TooFewFeaturesAreBad) {
  HardVoxels call(handle, 2, 2, 2, {1, 2});
  EXPECT_GT(call.required, 0u);
  call.expect_refused("points.shape[1] is 2, expected 3 or more");
}

TEST_F(CVoxelization, WithoutRoomTheResultsSaySo) {
  for (const auto& [max_points, max_voxels] : {std::pair{0, 5}, {4, 0}, {0, 0}}) {
    HardVoxels call(handle, 2, max_points, max_voxels, {1, 2});
    EXPECT_EQ(call.required, 0u);
    EXPECT_EQ(call.run(nullptr, 10), kBad) << "a size without memory";
    EXPECT_STREQ(turnoutLastError(),
                 "mluOpVoxelization: workspace is NULL and workspace_size is 10, expected memory");
    call.expect_untouched();
    EXPECT_EQ(call.run(nullptr, 0, nullptr, nullptr, nullptr), kOk) << turnoutLastError();
    char memory[10];
    ASSERT_EQ(call.run(memory, sizeof(memory)), kOk) << turnoutLastError();
    EXPECT_EQ(call.num, (Ints{0}));
    EXPECT_EQ(call.coors, Ints(count_of(max_voxels, 3), 0));
    EXPECT_EQ(call.num_points, Ints(count_of(max_voxels), 0));
  }
}

TEST_F(CVoxelization, RangesWithoutVoxelsAreBad) {
  for (float size : {0.0f, -1.0f, kNotANumber, kInfinity}) {
    HardVoxels call = small();
    call.voxel_size[1] = size;
    call.expect_refused("voxel_size[1] is ");
  }
  HardVoxels call = small();
  call.range[5] = 0.25f;
  call.expect_refused("mluOpVoxelization: coors_range is 0 .. 0.25 in direction z");
}

TEST_F(CVoxelization, OverlapAndAlignment) {
  HardVoxels call = small();
  const auto run = [&](void* coors, void* num_points, void* num) {
    return call.run(call.workspace.data(), call.required, coors, num_points, num);
  };
  EXPECT_EQ(run(call.coors.data(), call.num_points.data(), call.coors.data() + 8), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpVoxelization: coors overlaps voxel_num in memory, expected separate buffers");
  EXPECT_EQ(run(call.coors.data(), call.num_points.data(), call.range.data()), kBad);
  expect_message("voxel_num overlaps coors_range");
  EXPECT_EQ(run(call.points.data(), call.num_points.data(), call.num.data()), kBad);
  EXPECT_EQ(run(call.coors.data(), nullptr, call.num.data()), kBad);
  expect_message("num_points_per_voxel.data is null");
  EXPECT_EQ(run(call.coors.data(), call.num_points.data(), reinterpret_cast<char*>(call.num.data()) + 1),
            kBad);
  expect_message("voxel_num.data is not aligned");
  call.expect_untouched();
}

TEST_F(CVoxelization, WorkspaceProtocol) {
  HardVoxels call = small();
  EXPECT_EQ(call.required, families::dynamic_scatter::VoxelizeHardPlan(5).scratch_bytes() + 63);
  EXPECT_EQ(call.query(nullptr), kBad);
  EXPECT_EQ(call.run(nullptr, call.required), kBad);
  EXPECT_EQ(call.run(nullptr, 0), kBad);
  EXPECT_EQ(call.run(call.workspace.data(), call.required - 1), kBad);
  expect_message("workspace_size is " + std::to_string(call.required - 1) + " bytes, expected " +
                 std::to_string(call.required) + " or more");
  call.expect_untouched();
  for (std::size_t offset : kWorkspaceOffsets) {
    PaintedWorkspace workspace(call.required, offset);
    ASSERT_EQ(call.run(workspace.begin(), call.required), kOk) << turnoutLastError();
    workspace.expect_used_and_nothing_around_it();
    EXPECT_EQ(call.num, (Ints{3}));
  }
}

// The limit on elements does not apply to voxels.
TEST_F(CVoxelization, VoxelsMayBeLarge) {
  const std::int32_t most = 1 << 16;
  const Descriptor points(MLUOP_DTYPE_FLOAT, {5, 4}), size(MLUOP_DTYPE_FLOAT, {3}),
      range(MLUOP_DTYPE_FLOAT, {6}), voxels(MLUOP_DTYPE_FLOAT, {most, most, 4}),
      coors(MLUOP_DTYPE_INT32, {most, 3}), num_points(MLUOP_DTYPE_INT32, {most}), num(MLUOP_DTYPE_INT32, {1});
  std::size_t bytes = 0;
  EXPECT_EQ(mluOpGetVoxelizationWorkspaceSize(handle, points, size, range, most, most, 3, true, voxels, coors,
                                              num_points, num, &bytes),
            kOk)
      << turnoutLastError();
  EXPECT_GT(bytes, 0u);
}

}  // namespace
}  // namespace turnout::test
