// Implements the sparse-convolution descriptor of the C interface.
#include "sparse_conv/c_descriptor.h"

#include "bindings/mluop/call.h"

using namespace turnout::core;
using namespace turnout::bindings;

namespace {

constexpr int kDims = mluOpSparseConvolutionStruct::kDims;

turnout::Dims to_dims(const int* values) {
  turnout::Dims dims = turnout::Dims::filled(kDims, 0);
  for (int d = 0; d < kDims; ++d) dims[d] = values[d];
  return dims;
}

}  // namespace

mluOpStatus_t mluOpCreateSparseConvolutionDescriptor(mluOpSparseConvolutionDescriptor_t* desc) {
  if (desc == nullptr) return refuse_null(__func__, "desc", MLUOP_STATUS_NOT_INITIALIZED);
  try {
    *desc = new mluOpSparseConvolutionStruct;
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

mluOpStatus_t mluOpDestroySparseConvolutionDescriptor(mluOpSparseConvolutionDescriptor_t desc) {
  if (desc == nullptr) return refuse_null(__func__, "desc", MLUOP_STATUS_EXECUTION_FAILED);
  delete desc;
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpSetSparseConvolutionDescriptor(mluOpSparseConvolutionDescriptor_t desc, int dimNb,
                                                  int batch_size, const int pad[], const int stride[],
                                                  const int dilation[], const int input_space[],
                                                  const int filter_space[], const int output_space[],
                                                  const int sub_m, const int transpose, const int inverse) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  const struct {
    const char* name;
    const int* values;
    int min;
  } vectors[] = {{"pad", pad, 0},
                 {"stride", stride, 1},
                 {"dilation", dilation, 1},
                 {"input_space", input_space, 1},
                 {"filter_space", filter_space, 1},
                 {"output_space", output_space, 1}};
  for (const auto& vector : vectors)
    if (vector.values == nullptr) return refuse_null(__func__, vector.name);
  if (dimNb != kDims + 2) return refuse(__func__, "dimNb is %d, expected %d", dimNb, kDims + 2);
  if (batch_size <= 0) return refuse(__func__, "batch_size is %d, expected 1 or more", batch_size);
  if (transpose != 0) return refuse(__func__, "transpose is %d, expected 0", transpose);
  if (inverse != 0) return refuse(__func__, "inverse is %d, expected 0", inverse);
  for (int d = 0; d < kDims; ++d)
    for (const auto& vector : vectors)
      if (vector.values[d] < vector.min)
        return refuse(__func__, "%s[%d] is %d, expected %d or more", vector.name, d, vector.values[d],
                      vector.min);
  desc->params.batch_size = batch_size;
  desc->params.padding = to_dims(pad);
  desc->params.stride = to_dims(stride);
  desc->params.dilation = to_dims(dilation);
  desc->params.spatial_shape = to_dims(input_space);
  desc->params.kernel_size = to_dims(filter_space);
  desc->params.output_shape = to_dims(output_space);
  desc->params.mode = sub_m == 0 ? turnout::ConvMode::sparse : turnout::ConvMode::submanifold;
  return succeed();
}

mluOpStatus_t mluOpGetSparseConvolutionNumActOut(mluOpSparseConvolutionDescriptor_t desc, int* num_act_out) {
  return give(__func__, "desc", desc, &mluOpSparseConvolutionStruct::num_act_out, "num_act_out", num_act_out,
              MLUOP_STATUS_NOT_INITIALIZED);
}
