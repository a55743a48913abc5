// The C functions of this family, each with its order of checks.
#include <algorithm>
#include <array>

#include "bindings/mluop/call.h"
#include "core/draft.h"
#include "core/grain.h"
#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/signature.h"
#include "runtime/parallel.h"
#include "simd/fp_environment.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
using namespace bindings;
namespace {

constexpr StepSpec kQuerySteps[] = {{Check::present}};

// The operators check the values of coors and voxel_num.
constexpr StepSpec kForwardSteps[] = {{Check::present},
                                      {Check::ranks},
                                      {Check::contiguous, ErrorCode::not_supported},
                                      {Check::dtypes},
                                      {Check::scalars},
                                      {Check::shapes},
                                      {Check::rules},
                                      {Check::large, ErrorCode::not_supported, "feats coors"},
                                      {Check::any_empty, ErrorCode::bad_param, "feats coors"},
                                      {Check::workspace_null},
                                      {Check::workspace},
                                      {Check::pointers},
                                      {Check::overlap}};

constexpr StepSpec kBackwardSteps[] = {
    {Check::present},        {Check::contiguous, ErrorCode::not_supported},
    {Check::dtypes},         {Check::ranks},
    {Check::shapes},         {Check::rules},
    {Check::scalars},        {Check::large, ErrorCode::not_supported, "grad_voxel_feats feats"},
    {Check::outputs_empty},  {Check::pointers},
    {Check::workspace_null}, {Check::workspace}};

constexpr std::string_view kLimited = "points voxel_size coors_range coors num_points_per_voxel voxel_num";
constexpr StepSpec kVoxelizationQuerySteps[] = {{Check::present},
                                                {Check::scalars},
                                                {Check::ranks},
                                                {Check::shapes},
                                                {Check::contiguous, ErrorCode::not_supported},
                                                {Check::dtypes},
                                                {Check::large, ErrorCode::not_supported, kLimited},
                                                {Check::rules},
                                                {Check::any_empty, ErrorCode::bad_param, "voxels"}};
constexpr StepSpec kVoxelizationSteps[] = {{Check::present},
                                           {Check::scalars},
                                           {Check::ranks},
                                           {Check::shapes},
                                           {Check::contiguous, ErrorCode::not_supported},
                                           {Check::dtypes},
                                           {Check::large, ErrorCode::not_supported, kLimited},
                                           {Check::rules, ErrorCode::bad_param, "points features"},
                                           {Check::workspace_null},
                                           {Check::any_empty, ErrorCode::bad_param, "voxels"},
                                           {Check::rules, ErrorCode::bad_param, "coordinates"},
                                           {Check::workspace},
                                           {Check::pointers},
                                           {Check::overlap}};

// The number of points from the shape of feats, the only tensor that one of the queries takes. 0 for shapes
// that a call rejects or skips.
std::int64_t points_of(const Slot& feats) {
  return feats.rank != 2 || feats.elements() >= kLargeElements || feats.elements() == 0 ? 0 : feats.shape[0];
}
constexpr ScratchBytes kForwardScratch = {[](const Arguments& arguments, const Positions& at) {
                                            const std::int64_t points = points_of(arguments.slot(at[0]));
                                            return points == 0 ? 0
                                                               : CoordinateGrouping(points).scratch_bytes();
                                          },
                                          "feats"};
// The number of voxels is data; it is at most the number of points.
constexpr ScratchBytes kBackwardScratch = {
    [](const Arguments& arguments, const Positions& at) -> std::size_t {
      const std::int64_t points = points_of(arguments.slot(at[0]));
      if (points == 0) return 0;
      return BackwardPlan(points, /*voxels=*/points, Reduce::max, arguments.threads()).scratch_bytes();
    },
    "feats"};
constexpr ScratchBytes kVoxelizationScratch = {
    [](const Arguments& arguments, const Positions& at) {
      return VoxelizeHardPlan(arguments.size(at[0])).scratch_bytes();
    },
    "rows"};

constexpr DTypes kFloat = dtypes(DType::f32), kInt = dtypes(DType::i32);
constexpr ArgumentSpec kVoxelNum = in("voxel_num", kInt, "1");
constexpr ArgumentSpec kVoxelNumResult = out("voxel_num", kInt, "1");
constexpr ScalarSpec kOnlyMax = choice("reduce_type", "max", MLUOP_REDUCE_DMAX);

static_assert(static_cast<int>(Reduce::mean) == MLUOP_REDUCE_DMEAN &&
              static_cast<int>(Reduce::max) == MLUOP_REDUCE_DMAX);

consteval Draft backward_c(std::string_view op) {
  return Draft{
      op,
      "voxels channels points",
      {kOnlyMax},
      {in("grad_voxel_feats", kFloat, "voxels, channels"), in("feats", kFloat, "points, channels"),
       in("voxel_feats", kFloat, "voxels, channels"), in("point2voxel_map", kInt, "points"),
       in("voxel_points_count", kInt, "voxels"), kVoxelNum, out("grad_feats", kFloat, "points, channels")},
      {at_most("voxels", "points")},
      {},
      kBackwardSteps,
      kBackwardScratch};
}

// The query omits the last rule: it returns a size for shapes that the call then rejects.
constexpr RuleSpec kSomePoints = at_most("1", "rows", "points"),
                   kSomeFeatures = at_most("1", "features", "features");
consteval Draft voxelization_c(std::string_view op, std::initializer_list<RuleSpec> rules,
                               std::span<const StepSpec> steps) {
  return Draft{
      op,
      "rows features",
      {choice("deterministic", "true", 1), scalar("max_points", 0), scalar("max_voxels", 0),
       scalar("NDim", 3, 3)},
      {in("points", kFloat, "rows, features"), in("voxel_size", kFloat, "3"), in("coors_range", kFloat, "6"),
       out("voxels", kFloat, "max_voxels, max_points, features"), out("coors", kInt, "max_voxels, 3"),
       out("num_points_per_voxel", kInt, "max_voxels"), kVoxelNumResult},
      rules,
      {},
      steps,
      kVoxelizationScratch};
}

// Reads voxel_size or coors_range once.
template <std::size_t kCount>
std::array<double, kCount> read_numbers(const Tensor& from) {
  const FpEnvironment environment;  // the caller's may trap
  std::array<double, kCount> values;
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<const float*>(from.data)[i];
  return values;
}

void write_voxel_num(const Tensor& voxel_num, std::int64_t voxels) {
  *static_cast<std::int32_t*>(voxel_num.data) = static_cast<std::int32_t>(voxels);
}

// Sets the rows of points in no voxel to -1, as this interface specifies.
void mark_without_voxel(Context& context, const Tensor& coors, const Tensor& point2voxel_map) {
  constexpr std::int64_t kGrain =
      65536 / kGrainDivisor;  // points in one range of a thread: a megabyte of map and rows
  auto* rows = static_cast<std::int32_t*>(coors.data);
  const auto* map = static_cast<const std::int32_t*>(point2voxel_map.data);
  parallel_for(context, coors.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end; ++x)
      if (map[x] < 0) std::fill_n(rows + 3 * x, 3, -1);
  });
}

}  // namespace

