// The C functions of this family, each with its order of checks.
#include <atomic>

#include "bindings/mluop/call.h"
#include "bindings/mluop/widen.h"
#include "core/draft.h"
#include "roi_pooling/lists.h"
#include "roi_pooling/signature.h"
#include "runtime/caller.h"
#include "runtime/context.h"
#include "turnout/roi_pooling.h"

namespace turnout::families::roi_pooling {

using namespace core;
using namespace bindings;
namespace {

constexpr DTypes kHalfOrFloat = dtypes(DType::f16, DType::f32), kInt = dtypes(DType::i32);

constexpr StepSpec kRoiAwareQuerySteps[] = {{Check::present}};

// argmax is checked for max only, and last. Sizes are positive, so no tensor is empty. argmax has as many
// elements as pooled_features.
constexpr std::string_view kAlways = "rois pts pts_feature pts_idx_of_voxels pooled_features";
constexpr std::string_view kOnlyMax = "pool_method=max";
constexpr StepSpec kRoiAwareForwardSteps[] = {{Check::present, ErrorCode::bad_param, kAlways},
                                              {Check::ranks, ErrorCode::bad_param, kAlways},
                                              {Check::shapes, ErrorCode::bad_param, kAlways},
                                              {Check::dtypes, ErrorCode::bad_param, kAlways},
                                              {Check::scalars},
                                              {Check::contiguous, ErrorCode::not_supported},
                                              {Check::large, ErrorCode::not_supported, kAlways},
                                              {Check::rules, ErrorCode::not_supported},
                                              {Check::workspace_null},
                                              {Check::pointers, ErrorCode::bad_param, kAlways},
                                              {Check::present, ErrorCode::bad_param, "argmax", kOnlyMax},
                                              {Check::ranks, ErrorCode::bad_param, "argmax", kOnlyMax},
                                              {Check::shapes, ErrorCode::bad_param, "argmax", kOnlyMax},
                                              {Check::dtypes, ErrorCode::bad_param, "argmax", kOnlyMax},
                                              {Check::pointers, ErrorCode::bad_param, "argmax", kOnlyMax},
                                              {Check::overlap}};

constexpr StepSpec kRoiAwareBackwardSteps[] = {{Check::present},
                                               {Check::ranks},
                                               {Check::shapes},
                                               {Check::dtypes},
                                               {Check::scalars},
                                               {Check::not_empty, ErrorCode::bad_param, "grad_in"},
                                               {Check::contiguous, ErrorCode::not_supported},
                                               {Check::large, ErrorCode::not_supported},
                                               {Check::pointers},
                                               {Check::overlap}};

constexpr StepSpec kRoiPointQuerySteps[] = {{Check::present},
                                            {Check::ranks},
                                            {Check::scalars},
                                            {Check::shapes},
                                            {Check::contiguous, ErrorCode::not_supported},
                                            {Check::dtypes},
                                            {Check::large, ErrorCode::not_supported},
                                            {Check::not_empty}};
constexpr StepSpec kRoiPointSteps[] = {{Check::present},
                                       {Check::ranks},
                                       {Check::scalars},
                                       {Check::shapes},
                                       {Check::contiguous, ErrorCode::not_supported},
                                       {Check::dtypes},
                                       {Check::large, ErrorCode::not_supported},
                                       {Check::workspace_null},
                                       {Check::not_empty},
                                       {Check::pointers},
                                       {Check::overlap}};

// The operators lease their memory from the context.
constexpr ScratchBytes kNoScratch = {[](const Arguments&, const Positions&) { return std::size_t{0}; }};

consteval Draft roi_point_c(std::string_view op, std::span<const StepSpec> steps, ScratchBytes scratch) {
  return Draft{
      op,
      "",
      {scalar("batch_size", 0), scalar("pts_num", 0), scalar("boxes_num", 0), scalar("feature_in_len", 0),
       scalar("sampled_pts_num", 0)},
      {in("points", kHalfOrFloat, "batch_size, pts_num, 3"),
       in("point_features", like("points"), "batch_size, pts_num, feature_in_len"),
       in("boxes3d", like("points"), "batch_size, boxes_num, 7"),
       out("pooled_features", like("points"), "batch_size, boxes_num, sampled_pts_num, feature_in_len + 3"),
       out("pooled_empty_flag", kInt, "batch_size, boxes_num")},
      {},
      {},
      steps,
      scratch};
}

}  // namespace

constexpr const Signature& kMluOpGetRoiAwarePool3dForwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetRoiAwarePool3dForwardWorkspaceSize",
               "boxes_num pts_num channels",
               {},
               {optional(in("rois", kAnyDType, "boxes_num, 7")), optional(in("pts", kAnyDType, "pts_num, 3")),
                in("pts_feature", kAnyDType, "pts_num, channels")},
               {},
               {},
               kRoiAwareQuerySteps,
               kNoScratch};
});

