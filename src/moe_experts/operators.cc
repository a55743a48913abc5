// The registry entries of this family's operators.
#include "moe_experts/signature.h"
#include "registry.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

using namespace core;

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&grouped_mm>(kGroupedMm, "rows=5 depth=7 groups=2 columns=3"),
      op<&grouped_mm_backward_weight>(kGroupedMmBackwardWeight, "rows=5 depth=7 columns=3 groups=2"),
      op<&turnout::moe_experts>(kMoeExperts,
                                "activation=0 gated=1 interleaved=0 alpha=1.702 limit=7 tokens=4 hidden=5 "
                                "choices=2 experts=3 w13_rows=6 inner=3"),
      op<&moe_experts_forward>(kMoeExpertsForward,
                               "activation=0 gated=1 interleaved=0 alpha=1.702 limit=7 tokens=4 hidden=5 "
                               "choices=2 experts=3 w13_rows=6 inner=3"),
      op<&expert_activation_backward>(
          kExpertActivationBackward,
          "activation=0 gated=1 interleaved=0 alpha=1.702 limit=7 rows=5 w13_rows=6 inner=3"),
      op<&moe_experts_quantized>(kMoeExpertsQuantized,
                                 "activation=0 gated=1 interleaved=0 alpha=1.702 limit=7 tokens=4 hidden=5 "
                                 "choices=2 experts=3 w13_rows=6 w13_bytes=5 w13_scales=1 w2_bytes=3 "
                                 "w2_scales=1"),
  };
  return kOperators;
}

}  // namespace turnout::families::moe_experts
