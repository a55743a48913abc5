/* Points of clouds, C interface: points within a radius, and the three nearest points. */
#ifndef TURNOUT_MLUOP_POINTS_H_
#define TURNOUT_MLUOP_POINTS_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Half coordinates are computed in float, and half results are rounded once. The square of a distance is
 *   d2 = (dx * dx + dy * dy) + dz * dz */

/* The points within a radius of each query: the first `nsample` of them by ascending number, where
 *   d2 == 0 or min_radius^2 <= d2 < max_radius^2
 * If fewer are found, the first one fills the rest of the query's row of idx. If none is found, the row is
 * not written.
 *
 * new_xyz [B, M, 3], the queries, and xyz [B, N, 3]: half or float, both the same; idx [B, M, nsample] int32.
 *
 * In this order:
 *   BAD_PARAM      min_radius, max_radius or nsample is negative, or a radius is NaN
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; shapes
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      B or M is 0
 *   SUCCESS        N or nsample is 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; idx overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpBallQuery(mluOpHandle_t handle, const mluOpTensorDescriptor_t new_xyz_desc, const void* new_xyz,
               const mluOpTensorDescriptor_t xyz_desc, const void* xyz, const float min_radius,
               const float max_radius, const int nsample, const mluOpTensorDescriptor_t idx_desc, void* idx);

/* Bytes of workspace that mluOpThreeNNForward needs: 0.
 *
 *   BAD_PARAM      handle, workspace_size or known_desc is NULL; known does not have 3 dimensions
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetThreeNNForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t known_desc, size_t* workspace_size);

/* The three points of `known` that are nearest to each point of `unknown`, by d2, of equals by number. Points
 * whose d2 is infinite or NaN are not found: dist2 is infinity and idx is 0 for each that is missing.
 *
 * unknown [B, N, 3], known [B, M, 3], dist2 [B, N, 3]: half or float, all the same; idx [B, N, 3] int32. The
 * workspace is not used.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; shapes; dtype
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      B or N is 0
 *   SUCCESS        M is 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; dist2 or idx overlaps another
 *                  tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpThreeNNForward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t unknown_desc, const void* unknown,
    const mluOpTensorDescriptor_t known_desc, const void* known, void* workspace, const size_t workspace_size,
    const mluOpTensorDescriptor_t dist2_desc, void* dist2, const mluOpTensorDescriptor_t idx_desc, void* idx);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_POINTS_H_ */
