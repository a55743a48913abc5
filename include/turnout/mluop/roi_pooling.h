/* Pooling of the points in boxes, C interface: the second stage of detectors. */
#ifndef TURNOUT_MLUOP_ROI_POOLING_H_
#define TURNOUT_MLUOP_ROI_POOLING_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A box is x, y, z, dx, dy, dz, heading, where z is its bottom. A point is in a box if
 *   |l_x| < dx/2, |l_y| < dy/2, |z - (z of the box + dz/2)| <= dz/2
 * where l is its position in the frame of the box. Half coordinates are computed in float, and half results
 * are rounded once. */

/* Bytes of workspace that mluOpRoiAwarePool3dForward needs: 0. rois_desc and pts_desc may be NULL.
 *
 *   BAD_PARAM      handle, workspace_size or pts_feature_desc is NULL
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetRoiAwarePool3dForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t rois_desc, const mluOpTensorDescriptor_t pts_desc,
    const mluOpTensorDescriptor_t pts_feature_desc, size_t* workspace_size);

/* Divides each box into X * Y * Z cells and pools the features of the points of each cell. The cell of a
 * point is
 *   i_x = floor((l_x + dx/2) / (dx/X)), i_y likewise, i_z = floor((z - z of the box) / (dz/Z))
 * each clamped to the cells; NaN is 0. A cell has the first P - 1 of its points by ascending number.
 *   pool_method 0  pooled_features: the largest feature above -infinity, 0 if there is none
 *                  argmax: the first point that has it, or -1
 *   pool_method 1  pooled_features: the sum of the features, in the order of the points, divided by their
 *                  number; 0 without points. Every element of argmax is 0; argmax_desc may be NULL, and then
 *                  argmax is not written
 * pts_idx_of_voxels: the number of points of the cell, these points, and 0 in the rest of the cell's P
 * elements. Every element of the results is written.
 *
 * rois [boxes_num, 7], pts [pts_num, 3], pts_feature [pts_num, channels], pooled_features [boxes_num, X, Y,
 * Z, channels]: half or float, all the same; argmax [boxes_num, X, Y, Z, channels] and pts_idx_of_voxels
 * [boxes_num, X, Y, Z, P] int32. X, Y and Z are out_x, out_y and out_z, P is max_pts_each_voxel. The
 * workspace is not used.
 *
 * In this order, where argmax is only concerned if it is named:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; shapes; dtype; pool_method is
 *                  neither 0 nor 1; boxes_num, pts_num, channels, P, X, Y or Z is 0 or negative
 *   NOT_SUPPORTED  a tensor, or argmax, is strided; a tensor has 2^31 elements or more; boxes_num * pts_num
 *                  is 2^31 or more
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element
 *   BAD_PARAM      pool_method is 0, and of argmax the descriptor is NULL, or the number of dimensions, the
 *                  shape or the dtype is wrong, or the data are NULL or not aligned
 *   BAD_PARAM      a result, or argmax, overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpRoiAwarePool3dForward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int pts_num, const int channels,
    const mluOpTensorDescriptor_t rois_desc, const void* rois, const mluOpTensorDescriptor_t pts_desc,
    const void* pts, const mluOpTensorDescriptor_t pts_feature_desc, const void* pts_feature, void* workspace,
    size_t workspace_size, const int max_pts_each_voxel, const int out_x, const int out_y, const int out_z,
    const mluOpTensorDescriptor_t argmax_desc, void* argmax,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features);

/* The gradient with respect to pts_feature, from results of mluOpRoiAwarePool3dForward:
 *   pool_method 0  grad_in[argmax[v, c], c] is the sum of grad_out[v, c], where argmax is not -1
 *   pool_method 1  grad_in[k, c] is the sum of grad_out[v, c] * (1 / number of points of v) over the cells v
 *                  whose list has k
 * Sums are in the order of the cells. Every element of grad_in is written, whatever it was before.
 *
 * pts_idx_of_voxels [boxes_num, X, Y, Z, P] and argmax [boxes_num, X, Y, Z, channels] int32; grad_out
 * [boxes_num, X, Y, Z, channels] and grad_in [pts_num, channels]: half or float, both the same. X, Y and Z
 * are out_x, out_y and out_z, P is max_pts_each_voxel.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; shapes; dtype; pool_method is
 *                  neither 0 nor 1; boxes_num, X, Y, Z, channels or P is 0 or negative; pts_num is 0
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; grad_in overlaps another tensor
 *   BAD_PARAM      pool_method is 0 and an element of argmax is neither -1 nor a point
 *   BAD_PARAM      pool_method is 1, and a number of points is not in 0 .. P-1, or an element of a list is
 *                  not a point
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpRoiAwarePool3dBackward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int out_x, const int out_y,
    const int out_z, const int channels, const int max_pts_each_voxel,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, const void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t argmax_desc, const void* argmax,
    const mluOpTensorDescriptor_t grad_out_desc, const void* grad_out,
    const mluOpTensorDescriptor_t grad_in_desc, void* grad_in);

/* Deprecated spellings of these functions. The first call of each is noted in a log that has calls. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetRoiawarePool3dForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t rois_desc, const mluOpTensorDescriptor_t pts_desc,
    const mluOpTensorDescriptor_t pts_feature_desc, size_t* workspace_size);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpRoiawarePool3dForward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int pts_num, const int channels,
    const mluOpTensorDescriptor_t rois_desc, const void* rois, const mluOpTensorDescriptor_t pts_desc,
    const void* pts, const mluOpTensorDescriptor_t pts_feature_desc, const void* pts_feature, void* workspace,
    size_t workspace_size, const int max_pts_each_voxel, const int out_x, const int out_y, const int out_z,
    const mluOpTensorDescriptor_t argmax_desc, void* argmax,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpRoiawarePool3dBackward(
    mluOpHandle_t handle, const int pool_method, const int boxes_num, const int out_x, const int out_y,
    const int out_z, const int channels, const int max_pts_each_voxel,
    const mluOpTensorDescriptor_t pts_idx_of_voxels_desc, const void* pts_idx_of_voxels,
    const mluOpTensorDescriptor_t argmax_desc, const void* argmax,
    const mluOpTensorDescriptor_t grad_out_desc, const void* grad_out,
    const mluOpTensorDescriptor_t grad_in_desc, void* grad_in);

/* Bytes of workspace that mluOpRoiPointPool3d needs: 0. The function checks its arguments as
 * mluOpRoiPointPool3d does.
 *
 *   BAD_PARAM      size is NULL
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetRoiPointPool3dWorkspaceSize(
    mluOpHandle_t handle, const int batch_size, const int pts_num, const int boxes_num,
    const int feature_in_len, const int sampled_pts_num, const mluOpTensorDescriptor_t points_desc,
    const mluOpTensorDescriptor_t point_features_desc, const mluOpTensorDescriptor_t boxes3d_desc,
    const mluOpTensorDescriptor_t pooled_features_desc, const mluOpTensorDescriptor_t pooled_empty_flag_desc,
    size_t* size);

/* The first sampled_pts_num points of each box, by ascending number: pooled_features[b, m, s] is the s-th
 * point in box m, followed by its features. If there are n < sampled_pts_num of them, row s is row s mod n.
 * If there are none, the rows are 0, and pooled_empty_flag[b, m] is 1, otherwise 0. Every element of both is
 * written.
 *
 * points [batch_size, pts_num, 3], point_features [batch_size, pts_num, feature_in_len], boxes3d [batch_size,
 * boxes_num, 7], pooled_features [batch_size, boxes_num, sampled_pts_num, 3 + feature_in_len]: half or float,
 * all the same; pooled_empty_flag [batch_size, boxes_num] int32. The workspace is not used.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; shapes
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0
 *   BAD_PARAM      a size is 0
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; a result overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpRoiPointPool3d(
    mluOpHandle_t handle, const int batch_size, const int pts_num, const int boxes_num,
    const int feature_in_len, const int sampled_pts_num, const mluOpTensorDescriptor_t points_desc,
    const void* points, const mluOpTensorDescriptor_t point_features_desc, const void* point_features,
    const mluOpTensorDescriptor_t boxes3d_desc, const void* boxes3d, void* workspace, size_t workspace_size,
    const mluOpTensorDescriptor_t pooled_features_desc, void* pooled_features,
    const mluOpTensorDescriptor_t pooled_empty_flag_desc, void* pooled_empty_flag);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_ROI_POOLING_H_ */