constexpr const Signature& kMluOpGetDynamicPointToVoxelForwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetDynamicPointToVoxelForwardWorkspaceSize",
               "points channels",
               {},
               {in("feats", kFloat, "points, channels"), in("coors", kInt, "points, 3")},
               {},
               {},
               kQuerySteps,
               kForwardScratch};
});

constexpr const Signature& kMluOpDynamicPointToVoxelForward = signature([] {
  return Draft{
      "mluOpDynamicPointToVoxelForward",
      "points channels voxels",
      {choice("reduce_type", "mean max", MLUOP_REDUCE_DMEAN)},
      {in("feats", kFloat, "points, channels"), inout("coors", kInt, "points, 3"),
       out("voxel_feats", kFloat, "voxels, channels"), out("voxel_coors", kInt, "voxels, 3"),
       out("point2voxel_map", kInt, "points"), out("voxel_points_count", kInt, "voxels"), kVoxelNumResult},
      {at_most("voxels", "points")},
      {},
      kForwardSteps,
      kForwardScratch};
});

constexpr const Signature& kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetDynamicPointToVoxelBackwardWorkspaceSize",
               "voxels channels points",
               {kOnlyMax},
               {in("grad_voxel_feats", kFloat, "voxels, channels"), in("feats", kFloat, "points, channels"),
                in("voxel_feats", kFloat, "voxels, channels"), in("point2voxel_map", kInt, "points"),
                in("voxel_points_count", kInt, "voxels"), kVoxelNum},
               {},
               {},
               kQuerySteps,
               kBackwardScratch};
});
constexpr const Signature& kMluOpGetDynamicScatterBackwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetDynamicScatterBackwardWorkspaceSize",
               "points channels",
               {kOnlyMax},
               {in("feats", kFloat, "points, channels")},
               {},
               {},
               kQuerySteps,
               kBackwardScratch};
});

constexpr const Signature& kMluOpDynamicPointToVoxelBackward =
    signature([] { return backward_c("mluOpDynamicPointToVoxelBackward"); });
