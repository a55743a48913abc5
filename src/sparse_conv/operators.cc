// The operators of this family, for what treats all operators alike.
#include "registry.h"
#include "sparse_conv/pool_signature.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

namespace {

Dims to_dims(const ScalarValue& scalar) { return {scalar.values, static_cast<int>(scalar.value)}; }

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kGetIndicePairs,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         get_indice_pairs(context, t[0], t[1], t[2], t[3],
                          {.batch_size = s[0].value,
                           .spatial_shape = to_dims(s[1]),
                           .kernel_size = to_dims(s[2]),
                           .stride = to_dims(s[3]),
                           .padding = to_dims(s[4]),
                           .dilation = to_dims(s[5]),
                           .output_shape = to_dims(s[6]),
                           .mode = to_enum<ConvMode>(s[7])});
       },
       "batch_size=2 spatial_shape=4 kernel_size=3 stride=1 padding=1 dilation=1 output_shape=4 mode=0 "
       "rows=5 "
       "dims=3 out_rows=9"},
      {&kIndiceConvolutionForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor bias = t[4], index = t[5];
         indice_convolution_forward(context, t[0], t[1], t[2], t[3], given(t[4]) ? &bias : nullptr, t[6],
                                    {s[0].value != 0, s[1].value != 0, given(t[5]) ? &index : nullptr});
       },
       "inverse=0 subm=0 rows=5 in_channels=3 offsets=4 out_channels=2 columns=6 words=2 out_rows=7"},
      {&kIndiceConvolutionBackwardData,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor index = t[4];
         indice_convolution_backward_data(context, t[0], t[1], t[2], t[3], t[5],
                                          {s[0].value != 0, s[1].value != 0, given(t[4]) ? &index : nullptr});
       },
       "inverse=0 subm=0 rows=5 in_channels=3 offsets=4 out_channels=2 columns=6 words=2 out_rows=7"},
      {&kIndiceConvolutionBackwardFilter,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         indice_convolution_backward_filter(context, t[0], t[1], t[2], t[3], t[4],
                                            {s[0].value != 0, s[1].value != 0});
       },
       "inverse=0 subm=0 rows=5 in_channels=3 offsets=4 out_channels=2 columns=6 out_rows=7"},
      {&kIndiceConvolutionIndex,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         indice_convolution_index(context, t[0], t[1], t[2],
                                  {s[0].value, s[1].value, s[2].value != 0, s[3].value != 0});
       },
       "rows=5 out_rows=7 inverse=0 subm=0 offsets=4 columns=6 words=2"},
      {&kIndiceMaxPoolForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         indice_max_pool_forward(context, t[0], t[1], t[2], t[3], to_enum<PoolInit>(s[0]));
       },
       "init=0 rows=5 channels=3 offsets=4 columns=6 out_rows=7"},
      {&kIndiceMaxPoolBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         indice_max_pool_backward(context, t[0], t[1], t[2], t[3], t[4], t[5]);
       },
       "rows=5 channels=3 offsets=4 columns=6 out_rows=7"},
      {&kIndiceAvgPoolForward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         indice_avg_pool_forward(context, t[0], t[1], t[2], t[3]);
       },
       "rows=5 channels=3 offsets=4 columns=6 out_rows=7"},
      {&kIndiceAvgPoolBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         indice_avg_pool_backward(context, t[0], t[1], t[2], t[3]);
       },
       "rows=5 channels=3 offsets=4 columns=6 out_rows=7"},
      {&kGlobalMaxPoolForward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         global_max_pool_forward(context, t[0], t[1], t[2]);
       },
       "rows=5 channels=3 columns=4 batches=2"},
      {&kGlobalMaxPoolBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         global_max_pool_backward(context, t[0], t[1], t[2], t[3], t[4]);
       },
       "rows=5 channels=3 columns=4 batches=2"},
      {&kGlobalAvgPoolForward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         global_avg_pool_forward(context, t[0], t[1], t[2]);
       },
       "rows=5 channels=3 columns=4 batches=2"},
      {&kGlobalAvgPoolBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         global_avg_pool_backward(context, t[0], t[1], t[2]);
       },
       "rows=5 channels=3 columns=4 batches=2"},
  };
  return kOperators;
}

}  // namespace turnout::families::sparse_conv
