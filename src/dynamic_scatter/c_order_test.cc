// The order of checks of the dynamic scatter and of the voxelization, written out by hand. Unlike the
// generated negative tests, these do not rely on the signatures.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

// Extents of a matrix of 2^31 elements, and the rows of three columns that have one element more.
constexpr std::int64_t kHugeRows = 1 << 20, kHugeColumns = 1 << 11, kHugeTriples = 715827883;
constexpr std::size_t kWorkspace = 1 << 20;  // enough

// A negative extent makes a tensor empty, and empty tensors are never strided. If strides are checked before
// shapes, the extents that bind sizes become wrong only after that step.
template <class Call>
void expect_strided_before_shapes(Stairs<Call>& stairs, const EachTensor<Call>& each,
                                  std::vector<std::pair<std::size_t, Shape>> binding) {
  each.strided();
  stairs.bad(each.names[0] + " has dtype ", [=](Call& c) {
    for (const auto& [i, wrong] : binding) c.parts[i].wrong_extent = wrong;
    c.parts[0].right_dtype = true;
  });
  for (std::size_t i = 1; i < each.names.size(); ++i)
    stairs.bad(each.names[i] + " has dtype ", [i](Call& c) { c.parts[i].right_dtype = true; });
}

// -- backward ----------------------------------------------------------------------------------------------

template <bool kOtherSpelling, bool kIsQuery>
struct BackwardCall {
  bool has_handle = false, has_size = false, has_workspace = false, is_apart = false, has_voxels = false,
       is_mapped = false;
  int reduce_type = 0;
  std::size_t workspace_size = 10;
  std::int64_t voxels = kHugeRows + 1, channels = kHugeColumns, points = kHugeRows;
  std::vector<Part> parts = {{.wrong_extent = {0, 0}}, {.wrong_extent = {0, 1}}, {.wrong_extent = {1, 1}},
                             {.wrong_extent = {1}},    {.wrong_extent = {1}},    {.wrong_extent = {1}},
                             {.wrong_extent = {1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float grad_voxel_feats[64], feats[64], voxel_feats[64], grad_feats[64];
    static std::int32_t map[64], counts[64], num[64];
    static char workspace[kWorkspace];
    num[0] = has_voxels ? 3 : 9;
    map[2] = is_mapped ? 2 : 3;
    Given g(parts.size());
    g.add(parts[0], {voxels, channels}, MLUOP_DTYPE_FLOAT, is_apart ? grad_voxel_feats : grad_feats);
    g.add(parts[1], {points, channels}, MLUOP_DTYPE_FLOAT, feats);
    g.add(parts[2], {voxels, channels}, MLUOP_DTYPE_FLOAT, voxel_feats);
    g.add(parts[3], {points}, MLUOP_DTYPE_INT32, map);
    g.add(parts[4], {voxels}, MLUOP_DTYPE_INT32, counts);
    g.add(parts[5], {1}, MLUOP_DTYPE_INT32, num);
    g.add(parts[6], {points, channels}, MLUOP_DTYPE_FLOAT, grad_feats);
    const mluOpHandle_t given = has_handle ? handle : nullptr;
    const auto mode = static_cast<mluOpReduceMode_t>(reduce_type);
    std::size_t size = 0;
    std::size_t* const to = has_size ? &size : nullptr;
    const auto& d = g.desc;
    const auto& data = g.data;
    if (kIsQuery)
      return kOtherSpelling ? mluOpGetDynamicScatterBackwardWorkspaceSize(given, mode, d[1], to)
                            : mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(given, mode, d[0], d[1], d[2],
                                                                               d[3], d[4], d[5], to);
    const auto function = [&](auto f) {
      return f(given, mode, d[0], data[0], d[1], data[1], d[2], data[2], d[3], data[3], d[4], data[4], d[5],
               data[5], has_workspace ? workspace : nullptr, workspace_size, d[6], data[6]);
    };
    return kOtherSpelling ? function(mluOpDynamicScatterBackward)
                          : function(mluOpDynamicPointToVoxelBackward);
  }
};

const std::vector<std::string> kBackwardTensors = {
    "grad_voxel_feats",   "feats",     "voxel_feats", "point2voxel_map",
    "voxel_points_count", "voxel_num", "grad_feats"};

// Table 4.2.1.
template <bool kOtherSpelling>
void expect_backward_order(const std::string& function) {
  using Call = BackwardCall<kOtherSpelling, false>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, kBackwardTensors};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i = 0; i < each.names.size(); ++i) each.missing(i);
  expect_strided_before_shapes<Call>(stairs, each, {{0, {kNegative, kNegative}}, {1, {kNegative, 1}}});
  each.ranks();
  each.extents();
  stairs.bad("grad_voxel_feats.shape[0] is 1048577, expected at most 1048576 = feats.shape[0]",
             [](Call& c) { c.voxels = kHugeRows; });
  stairs.bad("reduce_type is 0, expected 2 (max)", [](Call& c) { c.reduce_type = 1; });
  stairs.bad("reduce_type is 1, expected 2 (max)", [](Call& c) { c.reduce_type = 2; });
  stairs.unsupported("grad_voxel_feats has 2147483648 elements", [](Call& c) { c.voxels = 3; });
  stairs.unsupported("feats has 2147483648 elements", [](Call& c) { c.channels = 0; });
  stairs.succeeds([](Call& c) { c.points = c.voxels = 0, c.channels = 2; });
  stairs.succeeds([](Call& c) { c.points = 4, c.voxels = 3; });
  each.data();
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = kWorkspace; });
  stairs.bad("grad_feats overlaps grad_voxel_feats", [](Call& c) { c.is_apart = true; });
  stairs.bad("voxel_num[0] is 9, expected 0 .. 3 = grad_voxel_feats.shape[0]",
             [](Call& c) { c.has_voxels = true; });
  stairs.bad("point2voxel_map[2] is 3, expected -1 .. 2", [](Call& c) { c.is_mapped = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CDynamicScatterOrder, OfBackwardIsTheContract) {
  expect_backward_order<false>("mluOpDynamicPointToVoxelBackward");
  expect_backward_order<true>("mluOpDynamicScatterBackward");
}

// The query ignores shapes, dtypes and strides.
template <class Call>
void expect_order_of_query(const std::string& function, const std::vector<std::string>& names,
                           const std::vector<std::size_t>& described) {
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, names};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  for (std::size_t i : described) each.missing(i);
  stairs.succeeds();
  stairs.climb();
}

