// Mixture of experts: copies tokens into the buffers of their experts, and brings the results back.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/tensor.h"

namespace turnout {

// Rows of `dispatch` to which no token is routed keep their content, or are set to zero.
enum class Fill : std::uint8_t { keep, zero };

struct MoeDispatchParams {
  std::int64_t capacity = 0;  // slots per expert
  std::int64_t num_experts = 0;
  Fill fill = Fill::keep;
};

// for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
//   if 0 <= indices[k,i] < num_experts and 0 <= locations[k,i] < capacity:
//     dispatch[indices[k,i] * capacity + locations[k,i], :] = gates[k,i] * input[i, :]
//
// gates, indices, locations [samples] or [choices, samples]; input [samples, hidden];
// dispatch [num_experts * capacity, hidden].
// A token whose expert or slot is out of range is dropped. If several tokens are routed to one row, the last
// one wins. Rows without a token keep their content, or are set to zero with Fill::zero. Each element is one
// multiplication in the tokens' type; 16-bit floats are multiplied in float and rounded to nearest even.
// Results are bit-identical for any thread count and instruction set. dispatch may share memory with input,
// wholly or in part: the result is that of a copied input.
TURNOUT_API void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices,
                                      const ConstTensor& locations, const ConstTensor& input,
                                      const Tensor& dispatch, const MoeDispatchParams& params,
                                      const Caller& caller = {});

// Buffers of experts: [num_experts * capacity, hidden], or the same memory as [num_experts, capacity, hidden]
// where a function says so.
struct MoeBuffers {
  std::int64_t capacity = 0;  // slots per expert
  std::int64_t num_experts = 0;
};

// The gradients of moe_dispatch_forward. `dispatch` is the gradient of its output; with
// row = indices[k,i] * capacity + locations[k,i], and nothing for a dropped choice:
//   grad_input[i, :] = sum over k of gates[k,i] * dispatch[row, :]
//   grad_gates[k,i]  = sum over j of input[i,j] * dispatch[row, j]
//
// gates, indices, locations, grad_gates [samples] or [choices, samples]; input, grad_input [samples, hidden];
// dispatch [num_experts * capacity, hidden]. Gates and their gradient are f32 or have the dtype of the
// tokens. Without gates (nullptr) they count as ones. All of grad_input and grad_gates is written; a dropped
// token gets +0. A token that was overwritten in the forward call still gets a gradient. grad_input: terms
// are added in the order of k, and each product and sum is rounded on its own, in f64 for f64 and in f32 for
// all other types; the sum is rounded once more to its type. A dropped choice adds +0. Bits do not depend on
// threads and instruction set. grad_gates: bits do not depend on threads.
TURNOUT_API void moe_dispatch_backward_data(const ConstTensor& gates, const ConstTensor& indices,
                                            const ConstTensor& locations, const ConstTensor& dispatch,
                                            const Tensor& grad_input, const MoeBuffers& buffers,
                                            const Caller& caller = {});
TURNOUT_API void moe_dispatch_backward_gate(const ConstTensor& indices, const ConstTensor& locations,
                                            const ConstTensor& input, const ConstTensor& dispatch,
                                            const Tensor& grad_gates, const MoeBuffers& buffers,
                                            const Caller& caller = {});

// Both at once: dispatch is read from memory once.
TURNOUT_API void moe_dispatch_backward(const ConstTensor& gates, const ConstTensor& indices,
                                       const ConstTensor& locations, const ConstTensor& input,
                                       const ConstTensor& dispatch, const Tensor& grad_input,
                                       const Tensor& grad_gates, const MoeBuffers& buffers,
                                       const Caller& caller = {});

// The functions below have routings [samples] or [samples, choices], as top-k functions give them.

// The slot of each choice in its expert's buffer. First choices of all tokens come before second choices:
//   for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
//     locations[i,k] = counts[indices[i,k]]++
// With a priority, tokens come in descending order of it; equal ones stay in their order, NaN is last.
// indices, locations (int32) [samples] or [samples, choices]; priority [samples], floating, or nullptr;
// counts [num_experts], int64. An index out of range has location -1 and is not counted. Locations may exceed
// any capacity: counts are those of all choices.
TURNOUT_API void moe_locations(const ConstTensor& indices, const ConstTensor& priority,
                               const Tensor& locations, const Tensor& counts, std::int64_t num_experts,
                               const Caller& caller = {});

// moe_dispatch_forward for such a routing, with rows without a token set to zero. dispatch may also be
// [num_experts, capacity, hidden]. Without locations (nullptr) all are 0: with a capacity of 1 an index is a
// row. Without gates rows are copied.
TURNOUT_API void moe_dispatch(const ConstTensor& input, const ConstTensor& indices,
                              const ConstTensor& locations, const ConstTensor& gates, const Tensor& dispatch,
                              const MoeBuffers& buffers, const Caller& caller = {});

// output[i, :] = sum over k of gates[i,k] * expert_output[indices[i,k] * capacity + locations[i,k], :]
//
// expert_output [rows, hidden] or [rows / capacity, capacity, hidden]; output [samples, hidden]. rows must be
// a multiple of capacity; with a capacity of 0 all choices are dropped. Locations and gates as for
// moe_dispatch; arithmetic and dropped choices as for moe_dispatch_backward_data.
TURNOUT_API void moe_combine(const ConstTensor& expert_output, const ConstTensor& indices,
                             const ConstTensor& locations, const ConstTensor& gates, const Tensor& output,
                             std::int64_t capacity, const Caller& caller = {});

// The gradients of moe_combine:
//   grad_expert_output[row, :] = gates[i,k] * grad_output[i, :]    the last one wins; other rows are zero
//   grad_gates[i,k] = sum over j of grad_output[i,j] * expert_output[row, j]
TURNOUT_API void moe_combine_backward(const ConstTensor& grad_output, const ConstTensor& expert_output,
                                      const ConstTensor& indices, const ConstTensor& locations,
                                      const ConstTensor& gates, const Tensor& grad_expert_output,
                                      const Tensor& grad_gates, std::int64_t capacity,
                                      const Caller& caller = {});

// Copies tokens into the order of their experts. With f the stable ascending order of indices[i,k], taken row
// by row:
//   permuted_tokens[d, :] = tokens[f[d] / choices, :]    for d in 0 .. rows-1
//   sorted_indices[f[d]] = d
// tokens [samples, hidden] of any dtype; indices [samples] or [samples, choices], any values; permuted_tokens
// [rows, hidden] with rows <= samples * choices; sorted_indices [samples * choices], int32: values of rows
// and more are choices that were dropped.
TURNOUT_API void moe_token_permute(const ConstTensor& tokens, const ConstTensor& indices,
                                   const Tensor& permuted_tokens, const Tensor& sorted_indices,
                                   const Caller& caller = {});

// The way back: output[i, :] = sum over k of probs[i,k] * permuted_tokens[sorted_indices[i,k], :], where
// indices out of range add +0. This is moe_combine with a capacity of 1 and without locations.
inline void moe_token_unpermute(const ConstTensor& permuted_tokens, const ConstTensor& sorted_indices,
                                const ConstTensor& probs, const Tensor& output, const Caller& caller = {}) {
  moe_combine(permuted_tokens, sorted_indices, nullptr, probs, output, 1, caller);
}
}  // namespace turnout
