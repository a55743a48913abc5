// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::mutual_information {

using namespace core;

// Beside the functions they belong to, in c_api.cc.
extern const Signature& kMluOpGetMutualInformationForwardWorkspaceSize;
extern const Signature& kMluOpMutualInformationForward;
extern const Signature& kMluOpGetMutualInformationBackwardWorkspaceSize;
extern const Signature& kMluOpMutualInformationBackward;

namespace {

mluOpStatus_t query_mutual_information_forward(mluOpHandle_t handle, Descriptors d, void* const*, Scalars,
                                               std::size_t* size) {
  return mluOpGetMutualInformationForwardWorkspaceSize(handle, d[0], d[1], d[2], d[3], d[4], size);
}
mluOpStatus_t query_mutual_information_backward(mluOpHandle_t handle, Descriptors d, void* const*, Scalars s,
                                                std::size_t* size) {
  return mluOpGetMutualInformationBackwardWorkspaceSize(handle, d[0], d[1], d[2], d[3], d[4], s[0].value != 0,
                                                        size);
}

}  // namespace

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetMutualInformationForwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_mutual_information_forward(handle, d, nullptr, s, &size);
           },
       .example = "batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationForward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars, const Workspace& w) {
             return mluOpMutualInformationForward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                  data[3], w.data, w.size, d[4], data[4]);
           },
       .example = "batch=2 symbols=3 frames=5",
       .query = &query_mutual_information_forward},
      {.signature = &kMluOpGetMutualInformationBackwardWorkspaceSize,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars s, const Workspace&) {
             std::size_t size = 0;
             return query_mutual_information_backward(handle, d, nullptr, s, &size);
           },
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationBackward,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             return mluOpMutualInformationBackward(handle, d[0], data[0], d[1], data[1], d[2], data[2], d[3],
                                                   data[3], d[4], data[4], s[0].value != 0, w.data, w.size,
                                                   d[5], data[5], d[6], data[6]);
           },
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5",
       .query = &query_mutual_information_backward},
  };
  return kOperators;
}

}  // namespace turnout::families::mutual_information
