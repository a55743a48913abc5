/* Features of points by index, C interface: interpolation from three points, and its gradient. */
#ifndef TURNOUT_MLUOP_GROUPING_H_
#define TURNOUT_MLUOP_GROUPING_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Half tensors are computed in float and rounded once. The term of an index that is
 * not in 0 .. M-1 is 0. */

/* output[b, c, n] = (w[0] * f[i[0]] + w[1] * f[i[1]]) + w[2] * f[i[2]], where f is features[b, c], i is
 * indices[b, n] and w is weights[b, n]. Every element of output is written.
 *
 * features [B, C, M], weights [B, N, 3], output [B, C, N]: half or float, all the same; indices [B, N, 3]
 * int32.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; a layout is not ARRAY; dtype; shapes
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      B, C or N is 0
 *   SUCCESS        M is 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; output overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpThreeInterpolateForward(mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
                             const void* features, const mluOpTensorDescriptor_t indices_desc,
                             const void* indices, const mluOpTensorDescriptor_t weights_desc,
                             const void* weights, const mluOpTensorDescriptor_t output_desc, void* output);

/* grad_features[b, c, i] = the sum of grad_output[b, c, n] * weights[b, n, k] over all n, k with
 * indices[b, n, k] == i, in this order; each product is rounded. Every element of grad_features is written,
 * whatever it was before.
 *
 * grad_output [B, C, N], weights [B, N, 3], grad_features [B, C, M]: half or float, all the same; indices
 * [B, N, 3] int32.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; a layout is not ARRAY; dtype; shapes
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      B, C or N is 0
 *   SUCCESS        M is 0: nothing is read, data pointers may be NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; grad_features overlaps another
 *                  tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpThreeInterpolateBackward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t grad_output_desc, const void* grad_output,
    const mluOpTensorDescriptor_t indices_desc, const void* indices,
    const mluOpTensorDescriptor_t weights_desc, const void* weights,
    const mluOpTensorDescriptor_t grad_features_desc, void* grad_features);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_GROUPING_H_ */
