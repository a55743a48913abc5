/* Sparse convolution, C interface: the pairs of input and output sites for each kernel offset. */
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

/* Each array has one value for each of the three spatial dimensions. sub_m 0: every site that an input
 * reaches is an output. Any other value, submanifold: the outputs are the input sites. A descriptor may be
 * set repeatedly. An error leaves it unchanged; its number of active outputs never changes here.
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

/* Bytes of workspace that mluOpGetIndicePairs needs for these descriptors.
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
 *                sites are equal, all of them are inputs and the last one is the output. pad is used too:
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
 *   BAD_PARAM      shapes disagree with the above, or are negative
 *   BAD_PARAM      L > batch_size * volume of input_space
 *   BAD_PARAM      the descriptor was never set; neither dilation nor stride is 1 in one dimension
 *   BAD_PARAM      KV > 4096; M > batch_size * volume of output_space
 *   NOT_SUPPORTED  a tensor is strided
 *   BAD_PARAM      L > 1000000
 *   NOT_SUPPORTED  a tensor has 2^31 elements or more
 *   BAD_PARAM      dtype
 *   BAD_PARAM      with sub_m: output_space is not input_space, stride or dilation is not 1
 *   SUCCESS        L or M is 0: no workspace is needed, and data pointers may be NULL. The number of outputs
 *                  is 0. Results that have elements and are not NULL are filled: indice_num with 0, the
 * others with -1 BAD_PARAM      data of a tensor is NULL or not aligned to its element; workspace is NULL,
 * too small, or overlaps a tensor BAD_PARAM      a result overlaps another tensor BAD_PARAM      a site is
 * out of range: n not in 0 .. batch_size-1, or a coordinate not in input_space NOT_SUPPORTED  the output
 * space of all batches, with margins for the reach of the kernel, takes more than 2^58 words of 32 cells
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

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_SPARSE_CONV_H_ */
