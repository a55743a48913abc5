/* Sparse convolution, C interface: finds the pairs of input and output sites for each kernel offset, and
 * convolves along these pairs. */
#ifndef TURNOUT_MLUOP_SPARSE_CONV_H_
#define TURNOUT_MLUOP_SPARSE_CONV_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sparse-convolution descriptors. They also hold a result, the number of active outputs, so a
 * descriptor must not be used by two calls at the same time. ---- */

/* NOT_INITIALIZED: desc is NULL. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpCreateSparseConvolutionDescriptor(mluOpSparseConvolutionDescriptor_t* desc);
/* EXECUTION_FAILED: desc is NULL. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpDestroySparseConvolutionDescriptor(mluOpSparseConvolutionDescriptor_t desc);

/* Each array has one value for each of the three spatial dimensions. With sub_m 0, every site that an input
 * reaches is an output. With any other value (submanifold), the outputs are the input sites. A descriptor may
 * be set repeatedly. An error leaves it unchanged; this function never changes its number of active outputs.
 *
 * In this order, all BAD_PARAM:
 *   desc, pad, stride, dilation, input_space, filter_space or output_space is NULL
 *   dimNb is not 5; batch_size is not positive; transpose is not 0; inverse is not 0
 *   for each dimension: pad is negative; stride, dilation, input_space, filter_space or output_space is not
 *   positive
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetSparseConvolutionDescriptor(
    mluOpSparseConvolutionDescriptor_t desc, int dimNb, int batch_size, const int pad[], const int stride[],
    const int dilation[], const int input_space[], const int filter_space[], const int output_space[],
    const int sub_m, const int transpose, const int inverse);

/* The number of active outputs that the last successful mluOpGetIndicePairs with this descriptor found; 0
 * before the first. NOT_INITIALIZED: either pointer is NULL. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetSparseConvolutionNumActOut(mluOpSparseConvolutionDescriptor_t desc, int* num_act_out);

/* ---- Index pairs. ---- */

/* Bytes of workspace that mluOpGetIndicePairs needs for these descriptors. The workspace holds the arrays
 * whose size follows from the descriptors. Arrays whose size depends on the sites are in memory that the
 * handle keeps for its next call. For 248,636 random sites in 4 x 41 x 1440 x 1440 cells and a submanifold
 * kernel of 3 x 3 x 3, the workspace has 7.5 MB, and the handle adds 12.4 MB.
 *
 * In this order:
 *   BAD_PARAM      handle, a descriptor or workspace_size is NULL
 *   SUCCESS        a tensor has no elements: the size is 0
 *   then           the checks of mluOpGetIndicePairs on descriptors
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetIndicePairsWorkspaceSize(
    mluOpHandle_t handle, const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
    const mluOpTensorDescriptor_t indices_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t out_indices_desc, const mluOpTensorDescriptor_t indice_num_desc,
    size_t* workspace_size);

/* Input site i, kernel offset k = (kd * KH + kh) * KW + kw and output site o are a pair if, in every
 * dimension,
 *   i + pad - k * dilation == o * stride   and   0 <= o < output_space
 *
 * Without sub_m: the sites o of all pairs are the outputs, numbered in ascending (n, d, h, w).
 * With sub_m:    the outputs are the input sites in their order, and pairs with any other o are dropped. If
 *                sites are equal, all of them are inputs and the last one is the output. pad applies too:
 *                unless it is filter_space / 2, the kernel is off-centre. (Python ignores the padding in this
 *                mode, as mmcv and spconv do.)
 *
 *   for each k, for the j-th of its pairs in ascending input row:
 *     indice_pairs[k, 0, j] = input row
 *     indice_pairs[k, 1, j] = output row
 *   indice_num[k]  = number of pairs of k
 *   out_indices[r] = (n, d, h, w) of output r
 *   the rest of indice_pairs and out_indices = -1
 *
 * indices [L, 4] of (n, d, h, w); indice_pairs [KV, 2, L] with KV the volume of filter_space; out_indices
 * [M, 4] with room for all outputs; indice_num [KV]. All int32. output_space is used as given.
 *
 * The number of outputs is stored in the descriptor; with sub_m it is L. The workspace may have any alignment
 * and must not overlap a tensor. Its content is overwritten. Outputs are written only if the status is
 * SUCCESS.
 *
 * In this order:
 *   BAD_PARAM      handle, sparse_conv_desc or a descriptor is NULL; number of dimensions
 *   BAD_PARAM      shapes disagree with those above, or are negative
 *   BAD_PARAM      L > batch_size * volume of input_space
 *   BAD_PARAM      the descriptor was never set; in some dimension neither dilation nor stride is 1
 *   BAD_PARAM      KV > 4096; M > batch_size * volume of output_space
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      L > 1000000
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      dtype
 *   BAD_PARAM      with sub_m: output_space is not input_space, stride or dilation is not 1
 *   SUCCESS        L or M is 0: no workspace is needed, and data pointers may be NULL. The number of outputs
 *                  is 0. Results that have elements and are not NULL are filled: indice_num with 0, the
 *                  others with -1
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; workspace is NULL, too small, or
 *                  overlaps a tensor
 *   BAD_PARAM      a result overlaps another tensor
 *   BAD_PARAM      a site is out of range: n not in 0 .. batch_size-1, or a coordinate not in input_space
 *   NOT_SUPPORTED  the output space of all batches, with margins for the reach of the kernel, takes more than
 *                  2^58 words of 32 cells
 *   BAD_PARAM      M is less than the number of outputs
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetIndicePairs(mluOpHandle_t handle, const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                    const mluOpTensorDescriptor_t indices_desc, const void* indices, void* workspace,
                    const size_t workspace_size, const mluOpTensorDescriptor_t indice_pairs_desc,
                    void* indice_pairs, const mluOpTensorDescriptor_t out_indices_desc, void* out_indices,
                    const mluOpTensorDescriptor_t indice_num_desc, void* indice_num);

/* The same two functions under the names that other clients use. */
TURNOUT_MLUOP_API mluopStatus_t MLUOP_WIN_API mluopGetIndicePairsWorkspaceSize(
    mluOpHandle_t handle, const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
    const mluOpTensorDescriptor_t indices_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t out_indices_desc, const mluOpTensorDescriptor_t indice_num_desc,
    size_t* workspace_size);
