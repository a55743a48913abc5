/* A C99 program as CANN's users write it: it initialises the runtime, copies tensors to the device, calls
 * MoeReRoutingV2 on a stream and copies the results back. It needs the opt-in header acl/acl.h. */
#include <acl/acl.h>
#include <aclnnop/aclnn_moe_re_routing_v2.h>
#include <stdio.h>

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, aclGetRecentErrMsg()); \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

enum { kTokens = 7, kTensors = 9 };

/* A tensor and its memory on the device, [rows, columns], or [rows] for columns 0. */
typedef struct {
  aclTensor* tensor;
  void* memory;
  size_t bytes;
} DeviceTensor;

static aclError to_device(const void* host, int64_t rows, int64_t columns, aclDataType type,
                          DeviceTensor* made) {
  const int64_t dims[2] = {rows, columns}, stride[2] = {columns, 1}, one[1] = {1};
  const uint64_t rank = columns == 0 ? 1 : 2;
  aclError status;
  made->bytes = (size_t)(rows * (columns == 0 ? 1 : columns)) * aclDataTypeSize(type);
  status = aclrtMalloc(&made->memory, made->bytes, ACL_MEM_MALLOC_HUGE_FIRST);
  if (status != ACL_SUCCESS) return status;
  status = aclrtMemcpy(made->memory, made->bytes, host, made->bytes, ACL_MEMCPY_HOST_TO_DEVICE);
  if (status != ACL_SUCCESS) return status;
  made->tensor =
      aclCreateTensor(dims, rank, type, rank == 1 ? one : stride, 0, ACL_FORMAT_ND, dims, rank, made->memory);
  return made->tensor == NULL ? ACL_ERROR_INVALID_PARAM : ACL_SUCCESS;
}

static aclError to_host(const DeviceTensor* from, void* host, size_t bytes) {
  return aclrtMemcpy(host, bytes, from->memory, from->bytes, ACL_MEMCPY_DEVICE_TO_HOST);
}

