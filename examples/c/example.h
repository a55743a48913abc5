/* Shared by the examples. A call that fails ends the program with the library's error message. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <mlu_op.h>
#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                      \
  do {                                                                \
    if ((call) != MLUOP_STATUS_SUCCESS) {                             \
      fprintf(stderr, "line %d: %s\n", __LINE__, turnoutLastError()); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* Returns the descriptor of a contiguous tensor. */
static mluOpTensorDescriptor_t describe(mluOpDataType_t dtype, int rank, int d0, int d1, int d2) {
  const int shape[3] = {d0, d1, d2};
  mluOpTensorDescriptor_t desc;
  OK(mluOpCreateTensorDescriptor(&desc));
  OK(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, dtype, rank, shape));
  return desc;
}

#endif
