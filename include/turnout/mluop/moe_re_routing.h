/* Mixture of experts, C interface: regroups tokens by expert that arrive grouped by rank, and the inverse.
 * MLU-OPS does not have these functions. */
#ifndef TURNOUT_MLUOP_MOE_RE_ROUTING_H_
#define TURNOUT_MLUOP_MOE_RE_ROUTING_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of workspace that mluOpMoeReRouting needs for these descriptors; scales_desc may be NULL. 0 if
 * there are no tokens.
 *
 * In this order:
 *   BAD_PARAM      handle, workspace_size or a descriptor is NULL
 *   then           the checks of mluOpMoeReRouting, up to and including NOT_SUPPORTED
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetMoeReRoutingWorkspaceSize(mluOpHandle_t handle, const mluOpTensorDescriptor_t tokens_desc,
                                  const mluOpTensorDescriptor_t counts_desc,
                                  const mluOpTensorDescriptor_t scales_desc, size_t* workspace_size);

/* for each rank r and expert e:
 *   src = tokens of ranks before r                    + tokens of rank r for experts before e
 *   dst = tokens for experts before e, from all ranks + tokens for e from ranks before r
 *   for k in 0 .. counts[r, e]-1:
 *     permute_tokens[dst + k, :] = tokens[src + k, :]
 *     permute_scales[dst + k, :] = scales[src + k, :]          if scales are given
 *     idx_type 0, gather:   idx[dst + k] = src + k
 *     idx_type 1, scatter:  idx[src + k] = dst + k
 *   expert_token_num_type 1, count:   expert_token_num[e] = sum of counts[:, e]
 *   expert_token_num_type 0, cumsum:  expert_token_num[e] = sum of counts[:, 0 .. e]
 *
 * tokens, permute_tokens [A, H] of one dtype with 1, 2, 4 or 8 bytes; counts [N, E] int32 or int64; scales,
 * permute_scales [A] or [A, S] of one such dtype; idx [A] int32; expert_token_num [E], same dtype as counts.
 *
 * scales may be absent (descriptor and pointer NULL); permute_scales is then ignored. With A == 0
 * expert_token_num is still written. The workspace may have any alignment and must not overlap a tensor. Its
 * content is overwritten. Outputs are written only if the status is SUCCESS.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; permute_scales_desc is required only with scales_desc
 *   BAD_PARAM      number of dimensions; dtype; expert_token_num_type or idx_type is neither 0 nor 1
 *   BAD_PARAM      shapes disagree or are negative; H, N or E is 0
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      with A > 0: workspace is NULL, too small, or overlaps a tensor
 *   BAD_PARAM      data of a tensor with elements is NULL or not aligned to its element
 *   BAD_PARAM      with A > 0: scale data without a descriptor; an output overlaps another tensor
 *   BAD_PARAM      a count is negative; the counts do not sum to A
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMoeReRouting(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t tokens_desc, const void* tokens,
    const mluOpTensorDescriptor_t counts_desc, const void* counts, const mluOpTensorDescriptor_t scales_desc,
    const void* scales, const int64_t expert_token_num_type, const int64_t idx_type, void* workspace,
    size_t workspace_size, const mluOpTensorDescriptor_t permute_tokens_desc, void* permute_tokens,
    const mluOpTensorDescriptor_t permute_scales_desc, void* permute_scales,
    const mluOpTensorDescriptor_t idx_desc, void* idx, const mluOpTensorDescriptor_t expert_token_num_desc,
    void* expert_token_num);

/* idx_type 0, gather:   tokens[idx[d], :] = permute_tokens[d, :]
 * idx_type 1, scatter:  tokens[i, :] = permute_tokens[idx[i], :]
 *
 * permute_tokens, tokens [A, H] as above; idx [A] int32, a permutation of 0 .. A-1.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; dtype; idx_type is neither 0 nor 1;
 *                  shapes disagree or are negative; H is 0
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   SUCCESS        A == 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      a data pointer is NULL or not aligned to its element
 *   BAD_PARAM      tokens overlaps another tensor; idx is not a permutation
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpMoeReRoutingInverse(mluOpHandle_t handle, const mluOpTensorDescriptor_t permute_tokens_desc,
                         const void* permute_tokens, const mluOpTensorDescriptor_t idx_desc, const void* idx,
                         const int64_t idx_type, const mluOpTensorDescriptor_t tokens_desc, void* tokens);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_MOE_RE_ROUTING_H_ */
