// One entry per operator of the C interface.
#include "c_registry.h"

#include <algorithm>

#include "dynamic_scatter/example.h"
#include "moe_re_routing/example.h"
#include "sparse_conv/c_descriptor.h"

// Beside the functions they belong to, in <family>/c_api.cc.
namespace turnout::families::moe_dispatch {
extern const core::Signature kMluOpMoeDispatchForward;
}
namespace turnout::families::moe_re_routing {
extern const core::Signature kMluOpGetMoeReRoutingWorkspaceSize, kMluOpMoeReRouting,
    kMluOpMoeReRoutingInverse;
}
namespace turnout::families::sparse_conv {
extern const core::Signature kMluOpGetIndicePairsWorkspaceSize, kMluOpGetIndicePairs;
}
namespace turnout::families::mutual_information {
extern const core::Signature kMluOpGetMutualInformationForwardWorkspaceSize, kMluOpMutualInformationForward;
extern const core::Signature kMluOpGetMutualInformationBackwardWorkspaceSize, kMluOpMutualInformationBackward;
}  // namespace turnout::families::mutual_information
namespace turnout::families::dynamic_scatter {
extern const core::Signature kMluOpGetDynamicPointToVoxelForwardWorkspaceSize,
    kMluOpDynamicPointToVoxelForward;
extern const core::Signature kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize,
    kMluOpDynamicPointToVoxelBackward;
extern const core::Signature kMluOpGetDynamicScatterBackwardWorkspaceSize, kMluOpDynamicScatterBackward;
extern const core::Signature kMluOpGetVoxelizationWorkspaceSize, kMluOpVoxelization;
}  // namespace turnout::families::dynamic_scatter

