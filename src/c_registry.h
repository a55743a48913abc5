// All operators of the C interface, for the tests that treat them alike.
#pragma once

#include <span>
#include <string_view>

#include "core/check.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::core {

struct COperator {
  const Signature* signature;
  // Calls the C function with arguments and scalars in the signature's order.
  mluOpStatus_t (*invoke)(mluOpHandle_t handle, const mluOpTensorDescriptor_t* descriptors, void* const* data,
                          const ScalarValue* scalars);
  // A call that succeeds, from which the tests break one thing at a time: a value for every size and scalar.
  std::string_view example;
};

std::span<const COperator> c_operators();

}  // namespace turnout::core
