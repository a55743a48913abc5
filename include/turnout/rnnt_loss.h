// RNN-T losses: converts logits to the steps of a lattice, computes their gradients, and prunes lattices.
#pragma once

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// Shapes: batch B, symbols S, frames T, classes C, rows per pruned frame R.
//
// - symbols [B, S]: int32 or int64. boundary [B, 4] int64, or nullptr: (s_begin, t_begin, s_end, t_end) for
//   each row of the batch, with begin <= end; nullptr means (0, 0, S, T). The box of a row is s_begin <= s <=
//   s_end, t_begin <= t < t_end.
// - logits, lm, am: f32, f64, f16 or bf16. px, py, normalizer and the gradients of px and py: f64 if the
//   logits (lm, am) are f64, otherwise f32.
// - px [B, S, T + 1] (regular) or [B, S, T] (modified), py [B, S + 1, T]: the steps of
//   mutual_information_forward.
//
// Outside the box nothing is read, px, py and the normalizer are -inf, and gradients are 0. Only symbols with
// s_begin <= s < s_end are read, and these must be in 0 .. C-1. With a modified px, each row of the batch
// must have at least as many frames as symbols.

// With n = normalizer[b, t, s] = log sum_c exp(logits[b, t, s, c]):
//   px[b, s, t] = logits[b, t, s, symbols[b, s]] - n        s < s_end
//   py[b, s, t] = logits[b, t, s, termination_symbol] - n
// nan_at[b] is the first t * (S + 1) + s whose n is not finite, or -1; the recursion ignores some NaNs.
TURNOUT_API void rnnt_logprobs_joint_forward(const ConstTensor& logits, const ConstTensor& symbols,
                                             const ConstTensor& boundary, const Tensor& px, const Tensor& py,
                                             const Tensor& normalizer, const Tensor& nan_at,
                                             std::int64_t termination_symbol, const Caller& caller = {});

// logits_grad[b, t, s, c] = px_grad[b, s, t] (1 if c is the symbol, else 0) + py_grad[b, s, t] (1 if c is the
// termination symbol, else 0) - (px_grad[b, s, t] + py_grad[b, s, t]) exp(logits[b, t, s, c] - n), rounded
// once. logits_grad may be the same array as logits.
TURNOUT_API void rnnt_logprobs_joint_backward(const ConstTensor& logits, const ConstTensor& symbols,
                                              const ConstTensor& boundary, const ConstTensor& normalizer,
                                              const ConstTensor& px_grad, const ConstTensor& py_grad,
                                              const Tensor& logits_grad, std::int64_t termination_symbol,
                                              const Caller& caller = {});

struct RnntPrunedParams {
  std::int64_t termination_symbol = 0;
  // The termination symbol must be 0 and gets a separate probability: py = log_sigmoid(logits[0]). The other
  // classes share the rest: px = logits[symbol] - log sum_{c > 0} exp(logits[c]) + log_sigmoid(-logits[0]).
  // The normalizer is log sum_{c > 0} exp(logits[c]). No symbol may be 0.
  bool use_hat_loss = false;
};

// The same for logits [B, T, R, C], whose row r of frame t is position s = ranges[b, t, r]. ranges [B, T, R]
// is int64; for each frame of the box, it holds consecutive positions within 0 .. S. Steps from positions
// that a frame does not have are -inf. nan_at is the first t * R + r.
TURNOUT_API void rnnt_logprobs_pruned_forward(const ConstTensor& logits, const ConstTensor& symbols,
                                              const ConstTensor& ranges, const ConstTensor& boundary,
                                              const Tensor& px, const Tensor& py, const Tensor& normalizer,
                                              const Tensor& nan_at, const RnntPrunedParams& params,
                                              const Caller& caller = {});
TURNOUT_API void rnnt_logprobs_pruned_backward(const ConstTensor& logits, const ConstTensor& symbols,
                                               const ConstTensor& ranges, const ConstTensor& boundary,
                                               const ConstTensor& normalizer, const ConstTensor& px_grad,
                                               const ConstTensor& py_grad, const Tensor& logits_grad,
                                               const RnntPrunedParams& params, const Caller& caller = {});

enum class RnntActivation : std::uint8_t { none, tanh, relu };

struct RnntFusedParams {
  RnntActivation activation = RnntActivation::none;
  std::int64_t termination_symbol = 0;  // as in RnntPrunedParams
  bool use_hat_loss = false;
};

