// The operators of this family.
#include "registry.h"
#include "rnnt_loss/signature.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {
namespace {

// Zeros are valid symbols and boundaries, but each row of ranges must count up, here from 0.
template <int argument>
void fill_ranges(const Tensor* arguments) {
  const Tensor& ranges = arguments[argument];
  auto* to = static_cast<std::int64_t*>(ranges.data);
  for (std::int64_t i = 0; i < ranges.shape[0] * ranges.shape[1] * ranges.shape[2]; ++i)
    to[i] = i % ranges.shape[2];
}

constexpr std::string_view kFusedExample =
    "activation=1 termination_symbol=3 use_hat_loss=0 batch=2 frames=5 width=6 num_symbols=3 classes=4 "
    "rows=2 columns=6";

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&rnnt_logprobs_joint_forward>(
          kRnntLogprobsJointForward,
          "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6"),
      op<&rnnt_logprobs_joint_backward>(
          kRnntLogprobsJointBackward,
          "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6"),
      op<&rnnt_logprobs_pruned_forward>(
          kRnntLogprobsPrunedForward,
          "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
          {.prepare = fill_ranges<2>}),
      op<&rnnt_logprobs_pruned_backward>(
          kRnntLogprobsPrunedBackward,
          "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
          {.prepare = fill_ranges<2>}),
      op<&rnnt_logprobs_fused_forward>(kRnntLogprobsFusedForward, kFusedExample, {.prepare = fill_ranges<5>}),
      op<&rnnt_logprobs_fused_backward>(kRnntLogprobsFusedBackward, kFusedExample,
                                        {.prepare = fill_ranges<5>}),
      op<&rnnt_logprobs_simple_forward>(
          kRnntLogprobsSimpleForward,
          "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6"),
      op<&rnnt_logprobs_simple_backward>(
          kRnntLogprobsSimpleBackward,
          "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6"),
      op<&rnnt_prune_ranges>(kRnntPruneRanges, "score=0 batch=2 num_symbols=3 columns=6 frames=5 rows=2"),
      op<&rnnt_pruning_forward>(kRnntPruningForward, "batch=2 num_symbols=3 width=4 frames=5 rows=2",
                                {.prepare = fill_ranges<1>}),
      op<&rnnt_pruning_backward>(kRnntPruningBackward, "batch=2 frames=5 rows=2 width=4 num_symbols=3",
                                 {.prepare = fill_ranges<1>}),
      op<&rnnt_align>(kRnntAlign, "batch=2 num_symbols=3 columns=6 frames=5"),
  };
  return kOperators;
}

}  // namespace turnout::families::rnnt_loss