namespace turnout::core {

using namespace families::dynamic_scatter;
using namespace families::moe_dispatch;
using namespace families::moe_re_routing;
using namespace families::mutual_information;
using namespace families::sparse_conv;

namespace {

using Descriptors = const mluOpTensorDescriptor_t*;
using Scalars = const ScalarValue*;

int as_int(const ScalarValue& scalar) { return static_cast<int>(scalar.value); }

// Not by mluOpSetSparseConvolutionDescriptor, so that the operators' own checks meet bad values too.
mluOpSparseConvolutionStruct sparse_convolution(Scalars s) {
  const auto dims = [](const ScalarValue& v) { return Dims(v.values, static_cast<int>(v.value)); };
  const std::int64_t mode = s[7].value < 0 || s[7].value > 255 ? 255 : s[7].value;
  return {.params = {.batch_size = s[0].value,
                     .spatial_shape = dims(s[4]),
                     .kernel_size = dims(s[5]),
                     .stride = dims(s[2]),
                     .padding = dims(s[1]),
                     .dilation = dims(s[3]),
                     .output_shape = dims(s[6]),
                     .mode = static_cast<ConvMode>(mode)}};
}

mluOpStatus_t query_indice_pairs(mluOpHandle_t handle, Descriptors d, Scalars s, std::size_t* size) {
  mluOpSparseConvolutionStruct convolution = sparse_convolution(s);
  return mluOpGetIndicePairsWorkspaceSize(handle, &convolution, d[0], d[1], d[2], d[3], size);
}

mluOpStatus_t query_mutual_information_forward(mluOpHandle_t handle, Descriptors d, Scalars,
                                               std::size_t* size) {
  return mluOpGetMutualInformationForwardWorkspaceSize(handle, d[0], d[1], d[2], d[3], d[4], size);
}
mluOpStatus_t query_mutual_information_backward(mluOpHandle_t handle, Descriptors d, Scalars s,
                                                std::size_t* size) {
  return mluOpGetMutualInformationBackwardWorkspaceSize(handle, d[0], d[1], d[2], d[3], d[4], s[0].value != 0,
                                                        size);
}

mluOpReduceMode_t as_reduce_mode(const ScalarValue& scalar) {
  return static_cast<mluOpReduceMode_t>(scalar.value);
}
mluOpStatus_t query_scatter_forward(mluOpHandle_t handle, Descriptors d, Scalars, std::size_t* size) {
  return mluOpGetDynamicPointToVoxelForwardWorkspaceSize(handle, d[0], d[1], size);
}
mluOpStatus_t query_scatter_backward(mluOpHandle_t handle, Descriptors d, Scalars s, std::size_t* size) {
  return mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(handle, as_reduce_mode(s[0]), d[0], d[1], d[2],
                                                          d[3], d[4], d[5], size);
}
mluOpStatus_t query_voxelization(mluOpHandle_t handle, Descriptors d, Scalars s, std::size_t* size) {
  return mluOpGetVoxelizationWorkspaceSize(handle, d[0], d[1], d[2], as_int(s[1]), as_int(s[2]), as_int(s[3]),
                                           s[0].value == 1, d[3], d[4], d[5], d[6], size);
}

void fill_scatter_result(const Tensor* t) { fill_map(t[0], t[3], t[5]); }

constexpr std::string_view kScatterBackwardExample = "reduce_type=2 voxels=4 channels=3 points=6";
constexpr std::string_view kVoxelizationExample =
    "deterministic=1 max_points=3 max_voxels=5 NDim=3 rows=7 features=4";

// Output space enough for more rows than a tensor may have, input space for more than a call may have.
constexpr std::string_view kIndicePairsExample =
    "batch_size=1 pad=1 stride=1 dilation=1 input_space=101 filter_space=3 output_space=1000 sub_m=0 rows=5 "
    "out_rows=9";

}  // namespace

std::span<const COperator> c_operators() {
  static constexpr COperator kOperators[] = {
      {&kMluOpMoeDispatchForward,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
         return mluOpMoeDispatchForward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3], data[3],
                                        as_int(s[0]), as_int(s[1]), as_int(s[2]), as_int(s[3]), d[4],
                                        data[4]);
       },
       "samples=5 capacity=3 hidden=7 num_experts=2"},
      {&kMluOpGetMoeReRoutingWorkspaceSize,
       [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, const Workspace&) {
         std::size_t size = 0;
         return mluOpGetMoeReRoutingWorkspaceSize(handle, d[0], d[1], d[2], &size);
       },
       "rows=5 hidden=3 ranks=2 experts=3 scale_width=2"},
      {&kMluOpMoeReRouting,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
         return mluOpMoeReRouting(handle, d[0], data[0], d[1], data[1], d[2], data[2], s[0].value, s[1].value,
                                  w.data, w.size, d[3], data[3], d[4], data[4], d[5], data[5], d[6], data[6]);
       },
       "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
       [](const Tensor* t) { fill_counts(t[0], t[1]); },
       [](mluOpHandle_t handle, Descriptors d, Scalars, std::size_t* size) {
         return mluOpGetMoeReRoutingWorkspaceSize(handle, d[0], d[1], d[2], size);
       }},
      {&kMluOpMoeReRoutingInverse,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
         return mluOpMoeReRoutingInverse(handle, d[0], data[0], d[1], data[1], s[0].value, d[2], data[2]);
       },
       "idx_type=0 rows=5 hidden=3", [](const Tensor* t) { fill_identity(t[1]); }},
      {.signature = &kMluOpGetIndicePairsWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_indice_pairs(handle, d, s, &size);
           },
       .example = kIndicePairsExample,
       .data_faults = {"dilation=2 stride=2", "sub_m=1"}},
      {.signature = &kMluOpGetIndicePairs,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             mluOpSparseConvolutionStruct convolution = sparse_convolution(s);
             return mluOpGetIndicePairs(handle, &convolution, d[0], data[0], w.data, w.size, d[1], data[1],
                                        d[2], data[2], d[3], data[3]);
           },
       .example = kIndicePairsExample,
       .query = &query_indice_pairs,
       .data_faults = {"dilation=2 stride=2", "sub_m=1"},
       .writes_when_empty = true},
      {.signature = &kMluOpGetMutualInformationForwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_mutual_information_forward(handle, d, s, &size);
           },
       .example = "batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationForward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars, const Workspace& w) {
             return mluOpMutualInformationForward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                  data[3], w.data, w.size, d[4], data[4]);
           },
       .example = "batch=2 symbols=3 frames=5",
       .query = &query_mutual_information_forward},
      {.signature = &kMluOpGetMutualInformationBackwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_mutual_information_backward(handle, d, s, &size);
           },
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationBackward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpMutualInformationBackward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                   data[3], d[4], data[4], s[0].value != 0, w.data, w.size,
                                                   d[5], data[5], d[6], data[6]);
           },
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5",
       .query = &query_mutual_information_backward},
      {.signature = &kMluOpGetDynamicPointToVoxelForwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_scatter_forward(handle, d, s, &size);
           },
       .example = "points=6 channels=3"},
      {.signature = &kMluOpDynamicPointToVoxelForward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpDynamicPointToVoxelForward(handle, as_reduce_mode(s[0]), d[0], data[0], d[1],
                                                    data[1], w.data, w.size, d[2], data[2], d[3], data[3],
                                                    d[4], data[4], d[5], data[5], d[6], data[6]);
           },
       .example = "reduce_type=1 points=6 channels=3 voxels=4",
       .prepare =
           [](const Tensor* t) {  // no point is in a voxel: there is room for all, however little
             std::fill_n(static_cast<std::int32_t*>(t[1].data), 3 * t[1].shape[0], -1);
           },
       .query = &query_scatter_forward,
       .writes_when_empty = true},
      {.signature = &kMluOpGetDynamicPointToVoxelBackwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_scatter_backward(handle, d, s, &size);
           },
       .example = kScatterBackwardExample},
      {.signature = &kMluOpDynamicPointToVoxelBackward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpDynamicPointToVoxelBackward(handle, as_reduce_mode(s[0]), d[0], data[0], d[1],
                                                     data[1], d[2], data[2], d[3], data[3], d[4], data[4],
                                                     d[5], data[5], w.data, w.size, d[6], data[6]);
           },
       .example = kScatterBackwardExample,
       .prepare = &fill_scatter_result,
       .query = &query_scatter_backward},
      {.signature = &kMluOpGetDynamicScatterBackwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return mluOpGetDynamicScatterBackwardWorkspaceSize(handle, as_reduce_mode(s[0]), d[0], &size);
           },
       .example = "reduce_type=2 points=6 channels=3"},
      {.signature = &kMluOpDynamicScatterBackward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpDynamicScatterBackward(handle, as_reduce_mode(s[0]), d[0], data[0], d[1], data[1],
                                                d[2], data[2], d[3], data[3], d[4], data[4], d[5], data[5],
                                                w.data, w.size, d[6], data[6]);
           },
       .example = kScatterBackwardExample,
       .prepare = &fill_scatter_result,
       .query =
           [](mluOpHandle_t handle, Descriptors d, Scalars s, std::size_t* size) {
             return mluOpGetDynamicScatterBackwardWorkspaceSize(handle, as_reduce_mode(s[0]), d[1], size);
           }},
      {.signature = &kMluOpGetVoxelizationWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_voxelization(handle, d, s, &size);
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

}  // namespace turnout::core
