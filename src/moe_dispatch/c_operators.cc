// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::moe_dispatch {

using namespace core;

// Beside the functions they belong to, in c_api.cc.
extern const Signature& kMluOpMoeDispatchForward;
extern const Signature& kMluOpMoeDispatchBackwardData;
extern const Signature& kMluOpMoeDispatchBackwardGate;
extern const Signature& kMluOpGetMoeDispatchBackwardGateWorkspaceSize;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {&kMluOpMoeDispatchForward,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
         return mluOpMoeDispatchForward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3], data[3],
                                        as_int(s[0]), as_int(s[1]), as_int(s[2]), as_int(s[3]), d[4],
                                        data[4]);
       },
       "samples=5 capacity=3 hidden=7 num_experts=2"},
      {.signature = &kMluOpMoeDispatchBackwardData,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
             return mluOpMoeDispatchBackwardData(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                 data[3], as_int(s[0]), as_int(s[1]), as_int(s[2]),
                                                 as_int(s[3]), d[4], data[4]);
           },
       .example = "samples=5 capacity=3 hidden=7 num_experts=2",
       .writes_when_empty = true},
      {.signature = &kMluOpGetMoeDispatchBackwardGateWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, const Workspace&) {
             std::size_t size = 0;
             return mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, d[0], &size);
           },
       .example = "samples=5 hidden=7"},
      {.signature = &kMluOpMoeDispatchBackwardGate,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& workspace) {
             return mluOpMoeDispatchBackwardGate(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                 data[3], as_int(s[0]), as_int(s[1]), as_int(s[2]),
                                                 as_int(s[3]), workspace.data, workspace.size, d[4], data[4]);
           },
       .example = "samples=5 capacity=3 hidden=7 num_experts=2",
       .query =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, std::size_t* size) {
             return mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, d[2], size);
           },
       .writes_when_empty = true},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_dispatch
