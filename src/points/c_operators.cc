// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::points {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpBallQuery;
extern const Signature& kMluOpGetThreeNNForwardWorkspaceSize;
extern const Signature& kMluOpThreeNNForward;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpBallQuery,
       .invoke = c_invoke<&mluOpBallQuery>,
       .example = "min_radius=0 max_radius=1 nsample=4 batch=2 queries=3 points=5"},
      {.signature = &kMluOpGetThreeNNForwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetThreeNNForwardWorkspaceSize>,
       .example = "batch=2 points=5"},
      {.signature = &kMluOpThreeNNForward,
       .invoke = c_invoke<&mluOpThreeNNForward>,
       .example = "batch=2 queries=3 points=5",
       .query = [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars,
                   std::size_t* size) { return mluOpGetThreeNNForwardWorkspaceSize(handle, d[1], size); }},
  };
  return kOperators;
}

}  // namespace turnout::families::points
