// The C functions of the convolutions along given pairs.
#include "bindings/mluop/call.h"
#include "sparse_conv/c_convolution_signature.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;
using namespace bindings;
namespace {

constexpr Form form_of(mluOpTensorLayout_t layout) {
  switch (layout) {
    case MLUOP_LAYOUT_NHWC:
    case MLUOP_LAYOUT_NDHWC:
      return Form::channels_last;
    case MLUOP_LAYOUT_NCHW:
    case MLUOP_LAYOUT_NCDHW:
      return Form::channels_first;
    default:  // HWCN and ARRAY; the checks refuse the others before they look at shapes
      return Form::kernel_first;
  }
}
Form form_of(mluOpTensorDescriptor_t filters) {
  return form_of(filters == nullptr ? MLUOP_LAYOUT_ARRAY : filters->layout);
}
ScalarValue layout_value(mluOpTensorDescriptor_t filters) {
  return static_cast<int>(filters == nullptr ? MLUOP_LAYOUT_ARRAY : filters->layout);
}

// Positions in filters of n dimensions.
struct Places {
  int in, out, last_of_kernel;
};
constexpr Places places(Form form, int n) {
  if (form == Form::channels_last) return {n - 1, 0, n - 2};
  if (form == Form::channels_first) return {1, 0, n - 1};
  return {n - 2, n - 1, n - 3};
}

// The filters as [offsets, in, out], without a copy: in every layout the kernel dimensions are contiguous.
ConstTensor as_matrices(const Tensor& filters, Form form, std::int64_t offsets) {
  const Places at = places(form, filters.rank);
  ConstTensor matrices;
  matrices.data = filters.data;
  matrices.dtype = filters.dtype;
  matrices.rank = 3;
  const int from[] = {at.last_of_kernel, at.in, at.out};
  for (int d = 0; d < 3; ++d) {
    matrices.shape[d] = filters.shape[from[d]];
    matrices.stride[d] = filters.stride[from[d]];
  }
  matrices.shape[0] = offsets;
  return matrices;
}

}  // namespace

// For the tests: filters in the layout MLUOP_LAYOUT_ARRAY.
constexpr const Signature& kMluOpGetIndiceConvolutionForwardWorkspaceSize =
    ForwardQuery<Form::kernel_first>::kSignature;
constexpr const Signature& kMluOpIndiceConvolutionForward = Forward<Form::kernel_first>::kSignature;
constexpr const Signature& kMluOpGetIndiceConvolutionBackwardDataWorkspaceSize =
    DataQuery<Form::kernel_first>::kSignature;
constexpr const Signature& kMluOpIndiceConvolutionBackwardData = Data<Form::kernel_first>::kSignature;
constexpr const Signature& kMluOpGetIndiceConvolutionBackwardFilterWorkspaceSize = signature([] {
  return backward_filter_c("mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize", of_query(kFilterSteps));
});
constexpr const Signature& kMluOpIndiceConvolutionBackwardFilter =
    signature([] { return backward_filter_c("mluOpIndiceConvolutionBackwardFilter", kFilterSteps); });

namespace {

constexpr Renames kForwardNames(kIndiceConvolutionForward, kMluOpIndiceConvolutionForward,
                                "bias= index= subm=sub_m");
constexpr Renames kDataNames(kIndiceConvolutionBackwardData, kMluOpIndiceConvolutionBackwardData,
                             "index= subm=sub_m");
constexpr Renames kFilterNames(kIndiceConvolutionBackwardFilter, kMluOpIndiceConvolutionBackwardFilter,
                               "subm=");

// The number of elements of indice_num if shapes agree. They are not read before that is checked.
std::int64_t offsets_of(mluOpTensorDescriptor_t indice_pairs) {
  return indice_pairs == nullptr || indice_pairs->shape.empty() ? 0 : indice_pairs->shape[0];
}

// Runs a call; if there is nothing to add up, the result is set to 0.
template <int kCount, class Body>
mluOpStatus_t add_up(mluOpHandle_t handle, const Signature& signature, const Renames& renames,
                     const Described (&described)[kCount], std::initializer_list<ScalarValue> scalars,
                     const Workspace& workspace, const Body& body) noexcept {
  bool ran = false;
  const mluOpStatus_t status = call(
      handle, signature, renames, described, scalars,
      [&](const Caller& caller, const Tensor* t) {
        ran = true;
        body(caller, t);
      },
      workspace);
  if (status == MLUOP_STATUS_SUCCESS && !ran) fill_result(described[kCount - 1], 0);
  return status;
}

}  // namespace
}  // namespace turnout::families::sparse_conv

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::sparse_conv;

