// Mixture of experts, after an all-to-all: regroups tokens that arrive grouped by rank, so that each expert's
// tokens are contiguous.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/tensor.h"

namespace turnout {

// Contents of expert_token_num: the number of tokens of each expert, or the cumulative sum of these numbers.
enum class ExpertTokenNum : std::uint8_t { cumsum, count };

// Contents of permute_token_idx: the input row of each output row (gather), or the output row of each input
// row (scatter).
enum class TokenIdx : std::uint8_t { gather, scatter };

struct MoeReRoutingParams {
  ExpertTokenNum expert_token_num_type = ExpertTokenNum::count;
  TokenIdx idx_type = TokenIdx::gather;
};

// With c = expert_token_num_per_rank, for each rank r and expert e:
//   src = tokens of ranks before r                    + tokens of rank r for experts before e
//   dst = tokens for experts before e, from all ranks + tokens for e from ranks before r
//   for k in 0 .. c[r,e]-1:
//     permute_tokens[dst + k, :]           = tokens[src + k, :]
//     permute_per_token_scales[dst + k, :] = per_token_scales[src + k, :]     when given
//     permute_token_idx[dst + k]           = src + k  (gather),  or
//     permute_token_idx[src + k]           = dst + k  (scatter)
//   expert_token_num[e] = sum of c[:, e]  (count), or of c[:, 0 .. e]  (cumsum)
//
// tokens, permute_tokens [rows, hidden], any dtype; c [ranks, experts] int32 or int64; scales [rows] or
// [rows, scale_width], any dtype, or nullptr; permute_token_idx [rows] int32; expert_token_num [experts],
// with the dtype of c. Counts must be 0 or more and sum to rows; hidden, ranks and experts must be at least
// 1. If per_token_scales is nullptr, permute_per_token_scales is ignored. expert_token_num is written even if
// rows is 0. Rows are copied bit by bit.
TURNOUT_API void moe_re_routing(const ConstTensor& tokens, const ConstTensor& expert_token_num_per_rank,
                                const ConstTensor& per_token_scales, const Tensor& permute_tokens,
                                const Tensor& permute_per_token_scales, const Tensor& permute_token_idx,
                                const Tensor& expert_token_num, const MoeReRoutingParams& params = {},
                                const Caller& caller = {});

// The inverse of moe_re_routing:
//   tokens[permute_token_idx[d], :] = permute_tokens[d, :]  (gather), or
//   tokens[i, :] = permute_tokens[permute_token_idx[i], :]  (scatter)
// permute_tokens, tokens [rows, hidden], any dtype; permute_token_idx [rows] int32 or int64.
// The index must be a permutation of 0 .. rows-1; an error names the first entry that is out of range or
// repeated. This operator is also the gradient of moe_re_routing.
TURNOUT_API void moe_re_routing_inverse(const ConstTensor& permute_tokens,
                                        const ConstTensor& permute_token_idx, const Tensor& tokens,
                                        TokenIdx idx_type = TokenIdx::gather, const Caller& caller = {});

// Splits the rows of input into chunks and reorders the chunks:
//   output = the concatenation of chunk(sorted_idxs[0]), chunk(sorted_idxs[1]), ..
// where chunk(c) has split_sizes[c] rows and follows chunk(c-1) in input. permuted_probs has the same order.
// moe_re_routing is this function with split_sizes = c and sorted_idxs[e * ranks + r] = r * experts + e.
// input, output [rows, hidden], any dtype; split_sizes, sorted_idxs [chunks] int32 or int64; probs [rows],
// any dtype, or nullptr. Sizes must be 0 or more and sum to rows; sorted_idxs must be a permutation. If probs
// is nullptr, permuted_probs is ignored. The gradient is sort_chunks_by_idxs with the sizes in the new order
// and the inverse permutation.
TURNOUT_API void sort_chunks_by_idxs(const ConstTensor& input, const ConstTensor& split_sizes,
                                     const ConstTensor& sorted_idxs, const ConstTensor& probs,
                                     const Tensor& output, const Tensor& permuted_probs,
                                     const Caller& caller = {});

}  // namespace turnout
