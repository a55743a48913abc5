/* A C99 program that uses only the installed headers; it includes the main header under both names. */
#include <mlu_op.h>
#include <stdio.h>
#include <turnout/mluop/mlu_op.h>

static mluOpTensorDescriptor_t describe(mluOpDataType_t dtype, int rank) {
  const int shape[2] = {2, 2};
  mluOpTensorDescriptor_t desc = NULL;
  if (mluOpCreateTensorDescriptor(&desc) == MLUOP_STATUS_SUCCESS)
    mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, dtype, rank, shape);
  return desc;
}

int main(void) {
  const float gates[2] = {2, 3}, input[4] = {1, 2, 3, 4};
  const int32_t indices[2] = {1, 0}, locations[2] = {0, 0};
  float dispatch[4] = {0, 0, 0, 0};
  mluOpTensorDescriptor_t token = describe(MLUOP_DTYPE_FLOAT, 1), route = describe(MLUOP_DTYPE_INT32, 1),
                          matrix = describe(MLUOP_DTYPE_FLOAT, 2);
  mluOpHandle_t handle = NULL;
  int right = 0;
  if (mluOpCreate(&handle) == MLUOP_STATUS_SUCCESS &&
      mluOpMoeDispatchForward(handle, token, gates, route, indices, route, locations, matrix, input, 2, 1, 2,
                              2, matrix, dispatch) == MLUOP_STATUS_SUCCESS)
    right = dispatch[0] == 9 && dispatch[1] == 12 && dispatch[2] == 2 && dispatch[3] == 4;
  printf("C: %s%s\n", right ? "ok" : "wrong result, ", turnoutLastError());
  mluOpDestroyTensorDescriptor(token);
  mluOpDestroyTensorDescriptor(route);
  mluOpDestroyTensorDescriptor(matrix);
  mluOpDestroy(handle);
  return right ? 0 : 1;
}
