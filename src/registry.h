// The list of all operators, for code that treats them alike: negative tests, the signature fuzzer, `turnout
// ops` and the tables of the docs. It is linked into the Python module and the tests, not into the libraries.
#pragma once

#include <span>
#include <string_view>

#include "core/check.h"
#include "turnout/context.h"

namespace turnout::core {

struct Operator {
  const Signature* signature;
  // Calls the operator with arguments and scalars in the signature's order; rank -1 means absent.
  void (*invoke)(Context& context, const Tensor* arguments, const ScalarValue* scalars);
  // A valid call, as a value for every size and scalar. Tests start from it and break one thing at a time.
  std::string_view example;
  // Fills in the data of that call, if zeros are not valid data.
  void (*prepare)(const Tensor* arguments) = nullptr;
};

std::span<const Operator> operators();

// For `invoke`: a scalar as an enum. A value that does not fit becomes 255, which the checks refuse.
template <class Enum>
Enum to_enum(const ScalarValue& scalar) {
  return static_cast<Enum>(scalar.value < 0 || scalar.value > 255 ? 255 : scalar.value);
}
inline bool given(const Tensor& t) { return t.rank >= 0; }

}  // namespace turnout::core
