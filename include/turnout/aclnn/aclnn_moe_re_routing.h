/* MoeReRouting and MoeReRoutingV2 of CANN, on the CPU: they regroup tokens that arrive grouped by rank, so
 * that each expert's tokens are contiguous. turnout/moe_re_routing.h has the definition. */
#ifndef TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_
#define TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_

#include "acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1 checks the arguments and returns the size of the workspace and an executor for phase 2.
 *
 *   tokens, permuteTokens                          [A, H] float16, bfloat16, int8, float8_e4m3fn,
 *                                                  float8_e5m2, hifloat8, float4_e2m1 or float4_e1m2; H > 0
 *   expertTokenNumPerRank                          [N, E] int32 or int64; N, E > 0
 *   perTokenScalesOptional, permutePerTokenScales  [A], [A, S] or [A, K, 2], float32 or float8_e8m0. Without
 *                                                  scales (NULL) permutePerTokenScales is ignored
 *   permuteTokenIdx                                [A] int32
 *   expertTokenNum                                 [E], same type as expertTokenNumPerRank
 *   expertTokenNumType                             1 (count)
 *   idxType                                        0 (gather) or 1 (scatter)
 *
 * CANN's devices accept only subsets of these; unlike there, the type of the scales does not depend on that
 * of the tokens. Inputs may be strided: the workspace then has room for contiguous copies of them. A
 * [A, K, 2] view must be contiguous in its last two dimensions. Outputs must be contiguous and must not
 * overlap another tensor. A required argument that is NULL gives 161001, any other error 161002; neither the
 * executor nor the size is written then. */
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRoutingGetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    int64_t expertTokenNumType, int64_t idxType, const aclTensor* permuteTokens,
    const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx, const aclTensor* expertTokenNum,
    uint64_t* workspaceSize, aclOpExecutor** executor);

/* Phase 2 runs the executor once and frees it, whatever the status. The counts must not be negative and must
 * sum to A, and the workspace must have at least the size that phase 1 returned; otherwise the call returns
 * 161002 and writes nothing. An executor that has already run gives 161002. */
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRouting(void* workspace, uint64_t workspaceSize,
                                                aclOpExecutor* executor, aclrtStream stream);

/* MoeReRouting that also moves a weight with each token: permuteTopkWeightOptional[dst] is
 * expertTopkWeightOptional[src] where permuteTokens[dst] is tokens[src]. Both are [A, 1] float32, or both are
 * NULL; without weights, permuteTopkWeightOptional may also be an empty tensor. The rest is as above. */
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRoutingV2GetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    const aclTensor* expertTopkWeightOptional, int64_t expertTokenNumType, int64_t idxType,
    const aclTensor* permuteTokens, const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx,
    const aclTensor* expertTokenNum, const aclTensor* permuteTopkWeightOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor);
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRoutingV2(void* workspace, uint64_t workspaceSize,
                                                  aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_ */