mluOpStatus_t mluOpGetIndiceConvolutionForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
    const mluOpTensorDescriptor_t filters_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t features_out_desc, const int64_t indice_num[], const int64_t num_act_out,
    const int64_t inverse, const int64_t sub_m, size_t* workspace_size) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  return query(handle, signature_for<ForwardQuery>(form_of(filters_desc)),
               {{features_desc, nullptr},
                {filters_desc, nullptr},
                {indice_pairs_desc, nullptr},
                {nullptr, indice_num, &offsets},
                {features_out_desc, nullptr}},
               {num_act_out, inverse, sub_m, layout_value(filters_desc)},
               {workspace_size, "workspace_size", NullSize::last});
}

mluOpStatus_t mluOpIndiceConvolutionForward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc, const void* features,
    const mluOpTensorDescriptor_t filters_desc, const void* filters,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t num_act_out, const int64_t inverse, const int64_t sub_m, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t features_out_desc, void* features_out) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  const Form form = form_of(filters_desc);
  return add_up(handle, signature_for<Forward>(form), kForwardNames,
                {{features_desc, features},
                 {filters_desc, filters},
                 {indice_pairs_desc, indice_pairs},
                 {nullptr, indice_num, &offsets},
                 {features_out_desc, features_out}},
                {num_act_out, inverse, sub_m, layout_value(filters_desc)}, {workspace, workspace_size},
                [&](const Caller& caller, const turnout::Tensor* t) {
                  indice_convolution_forward(t[0], as_matrices(t[1], form, offsets), t[2], t[3], nullptr,
                                             nullptr, t[4], {}, caller);
                });
}

mluOpStatus_t mluOpGetIndiceConvolutionBackwardDataWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t output_grad_desc,
    const mluOpTensorDescriptor_t filters_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t input_grad_desc, const int64_t indice_num[], const int64_t inverse,
    size_t* workspace_size) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  return query(handle, signature_for<DataQuery>(form_of(filters_desc)),
               {{output_grad_desc, nullptr},
                {filters_desc, nullptr},
                {indice_pairs_desc, nullptr},
                {nullptr, indice_num, &offsets},
                {input_grad_desc, nullptr}},
               {inverse, layout_value(filters_desc)}, workspace_size);
}

mluOpStatus_t mluOpIndiceConvolutionBackwardData(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t output_grad_desc, const void* output_grad,
    const mluOpTensorDescriptor_t filters_desc, const void* filters,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t inverse, const int64_t sub_m, void* workspace, const size_t workspace_size,
    const mluOpTensorDescriptor_t input_grad_desc, void* input_grad) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  const Form form = form_of(filters_desc);
  return add_up(handle, signature_for<Data>(form), kDataNames,
                {{output_grad_desc, output_grad},
                 {filters_desc, filters},
                 {indice_pairs_desc, indice_pairs},
                 {nullptr, indice_num, &offsets},
                 {input_grad_desc, input_grad}},
                {inverse, sub_m, layout_value(filters_desc)}, {workspace, workspace_size},
                [&](const Caller& caller, const turnout::Tensor* t) {
                  indice_convolution_backward_data(t[0], as_matrices(t[1], form, offsets), t[2], t[3],
                                                   nullptr, t[4], {}, caller);
                });
}

mluOpStatus_t mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
    const mluOpTensorDescriptor_t output_grad_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t filters_grad_desc, const int64_t indice_num[], const int64_t inverse,
    const int64_t /*sub_m*/, size_t* workspace_size) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  return query(handle, kMluOpGetIndiceConvolutionBackwardFilterWorkspaceSize,
               {{features_desc, nullptr},
                {output_grad_desc, nullptr},
                {indice_pairs_desc, nullptr},
                {nullptr, indice_num, &offsets},
                {filters_grad_desc, nullptr}},
               {inverse}, workspace_size);
}

mluOpStatus_t mluOpIndiceConvolutionBackwardFilter(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc, const void* features,
    const mluOpTensorDescriptor_t output_grad_desc, const void* output_grad,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t inverse, const int64_t /*sub_m*/, void* workspace, const size_t workspace_size,
    const mluOpTensorDescriptor_t filters_grad_desc, void* filters_grad) {
  const std::int64_t offsets = offsets_of(indice_pairs_desc);
  return add_up(handle, kMluOpIndiceConvolutionBackwardFilter, kFilterNames,
                {{features_desc, features},
                 {output_grad_desc, output_grad},
                 {indice_pairs_desc, indice_pairs},
                 {nullptr, indice_num, &offsets},
                 {filters_grad_desc, filters_grad}},
                {inverse}, {workspace, workspace_size}, [&](const Caller& caller, const turnout::Tensor* t) {
                  const turnout::Tensor& filters = t[4];
                  indice_convolution_backward_filter(
                      t[0], t[1], t[2], t[3],
                      {filters.data,
                       filters.dtype,
                       {offsets, filters.shape[filters.rank - 2], filters.shape[filters.rank - 1]}},
                      {}, caller);
                });
}
