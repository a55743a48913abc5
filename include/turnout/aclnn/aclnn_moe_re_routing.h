/* MoeReRouting of CANN, on the CPU: regroups tokens that arrive grouped by rank, so that each expert's tokens
 * are contiguous. turnout/moe_re_routing.h has the definition. */
#ifndef TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_
#define TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_

#include "acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Phase 1: checks the arguments, and gives the size of the workspace and an executor for phase 2.
 *
 *   tokens, permuteTokens                           [A, H] float16, bfloat16 or int8; 0 < H < 16384
 *   expertTokenNumPerRank                           [N, E] int32 or int64; N, E > 0
 *   perTokenScalesOptional, permutePerTokenScales   [A] float32. Without scales (NULL) permutePerTokenScales
 *                                                   may be NULL, and is not written
 *   permuteTokenIdx                                 [A] int32
 *   expertTokenNum                                  [E], of the type of expertTokenNumPerRank
 *   expertTokenNumType                              1 (count)
 *   idxType                                         0 (gather)
 *
 * These are CANN's limits; turnout::moe_re_routing() has wider ones. Tensors must be contiguous, and outputs
 * must not overlap another tensor. A required argument that is NULL gives 161001, any other fault 161002; the
 * executor and the size are then not written. */
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRoutingGetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    int64_t expertTokenNumType, int64_t idxType, const aclTensor* permuteTokens,
    const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx, const aclTensor* expertTokenNum,
    uint64_t* workspaceSize, aclOpExecutor** executor);

/* Phase 2: runs the executor, once, and frees it whatever the status. Counts must be 0 or more and sum to A,
 * and the workspace must have at least the size of phase 1; otherwise 161002 and nothing is written. An
 * executor that has run already gives 161002. */
TURNOUT_ACLNN_API aclnnStatus aclnnMoeReRouting(void* workspace, uint64_t workspaceSize,
                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_ACLNN_ACLNN_MOE_RE_ROUTING_H_ */
