// One entry per operator.
#include "registry.h"

#include "moe_dispatch/signature.h"
#include "turnout/moe_dispatch.h"

namespace turnout::core {
namespace {

// The enum of a scalar; a value that its type cannot hold becomes one that the checks refuse.
template <class Enum>
Enum to_enum(const ScalarValue& scalar) {
  return static_cast<Enum>(scalar.value < 0 || scalar.value > 255 ? 255 : scalar.value);
}

}  // namespace

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

}  // namespace turnout::core