TURNOUT_MLUOP_API mluopStatus_t MLUOP_WIN_API
mluopGetIndicePairs(mluOpHandle_t handle, const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                    const mluOpTensorDescriptor_t indices_desc, const void* indices, void* workspace,
                    size_t workspace_size, const mluOpTensorDescriptor_t indice_pairs_desc,
                    void* indice_pairs, const mluOpTensorDescriptor_t out_indices_desc, void* out_indices,
                    const mluOpTensorDescriptor_t indice_num_desc, void* indice_num);

/* ---- Convolution along pairs. ----
 *
 * features, output_grad, filters and the results are half or float, all of one type; indice_pairs [KV, 2, L]
 * is int32, as mluOpGetIndicePairs writes it. indice_num is an array of KV counts in the caller's memory (not
 * the int32 tensor that mluOpGetIndicePairs writes); it is read before the call returns. Only the first
 * indice_num[k] pairs of offset k are read. Sums are in float, and a result is rounded once.
 *
 * The workspace may have any alignment and must not overlap a tensor. Its content is overwritten. Outputs are
 * written only if the status is SUCCESS. A query returns how many bytes the operator needs for the same
 * arguments. Its checks are those of the operator up to and including "SUCCESS", where the size is 0. A NULL
 * workspace_size is BAD_PARAM: after "SUCCESS" for the forward convolution, otherwise at the beginning.
 */

/* Filters are used in place, in one of three orders; KV is the product of the kernel's extents.
 *   ARRAY, HWCN    [kd, kh, kw, Ci, Co]
 *   NDHWC, NHWC    [Co, kd, kh, kw, Ci]
 *   NCDHW, NCHW    [Co, Ci, kd, kh, kw]
 * The forward convolution requires five dimensions and the layout ARRAY, NDHWC or NCDHW. The gradient of the
 * input takes four dimensions (without kd) in HWCN, NHWC and NCHW, five in NDHWC and NCDHW, and either in
 * ARRAY. The gradient of the filters takes four or five and ignores the layout. */

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetIndiceConvolutionForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
    const mluOpTensorDescriptor_t filters_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t features_out_desc, const int64_t indice_num[], const int64_t num_act_out,
    const int64_t inverse, const int64_t sub_m, size_t* workspace_size);

