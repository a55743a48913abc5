/* Copies three tokens to the buffers of two experts with two slots each, and computes their gradient. */
#include <math.h>

#include "example.h"

enum { SAMPLES = 3, HIDDEN = 2, EXPERTS = 2, CAPACITY = 2 };

int main(void) {
  const float gates[SAMPLES] = {0.5f, 2.0f, 1.0f}, tokens[SAMPLES * HIDDEN] = {1, 2, 3, 4, 5, 6};
  const int indices[SAMPLES] = {1, 0, 1}, locations[SAMPLES] = {0, 0, 1}; /* expert and slot of each token */
  float buffers[EXPERTS * CAPACITY * HIDDEN] = {0}, grad_tokens[SAMPLES * HIDDEN];
  int e, i, right = 1;
  mluOpHandle_t handle;
  mluOpTensorDescriptor_t gate_desc, route_desc, token_desc, buffer_desc;
  OK(mluOpCreate(&handle));
  gate_desc = describe(MLUOP_DTYPE_FLOAT, 1, SAMPLES, 0, 0);
  route_desc = describe(MLUOP_DTYPE_INT32, 1, SAMPLES, 0, 0);
  token_desc = describe(MLUOP_DTYPE_FLOAT, 2, SAMPLES, HIDDEN, 0);
  buffer_desc = describe(MLUOP_DTYPE_FLOAT, 2, EXPERTS * CAPACITY, HIDDEN, 0);

  OK(mluOpMoeDispatchForward(handle, gate_desc, gates, route_desc, indices, route_desc, locations, token_desc,
                             tokens, SAMPLES, CAPACITY, HIDDEN, EXPERTS, buffer_desc, buffers));
  for (e = 0; e < EXPERTS; ++e)
    for (i = 0; i < CAPACITY; ++i)
      printf("expert %d, slot %d: [%g, %g]\n", e, i, buffers[(e * CAPACITY + i) * HIDDEN],
             buffers[(e * CAPACITY + i) * HIDDEN + 1]);

  /* With the buffers as their own gradient, each token gets gate * gate * token. */
  OK(mluOpMoeDispatchBackwardData(handle, gate_desc, gates, route_desc, indices, route_desc, locations,
                                  buffer_desc, buffers, SAMPLES, CAPACITY, HIDDEN, EXPERTS, token_desc,
                                  grad_tokens));
  for (i = 0; i < SAMPLES * HIDDEN; ++i)
    right &= fabsf(grad_tokens[i] - gates[i / HIDDEN] * gates[i / HIDDEN] * tokens[i]) < 1e-6f;

  OK(mluOpDestroyTensorDescriptor(gate_desc));
  OK(mluOpDestroyTensorDescriptor(route_desc));
  OK(mluOpDestroyTensorDescriptor(token_desc));
  OK(mluOpDestroyTensorDescriptor(buffer_desc));
  OK(mluOpDestroy(handle));
  return right ? 0 : 1;
}

/* Output:
 *   expert 0, slot 0: [6, 8]
 *   expert 0, slot 1: [0, 0]
 *   expert 1, slot 0: [0.5, 1]
 *   expert 1, slot 1: [5, 6] */