static int re_route(aclrtStream stream) {
  const int32_t counts[6] = {1, 2, 1, 2, 1, 0}, zeros[kTokens] = {0};
  const int expected[kTokens] = {0, 4, 5, 1, 2, 6, 3};
  int8_t tokens[2 * kTokens], permuted[2 * kTokens];
  float scales[kTokens], permuted_scales[kTokens], weights[kTokens], permuted_weights[kTokens];
  int32_t idx[kTokens], expert_tokens[3];
  DeviceTensor t[kTensors];
  uint64_t size = 0;
  aclOpExecutor* executor = NULL;
  void* workspace = NULL;
  int i;

  for (i = 0; i < kTokens; ++i) {
    tokens[2 * i] = tokens[2 * i + 1] = (int8_t)i;
    scales[i] = (float)i / 2;
    weights[i] = (float)-i;
  }
  EXPECT(to_device(tokens, kTokens, 2, ACL_INT8, &t[0]) == ACL_SUCCESS);
  EXPECT(to_device(counts, 2, 3, ACL_INT32, &t[1]) == ACL_SUCCESS);
  EXPECT(to_device(scales, kTokens, 1, ACL_FLOAT, &t[2]) == ACL_SUCCESS);
  EXPECT(to_device(weights, kTokens, 1, ACL_FLOAT, &t[3]) == ACL_SUCCESS);
  EXPECT(to_device(zeros, kTokens, 2, ACL_INT8, &t[4]) == ACL_SUCCESS);
  EXPECT(to_device(zeros, kTokens, 1, ACL_FLOAT, &t[5]) == ACL_SUCCESS);
  EXPECT(to_device(zeros, kTokens, 0, ACL_INT32, &t[6]) == ACL_SUCCESS);
  EXPECT(to_device(zeros, 3, 0, ACL_INT32, &t[7]) == ACL_SUCCESS);
  EXPECT(to_device(zeros, kTokens, 1, ACL_FLOAT, &t[8]) == ACL_SUCCESS);

  EXPECT(aclnnMoeReRoutingV2GetWorkspaceSize(t[0].tensor, t[1].tensor, t[2].tensor, t[3].tensor, 1, 0,
                                             t[4].tensor, t[5].tensor, t[6].tensor, t[7].tensor, t[8].tensor,
                                             &size, &executor) == ACL_SUCCESS);
  if (size > 0) EXPECT(aclrtMalloc(&workspace, (size_t)size, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
  EXPECT(aclnnMoeReRoutingV2(workspace, size, executor, stream) == ACL_SUCCESS);
  EXPECT(aclrtSynchronizeStream(stream) == ACL_SUCCESS);

  EXPECT(to_host(&t[4], permuted, sizeof(permuted)) == ACL_SUCCESS);
  EXPECT(to_host(&t[5], permuted_scales, sizeof(permuted_scales)) == ACL_SUCCESS);
  EXPECT(to_host(&t[6], idx, sizeof(idx)) == ACL_SUCCESS);
  EXPECT(to_host(&t[7], expert_tokens, sizeof(expert_tokens)) == ACL_SUCCESS);
  EXPECT(to_host(&t[8], permuted_weights, sizeof(permuted_weights)) == ACL_SUCCESS);
  for (i = 0; i < kTokens; ++i) {
    EXPECT(idx[i] == expected[i]);
    EXPECT(permuted[2 * i] == expected[i] && permuted[2 * i + 1] == expected[i]);
    EXPECT(permuted_scales[i] == (float)expected[i] / 2);
    EXPECT(permuted_weights[i] == (float)-expected[i]);
  }
  EXPECT(expert_tokens[0] == 3 && expert_tokens[1] == 3 && expert_tokens[2] == 1);
  for (i = 0; i < kTensors; ++i) {
    EXPECT(aclDestroyTensor(t[i].tensor) == ACL_SUCCESS);
    EXPECT(aclrtFree(t[i].memory) == ACL_SUCCESS);
  }
  if (workspace != NULL) EXPECT(aclrtFree(workspace) == ACL_SUCCESS);
  return 0;
}

/* What the runtime rejects. */
static int misuse(void) {
  char small[2] = {1, 2}, large[4] = {3, 4, 5, 6};
  void* memory = small;
  aclrtContext context = NULL;
  EXPECT(aclrtSetDevice(1) == ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT(aclrtCreateContext(&context, 1) == ACL_ERROR_RT_INVALID_DEVICEID && context == NULL);
  EXPECT(aclrtSetCurrentContext(NULL) == ACL_ERROR_INVALID_PARAM);
  EXPECT(aclrtMalloc(NULL, 1, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
  EXPECT(aclrtMalloc(&memory, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM && memory == small);
  EXPECT(aclrtFree(NULL) == ACL_ERROR_INVALID_PARAM);
  EXPECT(aclrtMemcpy(small, 2, large, 3, ACL_MEMCPY_HOST_TO_HOST) == ACL_ERROR_RT_PARAM_INVALID);
  EXPECT(aclrtMemcpy(NULL, 2, large, 2, ACL_MEMCPY_HOST_TO_HOST) == ACL_ERROR_INVALID_PARAM);
  EXPECT(aclrtMemset(small, 2, 0, 3) == ACL_ERROR_RT_PARAM_INVALID);
  EXPECT(small[0] == 1 && small[1] == 2);
  EXPECT(aclrtMemcpy(NULL, 0, NULL, 0, ACL_MEMCPY_HOST_TO_HOST) == ACL_SUCCESS);
  return 0;
}

int main(void) {
  aclrtStream stream = NULL;
  aclrtContext context = NULL;
  uint32_t devices = 0;
  int32_t device = -1;
  char bytes[4];
  EXPECT(aclInit(NULL) == ACL_SUCCESS);
  EXPECT(aclrtGetDeviceCount(&devices) == ACL_SUCCESS && devices == 1);
  EXPECT(aclrtSetDevice(0) == ACL_SUCCESS);
  EXPECT(aclrtGetDevice(&device) == ACL_SUCCESS && device == 0);
  EXPECT(aclrtCreateContext(&context, 0) == ACL_SUCCESS && context != NULL);
  EXPECT(aclrtSetCurrentContext(context) == ACL_SUCCESS);
  EXPECT(aclrtCreateStream(&stream) == ACL_SUCCESS && stream != NULL);
  EXPECT(aclrtMemsetAsync(bytes, sizeof(bytes), 7, sizeof(bytes), stream) == ACL_SUCCESS);
  EXPECT(aclrtSynchronizeStreamWithTimeout(stream, 1000) == ACL_SUCCESS);
  EXPECT(bytes[0] == 7 && bytes[3] == 7);
  if (re_route(stream) != 0 || misuse() != 0) return 1;
  EXPECT(aclrtSynchronizeDevice() == ACL_SUCCESS);
  EXPECT(aclrtDestroyStream(stream) == ACL_SUCCESS);
  EXPECT(aclrtDestroyContext(context) == ACL_SUCCESS);
  EXPECT(aclrtResetDevice(0) == ACL_SUCCESS);
  EXPECT(aclFinalize() == ACL_SUCCESS);
  puts("aclnn runtime client: passed");
  return 0;
}
