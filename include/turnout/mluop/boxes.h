/* Boxes of detectors, C interface: overlaps of rotated boxes, non-maximum suppression, points in boxes. */
#ifndef TURNOUT_MLUOP_BOXES_H_
#define TURNOUT_MLUOP_BOXES_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* points_indices[b, m]: the first of the boxes of batch element b that has point m, or -1. A box is x, y, z,
 * dx, dy, dz, heading, where z is the middle of its height. A point is in a box if
 *   |l_x| < dx/2 + 1e-5, |l_y| < dy/2 + 1e-5, |z - z of the box| <= dz/2
 * where l is its position in the frame of the box. Every element of points_indices is written.
 *
 * points [B, M, 3] float; boxes [B, T, 7] float; points_indices [B, M] int32.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; dtype; a layout is not ARRAY
 *   BAD_PARAM      B or M differs between tensors; the last dimension of points is not 3, of boxes not 7
 *   NOT_SUPPORTED  a tensor is strided; points or boxes has 2^31 elements or more
 *   SUCCESS        B, M or T is 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; points_indices overlaps another
 *                  tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpPointsInBoxes(mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc, const void* points,
                   const mluOpTensorDescriptor_t boxes_desc, const void* boxes,
                   const mluOpTensorDescriptor_t points_indices_desc, void* points_indices);

/* ious[i, j]: the area that bbox1[i] and bbox2[j] share, divided by the area of both (mode 0) or by the area
 * of bbox1[i] (mode 1). With `aligned`, ious[i] compares bbox1[i] with bbox2[i]. A box is x, y, w, h, angle.
 *
 * bbox1 [N, 5], bbox2 [M, 5], ious [N, M], float. With `aligned`, M is N and ious is [N].
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; dtype; mode is neither 0 nor 1
 *   BAD_PARAM      number of dimensions; shape of ious; with `aligned`, M is not N; bbox1 has boxes that do
 *                  not have 5 numbers; then bbox2 has
 *   NOT_SUPPORTED  a tensor is strided
 *   SUCCESS        N or M is 0: nothing is read or written, data pointers may be NULL
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; ious overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpBoxIouRotated(
    mluOpHandle_t handle, const int mode, const bool aligned, const mluOpTensorDescriptor_t bbox1_desc,
    const void* bbox1, const mluOpTensorDescriptor_t bbox2_desc, const void* bbox2,
    const mluOpTensorDescriptor_t ious_desc, void* ious);

/* Bytes of workspace that mluOpNmsRotated needs: 0.
 *
 *   BAD_PARAM      handle, workspace_size or boxes_desc is NULL; boxes has fewer than 2 dimensions
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetNmsRotatedWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t boxes_desc, size_t* workspace_size);

/* Non-maximum suppression. Boxes are visited by descending score, those of equal scores by ascending number,
 * NaN first. A box is kept unless the IoU of a box that was kept before and this box, that of
 * mluOpBoxIouRotated, exceeds iou_threshold. A threshold of NaN suppresses no box. result_num[0] is the
 * number of kept boxes, and the first elements of output are their numbers in the order of the visits. The
 * other elements of output are not written. A sixth number of boxes, the label, is ignored.
 *
 * boxes [N, 5] or [N, 6] float; scores [N] float; output [N] int32; result_num: one int32. The workspace is
 * not used.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; dtype; number of dimensions
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      N differs between tensors; boxes have neither 5 nor 6 numbers
 *   NOT_SUPPORTED  boxes has 2^31 elements or more
 *   SUCCESS        N is 0: nothing is read or written, not even result_num, and pointers may be NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; result_num likewise
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0; output or result_num overlaps a tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpNmsRotated(
    mluOpHandle_t handle, const float iou_threshold, const mluOpTensorDescriptor_t boxes_desc,
    const void* boxes, const mluOpTensorDescriptor_t scores_desc, const void* scores, void* workspace,
    size_t workspace_size, const mluOpTensorDescriptor_t output_desc, void* output, int32_t* result_num);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_BOXES_H_ */
