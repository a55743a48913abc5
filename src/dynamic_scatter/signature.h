// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::dynamic_scatter {

using namespace core::grammar;

inline constexpr std::int64_t kMaxPoints = 2147483647;  // numbers of points and voxels are int32 inside

inline constexpr ScalarSpec kReduceType = by_default("max", choice("reduce_type", "sum mean max"));
inline constexpr ArgumentSpec kPoints = in("points", kFloats, "rows, features");
// The plans check for 0 again: if the caller flushes denormals, the comparison here treats 0 as this number.
inline constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();
inline constexpr ScalarSpec kVoxelSize = reals("voxel_size", "3", kAboveZero, kFinite);
inline constexpr ScalarSpec kPointCloudRange = reals("point_cloud_range", "6");

// The plans check maps and counts and keep the values that they have read, because the caller's memory may
// change during a call. They also check grids, in the type that coordinates are computed in.
inline constexpr const Signature& kVoxelize = signature([] {
  return Draft{"voxelize",
               "rows features",
               {kVoxelSize, kPointCloudRange},
               {kPoints, out("coors", kIndices, "rows, 3")},
               {at_most("3", "features")}};
});

inline constexpr const Signature& kVoxelizeHard = signature([] {
  return Draft{
      "voxelize_hard",
      "rows features max_points adjusted(max_voxels)",
      {kVoxelSize, kPointCloudRange},
      {kPoints, shortened(out("voxels", like("points"), "max_voxels, max_points, features")),
       shortened(out("coors", kIndices, "max_voxels, 3")),
       shortened(out("num_points_per_voxel", kIndices, "max_voxels")),
       on_request("return_map", out("point2voxel_map", kIndices, "rows"))},
      {at_most("3", "features"), at_most("rows", "2147483647"), at_most("max_points", "2147483647")}};
});

inline constexpr RuleSpec kLeastDims = at_most("1", "dims");
inline constexpr RuleSpec kMostDims = at_most("dims", "4");
inline constexpr RuleSpec kMostPoints = at_most("points", "2147483647");

inline constexpr const Signature& kDynamicScatterForward = signature([] {
  return Draft{
      "dynamic_scatter_forward",
      "points channels dims computed(voxels)",
      {kReduceType},
      {in("feats", kFloats, "points, channels"), in("coors", kIndices, "points, dims"),
       shortened(out("voxel_feats", like("feats"), "voxels, channels")),
       shortened(out("voxel_coors", like("coors"), "voxels, dims")),
       out("point2voxel_map", kIndices, "points"), shortened(out("voxel_points_count", kIndices, "voxels"))},
      {kLeastDims, kMostDims, kMostPoints}};
});

inline constexpr ArgumentSpec kGradVoxelFeats = in("grad_voxel_feats", kFloats, "voxels, channels");
inline constexpr ArgumentSpec kFeats =
    or_none(required_when("reduce_type", "max", in("feats", like("grad_voxel_feats"), "points, channels")));
inline constexpr ArgumentSpec kVoxelFeats = or_none(
    required_when("reduce_type", "max", in("voxel_feats", like("grad_voxel_feats"), "voxels, channels")));
inline constexpr ArgumentSpec kGradFeats = out("grad_feats", like("grad_voxel_feats"), "points, channels");

inline constexpr const Signature& kDynamicScatterBackward = signature([] {
  return Draft{"dynamic_scatter_backward",
               "voxels channels points",
               {kReduceType},
               {kGradVoxelFeats, kFeats, kVoxelFeats, in("point2voxel_map", kIndices, "points"),
                or_none(required_when("reduce_type", "mean", in("voxel_points_count", kIndices, "voxels"))),
                cpp_only(in("voxel_num", kIndices, "1")), kGradFeats},
               {kMostPoints, at_most("voxels", "2147483647")}};
});

// The order of checks for inputs only, before any result has a shape.
inline constexpr StepSpec kInputsOrder[] = {{Check::present}, {Check::ranks}, {Check::dtypes},
                                            {Check::shapes},  {Check::rules}, {Check::contiguous},
                                            {Check::pointers}};

// The index knows how many points and voxels there are; its methods take them as scalars.
inline constexpr const Signature& kVoxelIndex = signature([] {
  return Draft{"VoxelIndex",
               "points dims",
               {},
               {in("coors", kIndices, "points, dims")},
               {kLeastDims, kMostDims, kMostPoints},
               {},
               kInputsOrder};
});

inline constexpr const Signature& kVoxelIndexWrite = signature([] {
  return Draft{"VoxelIndex.write",
               "dims",
               {scalar("points", 0), scalar("voxels", 0)},
               {in("coors", kIndices, "points, dims"), out("voxel_coors", like("coors"), "voxels, dims"),
                out("point2voxel_map", kIndices, "points"), out("voxel_points_count", kIndices, "voxels")}};
});

