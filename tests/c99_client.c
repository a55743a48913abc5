/* A client in plain C99: two experts with two slots each, four tokens, one of them dropped. */
#include <stdio.h>
#include <string.h>
#include <turnout/mluop/mlu_op.h>

enum { kSamples = 4, kCapacity = 2, kHidden = 3, kExperts = 2 };

static int check(mluOpStatus_t status, const char* what) {
  if (status == MLUOP_STATUS_SUCCESS) return 1;
  fprintf(stderr, "%s: %s, %s\n", what, mluOpGetErrorString(status), turnoutLastError());
  return 0;
}

static mluOpTensorDescriptor_t describe(mluOpDataType_t dtype, int rank, int rows, int columns) {
  mluOpTensorDescriptor_t desc = NULL;
  int shape[2];
  shape[0] = rows;
  shape[1] = columns;
  if (!check(mluOpCreateTensorDescriptor(&desc), "create")) return NULL;
  if (!check(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, dtype, rank, shape), "set")) return NULL;
  return desc;
}

int main(void) {
  const float gates[kSamples] = {0.5f, 2.0f, 1.0f, -1.0f};
  const int32_t indices[kSamples] = {1, 0, 0, 1};
  const int32_t locations[kSamples] = {0, 1, 2, 0}; /* token 2 has no slot; token 3 takes that of token 0 */
  const float input[kSamples * kHidden] = {2, 4, 6, 1, 2, 3, 7, 7, 7, 1, 0, -8};
  float dispatch[kExperts * kCapacity * kHidden] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  const float expected[kExperts * kCapacity * kHidden] = {9, 9, 9, 2, 4, 6, -1, -0.0f, 8, 9, 9, 9};
  mluOpHandle_t handle = NULL;
  mluOpTensorDescriptor_t token = describe(MLUOP_DTYPE_FLOAT, 1, kSamples, 0);
  mluOpTensorDescriptor_t route = describe(MLUOP_DTYPE_INT32, 1, kSamples, 0);
  mluOpTensorDescriptor_t tokens = describe(MLUOP_DTYPE_FLOAT, 2, kSamples, kHidden);
  mluOpTensorDescriptor_t buffers = describe(MLUOP_DTYPE_FLOAT, 2, kExperts * kCapacity, kHidden);
  if (!check(mluOpCreate(&handle), "mluOpCreate")) return 1;
  if (!check(mluOpMoeDispatchForward(handle, token, gates, route, indices, route, locations, tokens, input,
                                     kSamples, kCapacity, kHidden, kExperts, buffers, dispatch),
             "mluOpMoeDispatchForward"))
    return 1;
  if (memcmp(dispatch, expected, sizeof(expected)) != 0) {
    fprintf(stderr, "dispatch is not what it should be\n");
    return 1;
  }
  if (mluOpMoeDispatchForward(handle, NULL, gates, route, indices, route, locations, tokens, input, kSamples,
                              kCapacity, kHidden, kExperts, buffers, dispatch) != MLUOP_STATUS_BAD_PARAM ||
      strstr(turnoutLastError(), "gates") == NULL) {
    fprintf(stderr, "a missing descriptor was not refused by name: %s\n", turnoutLastError());
    return 1;
  }
  mluOpDestroyTensorDescriptor(token);
  mluOpDestroyTensorDescriptor(route);
  mluOpDestroyTensorDescriptor(tokens);
  mluOpDestroyTensorDescriptor(buffers);
  return check(mluOpDestroy(handle), "mluOpDestroy") ? 0 : 1;
}
