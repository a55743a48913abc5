// The operators of this family as the doors call them: the functions of turnout/moe_dispatch.h with a Frame
// in place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

using namespace core;

void moe_dispatch_forward(const Frame& frame, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params);
void moe_dispatch_backward_data(const Frame& frame, const ConstTensor* gates, const ConstTensor& indices,
                                const ConstTensor& locations, const ConstTensor& dispatch,
                                const Tensor& grad_input, const MoeBuffers& buffers);
void moe_dispatch_backward_gate(const Frame& frame, const ConstTensor& indices, const ConstTensor& locations,
                                const ConstTensor& input, const ConstTensor& dispatch,
                                const Tensor& grad_gates, const MoeBuffers& buffers);
void moe_dispatch_backward(const Frame& frame, const ConstTensor& gates, const ConstTensor& indices,
                           const ConstTensor& locations, const ConstTensor& input,
                           const ConstTensor& dispatch, const Tensor& grad_input, const Tensor& grad_gates,
                           const MoeBuffers& buffers);
void moe_locations(const Frame& frame, const ConstTensor& indices, const ConstTensor* priority,
                   const Tensor& locations, const Tensor& counts, std::int64_t num_experts);
void moe_dispatch(const Frame& frame, const ConstTensor& input, const ConstTensor& indices,
                  const ConstTensor* locations, const ConstTensor* gates, const Tensor& dispatch,
                  const MoeBuffers& buffers);
void moe_combine(const Frame& frame, const ConstTensor& expert_output, const ConstTensor& indices,
                 const ConstTensor* locations, const ConstTensor* gates, const Tensor& output,
                 std::int64_t capacity);
void moe_combine_backward(const Frame& frame, const ConstTensor& grad_output,
                          const ConstTensor& expert_output, const ConstTensor& indices,
                          const ConstTensor* locations, const ConstTensor& gates,
                          const Tensor& grad_expert_output, const Tensor& grad_gates, std::int64_t capacity);
void moe_token_permute(const Frame& frame, const ConstTensor& tokens, const ConstTensor& indices,
                       const Tensor& permuted_tokens, const Tensor& sorted_indices);

}  // namespace turnout::families::moe_dispatch
