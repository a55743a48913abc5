// All operators of the C interface, for the tests that treat them alike.
#pragma once

#include <span>
#include <string_view>

#include "core/check.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::core {

using Descriptors = const mluOpTensorDescriptor_t*;
using Scalars = const ScalarValue*;

struct COperator {
  const Signature* signature;
  // Calls the C function with arguments and scalars in the signature's order.
  mluOpStatus_t (*invoke)(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                          const Workspace& workspace);
  // A call that succeeds, from which the tests break one thing at a time: a value for every size and scalar.
  std::string_view example;
  // Makes the data of such a call legal, where zeros are not.
  void (*prepare)(const Tensor* arguments) = nullptr;
  // Asks how large the workspace must be; nullptr: the function takes none.
  mluOpStatus_t (*query)(mluOpHandle_t handle, Descriptors descriptors, Scalars scalars,
                         std::size_t* workspace_size) = nullptr;
  // What breaks each of the signature's data checks and nothing before it, as changes to the example.
  std::string_view data_faults[8] = {};
  // Results without an element to compute are still given values that say so.
  bool writes_when_empty = false;
};

std::span<const COperator> c_operators();

// For `invoke`.
inline int as_int(const ScalarValue& scalar) { return static_cast<int>(scalar.value); }

}  // namespace turnout::core
