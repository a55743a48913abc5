// Mutual information: the forward and backward recursions over the lattice of the RNN-T loss.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// Shapes: batch B, symbols S, frames T.
//
// - px [B, S, T + 1] (regular) or [B, S, T] (modified), py [B, S + 1, T]: log-probabilities,
//   f32, f64, f16 or bf16.
// - p [B, S + 1, T + 1], ans and ans_grad [B]: f64 if px is f64, otherwise f32.
// - boundary [B, 4] int64, or nullptr: (s_begin, t_begin, s_end, t_end) for each lattice of the batch, as
//   inclusive positions in p; nullptr means (0, 0, S, T). A component outside 0 .. S or 0 .. T is an error;
//   the message names its row. If begin > end, the lattice is empty.

// What happens to the cells of p outside the boundary: keep their contents, or set them to -infinity.
enum class Outside : std::uint8_t { keep, minus_infinity };

// p[s_begin, t_begin] = 0. In all other cells within the boundary, with off = 0 (regular) or 1 (modified),
//   p[s, t] = log_add(p[s-1, t-off] + px[s-1, t-off], p[s, t-1] + py[s, t-1])      missing terms are -inf
//   ans = p[s_end, t_end]
// log_add(x, y) is log(exp(x) + exp(y)) for finite x and y, NaN if x is NaN, x if y is NaN, and otherwise, if
// one of them is infinite, the larger of the two. For an empty lattice, ans is 0 and every cell of p is
// outside the boundary.
TURNOUT_API void mutual_information_forward(const ConstTensor& px, const ConstTensor& py,
                                            const ConstTensor& boundary, const Tensor& p, const Tensor& ans,
                                            Outside outside = Outside::keep, const Caller& caller = {});

// With P = max(p, -1e30) and g[s_end, t_end] = ans_grad,
//   px_grad[s, t] = g[s+1, t+off] * safe_exp(P[s, t] + px[s, t] - P[s+1, t+off])
//   py_grad[s, t] = g[s, t+1] * safe_exp(P[s, t] + py[s, t] - P[s, t+1])
//   g[s, t] = px_grad[s, t] + py_grad[s, t]                                        missing terms are 0
// safe_exp(x) is exp(x), or 0 if x or exp(x) is not finite. Gradients outside the boundary are 0. With
// overwrite_ans_grad, ans_grad is set to g[s_begin, t_begin], except for an empty lattice; otherwise it is
// only read. px_grad and py_grad have the dtype of px.
TURNOUT_API void mutual_information_backward(const ConstTensor& px, const ConstTensor& py,
                                             const ConstTensor& boundary, const ConstTensor& p,
                                             const Tensor& ans_grad, const Tensor& px_grad,
                                             const Tensor& py_grad, bool overwrite_ans_grad = false,
                                             const Caller& caller = {});

// Forward and backward in one pass, for training, with ans_grad 1 and without storing p. With x and y the two
// terms of log_add, each cell passes on
//   g[s, t] / (1 + exp(y - x)) as px_grad[s-1, t-off] and g[s, t] / (1 + exp(x - y)) as py_grad[s, t-1].
// The two shares sum to g[s, t]. A cell whose p is not finite passes on nothing, so all gradients are 0 if
// the end of the lattice cannot be reached.
TURNOUT_API void mutual_information_forward_backward(const ConstTensor& px, const ConstTensor& py,
                                                     const ConstTensor& boundary, const Tensor& ans,
                                                     const Tensor& px_grad, const Tensor& py_grad,
                                                     const Caller& caller = {});
}  // namespace turnout