constexpr const Signature& kMluOpRoiAwarePool3dForward = signature([] {
  return Draft{
      "mluOpRoiAwarePool3dForward",
      "",
      {choice("pool_method", "max avg"), scalar("boxes_num", 1), scalar("pts_num", 1), scalar("channels", 1),
       scalar("max_pts_each_voxel", 1), scalar("out_x", 1), scalar("out_y", 1), scalar("out_z", 1)},
      {in("rois", kHalfOrFloat, "boxes_num, 7"), in("pts", like("rois"), "pts_num, 3"),
       in("pts_feature", like("rois"), "pts_num, channels"),
       out("argmax", kInt, "boxes_num, out_x, out_y, out_z, channels"),
       out("pts_idx_of_voxels", kInt, "boxes_num, out_x, out_y, out_z, max_pts_each_voxel"),
       out("pooled_features", like("rois"), "boxes_num, out_x, out_y, out_z, channels")},
      {at_most("boxes_num * pts_num", "2147483647")},
      {},
      kRoiAwareForwardSteps};
});

constexpr const Signature& kMluOpRoiAwarePool3dBackward = signature([] {
  return Draft{
      "mluOpRoiAwarePool3dBackward",
      "pts_num",
      {choice("pool_method", "max avg"), scalar("boxes_num", 1), scalar("out_x", 1), scalar("out_y", 1),
       scalar("out_z", 1), scalar("channels", 1), scalar("max_pts_each_voxel", 1)},
      {in("pts_idx_of_voxels", kInt, "boxes_num, out_x, out_y, out_z, max_pts_each_voxel"),
       in("argmax", kInt, "boxes_num, out_x, out_y, out_z, channels"),
       in("grad_out", kHalfOrFloat, "boxes_num, out_x, out_y, out_z, channels"),
       out("grad_in", like("grad_out"), "pts_num, channels")},
      {},
      {},
      kRoiAwareBackwardSteps};
});

constexpr const Signature& kMluOpGetRoiPointPool3dWorkspaceSize = signature(
    [] { return roi_point_c("mluOpGetRoiPointPool3dWorkspaceSize", kRoiPointQuerySteps, kNoScratch); });
constexpr const Signature& kMluOpRoiPointPool3d =
    signature([] { return roi_point_c("mluOpRoiPointPool3d", kRoiPointSteps, {}); });

namespace {

constexpr Renames kForwardNames(kRoiawarePool3d, kMluOpRoiAwarePool3dForward,
                                "points=pts features=pts_feature pooled=pooled_features out_size= "
                                "max_points=max_pts_each_voxel z= margin=");
constexpr Renames kBackwardNames(kRoiawareListsBackward, kMluOpRoiAwarePool3dBackward,
                                 "lists=pts_idx_of_voxels grad_pooled=grad_out grad_features=grad_in");
constexpr Renames kRoiPointNames(kRoipointPool3d, kMluOpRoiPointPool3d,
                                 "features=point_features boxes=boxes3d pooled=pooled_features "
                                 "empty=pooled_empty_flag z= margin=");

}  // namespace

}  // namespace turnout::families::roi_pooling

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::roi_pooling;

mluOpStatus_t mluOpGetRoiAwarePool3dForwardWorkspaceSize(mluOpHandle_t handle,
                                                         const mluOpTensorDescriptor_t rois_desc,
                                                         const mluOpTensorDescriptor_t pts_desc,
                                                         const mluOpTensorDescriptor_t pts_feature_desc,
                                                         size_t* workspace_size) {
  return query(handle, kMluOpGetRoiAwarePool3dForwardWorkspaceSize, {rois_desc, pts_desc, pts_feature_desc},
               {}, workspace_size);
}

