// All operators, for what treats them alike: negative tests, the signature fuzzer, the tables of the docs.
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

}  // namespace turnout::core
