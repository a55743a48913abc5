// All operators, for what treats them alike: negative tests, the signature fuzzer, `turnout ops` and the
// tables of the docs. The Python module and the tests have it; the libraries do not.
#pragma once

#include <span>
#include <string_view>

#include "core/check.h"
#include "turnout/context.h"

namespace turnout::core {

struct Operator {
  const Signature* signature;
  // Calls the operator with arguments and scalars in the signature's order; rank -1: not given.
  void (*invoke)(Context& context, const Tensor* arguments, const ScalarValue* scalars);
  // A call that succeeds, from which the tests break one thing at a time: a value for every size and scalar.
  std::string_view example;
  // Makes the data of such a call legal, where zeros are not.
  void (*prepare)(const Tensor* arguments) = nullptr;
};

std::span<const Operator> operators();

// For `invoke`. The enum of a scalar; a value that its type cannot hold becomes one that the checks refuse.
template <class Enum>
Enum to_enum(const ScalarValue& scalar) {
  return static_cast<Enum>(scalar.value < 0 || scalar.value > 255 ? 255 : scalar.value);
}
inline bool given(const Tensor& t) { return t.rank >= 0; }

}  // namespace turnout::core
