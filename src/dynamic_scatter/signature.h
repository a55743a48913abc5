// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/signature.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

inline constexpr std::int64_t kMaxPoints = 2147483647;  // numbers of points and voxels are int32 inside

// Max needs feats and voxel_feats, mean needs voxel_points_count.
void check_needed(const Arguments& arguments);

// Bytes of the plans' scratch memory.
std::size_t dynamic_scatter_forward_scratch(std::int64_t points);
std::size_t dynamic_scatter_backward_scratch(std::int64_t points, std::int64_t voxels);
std::size_t voxelize_hard_scratch(std::int64_t points);

inline constexpr DTypes kGridDTypes = dtypes(DType::f32, DType::f64);
inline constexpr ScalarSpec kReduceType = choice("reduce_type", "sum mean max");
inline constexpr ArgumentSpec kPoints = in("points", kFloats, "rows, features");
inline constexpr ArgumentSpec kVoxelSize = in("voxel_size", kGridDTypes, "3");
inline constexpr ArgumentSpec kPointCloudRange = in("point_cloud_range", kGridDTypes, "6");

// Grids, maps and counts are checked by the plans, which keep what they have read: the caller's memory may
// change during a call.
inline constexpr Signature kVoxelize{
    "voxelize",
    "rows features",
    {},
    {kPoints, kVoxelSize, kPointCloudRange, out("coors", kIndices, "rows, 3")},
    {at_most("3", "features")}};

inline constexpr Signature kVoxelizeHard{
    "voxelize_hard",
    "rows features max_voxels max_points",
    {},
    {kPoints, kVoxelSize, kPointCloudRange, out("voxels", like("points"), "max_voxels, max_points, features"),
     out("coors", kIndices, "max_voxels, 3"), out("num_points_per_voxel", kIndices, "max_voxels")},
    {at_most("3", "features"), at_most("rows", "2147483647"), at_most("max_points", "2147483647")}};

inline constexpr RuleSpec kLeastDims = at_most("1", "dims");
inline constexpr RuleSpec kMostDims = at_most("dims", "4");
inline constexpr RuleSpec kMostPoints = at_most("points", "2147483647");

inline constexpr Signature kDynamicScatterForward{
    "dynamic_scatter_forward",
    "points channels dims voxels",
    {kReduceType},
    {in("feats", kFloats, "points, channels"), in("coors", kIndices, "points, dims"),
     out("voxel_feats", like("feats"), "voxels, channels"), out("voxel_coors", like("coors"), "voxels, dims"),
     out("point2voxel_map", kIndices, "points"), out("voxel_points_count", kIndices, "voxels")},
    {kLeastDims, kMostDims, kMostPoints}};

inline constexpr ArgumentSpec kGradVoxelFeats = in("grad_voxel_feats", kFloats, "voxels, channels");
inline constexpr ArgumentSpec kFeats = optional(in("feats", like("grad_voxel_feats"), "points, channels"));
inline constexpr ArgumentSpec kVoxelFeats =
    optional(in("voxel_feats", like("grad_voxel_feats"), "voxels, channels"));
inline constexpr ArgumentSpec kGradFeats = out("grad_feats", like("grad_voxel_feats"), "points, channels");
inline constexpr DataCheck kNeededCheck = {
    "feats and voxel_feats are there with max, voxel_points_count with mean", &check_needed};

inline constexpr Signature kDynamicScatterBackward{
    "dynamic_scatter_backward",
    "voxels channels points",
    {kReduceType},
    {kGradVoxelFeats, kFeats, kVoxelFeats, in("point2voxel_map", kIndices, "points"),
     optional(in("voxel_points_count", kIndices, "voxels")), optional(in("voxel_num", kIndices, "1")),
     kGradFeats},
    {kMostPoints, at_most("voxels", "2147483647")},
    {kNeededCheck}};

// The order of checks for inputs alone, when no result has a shape yet.
inline constexpr StepSpec kInputsOrder[] = {{Check::present}, {Check::ranks}, {Check::dtypes},
                                            {Check::shapes},  {Check::rules}, {Check::contiguous},
                                            {Check::pointers}};

// The index knows how many points and voxels there are; its methods take them as scalars.
inline constexpr Signature kVoxelIndex{"VoxelIndex",
                                       "points dims",
                                       {},
                                       {in("coors", kIndices, "points, dims")},
                                       {kLeastDims, kMostDims, kMostPoints},
                                       {},
                                       kInputsOrder};

inline constexpr Signature kVoxelIndexWrite{
    "VoxelIndex.write",
    "dims",
    {scalar("points", 0), scalar("voxels", 0)},
    {in("coors", kIndices, "points, dims"), out("voxel_coors", like("coors"), "voxels, dims"),
     out("point2voxel_map", kIndices, "points"), out("voxel_points_count", kIndices, "voxels")}};

inline constexpr Signature kVoxelIndexReduce{
    "VoxelIndex.reduce",
    "channels",
    {scalar("points", 0), scalar("voxels", 0), kReduceType},
    {in("feats", kFloats, "points, channels"), out("voxel_feats", like("feats"), "voxels, channels")}};

inline constexpr Signature kVoxelIndexReduceBackward{"VoxelIndex.reduce_backward",
                                                     "channels",
                                                     {scalar("points", 0), scalar("voxels", 0), kReduceType},
                                                     {kGradVoxelFeats, kFeats, kVoxelFeats, kGradFeats},
                                                     {},
                                                     {kNeededCheck}};

}  // namespace turnout::families::dynamic_scatter
