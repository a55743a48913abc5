/* Mutual information, C interface: the lattice of the RNN-T loss, forward and backward. */
#ifndef TURNOUT_MLUOP_MUTUAL_INFORMATION_H_
#define TURNOUT_MLUOP_MUTUAL_INFORMATION_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shapes: batch B, symbols S, frames T.
 *
 * px, px_grad [B, S, T+1]; py, py_grad [B, S+1, T]; p [B, S+1, T+1]; ans, ans_grad [B]: float.
 * opt_boundary [B, 4] int64: for each row of the batch (s_begin, t_begin, s_end, t_end), inclusive positions
 * in p. If it is absent (descriptor and pointer NULL), all rows have (0, 0, S, T). A row with begin > end is
 * an empty lattice; a component outside 0 .. S or 0 .. T is an error. */

/* Bytes of workspace that mluOpMutualInformationForward needs for these descriptors on this handle;
 * opt_boundary_desc may be NULL. Shapes are not checked; the size is meaningful only for shapes that the
 * operator accepts.
 *
 *   BAD_PARAM      handle, workspace_size or a descriptor is NULL
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetMutualInformationForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const mluOpTensorDescriptor_t py_desc,
    const mluOpTensorDescriptor_t opt_boundary_desc, const mluOpTensorDescriptor_t p_desc,
    const mluOpTensorDescriptor_t ans_desc, size_t* workspace_size);

/* for each row of the batch, s in s_begin .. s_end, t in t_begin .. t_end:
 *   p[s_begin, t_begin] = 0
 *   p[s, t] = log_add(p[s-1, t] + px[s-1, t], p[s, t-1] + py[s, t-1])           missing terms are -inf
 *   ans = p[s_end, t_end]
 * log_add(x, y) is log(exp(x) + exp(y)) for finite x and y, NaN if x is NaN, x if y is NaN, and otherwise, if
 * one of them is infinite, the larger of the two.
 *
 * p outside the boundary is not written. An empty lattice has ans 0 and writes no p. With S == 0 or T == 0
 * the lattice is one row or one column. The workspace may have any alignment and must not overlap a tensor.
 * Its content is overwritten. Outputs are written only if the status is SUCCESS.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL, opt_boundary_desc excepted; number of dimensions
 *   BAD_PARAM      B differs between px, py, p and ans; B, S or T is negative
 *   NOT_SUPPORTED  px.shape[2] is not T+1
 *   BAD_PARAM      the shape of py, opt_boundary or p is not the one above
 *   NOT_SUPPORTED  a tensor is strided; dtype; a tensor has 2^31 elements or more
 *   SUCCESS        B == 0: nothing is read or written, no workspace is needed, data pointers may be NULL
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0; workspace is too small or overlaps a tensor
 *   BAD_PARAM      data of px (unless S == 0), py (unless T == 0), p or ans is NULL or not aligned to its
 *                  element; then one of opt_boundary_desc and opt_boundary is NULL without the other
 *   BAD_PARAM      p or ans overlaps another tensor; a component of opt_boundary is out of range
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMutualInformationForward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const void* px,
    const mluOpTensorDescriptor_t py_desc, const void* py, const mluOpTensorDescriptor_t opt_boundary_desc,
    const void* opt_boundary, const mluOpTensorDescriptor_t p_desc, void* p, void* workspace,
    const size_t workspace_size, const mluOpTensorDescriptor_t ans_desc, void* ans);

/* Bytes of workspace that mluOpMutualInformationBackward needs. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetMutualInformationBackwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const mluOpTensorDescriptor_t py_desc,
    const mluOpTensorDescriptor_t opt_boundary_desc, const mluOpTensorDescriptor_t p_desc,
    const mluOpTensorDescriptor_t ans_grad_desc, const bool overwrite_ans_grad, size_t* workspace_size);

/* With P = max(p, -1e30) (NaN stays NaN), for each row of the batch:
 *   g[s_end, t_end] = ans_grad
 *   px_grad[s, t] = g[s+1, t] * safe_exp(P[s, t] + px[s, t] - P[s+1, t])
 *   py_grad[s, t] = g[s, t+1] * safe_exp(P[s, t] + py[s, t] - P[s, t+1])
 *   g[s, t] = px_grad[s, t] + py_grad[s, t]                                     missing terms are 0
 *   with overwrite_ans_grad: ans_grad = g[s_begin, t_begin]
 * safe_exp(x) is exp(x), or 0 if x or exp(x) is not finite.
 *
 * px_grad and py_grad are 0 outside the boundary; for an empty lattice that is everywhere. ans_grad is
 * written only with overwrite_ans_grad, and not for an empty lattice. Workspace and outputs are as above.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL, opt_boundary_desc excepted; number of dimensions
 *   BAD_PARAM      B differs between tensors, opt_boundary excepted; B, S or T is negative
 *   NOT_SUPPORTED  px.shape[2] is not T+1
 *   BAD_PARAM      the shape of py, opt_boundary, p, px_grad or py_grad is not the one above
 *   NOT_SUPPORTED  a tensor is strided; dtype; a tensor has 2^31 elements or more
 *   SUCCESS        B == 0, or S == 0 and T == 0: nothing is read or written, no workspace is needed, data
 *                  pointers may be NULL
 *   BAD_PARAM      workspace is NULL and workspace_size is not 0; workspace is too small or overlaps a tensor
 *   BAD_PARAM      data of px or px_grad (unless S == 0), py or py_grad (unless T == 0), p or ans_grad is
 *                  NULL or not aligned to its element
 *   BAD_PARAM      one of opt_boundary_desc and opt_boundary is NULL without the other
 *   BAD_PARAM      ans_grad, px_grad or py_grad overlaps another tensor; a component of opt_boundary is out
 *                  of range
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMutualInformationBackward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const void* px,
    const mluOpTensorDescriptor_t py_desc, const void* py, const mluOpTensorDescriptor_t opt_boundary_desc,
    const void* opt_boundary, const mluOpTensorDescriptor_t p_desc, const void* p,
    const mluOpTensorDescriptor_t ans_grad_desc, void* ans_grad, const bool overwrite_ans_grad,
    void* workspace, const size_t workspace_size, const mluOpTensorDescriptor_t px_grad_desc, void* px_grad,
    const mluOpTensorDescriptor_t py_grad_desc, void* py_grad);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_MUTUAL_INFORMATION_H_ */
