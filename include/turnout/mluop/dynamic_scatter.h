/* Dynamic scatter, C interface: reduces features of points by voxel, with gradients, and voxelizes points. */
#ifndef TURNOUT_MLUOP_DYNAMIC_SCATTER_H_
#define TURNOUT_MLUOP_DYNAMIC_SCATTER_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shapes of the first functions: N points, C channels, V voxels, and outputs with M rows, V <= M <= N.
 *
 * feats, grad_feats [N, C]; voxel_feats, grad_voxel_feats [M, C]: float.
 * coors [N, 3]; voxel_coors [M, 3]; point2voxel_map [N], the voxel of a point or -1; voxel_points_count [M],
 * the number of points of a voxel; voxel_num [1], V: int32.
 *
 * A workspace may have any alignment and must not overlap a tensor. Its content is overwritten. Outputs are
 * written only if the status is SUCCESS. */

/* Bytes of workspace that mluOpDynamicPointToVoxelForward needs for these descriptors. Shapes are not
 * checked; the size is meaningful only for shapes that the operator accepts.
 *
 *   BAD_PARAM      handle, workspace_size or a descriptor is NULL
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetDynamicPointToVoxelForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t feats_desc, const mluOpTensorDescriptor_t coors_desc,
    size_t* workspace_size);

/* Points with equal rows of coors form one voxel. Points with a negative component are in no voxel.
 * Voxels are numbered in ascending (coors[0], coors[1], coors[2]). For each voxel v with the points x:
 *   voxel_feats[v, c]     = the largest feats[x, c]; NaN is ignored; -inf if all are NaN   with DMAX
 *                         = the sum of feats[x, c] in ascending x, / number of points      with DMEAN
 *   voxel_coors[v]        = coors[x]
 *   point2voxel_map[x]    = v, or -1
 *   voxel_points_count[v] = number of points
 *   voxel_num[0]          = V
 *   coors[x]              = (-1, -1, -1) for the points that are in no voxel: coors is changed
 *
 * Rows of voxel_feats after the last voxel are set to -inf with DMAX and to 0 with DMEAN; those of
 * voxel_coors and voxel_points_count are not written.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype; reduce_type is neither MLUOP_REDUCE_DMAX nor MLUOP_REDUCE_DMEAN
 *   BAD_PARAM      shapes disagree with those above, or are negative; M > N
 *   NOT_SUPPORTED  feats or coors has 2^31 elements or more
 *   SUCCESS        N or C is 0: no workspace is needed, and data pointers may be NULL. voxel_num[0] is 0 if
 *                  voxel_num is not NULL; nothing else is read or written
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0; workspace is too small or overlaps a tensor
 *   BAD_PARAM      data of a tensor that has elements is NULL or not aligned to its element
 *   BAD_PARAM      coors or a result overlaps another tensor; V > M
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDynamicPointToVoxelForward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type, const mluOpTensorDescriptor_t feats_desc,
    const void* feats, const mluOpTensorDescriptor_t coors_desc, void* coors, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t voxel_feats_desc, void* voxel_feats,
    const mluOpTensorDescriptor_t voxel_coors_desc, void* voxel_coors,
    const mluOpTensorDescriptor_t point2voxel_map_desc, void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, void* voxel_num);

/* Bytes of workspace that mluOpDynamicPointToVoxelBackward needs. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const mluOpTensorDescriptor_t feats_desc,
    const mluOpTensorDescriptor_t voxel_feats_desc, const mluOpTensorDescriptor_t point2voxel_map_desc,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const mluOpTensorDescriptor_t voxel_num_desc,
    size_t* workspace_size);

/* for voxel v in 0 .. V-1, c in 0 .. C-1, with V = voxel_num[0]:
 *   grad_feats[x, c] = grad_voxel_feats[v, c] for the smallest x with point2voxel_map[x] == v and
 *                      feats[x, c] == voxel_feats[v, c]
 *   the rest of grad_feats = 0
 *
 * +0 equals -0. NaN equals nothing: if no point is equal, no point gets the gradient. Rows of
 * grad_voxel_feats and voxel_feats from V on are not read, nor is voxel_points_count. With M == 0 grad_feats
 * is set to 0.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype; number of dimensions; shapes disagree with those above, or are negative; M > N
 *   BAD_PARAM      reduce_type is not MLUOP_REDUCE_DMAX
 *   NOT_SUPPORTED  grad_voxel_feats or feats has 2^31 elements or more
 *   SUCCESS        N or C is 0: nothing is read or written, no workspace is needed, data pointers may be NULL
 *   BAD_PARAM      data of a tensor that has elements is NULL or not aligned to its element
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0; workspace is too small or overlaps a tensor
 *   BAD_PARAM      grad_feats overlaps another tensor; V is not in 0 .. M; a value of point2voxel_map is not
 *                  in -1 .. V-1
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDynamicPointToVoxelBackward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const void* grad_voxel_feats,
    const mluOpTensorDescriptor_t feats_desc, const void* feats,
    const mluOpTensorDescriptor_t voxel_feats_desc, const void* voxel_feats,
    const mluOpTensorDescriptor_t point2voxel_map_desc, const void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, const void* voxel_num, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t grad_feats_desc, void* grad_feats);

/* The same two functions under the names that other clients use. Both queries return the same size.
 * voxel_num is not written, although it is not const here. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetDynamicScatterBackwardWorkspaceSize(const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
                                            const mluOpTensorDescriptor_t feats_desc, size_t* workspace_size);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDynamicScatterBackward(
    const mluOpHandle_t handle, const mluOpReduceMode_t reduce_type,
    const mluOpTensorDescriptor_t grad_voxel_feats_desc, const void* grad_voxel_feats,
    const mluOpTensorDescriptor_t feats_desc, const void* feats,
    const mluOpTensorDescriptor_t voxel_feats_desc, const void* voxel_feats,
    const mluOpTensorDescriptor_t point2voxel_map_desc, const void* point2voxel_map,
    const mluOpTensorDescriptor_t voxel_points_count_desc, const void* voxel_points_count,
    const mluOpTensorDescriptor_t voxel_num_desc, void* voxel_num, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t grad_feats_desc, void* grad_feats);

/* Bytes of workspace that mluOpVoxelization needs; 0 if max_points or max_voxels is 0.
 *
 * In this order:
 *   BAD_PARAM      handle, workspace_size or a descriptor is NULL
 *   then the checks of mluOpVoxelization, up to "P or F is 0"
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetVoxelizationWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc,
    const mluOpTensorDescriptor_t voxel_size_desc, const mluOpTensorDescriptor_t coors_range_desc,
    const int32_t max_points, const int32_t max_voxels, const int32_t NDim, const bool deterministic,
    const mluOpTensorDescriptor_t voxels_desc, const mluOpTensorDescriptor_t coors_desc,
    const mluOpTensorDescriptor_t num_points_per_voxel_desc, const mluOpTensorDescriptor_t voxel_num_desc,
    size_t* workspace_size);

/* The voxel of point p is (z, y, x), each floor((p[j] - coors_range[j]) / voxel_size[j]) for j = x, y, z, if
 * each is in 0 .. round((coors_range[3 + j] - coors_range[j]) / voxel_size[j]) - 1, all in float. Voxels are
 * numbered in the order of their first points. Voxels beyond the first max_voxels are dropped with their
 * points, and so are the points of a voxel beyond its first max_points.
 *   voxels[v, k]            = the k-th point of voxel v, all its features
 *   coors[v]                = (z, y, x)
 *   num_points_per_voxel[v] = the number of points stored for v
 *   voxel_num[0]            = the number of voxels
 *   the rest of voxels, coors and num_points_per_voxel = 0
 *
 * points [P, F], 3 <= F: x, y, z and other features; voxel_size [3]; coors_range [6], the lower limits of
 * x, y, z, then the upper limits; voxels [max_voxels, max_points, F]: float. coors [max_voxels, 3];
 * num_points_per_voxel [max_voxels]; voxel_num [1]: int32. voxels may have 2^31 elements or more.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL
 *   BAD_PARAM      deterministic is false; max_points or max_voxels is negative; NDim is not 3
 *   BAD_PARAM      number of dimensions; shapes disagree with those above, or are negative
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype
 *   NOT_SUPPORTED  a tensor other than voxels has 2^31 elements or more
 *   BAD_PARAM      P or F is 0
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0
 *   SUCCESS        max_points or max_voxels is 0: no workspace is needed, and data pointers may be NULL. All
 *                  outputs that are not NULL are set to 0, including voxel_num
 *   BAD_PARAM      F < 3; workspace is too small or overlaps a tensor
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; a result overlaps another tensor
 *   BAD_PARAM      voxel_size is not positive and finite; coors_range is not 1 .. 2^31 - 1 voxels in each
 *                  direction
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpVoxelization(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc, const void* points,
    const mluOpTensorDescriptor_t voxel_size_desc, const void* voxel_size,
    const mluOpTensorDescriptor_t coors_range_desc, const void* coors_range, const int32_t max_points,
    const int32_t max_voxels, const int32_t NDim, const bool deterministic, void* workspace,
    size_t workspace_size, const mluOpTensorDescriptor_t voxels_desc, void* voxels,
    const mluOpTensorDescriptor_t coors_desc, void* coors,
    const mluOpTensorDescriptor_t num_points_per_voxel_desc, void* num_points_per_voxel,
    const mluOpTensorDescriptor_t voxel_num_desc, void* voxel_num);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_DYNAMIC_SCATTER_H_ */
