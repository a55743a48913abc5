/* Runs MoeReRouting in the two phases of CANN: query the workspace size, then run. Five tokens from two
 * processes are regrouped by expert. */
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_moe_re_routing.h>
#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                        \
  do {                                                                  \
    if ((call) != ACLNN_SUCCESS) {                                      \
      fprintf(stderr, "line %d: %s\n", __LINE__, aclGetRecentErrMsg()); \
      return 1;                                                         \
    }                                                                   \
  } while (0)

enum { RANKS = 2, EXPERTS = 2, ROWS = 5, HIDDEN = 1 };

static aclTensor* tensor(aclDataType type, uint64_t rank, int64_t rows, int64_t columns, void* data) {
  const int64_t shape[2] = {rows, columns}, stride[2] = {rank == 1 ? 1 : columns, 1};
  return aclCreateTensor(shape, rank, type, stride, 0, ACL_FORMAT_ND, shape, rank, data);
}

int main(void) {
  int32_t counts[RANKS * EXPERTS] = {2, 1, 1, 1}; /* tokens for expert 0 and 1, from each process */
  int8_t tokens[ROWS] = {10, 11, 20, 12, 21}, grouped[ROWS]; /* the first digit is 1 + the expert */
  float scales[ROWS] = {1, 2, 3, 4, 5}, grouped_scales[ROWS];
  int32_t origin[ROWS], per_expert[EXPERTS];
  aclTensor* t[7];
  aclOpExecutor* executor = NULL;
  uint64_t size = 0;
  void* workspace;
  int i, right = 1;
  t[0] = tensor(ACL_INT8, 2, ROWS, HIDDEN, tokens);
  t[1] = tensor(ACL_INT32, 2, RANKS, EXPERTS, counts);
  t[2] = tensor(ACL_FLOAT, 1, ROWS, 0, scales);
  t[3] = tensor(ACL_INT8, 2, ROWS, HIDDEN, grouped);
  t[4] = tensor(ACL_FLOAT, 1, ROWS, 0, grouped_scales);
  t[5] = tensor(ACL_INT32, 1, ROWS, 0, origin);
  t[6] = tensor(ACL_INT32, 1, EXPERTS, 0, per_expert);

  OK(aclnnMoeReRoutingGetWorkspaceSize(t[0], t[1], t[2], 1, 0, t[3], t[4], t[5], t[6], &size, &executor));
  workspace = malloc((size_t)size + 1);
  OK(aclnnMoeReRouting(workspace, size, executor, NULL));
  free(workspace);
  for (i = 0; i < 7; ++i) OK(aclDestroyTensor(t[i]));

  for (i = 0; i < ROWS; ++i) {
    const int expert = i < per_expert[0] ? 0 : 1;
    printf("expert %d: token %d, which arrived as row %d\n", expert, grouped[i], (int)origin[i]);
    right &= grouped[i] / 10 == expert + 1 && grouped[i] == tokens[origin[i]];
  }
  return right && per_expert[0] == 3 && per_expert[1] == 2 ? 0 : 1;
}

/* Output:
 *   expert 0: token 10, which arrived as row 0
 *   expert 0: token 11, which arrived as row 1
 *   expert 0: token 12, which arrived as row 3
 *   expert 1: token 20, which arrived as row 2
 *   expert 1: token 21, which arrived as row 4 */
