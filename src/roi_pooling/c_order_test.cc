// The order of checks of this family's C functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr int kLarge = 1 << 30;
constexpr std::size_t kArgmax = 3;

// The tensors are rois, pts, pts_feature, argmax, pts_idx_of_voxels and pooled_features. kHasArgmax: argmax
// has a descriptor from the beginning. The workspace is checked although it is not used.
template <int kMethod, bool kHasArgmax>
struct RoiAwareForwardCall {
  bool has_handle = false, has_workspace = false, is_apart = false;
  int pool_method = 2, boxes_num = 0, pts_num = 0, channels = 0, max_pts = 0, out_x = 0, out_y = 0, out_z = 0;
  std::vector<Part> parts = std::vector<Part>(6);

  RoiAwareForwardCall() {
    for (Part& part : parts) part.wrong_extent = Shape(5, 1);
    parts[kArgmax].described = kHasArgmax;
    if (!kHasArgmax) parts[kArgmax].strided = false;  // otherwise the check of strides would find it later
  }
  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float rois[64], pts[64], features[64], pooled[64];
    static std::int32_t argmax[64], lists[64];
    static char workspace[10];
    Given g(parts.size());
    g.add(parts[0], {boxes_num, 7}, MLUOP_DTYPE_FLOAT, rois);
    g.add(parts[1], {pts_num, 3}, MLUOP_DTYPE_FLOAT, pts);
    g.add(parts[2], {pts_num, channels}, MLUOP_DTYPE_FLOAT, is_apart ? features : pooled);
    g.add(parts[3], {boxes_num, out_x, out_y, out_z, channels}, MLUOP_DTYPE_INT32, argmax);
    g.add(parts[4], {boxes_num, out_x, out_y, out_z, max_pts}, MLUOP_DTYPE_INT32, lists);
    g.add(parts[5], {boxes_num, out_x, out_y, out_z, channels}, MLUOP_DTYPE_FLOAT, pooled);
    return mluOpRoiAwarePool3dForward(
        has_handle ? handle : nullptr, pool_method, boxes_num, pts_num, channels, g.desc[0], g.data[0],
        g.desc[1], g.data[1], g.desc[2], g.data[2], has_workspace ? workspace : nullptr, sizeof(workspace),
        max_pts, out_x, out_y, out_z, g.desc[3], g.data[3], g.desc[4], g.data[4], g.desc[5], g.data[5]);
  }
};

template <class Call>
void add_large_tensors(Stairs<Call>& stairs) {
  stairs.bad("workspace is NULL", [](Call& c) { c.boxes_num = kLarge; });
  stairs.unsupported("rois has 7516192768 elements", [](Call& c) { c.boxes_num = 2, c.pts_num = kLarge; });
  stairs.unsupported("pts has 3221225472 elements", [](Call& c) { c.pts_num = 4, c.channels = kLarge; });
  stairs.unsupported("pts_feature has 4294967296 elements",
                     [](Call& c) { c.channels = 2, c.max_pts = kLarge; });
  stairs.unsupported("pts_idx_of_voxels has 4294967296 elements",
                     [](Call& c) { c.max_pts = 1, c.out_x = kLarge / 2; });
  stairs.unsupported("pooled_features has 2147483648 elements", [](Call& c) {
    c.out_x = 2, c.max_pts = 3;
    c.boxes_num = 1 << 16, c.pts_num = 1 << 15;
  });
  stairs.unsupported("boxes_num * pts_num is 2147483648, expected at most 2147483647",
                     [](Call& c) { c.boxes_num = 2, c.pts_num = 3; });
}

