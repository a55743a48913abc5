/* A C99 program that calls MoeReRouting in CANN's two phases, with the headers under the names that CANN
 * uses. It links only the shared library. */
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_moe_re_routing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, aclGetRecentErrMsg()); \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

static aclTensor* tensor(int64_t rows, int64_t columns, aclDataType type, void* data) {
  const int64_t dims[2] = {rows, columns};
  const int64_t stride[2] = {columns, 1};
  const uint64_t rank = columns == 0 ? 1 : 2;
  const int64_t one[1] = {1};
  return aclCreateTensor(dims, rank, type, rank == 1 ? one : stride, 0, ACL_FORMAT_ND, dims, rank, data);
}

int main(void) {
  /* Two ranks, three experts; each token's bytes are its number. */
  int32_t counts[6] = {1, 2, 1, 2, 1, 0};
  int8_t tokens[14], permuted[14];
  float scales[7], permuted_scales[7];
  int32_t idx[7], expert_tokens[3];
  const int expected[7] = {0, 4, 5, 1, 2, 6, 3};
  aclTensor* t[7];
  uint64_t size = 0;
  aclOpExecutor* executor = NULL;
  void* workspace;
  int i;

  for (i = 0; i < 7; ++i) {
    tokens[2 * i] = tokens[2 * i + 1] = (int8_t)i;
    scales[i] = (float)i / 2;
  }
  t[0] = tensor(7, 2, ACL_INT8, tokens);
  t[1] = tensor(2, 3, ACL_INT32, counts);
  t[2] = tensor(7, 0, ACL_FLOAT, scales);
  t[3] = tensor(7, 2, ACL_INT8, permuted);
  t[4] = tensor(7, 0, ACL_FLOAT, permuted_scales);
  t[5] = tensor(7, 0, ACL_INT32, idx);
  t[6] = tensor(3, 0, ACL_INT32, expert_tokens);
  for (i = 0; i < 7; ++i) EXPECT(t[i] != NULL);

  EXPECT(aclnnMoeReRoutingGetWorkspaceSize(t[0], t[1], t[2], 1, 0, t[3], t[4], t[5], t[6], &size,
                                           &executor) == ACLNN_SUCCESS);
  for (i = 0; i < 7; ++i) EXPECT(aclDestroyTensor(t[i]) == ACLNN_SUCCESS);
  workspace = malloc(size > 0 ? (size_t)size : 1);
  EXPECT(aclnnMoeReRouting(workspace, size, executor, NULL) == ACLNN_SUCCESS);
  free(workspace);
  for (i = 0; i < 7; ++i) {
    EXPECT(idx[i] == expected[i]);
    EXPECT(permuted[2 * i] == expected[i] && permuted[2 * i + 1] == expected[i]);
    EXPECT(permuted_scales[i] == (float)expected[i] / 2);
  }
  EXPECT(expert_tokens[0] == 3 && expert_tokens[1] == 3 && expert_tokens[2] == 1);

  EXPECT(aclnnMoeReRouting(NULL, 0, executor, NULL) == ACLNN_ERR_PARAM_INVALID);
  EXPECT(strstr(aclGetRecentErrMsg(), "executor") != NULL);
  puts("aclnn client: passed");
  return 0;
}
