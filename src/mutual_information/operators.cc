// The operators of this family, for what treats all operators alike.
#include "mutual_information/signature.h"
#include "registry.h"
#include "turnout/mutual_information.h"

namespace turnout::families::mutual_information {

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kMutualInformationForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor boundary = t[2];
         mutual_information_forward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3], t[4],
                                    to_enum<Outside>(s[0]));
       },
       "outside=1 batch=2 symbols=3 columns=6 frames=5"},
      {&kMutualInformationBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor boundary = t[2];
         mutual_information_backward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3], t[4], t[5],
                                     t[6], s[0].value != 0);
       },
       "overwrite_ans_grad=1 batch=2 symbols=3 columns=6 frames=5"},
      {&kMutualInformationForwardBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         const ConstTensor boundary = t[2];
         mutual_information_forward_backward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3],
                                             t[4], t[5]);
       },
       "batch=2 symbols=3 columns=6 frames=5"},
  };
  return kOperators;
}

}  // namespace turnout::families::mutual_information
