// The operators of this family, for what treats all operators alike.
#include "moe_dispatch/signature.h"
#include "registry.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kMoeDispatchForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_forward(context, t[0], t[1], t[2], t[3], t[4],
                              {s[0].value, s[1].value, to_enum<Fill>(s[2])});
       },
       "capacity=3 num_experts=2 fill=1 choices=2 samples=5 hidden=7"},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_dispatch
