// The operators of this family as the doors call them: the functions of turnout/rnnt_loss.h with a Frame in
// place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;

void rnnt_logprobs_joint_forward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                 const ConstTensor* boundary, const Tensor& px, const Tensor& py,
                                 const Tensor& normalizer, const Tensor& nan_at,
                                 std::int64_t termination_symbol);
void rnnt_logprobs_joint_backward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor* boundary, const ConstTensor& normalizer,
                                  const ConstTensor& px_grad, const ConstTensor& py_grad,
                                  const Tensor& logits_grad, std::int64_t termination_symbol);
void rnnt_logprobs_pruned_forward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  const RnntPrunedParams& params);
void rnnt_logprobs_pruned_backward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                   const ConstTensor& ranges, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& logits_grad,
                                   const RnntPrunedParams& params);
void rnnt_logprobs_fused_forward(const Frame& frame, const RnntJoiner& joiner, const ConstTensor& symbols,
                                 const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                 const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                 const RnntPrunedParams& params);
void rnnt_logprobs_fused_backward(const Frame& frame, const RnntJoiner& joiner, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary,
                                  const ConstTensor& normalizer, const ConstTensor& px_grad,
                                  const ConstTensor& py_grad, const RnntJoinerGrads& grads,
                                  const RnntPrunedParams& params);
void rnnt_logprobs_simple_forward(const Frame& frame, const ConstTensor& lm, const ConstTensor& am,
                                  const ConstTensor& symbols, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  std::int64_t termination_symbol);
void rnnt_logprobs_simple_backward(const Frame& frame, const ConstTensor& lm, const ConstTensor& am,
                                   const ConstTensor& symbols, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& lm_grad, const Tensor& am_grad,
                                   std::int64_t termination_symbol);
std::int64_t rnnt_prune_width(const Frame& frame, const ConstTensor& px_grad, const ConstTensor& py_grad,
                              const ConstTensor& boundary, std::int64_t s_range, PruneScore score);
void rnnt_prune_ranges(const Frame& frame, const ConstTensor& px_grad, const ConstTensor& py_grad,
                       const ConstTensor& boundary, const Tensor& ranges, PruneScore score);
void rnnt_pruning_forward(const Frame& frame, const ConstTensor& lm, const ConstTensor& ranges,
                          const Tensor& pruned);
void rnnt_pruning_backward(const Frame& frame, const ConstTensor& pruned_grad, const ConstTensor& ranges,
                           const Tensor& lm_grad);
void rnnt_align(const Frame& frame, const ConstTensor& px, const ConstTensor& py, const ConstTensor* boundary,
                const Tensor& symbol_frames, const Tensor& score);

}  // namespace turnout::families::rnnt_loss