constexpr const Signature& kMluOpDynamicScatterBackward =
    signature([] { return backward_c("mluOpDynamicScatterBackward"); });

constexpr const Signature& kMluOpGetVoxelizationWorkspaceSize = signature([] {
  return voxelization_c("mluOpGetVoxelizationWorkspaceSize", {kSomePoints, kSomeFeatures},
                        kVoxelizationQuerySteps);
});
constexpr const Signature& kMluOpVoxelization = signature([] {
  return voxelization_c("mluOpVoxelization",
                        {kSomePoints, kSomeFeatures, at_most("3", "features", "coordinates")},
                        kVoxelizationSteps);
});

namespace {

constexpr Renames kForwardNames(kDynamicScatterForward, kMluOpDynamicPointToVoxelForward, "");
constexpr Renames kBackwardNames(kDynamicScatterBackward, kMluOpDynamicPointToVoxelBackward, "");
constexpr Renames kVoxelizationNames(kVoxelizeHard, kMluOpVoxelization,
                                     "point_cloud_range=coors_range point2voxel_map=");

mluOpStatus_t call_backward(mluOpHandle_t handle, const Signature& signature, mluOpReduceMode_t reduce_type,
                            const Described (&described)[7], const Workspace& workspace) {
  return call(
      handle, signature, kBackwardNames, described, {reduce_type},
      [](const Caller& caller, const Tensor* t) {
        dynamic_scatter_backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], Reduce::max, caller);
      },
      workspace);
}

}  // namespace

}  // namespace turnout::families::dynamic_scatter

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::dynamic_scatter;

mluOpStatus_t mluOpGetDynamicPointToVoxelForwardWorkspaceSize(mluOpHandle_t handle,
                                                              const mluOpTensorDescriptor_t feats_desc,
                                                              const mluOpTensorDescriptor_t coors_desc,
                                                              size_t* workspace_size) {
  return query(handle, kMluOpGetDynamicPointToVoxelForwardWorkspaceSize, {feats_desc, coors_desc}, {},
               workspace_size);
}

mluOpStatus_t mluOpDynamicPointToVoxelForward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type, const mluOpTensorDescriptor_t feats_desc,
    const void* feats, const mluOpTensorDescriptor_t coors_desc, void* coors, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t voxel_feats_desc, void* voxel_feats,
    const mluOpTensorDescriptor_t voxel_coors_desc, void* voxel_coors,
    const mluOpTensorDescriptor_t point2voxel_map_desc, void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, void* voxel_num) {
  bool ran = false;
  const mluOpStatus_t status = call(
      handle, kMluOpDynamicPointToVoxelForward, kForwardNames,
      {{feats_desc, feats},
       {coors_desc, coors},
       {voxel_feats_desc, voxel_feats},
       {voxel_coors_desc, voxel_coors},
       {point2voxel_map_desc, point2voxel_map},
       {voxel_points_count_desc, voxel_points_count},
       {voxel_num_desc, voxel_num}},
      {reduce_type},
      [&](const Caller& caller, const turnout::Tensor* t) {
        ran = true;
        write_voxel_num(t[6], dynamic_scatter_forward(t[0], t[1], t[2], t[3], t[4], t[5],
                                                      static_cast<turnout::Reduce>(reduce_type), caller));
        mark_without_voxel(caller.context(), t[1], t[4]);
      },
      {workspace, workspace_size});
  if (status == MLUOP_STATUS_SUCCESS && !ran) fill_result({voxel_num_desc, voxel_num}, 0);
  return status;
}

mluOpStatus_t mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const mluOpTensorDescriptor_t feats_desc,
    const mluOpTensorDescriptor_t voxel_feats_desc, const mluOpTensorDescriptor_t point2voxel_map_desc,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const mluOpTensorDescriptor_t voxel_num_desc,
    size_t* workspace_size) {
  return query(handle, kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize,
               {grad_voxel_feats_desc, feats_desc, voxel_feats_desc, point2voxel_map_desc,
                voxel_points_count_desc, voxel_num_desc},
               {reduce_type}, workspace_size);
}

