// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::moe_dispatch {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpMoeDispatchForward;
extern const Signature& kMluOpMoeDispatchBackwardData;
extern const Signature& kMluOpMoeDispatchBackwardGate;
extern const Signature& kMluOpGetMoeDispatchBackwardGateWorkspaceSize;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpMoeDispatchForward,
       .invoke = c_invoke<&mluOpMoeDispatchForward>,
       .example = "samples=5 capacity=3 hidden=7 num_experts=2"},
      {.signature = &kMluOpMoeDispatchBackwardData,
       .invoke = c_invoke<&mluOpMoeDispatchBackwardData>,
       .example = "samples=5 capacity=3 hidden=7 num_experts=2",
       .writes_when_empty = true},
      {.signature = &kMluOpGetMoeDispatchBackwardGateWorkspaceSize,
       .invoke = c_invoke<&mluOpGetMoeDispatchBackwardGateWorkspaceSize>,
       .example = "samples=5 hidden=7"},
      {.signature = &kMluOpMoeDispatchBackwardGate,
       .invoke = c_invoke<&mluOpMoeDispatchBackwardGate>,
       .example = "samples=5 capacity=3 hidden=7 num_experts=2",
       // The query takes only the third descriptor.
       .query =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, std::size_t* size) {
             return mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, d[2], size);
           },
       .writes_when_empty = true},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_dispatch
