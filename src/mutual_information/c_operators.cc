// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::mutual_information {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpGetMutualInformationForwardWorkspaceSize;
extern const Signature& kMluOpMutualInformationForward;
extern const Signature& kMluOpGetMutualInformationBackwardWorkspaceSize;
extern const Signature& kMluOpMutualInformationBackward;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetMutualInformationForwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetMutualInformationForwardWorkspaceSize>,
       .example = "batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationForward,
       .invoke = c_invoke<&mluOpMutualInformationForward>,
       .example = "batch=2 symbols=3 frames=5",
       .query = c_query<&mluOpGetMutualInformationForwardWorkspaceSize>},
      {.signature = &kMluOpGetMutualInformationBackwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetMutualInformationBackwardWorkspaceSize>,
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5"},
      {.signature = &kMluOpMutualInformationBackward,
       .invoke = c_invoke<&mluOpMutualInformationBackward>,
       .example = "overwrite_ans_grad=1 batch=2 symbols=3 frames=5",
       .query = c_query<&mluOpGetMutualInformationBackwardWorkspaceSize>},
  };
  return kOperators;
}

}  // namespace turnout::families::mutual_information
