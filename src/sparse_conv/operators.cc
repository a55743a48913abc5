// The operators of this family, for what treats all operators alike.
#include "registry.h"
#include "sparse_conv/signature.h"
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
  };
  return kOperators;
}

}  // namespace turnout::families::sparse_conv
