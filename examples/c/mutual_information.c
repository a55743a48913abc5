/* Sums all paths through a lattice of two symbols and three frames in log space, and computes gradients. */
#include <math.h>
#include <stdbool.h>

#include "example.h"

enum { SYMBOLS = 2, FRAMES = 3 };

int main(void) {
  float px[SYMBOLS * (FRAMES + 1)], py[(SYMBOLS + 1) * FRAMES], p[(SYMBOLS + 1) * (FRAMES + 1)];
  float px_grad[SYMBOLS * (FRAMES + 1)], py_grad[(SYMBOLS + 1) * FRAMES], ans[1], ans_grad[1] = {1};
  size_t size = 0;
  void* workspace;
  float steps = 0;
  int i;
  mluOpHandle_t handle;
  mluOpTensorDescriptor_t px_desc, py_desc, p_desc, ans_desc;
  OK(mluOpCreate(&handle));
  px_desc = describe(MLUOP_DTYPE_FLOAT, 3, 1, SYMBOLS, FRAMES + 1);
  py_desc = describe(MLUOP_DTYPE_FLOAT, 3, 1, SYMBOLS + 1, FRAMES);
  p_desc = describe(MLUOP_DTYPE_FLOAT, 3, 1, SYMBOLS + 1, FRAMES + 1);
  ans_desc = describe(MLUOP_DTYPE_FLOAT, 1, 1, 0, 0);
  for (i = 0; i < SYMBOLS * (FRAMES + 1); ++i) px[i] = logf(0.5f);
  for (i = 0; i < (SYMBOLS + 1) * FRAMES; ++i) py[i] = logf(0.5f);

  OK(mluOpGetMutualInformationForwardWorkspaceSize(handle, px_desc, py_desc, NULL, p_desc, ans_desc, &size));
  workspace = malloc(size + 1);
  OK(mluOpMutualInformationForward(handle, px_desc, px, py_desc, py, NULL, NULL, p_desc, p, workspace, size,
                                   ans_desc, ans));
  free(workspace);
  /* There are 10 orders of 2 symbols and 3 blanks, each with probability (1/2)^5. */
  printf("log-probability %.4f, expected %.4f\n", ans[0], log(10.0 / 32));

  OK(mluOpGetMutualInformationBackwardWorkspaceSize(handle, px_desc, py_desc, NULL, p_desc, ans_desc, false,
                                                    &size));
  workspace = malloc(size + 1);
  OK(mluOpMutualInformationBackward(handle, px_desc, px, py_desc, py, NULL, NULL, p_desc, p, ans_desc,
                                    ans_grad, false, workspace, size, px_desc, px_grad, py_desc, py_grad));
  free(workspace);
  for (i = 0; i < SYMBOLS * (FRAMES + 1); ++i) steps += px_grad[i];
  printf("every path emits %.4f symbols\n", steps);

  OK(mluOpDestroyTensorDescriptor(px_desc));
  OK(mluOpDestroyTensorDescriptor(py_desc));
  OK(mluOpDestroyTensorDescriptor(p_desc));
  OK(mluOpDestroyTensorDescriptor(ans_desc));
  OK(mluOpDestroy(handle));
  return fabs(ans[0] - log(10.0 / 32)) < 1e-5 && fabs(steps - SYMBOLS) < 1e-5 ? 0 : 1;
}

/* Output:
 *   log-probability -1.1632, expected -1.1632
 *   every path emits 2.0000 symbols */