mluOpStatus_t mluOpRoiAwarePool3dForward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int pts_num, const int channels,
    const mluOpTensorDescriptor_t rois_desc, const void* rois, const mluOpTensorDescriptor_t pts_desc,
    const void* pts, const mluOpTensorDescriptor_t pts_feature_desc, const void* pts_feature, void* workspace,
    size_t workspace_size, const int max_pts_each_voxel, const int out_x, const int out_y, const int out_z,
    const mluOpTensorDescriptor_t argmax_desc, void* argmax,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features) {
  return call(handle, kMluOpRoiAwarePool3dForward, kForwardNames,
              {{rois_desc, rois},
               {pts_desc, pts},
               {pts_feature_desc, pts_feature},
               {argmax_desc, argmax},
               {pts_idx_of_voxels_desc, pts_idx_of_voxels},
               {pooled_features_desc, pooled_features}},
              {pool_method, boxes_num, pts_num, channels, max_pts_each_voxel, out_x, out_y, out_z},
              [&](const Caller& caller, const turnout::Tensor* t) {
                Context& context = caller.context();
                const auto method = static_cast<PoolMethod>(pool_method);
                Scratch scratch(context, widened_bytes({t[0], t[1]}));
                const turnout::Tensor boxes = widened(context, scratch, t[0]);
                const turnout::Tensor points = widened(context, scratch, t[1]);
                const turnout::Tensor maxima = method == PoolMethod::max ? t[3] : nullptr;
                pool_with_lists(boxes, points, t[2], maxima, t[4], t[5], method, caller);
                if (method == PoolMethod::avg && argmax_desc != nullptr)
                  fill_result({argmax_desc, argmax}, 0);
              },
              {workspace, workspace_size});
}

mluOpStatus_t mluOpRoiAwarePool3dBackward(mluOpHandle_t handle, const int pool_method, const int boxes_num,
                                          const int out_x, const int out_y, const int out_z,
                                          const int channels, const int max_pts_each_voxel,
                                          const mluOpTensorDescriptor_t pts_idx_of_voxels_desc,
                                          const void* pts_idx_of_voxels,
                                          const mluOpTensorDescriptor_t argmax_desc, const void* argmax,
                                          const mluOpTensorDescriptor_t grad_out_desc, const void* grad_out,
                                          const mluOpTensorDescriptor_t grad_in_desc, void* grad_in) {
  return call(handle, kMluOpRoiAwarePool3dBackward, kBackwardNames,
              {{pts_idx_of_voxels_desc, pts_idx_of_voxels},
               {argmax_desc, argmax},
               {grad_out_desc, grad_out},
               {grad_in_desc, grad_in}},
              {pool_method, boxes_num, out_x, out_y, out_z, channels, max_pts_each_voxel},
              [&](const Caller& caller, const turnout::Tensor* t) {
                pool_backward_by_lists(t[0], t[1], t[2], t[3], static_cast<PoolMethod>(pool_method), caller);
              });
}

mluOpStatus_t mluOpGetRoiawarePool3dForwardWorkspaceSize(mluOpHandle_t handle,
                                                         const mluOpTensorDescriptor_t rois_desc,
                                                         const mluOpTensorDescriptor_t pts_desc,
                                                         const mluOpTensorDescriptor_t pts_feature_desc,
                                                         size_t* workspace_size) {
  static std::atomic<bool> noted{false};
  note_deprecation(noted, __func__, "mluOpGetRoiAwarePool3dForwardWorkspaceSize");
  return mluOpGetRoiAwarePool3dForwardWorkspaceSize(handle, rois_desc, pts_desc, pts_feature_desc,
                                                    workspace_size);
}

