// The registry entries of this family's operators.
#include "mutual_information/signature.h"
#include "registry.h"
#include "turnout/mutual_information.h"

namespace turnout::families::mutual_information {

using namespace core;

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&mutual_information_forward>(kMutualInformationForward,
                                      "outside=1 batch=2 symbols=3 columns=6 frames=5"),
      op<&mutual_information_backward>(kMutualInformationBackward,
                                       "overwrite_ans_grad=1 batch=2 symbols=3 columns=6 frames=5"),
      op<&mutual_information_forward_backward>(kMutualInformationForwardBackward,
                                               "batch=2 symbols=3 columns=6 frames=5"),
  };
  return kOperators;
}

}  // namespace turnout::families::mutual_information