// The map is not read, because the index has it. It only determines the kind of array of the result.
inline constexpr const Signature& kVoxelIndexFirstPoints = signature([] {
  return Draft{"VoxelIndex.first_points",
               "",
               {scalar("points", 0), scalar("voxels", 0)},
               {optional(in("point2voxel_map", kIndices, "points")), out("first_point", kIndices, "voxels")}};
});

inline constexpr const Signature& kVoxelIndexReduce = signature([] {
  return Draft{
      "VoxelIndex.reduce",
      "channels",
      {scalar("points", 0), scalar("voxels", 0), kReduceType},
      {in("feats", kFloats, "points, channels"), out("voxel_feats", like("feats"), "voxels, channels")}};
});

inline constexpr const Signature& kVoxelIndexReduceBackward = signature([] {
  return Draft{"VoxelIndex.reduce_backward",
               "channels",
               {scalar("points", 0), scalar("voxels", 0), kReduceType},
               {kGradVoxelFeats, kFeats, kVoxelFeats, kGradFeats}};
});

// An index is restored from its map, which contains all its information.
inline constexpr const Signature& kVoxelIndexRestore = signature([] {
  return Draft{"VoxelIndex",  "points", {},          {in("point2voxel_map", kIndices, "points")},
               {kMostPoints}, {},       kInputsOrder};
});

// -- rows reduced by an index ------------------------------------------------------------------------------

inline constexpr DTypes kNumbers = kFloats | kIndices;
inline constexpr ArgumentSpec kRowIndex = in("index", kIndices, "rows");
inline constexpr RuleSpec kMostRows = at_most("rows", "2147483647");
inline constexpr RuleSpec kMostGroups = at_most("dim_size", "2147483647");

inline constexpr const Signature& kScatterDimSize = signature(
    [] { return Draft{"scatter_dim_size", "rows", {}, {kRowIndex}, {kMostRows}, {}, kInputsOrder}; });

inline constexpr const Signature& kScatterSum = signature([] {
  return Draft{
      "scatter_sum",
      "rows channels computed(dim_size?)",
      {},
      {in("src", kNumbers, "rows, channels..?"), kRowIndex, out("out", like("src"), "dim_size, channels..?")},
      {kMostRows, kMostGroups}};
});

inline constexpr const Signature& kScatterMean = signature([] {
  return Draft{
      "scatter_mean",
      "rows channels computed(dim_size?)",
      {},
      {in("src", kFloats, "rows, channels..?"), kRowIndex, out("out", like("src"), "dim_size, channels..?")},
      {kMostRows, kMostGroups}};
});

inline constexpr const Signature& kScatterMax = signature([] {
  return Draft{
      "scatter_max",
      "rows channels computed(dim_size?)",
      {},
      {in("src", kNumbers, "rows, channels..?"), kRowIndex, out("out", like("src"), "dim_size, channels..?"),
       on_request("return_arg", by_default(DType::i64, out("argmax", kIndices, "dim_size, channels..?")))},
      {kMostRows, kMostGroups}};
});

inline constexpr const Signature& kScatterMin = signature([] {
  return Draft{
      "scatter_min",
      "rows channels computed(dim_size?)",
      {},
      {in("src", kNumbers, "rows, channels..?"), kRowIndex, out("out", like("src"), "dim_size, channels..?"),
       on_request("return_arg", by_default(DType::i64, out("argmin", kIndices, "dim_size, channels..?")))},
      {kMostRows, kMostGroups}};
});

inline constexpr ArgumentSpec kGradOut = in("grad_out", kFloats, "dim_size, channels..?");
inline constexpr ArgumentSpec kGradSrc = out("grad_src", like("grad_out"), "rows, channels..?");

inline constexpr const Signature& kScatterSumBackward = signature([] {
  return Draft{"scatter_sum_backward",
               "dim_size channels rows",
               {},
               {kGradOut, kRowIndex, kGradSrc},
               {kMostRows, kMostGroups}};
});

inline constexpr const Signature& kScatterMeanBackward = signature([] {
  return Draft{"scatter_mean_backward",
               "dim_size channels rows",
               {},
               {kGradOut, kRowIndex, kGradSrc},
               {kMostRows, kMostGroups}};
});

inline constexpr const Signature& kScatterMaxBackward = signature([] {
  return Draft{"scatter_max_backward",
               "dim_size channels rows",
               {},
               {kGradOut, kRowIndex, in("argmax", kIndices, "dim_size, channels..?"), kGradSrc},
               {kMostRows, kMostGroups}};
});

}  // namespace turnout::families::dynamic_scatter