/* features_out = 0
 * for k, for j < indice_num[k]:
 *   features_out[indice_pairs[k, 1, j]] += features[indice_pairs[k, 0, j]] * filters[k]
 *
 * features [L, Ci], features_out [num_act_out, Co]. sub_m is validated but otherwise ignored.
 *
 * In this order:
 *   BAD_PARAM      handle, a descriptor or indice_num is NULL
 *   BAD_PARAM      dtype; inverse or sub_m is not 0 or 1
 *   NOT_SUPPORTED  inverse is 1; the layout of filters is not ARRAY, NDHWC or NCDHW
 *   BAD_PARAM      number of dimensions of features, indice_pairs or features_out
 *   NOT_SUPPORTED  L > 1000000; filters does not have five dimensions; a tensor is strided; a tensor has 2^31
 *                  elements or more
 *   BAD_PARAM      shapes disagree with those above, or are negative; features_out does not have num_act_out
 *                  rows
 *   BAD_PARAM      a count is not in 0 .. L
 *   SUCCESS        a tensor has no elements: no workspace is needed, data pointers may be NULL, and
 *                  features_out is 0 if it has elements and is not NULL
 *   BAD_PARAM      data of a tensor is NULL or not aligned to its element; workspace is NULL, too small, or
 *                  overlaps a tensor
 *   BAD_PARAM      features_out overlaps another tensor; a pair names a row that does not exist
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpIndiceConvolutionForward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc, const void* features,
    const mluOpTensorDescriptor_t filters_desc, const void* filters,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t num_act_out, const int64_t inverse, const int64_t sub_m, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t features_out_desc, void* features_out);

/* Has no sub_m: the size does not depend on it, and it is not checked. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetIndiceConvolutionBackwardDataWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t output_grad_desc,
    const mluOpTensorDescriptor_t filters_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t input_grad_desc, const int64_t indice_num[], const int64_t inverse,
    size_t* workspace_size);

/* input_grad = 0
 * for k, for j < indice_num[k]:
 *   input_grad[indice_pairs[k, 0, j]] += output_grad[indice_pairs[k, 1, j]] * transpose(filters[k])
 *
 * output_grad [Y, Co], input_grad [L, Ci].
 *
 * In this order:
 *   BAD_PARAM      handle, a descriptor or indice_num is NULL; number of dimensions; indice_pairs is not
 *                  [.., 2, ..]
 *   NOT_SUPPORTED  L > 1000000
 *   BAD_PARAM      dtype, of each tensor separately; the layout of filters is none of the six
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      inverse or sub_m is not 0 or 1; a count is negative
 *   NOT_SUPPORTED  inverse is 1
 *   BAD_PARAM      the number of dimensions of filters does not match their layout
 *   BAD_PARAM      shapes disagree with those above, or are negative
 *   BAD_PARAM      a count is not in 0 .. L or not in 0 .. Y
 *   BAD_PARAM      with sub_m: L is not Y, KV is even, or a count is larger than indice_num[KV / 2]
 *   BAD_PARAM      the dtypes of output_grad, filters and input_grad differ
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   SUCCESS        a tensor has no elements: as above, of input_grad
 *   BAD_PARAM      data, workspace, overlap and pairs as above
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpIndiceConvolutionBackwardData(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t output_grad_desc, const void* output_grad,
    const mluOpTensorDescriptor_t filters_desc, const void* filters,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t inverse, const int64_t sub_m, void* workspace, const size_t workspace_size,
    const mluOpTensorDescriptor_t input_grad_desc, void* input_grad);

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
    const mluOpTensorDescriptor_t output_grad_desc, const mluOpTensorDescriptor_t indice_pairs_desc,
    const mluOpTensorDescriptor_t filters_grad_desc, const int64_t indice_num[], const int64_t inverse,
    const int64_t sub_m, size_t* workspace_size);

/* for k:
 *   filters_grad[k] = sum over j < indice_num[k] of
 *     transpose(features[indice_pairs[k, 0, j]]) * output_grad[indice_pairs[k, 1, j]]
 *
 * features [L, Ci], output_grad [Y, Co], filters_grad [kd, kh, kw, Ci, Co] or [kh, kw, Ci, Co] whatever its
 * layout; 0 for an offset without pairs. sub_m is ignored.
 *
 * In this order:
 *   BAD_PARAM      handle, a descriptor or indice_num is NULL; inverse is not 0
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      dtype
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      number of dimensions; shapes disagree with those above, or are negative; L > 1000000
 *   SUCCESS        a tensor has no elements: as above, of filters_grad
 *   BAD_PARAM      a count is not in 0 .. L
 *   BAD_PARAM      data, workspace, overlap and pairs as above
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpIndiceConvolutionBackwardFilter(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc, const void* features,
    const mluOpTensorDescriptor_t output_grad_desc, const void* output_grad,
    const mluOpTensorDescriptor_t indice_pairs_desc, const void* indice_pairs, const int64_t indice_num[],
    const int64_t inverse, const int64_t sub_m, void* workspace, const size_t workspace_size,
    const mluOpTensorDescriptor_t filters_grad_desc, void* filters_grad);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_SPARSE_CONV_H_ */