TEST(CDynamicScatterOrder, OfTheBackwardQueriesIsTheContract) {
  expect_order_of_query<BackwardCall<false, true>>("mluOpGetDynamicPointToVoxelBackwardWorkspaceSize",
                                                   kBackwardTensors, {0, 1, 2, 3, 4, 5});
  expect_order_of_query<BackwardCall<true, true>>("mluOpGetDynamicScatterBackwardWorkspaceSize",
                                                  kBackwardTensors, {1});
}

// -- forward -----------------------------------------------------------------------------------------------

template <bool kIsQuery>
struct ForwardCall {
  bool has_handle = false, has_size = false, has_workspace = false, is_apart = false;
  int reduce_type = 0;
  std::size_t workspace_size = 10;
  std::int64_t points = kHugeRows, channels = kHugeColumns, voxels = kHugeRows + 1;
  std::vector<Part> parts = {{.wrong_extent = {0, 0}}, {.wrong_extent = {1, 1}}, {.wrong_extent = {0, 1}},
                             {.wrong_extent = {1, 1}}, {.wrong_extent = {1}},    {.wrong_extent = {1}},
                             {.wrong_extent = {1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float feats[64], voxel_feats[64];
    static std::int32_t coors[64], voxel_coors[64], map[64], counts[64], num[64];
    static char workspace[kWorkspace];
    for (std::int32_t i = 0; i < 12; ++i) coors[i] = 2 - i / 3;  // three voxels
    Given g(parts.size());
    g.add(parts[0], {points, channels}, MLUOP_DTYPE_FLOAT, feats);
    g.add(parts[1], {points, 3}, MLUOP_DTYPE_INT32, is_apart ? static_cast<void*>(coors) : feats);
    g.add(parts[2], {voxels, channels}, MLUOP_DTYPE_FLOAT, voxel_feats);
    g.add(parts[3], {voxels, 3}, MLUOP_DTYPE_INT32, voxel_coors);
    g.add(parts[4], {points}, MLUOP_DTYPE_INT32, map);
    g.add(parts[5], {voxels}, MLUOP_DTYPE_INT32, counts);
    g.add(parts[6], {1}, MLUOP_DTYPE_INT32, num);
    const mluOpHandle_t given = has_handle ? handle : nullptr;
    std::size_t size = 0;
    const auto& d = g.desc;
    const auto& data = g.data;
    if (kIsQuery)
      return mluOpGetDynamicPointToVoxelForwardWorkspaceSize(given, d[0], d[1], has_size ? &size : nullptr);
    return mluOpDynamicPointToVoxelForward(given, static_cast<mluOpReduceMode_t>(reduce_type), d[0], data[0],
                                           d[1], data[1], has_workspace ? workspace : nullptr, workspace_size,
                                           d[2], data[2], d[3], data[3], d[4], data[4], d[5], data[5], d[6],
                                           data[6]);
  }
};

const std::vector<std::string> kForwardTensors = {
    "feats", "coors", "voxel_feats", "voxel_coors", "point2voxel_map", "voxel_points_count", "voxel_num"};

// Section 4.3.
TEST(CDynamicScatterOrder, OfForwardIsTheContract) {
  using Call = ForwardCall<false>;
  Stairs<Call> stairs("mluOpDynamicPointToVoxelForward");
  const EachTensor<Call> each{stairs, kForwardTensors};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i = 0; i < each.names.size(); ++i) each.missing(i);
  each.ranks();
  expect_strided_before_shapes<Call>(stairs, each, {{0, {kNegative, kNegative}}, {2, {kNegative, 1}}});
  const std::string expected = ", expected one of 1 .. 2 (mean max)";
  stairs.bad("reduce_type is 0" + expected, [](Call& c) { c.reduce_type = 3; });
  stairs.bad("reduce_type is 3" + expected, [](Call& c) { c.reduce_type = 1; });
  each.extents();
  stairs.bad("voxel_feats.shape[0] is 1048577, expected at most 1048576 = feats.shape[0]",
             [](Call& c) { c.voxels = 2; });
  stairs.unsupported("feats has 2147483648 elements", [](Call& c) {
    c.channels = 1;
    c.points = kHugeTriples;
  });
  stairs.unsupported("coors has 2147483649 elements", [](Call& c) { c.points = 4, c.channels = 0; });
  stairs.succeeds([](Call& c) { c.points = c.voxels = 0, c.channels = 2; });
  stairs.succeeds([](Call& c) { c.points = 4, c.voxels = 2; });
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = kWorkspace; });
  each.data();
  stairs.bad("coors overlaps feats", [](Call& c) { c.is_apart = true; });
  stairs.bad("voxel_feats.shape[0] is 2, expected 3 or more", [](Call& c) { c.voxels = 3; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CDynamicScatterOrder, OfTheForwardQueryIsTheContract) {
  expect_order_of_query<ForwardCall<true>>("mluOpGetDynamicPointToVoxelForwardWorkspaceSize", kForwardTensors,
                                           {0, 1});
}

// -- voxelization ------------------------------------------------------------------------------------------

template <bool kIsQuery>
struct VoxelizationCall {
  bool has_handle = false, has_size = false, has_workspace = false, is_apart = false, has_grid = false,
       deterministic = false;
  std::int32_t max_points = -1, max_voxels = -1, dims = 2;
  std::size_t workspace_size = 10;
  std::int64_t rows = kHugeRows, features = kHugeColumns;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative}},
                             {.wrong_extent = {1}},
                             {.wrong_extent = {1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {1, 1}},
                             {.wrong_extent = {1}},
                             {.wrong_extent = {1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float points[64], voxel_size[64], range[64], voxels[64];
    static std::int32_t coors[64], num_points[64], num[64];
    static char workspace[kWorkspace];
    std::fill_n(voxel_size, 3, has_grid ? 1.0f : 0.0f);
    std::fill_n(range + 3, 3, 1.0f);
    Given g(parts.size());
    g.add(parts[0], {rows, features}, MLUOP_DTYPE_FLOAT, points);
    g.add(parts[1], {3}, MLUOP_DTYPE_FLOAT, voxel_size);
    g.add(parts[2], {6}, MLUOP_DTYPE_FLOAT, range);
    g.add(parts[3], {max_voxels, max_points, features}, MLUOP_DTYPE_FLOAT, is_apart ? voxels : points);
    g.add(parts[4], {max_voxels, 3}, MLUOP_DTYPE_INT32, coors);
    g.add(parts[5], {max_voxels}, MLUOP_DTYPE_INT32, num_points);
    g.add(parts[6], {1}, MLUOP_DTYPE_INT32, num);
    const mluOpHandle_t given = has_handle ? handle : nullptr;
    std::size_t size = 0;
    const auto& d = g.desc;
    const auto& data = g.data;
    if (kIsQuery)
      return mluOpGetVoxelizationWorkspaceSize(given, d[0], d[1], d[2], max_points, max_voxels, dims,
                                               deterministic, d[3], d[4], d[5], d[6],
                                               has_size ? &size : nullptr);
    return mluOpVoxelization(given, d[0], data[0], d[1], data[1], d[2], data[2], max_points, max_voxels, dims,
                             deterministic, has_workspace ? workspace : nullptr, workspace_size, d[3],
                             data[3], d[4], data[4], d[5], data[5], d[6], data[6]);
  }
};

const std::vector<std::string> kVoxelizationTensors = {
    "points", "voxel_size", "coors_range", "voxels", "coors", "num_points_per_voxel", "voxel_num"};

// Section 4.4, up to an empty points.
template <class Call>
void expect_order_of_descriptors(Stairs<Call>& stairs, const EachTensor<Call>& each) {
  for (std::size_t i = 0; i < each.names.size(); ++i) each.missing(i);
  stairs.bad("deterministic is 0, expected 1 (true)", [](Call& c) { c.deterministic = true; });
  stairs.bad("max_points is -1, expected 0 or more", [](Call& c) { c.max_points = 2; });
  stairs.bad("max_voxels is -1, expected 0 or more", [](Call& c) { c.max_voxels = kHugeTriples; });
  stairs.bad("NDim is 2, expected 3", [](Call& c) { c.dims = 3; });
  each.ranks();
  each.extents();
  for (std::size_t i = 0; i < 6; ++i)  // voxel_num has one element, which cannot be strided
    stairs.unsupported(each.names[i] + " is strided", [i](Call& c) { c.parts[i].strided = false; });
  each.dtypes();
  stairs.unsupported("points has 2147483648 elements", [](Call& c) { c.rows = 0; });
  stairs.unsupported("coors has 2147483649 elements", [](Call& c) { c.max_voxels = 0; });
  stairs.bad("points.shape[0] is 0, expected 1 or more", [](Call& c) { c.rows = 2, c.features = 0; });
  stairs.bad("points.shape[1] is 0, expected 1 or more", [](Call& c) { c.features = 2; });
}

TEST(CVoxelizationOrder, IsTheContract) {
  using Call = VoxelizationCall<false>;
  Stairs<Call> stairs("mluOpVoxelization");
  const EachTensor<Call> each{stairs, kVoxelizationTensors};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  expect_order_of_descriptors(stairs, each);
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  stairs.succeeds([](Call& c) { c.max_voxels = 3, c.max_points = 0; });
  stairs.succeeds([](Call& c) { c.max_points = 2; });
  stairs.bad("points.shape[1] is 2, expected 3 or more", [](Call& c) { c.features = 3; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = kWorkspace; });
  each.data();
  stairs.bad("voxels overlaps points", [](Call& c) { c.is_apart = true; });
  stairs.bad("voxel_size[0] is 0, expected a positive finite number", [](Call& c) { c.has_grid = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CVoxelizationOrder, OfTheQueryIsTheContract) {
  using Call = VoxelizationCall<true>;
  Stairs<Call> stairs("mluOpGetVoxelizationWorkspaceSize");
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  expect_order_of_descriptors(stairs, EachTensor<Call>{stairs, kVoxelizationTensors});
  stairs.succeeds([](Call& c) { c.max_voxels = 3; });
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
