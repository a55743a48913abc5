// The operators of this family as the doors call them: the functions of turnout/moe_re_routing.h with a Frame
// in place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;

void moe_re_routing(const Frame& frame, const ConstTensor& tokens,
                    const ConstTensor& expert_token_num_per_rank, const ConstTensor* per_token_scales,
                    const Tensor& permute_tokens, const Tensor* permute_per_token_scales,
                    const Tensor& permute_token_idx, const Tensor& expert_token_num,
                    const MoeReRoutingParams& params);
void moe_re_routing_inverse(const Frame& frame, const ConstTensor& permute_tokens,
                            const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type);
void sort_chunks_by_idxs(const Frame& frame, const ConstTensor& input, const ConstTensor& split_sizes,
                         const ConstTensor& sorted_idxs, const ConstTensor* probs, const Tensor& output,
                         const Tensor* permuted_probs);

}  // namespace turnout::families::moe_re_routing