mluOpStatus_t mluOpRoiawarePool3dForward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int pts_num, const int channels,
    const mluOpTensorDescriptor_t rois_desc, const void* rois, const mluOpTensorDescriptor_t pts_desc,
    const void* pts, const mluOpTensorDescriptor_t pts_feature_desc, const void* pts_feature, void* workspace,
    size_t workspace_size, const int max_pts_each_voxel, const int out_x, const int out_y, const int out_z,
    const mluOpTensorDescriptor_t argmax_desc, void* argmax,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features) {
  static std::atomic<bool> noted{false};
  note_deprecation(noted, __func__, "mluOpRoiAwarePool3dForward");
  return mluOpRoiAwarePool3dForward(
      handle, pool_method, boxes_num, pts_num, channels, rois_desc, rois, pts_desc, pts, pts_feature_desc,
      pts_feature, workspace, workspace_size, max_pts_each_voxel, out_x, out_y, out_z, argmax_desc, argmax,
      pts_idx_of_voxels_desc, pts_idx_of_voxels, pooled_features_desc, pooled_features);
}

mluOpStatus_t mluOpRoiawarePool3dBackward(mluOpHandle_t handle, const int pool_method, const int boxes_num,
                                          const int out_x, const int out_y, const int out_z,
                                          const int channels, const int max_pts_each_voxel,
                                          const mluOpTensorDescriptor_t pts_idx_of_voxels_desc,
                                          const void* pts_idx_of_voxels,
                                          const mluOpTensorDescriptor_t argmax_desc, const void* argmax,
                                          const mluOpTensorDescriptor_t grad_out_desc, const void* grad_out,
                                          const mluOpTensorDescriptor_t grad_in_desc, void* grad_in) {
  static std::atomic<bool> noted{false};
  note_deprecation(noted, __func__, "mluOpRoiAwarePool3dBackward");
  return mluOpRoiAwarePool3dBackward(handle, pool_method, boxes_num, out_x, out_y, out_z, channels,
                                     max_pts_each_voxel, pts_idx_of_voxels_desc, pts_idx_of_voxels,
                                     argmax_desc, argmax, grad_out_desc, grad_out, grad_in_desc, grad_in);
}

mluOpStatus_t mluOpGetRoiPointPool3dWorkspaceSize(
    mluOpHandle_t handle, const int batch_size, const int pts_num, const int boxes_num,
    const int feature_in_len, const int sampled_pts_num, const mluOpTensorDescriptor_t points_desc,
    const mluOpTensorDescriptor_t point_features_desc, const mluOpTensorDescriptor_t boxes3d_desc,
    const mluOpTensorDescriptor_t pooled_features_desc, const mluOpTensorDescriptor_t pooled_empty_flag_desc,
    size_t* size) {
  return query(handle, kMluOpGetRoiPointPool3dWorkspaceSize,
               {points_desc, point_features_desc, boxes3d_desc, pooled_features_desc, pooled_empty_flag_desc},
               {batch_size, pts_num, boxes_num, feature_in_len, sampled_pts_num}, {size, "size"});
}

mluOpStatus_t mluOpRoiPointPool3d(mluOpHandle_t handle, const int batch_size, const int pts_num,
                                  const int boxes_num, const int feature_in_len, const int sampled_pts_num,
                                  const mluOpTensorDescriptor_t points_desc, const void* points,
                                  const mluOpTensorDescriptor_t point_features_desc,
                                  const void* point_features, const mluOpTensorDescriptor_t boxes3d_desc,
                                  const void* boxes3d, void* workspace, size_t workspace_size,
                                  const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features,
                                  const mluOpTensorDescriptor_t pooled_empty_flag_desc,
                                  void* pooled_empty_flag) {
  return call(handle, kMluOpRoiPointPool3d, kRoiPointNames,
              {{points_desc, points},
               {point_features_desc, point_features},
               {boxes3d_desc, boxes3d},
               {pooled_features_desc, pooled_features},
               {pooled_empty_flag_desc, pooled_empty_flag}},
              {batch_size, pts_num, boxes_num, feature_in_len, sampled_pts_num},
              [](const Caller& caller, const turnout::Tensor* t) {
                Context& context = caller.context();
                Scratch scratch(context, widened_bytes({t[0], t[1], t[2], t[3]}));
                const turnout::Tensor xyz = widened(context, scratch, t[0]);
                const turnout::Tensor features = widened(context, scratch, t[1]);
                const turnout::Tensor boxes = widened(context, scratch, t[2]);
                const turnout::Tensor pooled = widened_result(scratch, t[3]);
                roipoint_pool3d(xyz, features, boxes, pooled, t[4], BoxZ::bottom, 0, caller);
                round_result(context, pooled, t[3]);
              },
              {workspace, workspace_size});
}
