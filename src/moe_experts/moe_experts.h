// The operators of this family as the doors call them: the functions of turnout/moe_experts.h with a Frame in
// place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

using namespace core;

void grouped_mm(const Frame& frame, const ConstTensor& input, const ConstTensor& weight,
                const ConstTensor& offs, const ConstTensor* bias, const Tensor& out);
void grouped_mm_backward_weight(const Frame& frame, const ConstTensor& input, const ConstTensor& out_grad,
                                const ConstTensor& offs, const Tensor& weight_grad, const Tensor* bias_grad);
void moe_experts(const Frame& frame, const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                 const ConstTensor& topk_weights, const ConstTensor& w13, const ConstTensor& w2,
                 const ConstTensor* w13_bias, const ConstTensor* w2_bias, const Tensor& out,
                 const MoeExpertsParams& params);
void moe_experts_quantized(const Frame& frame, const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                           const ConstTensor& topk_weights, const ConstTensor& w13,
                           const ConstTensor& w13_scale, const ConstTensor& w2, const ConstTensor& w2_scale,
                           const ConstTensor* w13_bias, const ConstTensor* w2_bias, const Tensor& out,
                           const MoeExpertsParams& params);

}  // namespace turnout::families::moe_experts
