// The C functions of this family, for the tests that cover all C functions.
#include "bindings/mluop/call.h"
#include "c_registry.h"
#include "sparse_conv/c_descriptor.h"

namespace turnout::families::sparse_conv {

using namespace core;

// Defined in c_api.cc, next to their functions.
extern const Signature& kMluOpGetIndicePairsWorkspaceSize;
extern const Signature& kMluOpGetIndicePairs;
// Defined in c_convolution.cc.
extern const Signature& kMluOpGetIndiceConvolutionForwardWorkspaceSize;
extern const Signature& kMluOpIndiceConvolutionForward;
extern const Signature& kMluOpGetIndiceConvolutionBackwardDataWorkspaceSize;
extern const Signature& kMluOpIndiceConvolutionBackwardData;
extern const Signature& kMluOpGetIndiceConvolutionBackwardFilterWorkspaceSize;
extern const Signature& kMluOpIndiceConvolutionBackwardFilter;

namespace {

// Does not use mluOpSetSparseConvolutionDescriptor, so that bad values reach the operators' checks.
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

mluOpStatus_t query_indice_pairs(mluOpHandle_t handle, Descriptors d, void* const*, Scalars s,
                                 std::size_t* size) {
  mluOpSparseConvolutionStruct convolution = sparse_convolution(s);
  return mluOpGetIndicePairsWorkspaceSize(handle, &convolution, d[0], d[1], d[2], d[3], size);
}

// The output space has more cells than a tensor may have rows, the input space more than a call may have.
constexpr std::string_view kIndicePairsExample =
    "batch_size=1 pad=1 stride=1 dilation=1 input_space=101 filter_space=3 output_space=1000 sub_m=0 rows=5 "
    "out_rows=9";

// The layout is a scalar in the signatures, and a field of the descriptor of filters, the second argument.
Descriptors with_layout(Descriptors d, const ScalarValue& layout) {
  if (d[1] != nullptr) d[1]->layout = static_cast<mluOpTensorLayout_t>(layout.value);
  return d;
}
// indice_num has no descriptor; it is absent if the descriptor that represents it is.
const std::int64_t* counts(Descriptors d, void* const* data) {
  return d[3] == nullptr ? nullptr : static_cast<const std::int64_t*>(data[3]);
}

mluOpStatus_t query_forward(mluOpHandle_t handle, Descriptors given, void* const* data, Scalars s,
                            std::size_t* size) {
  const Descriptors d = with_layout(given, s[3]);
  return mluOpGetIndiceConvolutionForwardWorkspaceSize(handle, d[0], d[1], d[2], d[4], counts(d, data),
                                                       s[0].value, s[1].value, s[2].value, size);
}
mluOpStatus_t query_backward_data(mluOpHandle_t handle, Descriptors given, void* const* data,
                                  const ScalarValue& inverse, const ScalarValue& layout, std::size_t* size) {
  const Descriptors d = with_layout(given, layout);
  return mluOpGetIndiceConvolutionBackwardDataWorkspaceSize(handle, d[0], d[1], d[2], d[4], counts(d, data),
                                                            inverse.value, size);
}
mluOpStatus_t query_backward_filter(mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s,
                                    std::size_t* size) {
  return mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize(handle, d[0], d[1], d[2], d[4], counts(d, data),
                                                              s[0].value, 0, size);
}

constexpr std::string_view kForwardExample =
    "num_act_out=7 inverse=0 sub_m=0 filters_layout=4 rows=5 kd=1 kh=3 kw=3 in_channels=3 out_channels=2";
constexpr std::string_view kBackwardDataExample =
    "inverse=0 sub_m=0 filters_layout=4 out_rows=7 rows=5 kd=1 kh=3 kw=3 in_channels=3 out_channels=2";
constexpr std::string_view kBackwardDataQueryExample =
    "inverse=0 filters_layout=4 out_rows=7 rows=5 kd=1 kh=3 kw=3 in_channels=3 out_channels=2";
constexpr std::string_view kBackwardFilterExample =
    "inverse=0 rows=5 out_rows=7 kd=1 kh=3 kw=3 in_channels=3 out_channels=2";

}  // namespace

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetIndicePairsWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_indice_pairs(handle, d, nullptr, s, &size);
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
      {.signature = &kMluOpGetIndiceConvolutionForwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_forward(handle, d, data, s, &size);
           },
       .example = kForwardExample,
       .data_faults = {"inverse=1", "indice_num=6"}},
      {.signature = &kMluOpIndiceConvolutionForward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors given, void* const* data, Scalars s, const Workspace& w) {
             const Descriptors d = with_layout(given, s[3]);
             return mluOpIndiceConvolutionForward(handle, d[0], data[0], d[1], data[1], d[2], data[2],
                                                  counts(d, data), s[0].value, s[1].value, s[2].value, w.data,
                                                  w.size, d[4], data[4]);
           },
       .example = kForwardExample,
       .query = &query_forward,
       .data_faults = {"inverse=1", "indice_num=6"},
       .writes_when_empty = true},
      {.signature = &kMluOpGetIndiceConvolutionBackwardDataWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_backward_data(handle, d, data, s[0], s[1], &size);
           },
       .example = kBackwardDataQueryExample,
       .data_faults = {"indice_num=-1", "inverse=1", "filters_layout=1", "indice_num=6", "filters.dtype=1"}},
      {.signature = &kMluOpIndiceConvolutionBackwardData,
       .invoke =
           [](mluOpHandle_t handle, Descriptors given, void* const* data, Scalars s, const Workspace& w) {
             const Descriptors d = with_layout(given, s[2]);
             return mluOpIndiceConvolutionBackwardData(handle, d[0], data[0], d[1], data[1], d[2], data[2],
                                                       counts(d, data), s[0].value, s[1].value, w.data,
                                                       w.size, d[4], data[4]);
           },
       .example = kBackwardDataExample,
       .query = [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s,
                   std::size_t* size) { return query_backward_data(handle, d, data, s[0], s[2], size); },
       .data_faults = {"indice_num=-1", "inverse=1", "filters_layout=1", "indice_num=6", "sub_m=1",
                       "filters.dtype=1"},
       .writes_when_empty = true},
      {.signature = &kMluOpGetIndiceConvolutionBackwardFilterWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_backward_filter(handle, d, data, s, &size);
           },
       .example = kBackwardFilterExample,
       .data_faults = {"indice_num=6"}},
      {.signature = &kMluOpIndiceConvolutionBackwardFilter,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpIndiceConvolutionBackwardFilter(handle, d[0], data[0], d[1], data[1], d[2], data[2],
                                                         counts(d, data), s[0].value, 0, w.data, w.size, d[4],
                                                         data[4]);
           },
       .example = kBackwardFilterExample,
       .query = &query_backward_filter,
       .data_faults = {"indice_num=6"},
       .writes_when_empty = true},
  };
  return kOperators;
}

}  // namespace turnout::families::sparse_conv
