// The registry entries of this family's operators.
#include <algorithm>

#include "registry.h"
#include "rnnt_loss/signature.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

// Zeros are valid symbols and boundaries, but each row of ranges must count up, here from 0.
template <int argument>
void fill_ranges(const Tensor* arguments) {
  const Tensor& ranges = arguments[argument];
  auto* to = static_cast<std::int64_t*>(ranges.data);
  for (std::int64_t i = 0; i < ranges.shape[0] * ranges.shape[1] * ranges.shape[2]; ++i)
    to[i] = i % ranges.shape[2];
}

// The columns of px: one per frame and, unless a symbol takes a frame, one after the last frame.
template <const Signature& signature>
void count_columns(const ScalarValue* scalars, std::int64_t* sizes) {
  constexpr int kFrames = signature.find_size("frames"), kColumns = signature.find_size("columns");
  constexpr int kModified = signature.find_size_flag("modified");
  const std::int64_t frames = sizes[kFrames];
  const bool is_modified = scalars[kModified].value != 0;
  sizes[kColumns] = is_modified ? frames : std::min(frames, kSizeMax - 1) + 1;
}

// As many positions as requested, but no more than exist, and no fewer than the longest text needs.
std::unique_ptr<Prepared> find_width(const Caller& caller, const Tensor* arguments,
                                     const ScalarValue* scalars, std::int64_t* sizes) {
  std::int64_t& rows = sizes[kRnntPruneRanges.size("s_range")];
  rows = rnnt_prune_width(arguments[0], arguments[1], arguments[2], rows, to_enum<PruneScore>(scalars[0]),
                          caller);
  return nullptr;
}

constexpr std::string_view kFusedExample =
    "activation=1 termination_symbol=3 use_hat_loss=0 batch=2 frames=5 width=6 num_symbols=3 classes=4 "
    "rows=2 columns=6";

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&rnnt_logprobs_joint_forward>(
          kRnntLogprobsJointForward,
          "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6",
          {.compute_sizes = count_columns<kRnntLogprobsJointForward>}),
      op<&rnnt_logprobs_joint_backward>(
          kRnntLogprobsJointBackward,
          "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6"),
      op<&rnnt_logprobs_pruned_forward>(
          kRnntLogprobsPrunedForward,
          "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
          {.prepare = fill_ranges<2>, .compute_sizes = count_columns<kRnntLogprobsPrunedForward>}),
      op<&rnnt_logprobs_pruned_backward>(
          kRnntLogprobsPrunedBackward,
          "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
          {.prepare = fill_ranges<2>}),
      op<&rnnt_logprobs_fused_forward>(
          kRnntLogprobsFusedForward, kFusedExample,
          {.prepare = fill_ranges<5>, .compute_sizes = count_columns<kRnntLogprobsFusedForward>}),
      op<&rnnt_logprobs_fused_backward>(kRnntLogprobsFusedBackward, kFusedExample,
                                        {.prepare = fill_ranges<5>}),
      op<&rnnt_logprobs_simple_forward>(
          kRnntLogprobsSimpleForward,
          "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6",
          {.compute_sizes = count_columns<kRnntLogprobsSimpleForward>}),
      op<&rnnt_logprobs_simple_backward>(
          kRnntLogprobsSimpleBackward,
          "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6"),
      op<&rnnt_prune_ranges>(kRnntPruneRanges, "score=0 batch=2 num_symbols=3 columns=6 frames=5 s_range=2",
                             {.find_sizes = find_width}),
      op<&rnnt_pruning_forward>(kRnntPruningForward, "batch=2 num_symbols=3 width=4 frames=5 rows=2",
                                {.prepare = fill_ranges<1>}),
      op<&rnnt_pruning_backward>(kRnntPruningBackward, "batch=2 frames=5 rows=2 width=4 symbols=3",
                                 {.prepare = fill_ranges<1>}),
      op<&rnnt_align>(kRnntAlign, "batch=2 num_symbols=3 columns=6 frames=5"),
  };
  return kOperators;
}

}  // namespace turnout::families::rnnt_loss