// Fuses the joiner with the pruned form: logits[b, t, r] = weight h + bias with h = activation(am[b, t] +
// lm[b, ranges[b, t, r]]), am [B, T, J], lm [B, S + 1, J], weight [C, J], bias [C] or nullptr. The logits are
// never stored as a whole; the backward function recomputes them. bias_grad is required if bias is given.
TURNOUT_API void rnnt_logprobs_fused_forward(const ConstTensor& am, const ConstTensor& lm,
                                             const ConstTensor& weight, const ConstTensor& bias,
                                             const ConstTensor& symbols, const ConstTensor& ranges,
                                             const ConstTensor& boundary, const Tensor& px, const Tensor& py,
                                             const Tensor& normalizer, const Tensor& nan_at,
                                             const RnntFusedParams& params, const Caller& caller = {});
TURNOUT_API void rnnt_logprobs_fused_backward(const ConstTensor& am, const ConstTensor& lm,
                                              const ConstTensor& weight, const ConstTensor& bias,
                                              const ConstTensor& symbols, const ConstTensor& ranges,
                                              const ConstTensor& boundary, const ConstTensor& normalizer,
                                              const ConstTensor& px_grad, const ConstTensor& py_grad,
                                              const Tensor& am_grad, const Tensor& lm_grad,
                                              const Tensor& weight_grad, const Tensor& bias_grad,
                                              const RnntFusedParams& params, const Caller& caller = {});

// The joint form for logits[b, t, s, c] = lm[b, s, c] + am[b, t, c], lm [B, S + 1, C] and am [B, T, C], which
// are never stored. normalizer is [B, S + 1, T], and nan_at the first s * T + t.
TURNOUT_API void rnnt_logprobs_simple_forward(const ConstTensor& lm, const ConstTensor& am,
                                              const ConstTensor& symbols, const ConstTensor& boundary,
                                              const Tensor& px, const Tensor& py, const Tensor& normalizer,
                                              const Tensor& nan_at, std::int64_t termination_symbol,
                                              const Caller& caller = {});
TURNOUT_API void rnnt_logprobs_simple_backward(const ConstTensor& lm, const ConstTensor& am,
                                               const ConstTensor& symbols, const ConstTensor& boundary,
                                               const ConstTensor& normalizer, const ConstTensor& px_grad,
                                               const ConstTensor& py_grad, const Tensor& lm_grad,
                                               const Tensor& am_grad, std::int64_t termination_symbol,
                                               const Caller& caller = {});

enum class PruneScore : std::uint8_t {
  flow,   // the blanks of the window, minus the symbol that leads into it
  steps,  // all steps of the window; k2 calls this deprecated
};

// Returns how many rows each frame keeps if s_range are requested. The result is at most S + 1. For
// PruneScore::flow with a regular px, it is at least what the longest text needs to get through its frames.
// boundary [B, 4]; only the ends are read.
TURNOUT_API std::int64_t rnnt_prune_width(const ConstTensor& px_grad, const ConstTensor& py_grad,
                                          const ConstTensor& boundary, std::int64_t s_range,
                                          PruneScore score = PruneScore::flow, const Caller& caller = {});

// ranges [B, T, R], int64: the R consecutive positions that each frame keeps. A frame first starts at the
// window with the largest score (on a tie, the first). Starts are then lowered until they never decrease over
// time, grow by at most R - 1 per frame (modified: 1), begin at 0 and end with a window that contains s_end.
TURNOUT_API void rnnt_prune_ranges(const ConstTensor& px_grad, const ConstTensor& py_grad,
                                   const ConstTensor& boundary, const Tensor& ranges,
                                   PruneScore score = PruneScore::flow, const Caller& caller = {});

// pruned[b, t, r] = lm[b, ranges[b, t, r]] with lm [B, S + 1, D], and its gradient, a sum in ascending t.
// Every row of ranges must be consecutive and within 0 .. S.
TURNOUT_API void rnnt_pruning_forward(const ConstTensor& lm, const ConstTensor& ranges, const Tensor& pruned,
                                      const Caller& caller = {});
TURNOUT_API void rnnt_pruning_backward(const ConstTensor& pruned_grad, const ConstTensor& ranges,
                                       const Tensor& lm_grad, const Caller& caller = {});

// The best path through each lattice: the recursion of mutual_information_forward with the larger of the two
// terms (on a tie, that of the symbol). symbol_frames [B, S], int64: the frame in which each symbol is
// emitted, or -1 outside the boundary and in a lattice without a path; score [B].
TURNOUT_API void rnnt_align(const ConstTensor& px, const ConstTensor& py, const ConstTensor& boundary,
                            const Tensor& symbol_frames, const Tensor& score, const Caller& caller = {});

}  // namespace turnout
