// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::grouping {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpThreeInterpolateForward;
extern const Signature& kMluOpThreeInterpolateBackward;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpThreeInterpolateForward,
       .invoke = c_invoke<&mluOpThreeInterpolateForward>,
       .example = "batch=2 channels=5 rows=4 centers=6"},
      {.signature = &kMluOpThreeInterpolateBackward,
       .invoke = c_invoke<&mluOpThreeInterpolateBackward>,
       .example = "batch=2 channels=5 centers=6 rows=4"},
  };
  return kOperators;
}

}  // namespace turnout::families::grouping
