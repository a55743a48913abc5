// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"
#include "sparse_conv/c_descriptor.h"

namespace turnout::families::sparse_conv {

using namespace core;

// Beside the functions they belong to, in c_api.cc.
extern const Signature& kMluOpGetIndicePairsWorkspaceSize;
extern const Signature& kMluOpGetIndicePairs;

namespace {

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

// Output space enough for more rows than a tensor may have, input space for more than a call may have.
constexpr std::string_view kIndicePairsExample =
    "batch_size=1 pad=1 stride=1 dilation=1 input_space=101 filter_space=3 output_space=1000 sub_m=0 rows=5 "
    "out_rows=9";

}  // namespace

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
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
  };
  return kOperators;
}

}  // namespace turnout::families::sparse_conv