template <int kMethod, bool kHasArgmax>
void expect_order_of_forward() {
  using Call = RoiAwareForwardCall<kMethod, kHasArgmax>;
  Stairs<Call> stairs("mluOpRoiAwarePool3dForward");
  const EachTensor<Call> each{
      stairs, {"rois", "pts", "pts_feature", "argmax", "pts_idx_of_voxels", "pooled_features"}};
  const auto but_argmax = {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{5}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : but_argmax) each.missing(i);
  for (std::size_t i : but_argmax)
    stairs.bad(each.names[i] + " has ", [i](Call& c) { c.parts[i].right_rank = true; });
  for (std::size_t i : but_argmax)
    for (std::size_t d = 0; d < (i < kArgmax ? 2u : 5u); ++d) each.extent(i, d);
  for (std::size_t i : but_argmax)
    stairs.bad(each.names[i] + " has dtype ", [i](Call& c) { c.parts[i].right_dtype = true; });
  stairs.bad("pool_method is 2, expected one of 0 .. 1", [](Call& c) { c.pool_method = kMethod; });
  stairs.bad("boxes_num is 0, expected 1 or more", [](Call& c) { c.boxes_num = 2; });
  stairs.bad("pts_num is 0", [](Call& c) { c.pts_num = 3; });
  stairs.bad("channels is 0", [](Call& c) { c.channels = 2; });
  stairs.bad("max_pts_each_voxel is 0", [](Call& c) { c.max_pts = 3; });
  stairs.bad("out_x is 0", [](Call& c) { c.out_x = 2; });
  stairs.bad("out_y is 0", [](Call& c) { c.out_y = 1; });
  stairs.bad("out_z is 0", [](Call& c) { c.out_z = 1; });
  for (std::size_t i = 0; i < 6; ++i)
    if (i != kArgmax || kHasArgmax)
      stairs.unsupported(each.names[i] + " is strided", [i](Call& c) { c.parts[i].strided = false; });
  add_large_tensors(stairs);
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  for (std::size_t i : but_argmax)
    stairs.bad(each.names[i] + ".data is null", [i](Call& c) { c.parts[i].has_data = true; });
  if (kMethod == 0) {
    if (!kHasArgmax) each.missing(kArgmax);
    stairs.bad("argmax has 6 dimensions", [](Call& c) { c.parts[kArgmax].right_rank = true; });
    for (std::size_t d = 0; d < 5; ++d) each.extent(kArgmax, d);
    stairs.bad("argmax has dtype ", [](Call& c) { c.parts[kArgmax].right_dtype = true; });
    stairs.bad("argmax.data is null", [](Call& c) { c.parts[kArgmax].has_data = true; });
  }
  stairs.bad("pooled_features overlaps pts_feature", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CRoiPoolingOrder, OfMaximaIsTheContract) { expect_order_of_forward<0, true>(); }
TEST(CRoiPoolingOrder, OfMaximaWithoutArgmaxIsTheContract) { expect_order_of_forward<0, false>(); }
TEST(CRoiPoolingOrder, OfMeansIsTheContract) { expect_order_of_forward<1, true>(); }
TEST(CRoiPoolingOrder, OfMeansWithoutArgmaxIsTheContract) { expect_order_of_forward<1, false>(); }

// The tensors are pts_idx_of_voxels, argmax, grad_out and grad_in.
template <int kMethod>
struct RoiAwareBackwardCall {
  bool has_handle = false, is_apart = false;
  int pool_method = 2, boxes_num = 0, pts_num = 0, channels = 0, max_pts = 0, out_x = 0, out_y = 0, out_z = 0;
  int point = 3;
  // grad_in.shape[0], which nothing else has, is wrong by a negative number.
  std::vector<Part> parts = {{.wrong_extent = Shape(5, 1)},
                             {.wrong_extent = Shape(5, 1)},
                             {.wrong_extent = Shape(5, 1)},
                             {.wrong_extent = {kNegative, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float grad_out[64], grad_in[64];
    static std::int32_t lists[64], argmax[64];
    lists[0] = kMethod == 1, lists[1] = argmax[1] = point;
    Given g(parts.size());
    g.add(parts[0], {boxes_num, out_x, out_y, out_z, max_pts}, MLUOP_DTYPE_INT32, lists);
    g.add(parts[1], {boxes_num, out_x, out_y, out_z, channels}, MLUOP_DTYPE_INT32, argmax);
    g.add(parts[2], {boxes_num, out_x, out_y, out_z, channels}, MLUOP_DTYPE_FLOAT,
          is_apart ? grad_out : grad_in);
    g.add(parts[3], {pts_num, channels}, MLUOP_DTYPE_FLOAT, grad_in);
    return mluOpRoiAwarePool3dBackward(has_handle ? handle : nullptr, pool_method, boxes_num, out_x, out_y,
                                       out_z, channels, max_pts, g.desc[0], g.data[0], g.desc[1], g.data[1],
                                       g.desc[2], g.data[2], g.desc[3], g.data[3]);
  }
};

template <int kMethod>
void expect_order_of_backward() {
  using Call = RoiAwareBackwardCall<kMethod>;
  Stairs<Call> stairs("mluOpRoiAwarePool3dBackward");
  const EachTensor<Call> each{stairs, {"pts_idx_of_voxels", "argmax", "grad_out", "grad_in"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2, 3}) each.missing(i);
  each.ranks();
  each.extents();
  each.dtypes();
  stairs.bad("pool_method is 2, expected one of 0 .. 1", [](Call& c) { c.pool_method = kMethod; });
  stairs.bad("boxes_num is 0, expected 1 or more", [](Call& c) { c.boxes_num = 2; });
  stairs.bad("out_x is 0", [](Call& c) { c.out_x = 2; });
  stairs.bad("out_y is 0", [](Call& c) { c.out_y = 1; });
  stairs.bad("out_z is 0", [](Call& c) { c.out_z = 1; });
  stairs.bad("channels is 0", [](Call& c) { c.channels = 2; });
  stairs.bad("max_pts_each_voxel is 0", [](Call& c) { c.max_pts = 3; });
  stairs.bad("grad_in has shape [0, 2], expected at least one element", [](Call& c) { c.pts_num = 3; });
  each.strided();
  stairs.bad("pts_idx_of_voxels.data is null", [](Call& c) { c.max_pts = kLarge; });
  stairs.unsupported("pts_idx_of_voxels has 4294967296 elements",
                     [](Call& c) { c.max_pts = 3, c.channels = kLarge; });
  stairs.unsupported("argmax has 4294967296 elements", [](Call& c) { c.channels = 2, c.pts_num = kLarge; });
  stairs.unsupported("grad_in has 2147483648 elements", [](Call& c) { c.pts_num = 3; });
  each.data();
  stairs.bad("grad_in overlaps grad_out", [](Call& c) { c.is_apart = true; });
  if (kMethod == 0) {
    stairs.bad("argmax[0, 0, 0, 0, 1] is 3, expected -1 .. 2", [](Call& c) { c.point = 2; });
  } else {
    stairs.bad("pts_idx_of_voxels[0, 0, 0, 0, 1] is 3, expected 0 .. 2", [](Call& c) { c.point = 2; });
  }
  stairs.succeeds();
  stairs.climb();
}

TEST(CRoiPoolingOrder, OfGradientsOfMaximaIsTheContract) { expect_order_of_backward<0>(); }
TEST(CRoiPoolingOrder, OfGradientsOfMeansIsTheContract) { expect_order_of_backward<1>(); }

TEST(CRoiPoolingOrder, OfTheQueryOfRoiAwareIsTheContract) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), kOk);
  const Descriptor features(MLUOP_DTYPE_INT8, {2, 4, 9});  // nothing of it is checked
  for (const auto function :
       {mluOpGetRoiAwarePool3dForwardWorkspaceSize, mluOpGetRoiawarePool3dForwardWorkspaceSize}) {
    std::size_t size = 7;
    EXPECT_EQ(function(nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
    EXPECT_STREQ(turnoutLastError(), "mluOpGetRoiAwarePool3dForwardWorkspaceSize: handle is NULL");
    EXPECT_EQ(function(handle, nullptr, nullptr, features, nullptr), kBad);
    EXPECT_STREQ(turnoutLastError(), "mluOpGetRoiAwarePool3dForwardWorkspaceSize: workspace_size is NULL");
    EXPECT_EQ(function(handle, features, features, nullptr, &size), kBad);
    EXPECT_STREQ(turnoutLastError(), "mluOpGetRoiAwarePool3dForwardWorkspaceSize: pts_feature is missing");
    EXPECT_EQ(size, 7u);
    EXPECT_EQ(function(handle, nullptr, nullptr, features, &size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
  }
  EXPECT_EQ(mluOpDestroy(handle), kOk);
}

// The tensors are points, point_features, boxes3d, pooled_features and pooled_empty_flag.
template <bool kQuery>
struct RoiPointCall {
  bool has_handle = false, has_workspace = false, has_size = false, is_apart = false;
  int batch = 2, points = 3, boxes = 2, channels = 2, samples = 2, wrong = -7;
  std::vector<Part> parts = {{.wrong_extent = Shape(3, 1)},
                             {.wrong_extent = Shape(3, 1)},
                             {.wrong_extent = Shape(3, 1)},
                             {.wrong_extent = Shape(4, 1)},
                             {.wrong_extent = Shape(2, 1)}};
  int wrong_scalars = 5;  // the first ones are right

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float points_data[64], features[64], boxes_data[64], pooled[64];
    static std::int32_t flags[64];
    static char workspace[10];
    Given g(parts.size());
    g.add(parts[0], {batch, points, 3}, MLUOP_DTYPE_FLOAT, points_data);
    g.add(parts[1], {batch, points, channels}, MLUOP_DTYPE_FLOAT, is_apart ? features : pooled);
    g.add(parts[2], {batch, boxes, 7}, MLUOP_DTYPE_FLOAT, boxes_data);
    g.add(parts[3], {batch, boxes, samples, channels + 3}, MLUOP_DTYPE_FLOAT, pooled);
    g.add(parts[4], {batch, boxes}, MLUOP_DTYPE_INT32, flags);
    int scalars[] = {batch, points, boxes, channels, samples};
    for (int i = 5 - wrong_scalars; i < 5; ++i) scalars[i] = wrong - i;
    mluOpHandle_t given = has_handle ? handle : nullptr;
    if (!kQuery)
      return mluOpRoiPointPool3d(given, scalars[0], scalars[1], scalars[2], scalars[3], scalars[4], g.desc[0],
                                 g.data[0], g.desc[1], g.data[1], g.desc[2], g.data[2],
                                 has_workspace ? workspace : nullptr, sizeof(workspace), g.desc[3], g.data[3],
                                 g.desc[4], g.data[4]);
    std::size_t size = 7;
    const mluOpStatus_t status = mluOpGetRoiPointPool3dWorkspaceSize(
        given, scalars[0], scalars[1], scalars[2], scalars[3], scalars[4], g.desc[0], g.desc[1], g.desc[2],
        g.desc[3], g.desc[4], has_size ? &size : nullptr);
    EXPECT_EQ(size, status == kOk ? 0u : 7u);
    return status;
  }
};

template <bool kQuery>
void expect_order_of_roi_point() {
  using Call = RoiPointCall<kQuery>;
  Stairs<Call> stairs(kQuery ? "mluOpGetRoiPointPool3dWorkspaceSize" : "mluOpRoiPointPool3d");
  const EachTensor<Call> each{
      stairs, {"points", "point_features", "boxes3d", "pooled_features", "pooled_empty_flag"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  if (kQuery) stairs.bad("size is NULL", [](Call& c) { c.has_size = true; });
  for (std::size_t i = 0; i < 5; ++i) each.missing(i);
  each.ranks();
  const char* const names[] = {"batch_size", "pts_num", "boxes_num", "feature_in_len", "sampled_pts_num"};
  for (int i = 0; i < 5; ++i)
    stairs.bad(names[i] + std::string(" is ") + std::to_string(-7 - i) + ", expected 0 or more",
               [](Call& c) { --c.wrong_scalars; });
  each.extents();
  // A scalar that differs from all tensors.
  stairs.unsupported("points is strided", [](Call& c) { c.wrong_scalars = 1, c.wrong = 8; });
  stairs.bad("pooled_features.shape[2] is 2, expected 4 = sampled_pts_num",
             [](Call& c) { c.wrong_scalars = 0; });
  each.strided();
  each.dtypes();
  if (kQuery) {
    stairs.succeeds([](Call& c) { c.points = c.boxes = kLarge; });
  } else {
    stairs.bad("workspace is NULL", [](Call& c) { c.points = c.boxes = kLarge; });
  }
  stairs.unsupported("points has 6442450944 elements", [](Call& c) { c.points = 3; });
  stairs.unsupported("boxes3d has 15032385536 elements", [](Call& c) { c.boxes = 2, c.samples = kLarge; });
  stairs.unsupported("pooled_features has 21474836480 elements", [](Call& c) {
    c.points = 1, c.samples = 1;
    c.channels = kLarge;
  });
  stairs.unsupported("point_features has 2147483648 elements", [](Call& c) {
    c.points = 3, c.samples = 2;
    c.channels = 2, c.batch = 0;
  });
  if (!kQuery) stairs.bad("workspace is NULL", [](Call& c) { c.has_workspace = true; });
  stairs.bad("points has shape [0, 3, 3], expected at least one element",
             [](Call& c) { c.batch = 2, c.points = 0; });
  stairs.bad("points has shape [2, 0, 3]", [](Call& c) { c.points = 3, c.channels = 0; });
  stairs.bad("point_features has shape [2, 3, 0]", [](Call& c) { c.channels = 2, c.boxes = 0; });
  stairs.bad("boxes3d has shape [2, 0, 7]", [](Call& c) { c.boxes = 2, c.samples = 0; });
  stairs.bad("pooled_features has shape [2, 2, 0, 5]", [](Call& c) { c.samples = 2; });
  if (!kQuery) {
    each.data();
    stairs.bad("pooled_features overlaps point_features", [](Call& c) { c.is_apart = true; });
  }
  stairs.succeeds();
  stairs.climb();
}

TEST(CRoiPoolingOrder, OfRoiPointPool3dIsTheContract) { expect_order_of_roi_point<false>(); }
TEST(CRoiPoolingOrder, OfTheQueryOfRoiPointIsTheContract) { expect_order_of_roi_point<true>(); }

}  // namespace
}  // namespace turnout::test
