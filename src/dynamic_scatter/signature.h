// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/signature.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

inline constexpr std::int64_t kMaxPoints = 2147483647;  // a point or voxel has an int32 number inside

// voxel_size is positive and finite, and the range has 1 .. 2^31 - 1 voxels in each direction, in the type
// that coordinates are computed in.
template <const Signature& kSignature>
void check_grid(const Arguments& arguments);
// What the reduction needs is there: feats and voxel_feats with max, voxel_points_count with mean.
template <const Signature& kSignature>
void check_needed(const Arguments& arguments);
// voxel_num, when given, is 0 .. voxels.
void check_voxel_num(const Arguments& arguments);
// point2voxel_map is -1 .. voxel_num - 1. Throws Error naming the first point that is not.
void check_map(const Arguments& arguments);
// With mean, the voxels of points have a count of 1 or more.
void check_point_counts(const Arguments& arguments);

// Bytes of the plans' scratch memory.
std::size_t dynamic_scatter_forward_scratch(std::int64_t points);
std::size_t dynamic_scatter_backward_scratch(std::int64_t points, std::int64_t voxels);
std::size_t voxelize_hard_scratch(std::int64_t points);

inline constexpr DTypes kGridDTypes = dtypes(DType::f32, DType::f64);
inline constexpr ScalarSpec kReduceType = choice("reduce_type", "sum mean max");
inline constexpr ArgumentSpec kPoints = in("points", kFloats, "rows, features");
inline constexpr ArgumentSpec kVoxelSize = in("voxel_size", kGridDTypes, "3");
inline constexpr ArgumentSpec kPointCloudRange = in("point_cloud_range", kGridDTypes, "6");
template <const Signature& kSignature>
inline constexpr DataCheck kGridCheck = {"voxel_size is positive, the range has 1 .. 2147483647 voxels",
                                         &check_grid<kSignature>};

inline constexpr Signature kVoxelize{
    "voxelize",
    "rows features",
    {},
    {kPoints, kVoxelSize, kPointCloudRange, out("coors", kIndices, "rows, 3")},
    {at_most("3", "features")},
    {kGridCheck<kVoxelize>}};

inline constexpr Signature kVoxelizeHard{
    "voxelize_hard",
    "rows features max_voxels max_points",
    {},
    {kPoints, kVoxelSize, kPointCloudRange, out("voxels", like("points"), "max_voxels, max_points, features"),
     out("coors", kIndices, "max_voxels, 3"), out("num_points_per_voxel", kIndices, "max_voxels")},
    {at_most("3", "features"), at_most("rows", "2147483647"), at_most("max_points", "2147483647")},
    {kGridCheck<kVoxelizeHard>}};

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
template <const Signature& kSignature>
inline constexpr DataCheck kNeededCheck = {
    "feats and voxel_feats are there with max, voxel_points_count with mean", &check_needed<kSignature>};

inline constexpr Signature kDynamicScatterBackward{
    "dynamic_scatter_backward",
    "voxels channels points",
    {kReduceType},
    {kGradVoxelFeats, kFeats, kVoxelFeats, in("point2voxel_map", kIndices, "points"),
     optional(in("voxel_points_count", kIndices, "voxels")), optional(in("voxel_num", kIndices, "1")),
     kGradFeats},
    {kMostPoints},
    {kNeededCheck<kDynamicScatterBackward>,
     {"voxel_num is 0 .. voxels", &check_voxel_num},
     {"point2voxel_map is -1 .. voxel_num - 1", &check_map},
     {"voxels of points have a count, with mean", &check_point_counts}}};

// Of inputs alone, where no result has a shape yet.
inline constexpr StepSpec kInputsOrder[] = {{Check::present}, {Check::ranks}, {Check::dtypes},
                                            {Check::shapes},  {Check::rules}, {Check::contiguous},
                                            {Check::pointers}};

// VoxelIndex: points and voxels are what the index has.
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
                                                     {kNeededCheck<kVoxelIndexReduceBackward>}};

}  // namespace turnout::families::dynamic_scatter
