// Mixture of experts: copies tokens into their experts' buffers and combines the experts' results.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/tensor.h"

namespace turnout {

// What happens to rows of `dispatch` to which no token is routed: keep their contents, or set them to zero.
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
// A token whose expert or slot is out of range is dropped. If several tokens are routed to the same row, the
// last one wins. Each element is one multiplication in the tokens' dtype; 16-bit floats are multiplied in f32
// and rounded to nearest even. Results are bit-identical for any thread count and instruction set. dispatch
// may overlap input, wholly or in part; the result is as if input had been copied first.
TURNOUT_API void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices,
                                      const ConstTensor& locations, const ConstTensor& input,
                                      const Tensor& dispatch, const MoeDispatchParams& params,
                                      const Caller& caller = {});

// The experts' buffers: [num_experts * capacity, hidden], or, where a function says so, the same memory as
// [num_experts, capacity, hidden].
struct MoeBuffers {
  std::int64_t capacity = 0;  // slots per expert
  std::int64_t num_experts = 0;
};

// The gradients of moe_dispatch_forward. `dispatch` is the gradient of its output. With
// row = indices[k,i] * capacity + locations[k,i], over the choices that are not dropped:
//   grad_input[i, :] = sum over k of gates[k,i] * dispatch[row, :]
//   grad_gates[k,i]  = sum over j of input[i,j] * dispatch[row, j]
//
// gates, indices, locations, grad_gates [samples] or [choices, samples]; input, grad_input [samples, hidden];
// dispatch [num_experts * capacity, hidden]. Gates and their gradient are f32 or have the dtype of the
// tokens. If gates is nullptr, all gates are 1. All of grad_input and grad_gates is written; a dropped choice
// adds +0 to grad_input and has a gate gradient of +0. A token that was overwritten in the forward call still
// gets a gradient. grad_input adds its terms in ascending k and rounds each product and each sum separately,
// in f64 for f64 and in f32 for all other dtypes; the result is then rounded to its dtype. The bits of
// grad_input depend neither on threads nor on the instruction set, those of grad_gates not on threads.
TURNOUT_API void moe_dispatch_backward_data(const ConstTensor& gates, const ConstTensor& indices,
                                            const ConstTensor& locations, const ConstTensor& dispatch,
                                            const Tensor& grad_input, const MoeBuffers& buffers,
                                            const Caller& caller = {});
TURNOUT_API void moe_dispatch_backward_gate(const ConstTensor& indices, const ConstTensor& locations,
                                            const ConstTensor& input, const ConstTensor& dispatch,
                                            const Tensor& grad_gates, const MoeBuffers& buffers,
                                            const Caller& caller = {});

// Computes both gradients and reads dispatch from memory only once.
TURNOUT_API void moe_dispatch_backward(const ConstTensor& gates, const ConstTensor& indices,
                                       const ConstTensor& locations, const ConstTensor& input,
                                       const ConstTensor& dispatch, const Tensor& grad_input,
                                       const Tensor& grad_gates, const MoeBuffers& buffers,
                                       const Caller& caller = {});

// The functions below take routings [samples] or [samples, choices], as top-k functions return them.

// The slot of each choice in its expert's buffer. The first choices of all tokens precede the second choices:
//   for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
//     locations[i,k] = counts[indices[i,k]]++
// With a priority, tokens are taken in descending order of priority; ties keep their order, NaN is last.
// indices, locations (int32) [samples] or [samples, choices]; priority [samples], floating-point, or nullptr;
// counts [num_experts], int64. An index out of range has location -1 and is not counted. No capacity limits
// locations and counts; they include all choices.
TURNOUT_API void moe_locations(const ConstTensor& indices, const ConstTensor& priority,
                               const Tensor& locations, const Tensor& counts, std::int64_t num_experts,
                               const Caller& caller = {});

// moe_dispatch_forward for such a routing; rows without a token are set to zero. dispatch may also be
// [num_experts, capacity, hidden]. If locations is nullptr, all locations are 0, so with a capacity of 1 an
// index is a row. If gates is nullptr, rows are copied.
TURNOUT_API void moe_dispatch(const ConstTensor& input, const ConstTensor& indices,
                              const ConstTensor& locations, const ConstTensor& gates, const Tensor& dispatch,
                              const MoeBuffers& buffers, const Caller& caller = {});

// output[i, :] = sum over k of gates[i,k] * expert_output[indices[i,k] * capacity + locations[i,k], :]
//
// expert_output [rows, hidden] or [rows / capacity, capacity, hidden]; output [samples, hidden]. rows must be
// a multiple of capacity; with a capacity of 0 all choices are dropped. locations and gates are those of
// moe_dispatch. Arithmetic and dropped choices are as for moe_dispatch_backward_data.
TURNOUT_API void moe_combine(const ConstTensor& expert_output, const ConstTensor& indices,
                             const ConstTensor& locations, const ConstTensor& gates, const Tensor& output,
                             std::int64_t capacity, const Caller& caller = {});

// The gradients of moe_combine:
//   grad_expert_output[row, :] = gates[i,k] * grad_output[i, :]    the last writer wins; other rows are 0
//   grad_gates[i,k] = sum over j of grad_output[i,j] * expert_output[row, j]
TURNOUT_API void moe_combine_backward(const ConstTensor& grad_output, const ConstTensor& expert_output,
                                      const ConstTensor& indices, const ConstTensor& locations,
                                      const ConstTensor& gates, const Tensor& grad_expert_output,
                                      const Tensor& grad_gates, std::int64_t capacity,
                                      const Caller& caller = {});

// Copies tokens into the order of their experts. With f the stable ascending order of indices, flattened row
// by row:
//   permuted_tokens[d, :] = tokens[f[d] / choices, :]    for d in 0 .. rows-1
//   sorted_indices[f[d]] = d
// tokens [samples, hidden] of any dtype; indices [samples] or [samples, choices], any values; permuted_tokens
// [rows, hidden] with rows <= samples * choices; sorted_indices [samples * choices], int32. A value of `rows`
// or more marks a dropped choice.
TURNOUT_API void moe_token_permute(const ConstTensor& tokens, const ConstTensor& indices,
                                   const Tensor& permuted_tokens, const Tensor& sorted_indices,
                                   const Caller& caller = {});

// The inverse of moe_token_permute:
//   output[i, :] = sum over k of probs[i,k] * permuted_tokens[sorted_indices[i,k], :]
// An index out of range adds +0. This is moe_combine with a capacity of 1 and without locations.
inline void moe_token_unpermute(const ConstTensor& permuted_tokens, const ConstTensor& sorted_indices,
                                const ConstTensor& probs, const Tensor& output, const Caller& caller = {}) {
  moe_combine(permuted_tokens, sorted_indices, nullptr, probs, output, 1, caller);
}
}  // namespace turnout
