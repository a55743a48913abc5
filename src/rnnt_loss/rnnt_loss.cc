// The public functions of this family: a context is a frame of its own.
#include "rnnt_loss/rnnt_loss.h"

namespace turnout {

void rnnt_logprobs_joint_forward(Context& context, const ConstTensor& logits, const ConstTensor& symbols,
                                 const ConstTensor* boundary, const Tensor& px, const Tensor& py,
                                 const Tensor& normalizer, const Tensor& nan_at,
                                 std::int64_t termination_symbol) {
  families::rnnt_loss::rnnt_logprobs_joint_forward(context, logits, symbols, boundary, px, py, normalizer,
                                                   nan_at, termination_symbol);
}

void rnnt_logprobs_joint_backward(Context& context, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor* boundary, const ConstTensor& normalizer,
                                  const ConstTensor& px_grad, const ConstTensor& py_grad,
                                  const Tensor& logits_grad, std::int64_t termination_symbol) {
  families::rnnt_loss::rnnt_logprobs_joint_backward(context, logits, symbols, boundary, normalizer, px_grad,
                                                    py_grad, logits_grad, termination_symbol);
}

void rnnt_logprobs_pruned_forward(Context& context, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  const RnntPrunedParams& params) {
  families::rnnt_loss::rnnt_logprobs_pruned_forward(context, logits, symbols, ranges, boundary, px, py,
                                                    normalizer, nan_at, params);
}

void rnnt_logprobs_pruned_backward(Context& context, const ConstTensor& logits, const ConstTensor& symbols,
                                   const ConstTensor& ranges, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& logits_grad,
                                   const RnntPrunedParams& params) {
  families::rnnt_loss::rnnt_logprobs_pruned_backward(context, logits, symbols, ranges, boundary, normalizer,
                                                     px_grad, py_grad, logits_grad, params);
}

void rnnt_logprobs_fused_forward(Context& context, const RnntJoiner& joiner, const ConstTensor& symbols,
                                 const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                 const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                 const RnntPrunedParams& params) {
  families::rnnt_loss::rnnt_logprobs_fused_forward(context, joiner, symbols, ranges, boundary, px, py,
                                                   normalizer, nan_at, params);
}

void rnnt_logprobs_fused_backward(Context& context, const RnntJoiner& joiner, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary,
                                  const ConstTensor& normalizer, const ConstTensor& px_grad,
                                  const ConstTensor& py_grad, const RnntJoinerGrads& grads,
                                  const RnntPrunedParams& params) {
  families::rnnt_loss::rnnt_logprobs_fused_backward(context, joiner, symbols, ranges, boundary, normalizer,
                                                    px_grad, py_grad, grads, params);
}

void rnnt_logprobs_simple_forward(Context& context, const ConstTensor& lm, const ConstTensor& am,
                                  const ConstTensor& symbols, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  std::int64_t termination_symbol) {
  families::rnnt_loss::rnnt_logprobs_simple_forward(context, lm, am, symbols, boundary, px, py, normalizer,
                                                    nan_at, termination_symbol);
}

void rnnt_logprobs_simple_backward(Context& context, const ConstTensor& lm, const ConstTensor& am,
                                   const ConstTensor& symbols, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& lm_grad, const Tensor& am_grad,
                                   std::int64_t termination_symbol) {
  families::rnnt_loss::rnnt_logprobs_simple_backward(context, lm, am, symbols, boundary, normalizer, px_grad,
                                                     py_grad, lm_grad, am_grad, termination_symbol);
}

std::int64_t rnnt_prune_width(Context& context, const ConstTensor& px_grad, const ConstTensor& py_grad,
                              const ConstTensor& boundary, std::int64_t s_range, PruneScore score) {
  return families::rnnt_loss::rnnt_prune_width(context, px_grad, py_grad, boundary, s_range, score);
}

void rnnt_prune_ranges(Context& context, const ConstTensor& px_grad, const ConstTensor& py_grad,
                       const ConstTensor& boundary, const Tensor& ranges, PruneScore score) {
  families::rnnt_loss::rnnt_prune_ranges(context, px_grad, py_grad, boundary, ranges, score);
}

void rnnt_pruning_forward(Context& context, const ConstTensor& lm, const ConstTensor& ranges,
                          const Tensor& pruned) {
  families::rnnt_loss::rnnt_pruning_forward(context, lm, ranges, pruned);
}

void rnnt_pruning_backward(Context& context, const ConstTensor& pruned_grad, const ConstTensor& ranges,
                           const Tensor& lm_grad) {
  families::rnnt_loss::rnnt_pruning_backward(context, pruned_grad, ranges, lm_grad);
}

void rnnt_align(Context& context, const ConstTensor& px, const ConstTensor& py, const ConstTensor* boundary,
                const Tensor& symbol_frames, const Tensor& score) {
  families::rnnt_loss::rnnt_align(context, px, py, boundary, symbol_frames, score);
}

}  // namespace turnout
