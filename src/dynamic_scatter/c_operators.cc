// The C functions of this family, for the tests that cover all C functions.
#include <algorithm>

#include "c_registry.h"
#include "dynamic_scatter/example.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

// Defined in c_api.cc, next to their functions.
extern const Signature& kMluOpGetDynamicPointToVoxelForwardWorkspaceSize;
extern const Signature& kMluOpDynamicPointToVoxelForward;
extern const Signature& kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize;
extern const Signature& kMluOpDynamicPointToVoxelBackward;
extern const Signature& kMluOpGetDynamicScatterBackwardWorkspaceSize;
extern const Signature& kMluOpDynamicScatterBackward;
extern const Signature& kMluOpGetVoxelizationWorkspaceSize;
extern const Signature& kMluOpVoxelization;

namespace {

mluOpStatus_t query_voxelization(mluOpHandle_t handle, Descriptors d, void* const*, Scalars s,
                                 std::size_t* size) {
  return mluOpGetVoxelizationWorkspaceSize(handle, d[0], d[1], d[2], as_int(s[1]), as_int(s[2]), as_int(s[3]),
                                           s[0].value == 1, d[3], d[4], d[5], d[6], size);
}

void fill_scatter_result(const Tensor* t) { fill_map(t[0], t[3], t[5]); }

constexpr std::string_view kScatterBackwardExample = "reduce_type=2 voxels=4 channels=3 points=6";
constexpr std::string_view kVoxelizationExample =
    "deterministic=1 max_points=3 max_voxels=5 NDim=3 rows=7 features=4";

}  // namespace

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetDynamicPointToVoxelForwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetDynamicPointToVoxelForwardWorkspaceSize>,
       .example = "points=6 channels=3"},
      {.signature = &kMluOpDynamicPointToVoxelForward,
       .invoke = c_invoke<&mluOpDynamicPointToVoxelForward>,
       .example = "reduce_type=1 points=6 channels=3 voxels=4",
       .prepare =
           [](const Tensor* t) {  // no point is in a voxel, so any number of rows is enough
             std::fill_n(static_cast<std::int32_t*>(t[1].data), 3 * t[1].shape[0], -1);
           },
       .query = c_query<&mluOpGetDynamicPointToVoxelForwardWorkspaceSize>,
       .writes_when_empty = true},
      {.signature = &kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetDynamicPointToVoxelBackwardWorkspaceSize>,
       .example = kScatterBackwardExample},
      {.signature = &kMluOpDynamicPointToVoxelBackward,
       .invoke = c_invoke<&mluOpDynamicPointToVoxelBackward>,
       .example = kScatterBackwardExample,
       .prepare = &fill_scatter_result,
       .query = c_query<&mluOpGetDynamicPointToVoxelBackwardWorkspaceSize>},
      {.signature = &kMluOpGetDynamicScatterBackwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetDynamicScatterBackwardWorkspaceSize>,
       .example = "reduce_type=2 points=6 channels=3"},
      {.signature = &kMluOpDynamicScatterBackward,
       .invoke = c_invoke<&mluOpDynamicScatterBackward>,
       .example = kScatterBackwardExample,
       .prepare = &fill_scatter_result,
       // The query takes only the second descriptor.
       .query =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, std::size_t* size) {
             return c_query<&mluOpGetDynamicScatterBackwardWorkspaceSize>(handle, d + 1, data, s, size);
           }},
      {.signature = &kMluOpGetVoxelizationWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_voxelization(handle, d, nullptr, s, &size);
           },
       .example = kVoxelizationExample},
      {.signature = &kMluOpVoxelization,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpVoxelization(handle, d[0], data[0], d[1], data[1], d[2], data[2], as_int(s[1]),
                                      as_int(s[2]), as_int(s[3]), s[0].value == 1, w.data, w.size, d[3],
                                      data[3], d[4], data[4], d[5], data[5], d[6], data[6]);
           },
       .example = kVoxelizationExample,
       .prepare = [](const Tensor* t) { fill_grid(t[1], t[2]); },
       .query = &query_voxelization,
       .writes_when_empty = true},
  };
  return kOperators;
}

}  // namespace turnout::families::dynamic_scatter