mluOpStatus_t mluOpDynamicPointToVoxelBackward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const void* grad_voxel_feats,
    const mluOpTensorDescriptor_t feats_desc, const void* feats,
    const mluOpTensorDescriptor_t voxel_feats_desc, const void* voxel_feats,
    const mluOpTensorDescriptor_t point2voxel_map_desc, const void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, const void* voxel_num, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t grad_feats_desc, void* grad_feats) {
  return call_backward(handle, kMluOpDynamicPointToVoxelBackward, reduce_type,
                       {{grad_voxel_feats_desc, grad_voxel_feats},
                        {feats_desc, feats},
                        {voxel_feats_desc, voxel_feats},
                        {point2voxel_map_desc, point2voxel_map},
                        {voxel_points_count_desc, voxel_points_count},
                        {voxel_num_desc, voxel_num},
                        {grad_feats_desc, grad_feats}},
                       {workspace, workspace_size});
}

mluOpStatus_t mluOpGetDynamicScatterBackwardWorkspaceSize(const mluOpHandle_t handle,
                                                          const mluOpReduceMode_t reduce_type,
                                                          const mluOpTensorDescriptor_t feats_desc,
                                                          size_t* workspace_size) {
  return query(handle, kMluOpGetDynamicScatterBackwardWorkspaceSize, {feats_desc}, {reduce_type},
               workspace_size);
}

mluOpStatus_t mluOpDynamicScatterBackward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const void* grad_voxel_feats,
    const mluOpTensorDescriptor_t feats_desc, const void* feats,
    const mluOpTensorDescriptor_t voxel_feats_desc, const void* voxel_feats,
    const mluOpTensorDescriptor_t point2voxel_map_desc, const void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, void* voxel_num, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t grad_feats_desc, void* grad_feats) {
  return call_backward(handle, kMluOpDynamicScatterBackward, reduce_type,
                       {{grad_voxel_feats_desc, grad_voxel_feats},
                        {feats_desc, feats},
                        {voxel_feats_desc, voxel_feats},
                        {point2voxel_map_desc, point2voxel_map},
                        {voxel_points_count_desc, voxel_points_count},
                        {voxel_num_desc, voxel_num},
                        {grad_feats_desc, grad_feats}},
                       {workspace, workspace_size});
}

mluOpStatus_t mluOpGetVoxelizationWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc,
    const mluOpTensorDescriptor_t voxel_size_desc, const mluOpTensorDescriptor_t coors_range_desc,
    const int32_t max_points, const int32_t max_voxels, const int32_t NDim, const bool deterministic,
    const mluOpTensorDescriptor_t voxels_desc, const mluOpTensorDescriptor_t coors_desc,
    const mluOpTensorDescriptor_t num_points_per_voxel_desc, const mluOpTensorDescriptor_t voxel_num_desc,
    size_t* workspace_size) {
  return query(handle, kMluOpGetVoxelizationWorkspaceSize,
               {points_desc, voxel_size_desc, coors_range_desc, voxels_desc, coors_desc,
                num_points_per_voxel_desc, voxel_num_desc},
               {deterministic, max_points, max_voxels, NDim}, workspace_size);
}

mluOpStatus_t mluOpVoxelization(mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc,
                                const void* points, const mluOpTensorDescriptor_t voxel_size_desc,
                                const void* voxel_size, const mluOpTensorDescriptor_t coors_range_desc,
                                const void* coors_range, const int32_t max_points, const int32_t max_voxels,
                                const int32_t NDim, const bool deterministic, void* workspace,
                                size_t workspace_size, const mluOpTensorDescriptor_t voxels_desc,
                                void* voxels, const mluOpTensorDescriptor_t coors_desc, void* coors,
                                const mluOpTensorDescriptor_t num_points_per_voxel_desc,
                                void* num_points_per_voxel, const mluOpTensorDescriptor_t voxel_num_desc,
                                void* voxel_num) {
  bool ran = false;
  const mluOpStatus_t status =
      call(handle, kMluOpVoxelization, kVoxelizationNames,
           {{points_desc, points},
            {voxel_size_desc, voxel_size},
            {coors_range_desc, coors_range},
            {voxels_desc, voxels},
            {coors_desc, coors},
            {num_points_per_voxel_desc, num_points_per_voxel},
            {voxel_num_desc, voxel_num}},
           {deterministic, max_points, max_voxels, NDim},
           [&](const Caller& caller, const turnout::Tensor* t) {
             ran = true;
             const auto size = read_numbers<3>(t[1]);
             const auto range = read_numbers<6>(t[2]);
             write_voxel_num(t[6], voxelize_hard(t[0], t[3], t[4], t[5], nullptr, size, range, caller));
           },
           {workspace, workspace_size});
  if (status == MLUOP_STATUS_SUCCESS && !ran) {
    fill_result({coors_desc, coors}, 0);
    fill_result({num_points_per_voxel_desc, num_points_per_voxel}, 0);
    fill_result({voxel_num_desc, voxel_num}, 0);
  }
  return status;
}
