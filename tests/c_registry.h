// The list of all operators of the C interface, for tests that run on every operator.
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
  // A valid call, as a value for every size and scalar. Tests start from it and break one thing at a time.
  std::string_view example;
  // Fills in the data of that call, if zeros are not valid data.
  void (*prepare)(const Tensor* arguments) = nullptr;
  // Returns the required workspace size; nullptr if the function takes no workspace.
  mluOpStatus_t (*query)(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                         std::size_t* workspace_size) = nullptr;
  // For each data check of the signature, changes to the example that break this check and no earlier one:
  // to sizes, to scalars, to all elements of an argument, or to its dtype ("x.dtype=1").
  std::string_view data_faults[8] = {};
  // Some results are written even if there is nothing to compute.
  bool writes_when_empty = false;
};

std::span<const COperator> c_operators();

// For `invoke`.
inline int as_int(const ScalarValue& scalar) { return static_cast<int>(scalar.value); }

}  // namespace turnout::core
