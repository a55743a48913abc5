/* Mixture of experts, C interface: copies tokens into the buffers of their experts, and the gradients. */
#ifndef TURNOUT_MLUOP_MOE_DISPATCH_H_
#define TURNOUT_MLUOP_MOE_DISPATCH_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* for i in 0 .. samples-1, in this order:
 *   if 0 <= indices[i] < num_experts and 0 <= locations[i] < capacity:
 *     dispatch[indices[i] * capacity + locations[i], :] = gates[i] * input[i, :]
 *
 * gates float [samples]; indices, locations int32 [samples]; input float [samples, hidden];
 * dispatch float [num_experts * capacity, hidden].
 *
 * A token whose expert or slot is out of range is dropped. If several tokens are routed to one row, the last
 * one wins. Rows without a token keep their content. Every product is one IEEE multiplication. dispatch may
 * overlap input, fully or partly: the result is as if input had been copied first.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; dtype; a scalar is negative; a shape
 *                  disagrees with the scalars or is negative
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   SUCCESS        a tensor has no elements: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      samples > num_experts * capacity; a data pointer is NULL or not aligned to its element;
 *                  dispatch overlaps gates, indices or locations
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMoeDispatchForward(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t gates_desc, const void* gates,
    const mluOpTensorDescriptor_t indices_desc, const void* indices,
    const mluOpTensorDescriptor_t locations_desc, const void* locations,
    const mluOpTensorDescriptor_t input_desc, const void* input, const int samples, const int capacity,
    const int hidden, const int num_experts, const mluOpTensorDescriptor_t dispatch_desc, void* dispatch);

/* The gradient of mluOpMoeDispatchForward with respect to input. dispatch is the gradient of its output;
 * row = indices[i] * capacity + locations[i]:
 *   grad_input[i, :] = gates[i] * dispatch[row, :], or +0 for a token out of either range
 *
 * gates float [samples]; indices, locations int32 [samples]; dispatch float [num_experts * capacity, hidden];
 * grad_input float [samples, hidden], of which every element is written.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; a shape disagrees with the scalars;
 *                  dtype; a scalar is negative
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   SUCCESS        samples or hidden is 0: nothing is read or written, data pointers may be NULL
 *   BAD_PARAM      grad_input is NULL or not aligned to its element
 *   SUCCESS        capacity or num_experts is 0: grad_input is set to 0, other data pointers may be NULL
 *   BAD_PARAM      another data pointer is NULL or not aligned to its element; grad_input overlaps another
 *                  tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMoeDispatchBackwardData(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t gates_desc, const void* gates,
    const mluOpTensorDescriptor_t indices_desc, const void* indices,
    const mluOpTensorDescriptor_t locations_desc, const void* locations,
    const mluOpTensorDescriptor_t dispatch_desc, const void* dispatch, const int samples, const int capacity,
    const int hidden, const int num_experts, const mluOpTensorDescriptor_t grad_input_desc, void* grad_input);

/* The workspace of mluOpMoeDispatchBackwardGate, in bytes: always 0.
 * BAD_PARAM: handle, input_desc or workspace_size is NULL.
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetMoeDispatchBackwardGateWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t input_desc, size_t* workspace_size);

/* The gradient of mluOpMoeDispatchForward with respect to gates:
 *   grad_gates[i] = sum over j of input[i, j] * dispatch[row, j], or +0 for a token out of either range
 *
 * indices, locations int32 [samples]; input float [samples, hidden]; dispatch float
 * [num_experts * capacity, hidden]; grad_gates float [samples], of which every element is written. The sum is
 * accumulated in double precision from sums of 1024 products, and does not depend on the number of threads.
 *
 * In this order:
 *   BAD_PARAM      handle or a descriptor is NULL; number of dimensions; dtype; a scalar is negative; a shape
 *                  disagrees with the scalars
 *   NOT_SUPPORTED  a tensor is strided; a tensor has 2^31 elements or more
 *   BAD_PARAM      samples is not 0 and grad_gates is NULL or not aligned to its element
 *   SUCCESS        a tensor has no elements: grad_gates is set to 0, other data pointers may be NULL
 *   BAD_PARAM      workspace_size is not 0 and workspace is NULL; another data pointer is NULL or not aligned
 *                  to its element; grad_gates overlaps another tensor
 */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpMoeDispatchBackwardGate(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t indices_desc, const void* indices,
    const mluOpTensorDescriptor_t locations_desc, const void* locations,
    const mluOpTensorDescriptor_t input_desc, const void* input, const mluOpTensorDescriptor_t dispatch_desc,
    const void* dispatch, const int samples, const int capacity, const int hidden, const int num_experts,
    void* workspace, const size_t workspace_size, const mluOpTensorDescriptor_t grad_gates_desc,
    void* grad_gates);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_MOE_DISPATCH_H_ */
