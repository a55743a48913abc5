/* Mixture of experts, C interface: copies tokens into the buffers of their experts. */
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
 * share memory with input, wholly or in part: the result is that of a copied input.
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

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_MOE_DISPATCH_H_ */
