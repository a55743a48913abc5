/* A program written for the accelerator, like the samples of MLU-OPS: device memory, copies, a queue and
 * notifiers. It includes only mlu_op.h. C99 and C++. */
#include <mlu_op.h>

#define MLUOP_CHECK(call)                                              \
  do {                                                                 \
    const mluOpStatus_t status = (call);                               \
    if (status != MLUOP_STATUS_SUCCESS) {                              \
      fprintf(stderr, "%s: %s\n", #call, mluOpGetErrorString(status)); \
      return 1;                                                        \
    }                                                                  \
  } while (0)
#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      fprintf(stderr, "line %d: %s is wrong\n", __LINE__, #condition); \
      return 1;                                                        \
    }                                                                  \
  } while (0)

static void* to_device(const void* host, size_t bytes) {
  void* device = NULL;
  CNRT_CHECK(cnrtMalloc(&device, bytes));
  CNRT_CHECK(cnrtMemcpy(device, host, bytes, cnrtMemcpyHostToDev));
  return device;
}

static int dispatch(void) {
  const float gates[2] = {2, 3}, input[4] = {1, 2, 3, 4};
  const int32_t indices[2] = {1, 0}, locations[2] = {0, 0};
  const int shape[2] = {2, 2};
  float output[4] = {0, 0, 0, 0}, microseconds = -1;
  int dev = -1;
  cnrtQueue_t queue = NULL;
  cnrtNotifier_t start = NULL, end = NULL;
  mluOpHandle_t handle = NULL;
  mluOpTensorDescriptor_t token = NULL, route = NULL, matrix = NULL;
  mluOpTensorDescriptor_t* group[3];
  const mluOpTensorLayout_t layouts[3] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY};
  const mluOpDataType_t dtypes[3] = {MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_INT32, MLUOP_DTYPE_FLOAT};
  const int ranks[3] = {1, 1, 2}, sizes[4] = {2, 2, 2, 2};
  void *gates_dev, *indices_dev, *locations_dev, *input_dev, *output_dev = NULL;

  CNRT_CHECK(cnrtGetDevice(&dev));
  CNRT_CHECK(cnrtSetDevice(dev));
  CNRT_CHECK(cnrtQueueCreate(&queue));
  MLUOP_CHECK(mluOpCreate(&handle));
  MLUOP_CHECK(mluOpSetQueue(handle, queue));
  group[0] = &token, group[1] = &route, group[2] = &matrix;
  MLUOP_CHECK(mluOpCreateGroupTensorDescriptors(group, 3));
  MLUOP_CHECK(mluOpSetGroupTensorDescriptors(group, layouts, dtypes, ranks, sizes, 3));

  gates_dev = to_device(gates, sizeof(gates));
  indices_dev = to_device(indices, sizeof(indices));
  locations_dev = to_device(locations, sizeof(locations));
  input_dev = to_device(input, sizeof(input));
  CNRT_CHECK(cnrtMalloc(&output_dev, sizeof(output)));
  CNRT_CHECK(cnrtMemset(output_dev, 0xFF, sizeof(output)));
  CNRT_CHECK(cnrtNotifierCreate(&start));
  CNRT_CHECK(cnrtNotifierCreate(&end));
  EXPECT(cnrtNotifierDuration(start, end, &microseconds) == cnrtErrorNotReady);
  CNRT_CHECK(cnrtPlaceNotifier(start, queue));
  MLUOP_CHECK(mluOpMoeDispatchForward(handle, token, gates_dev, route, indices_dev, route, locations_dev,
                                      matrix, input_dev, shape[0], 1, shape[1], 2, matrix, output_dev));
  CNRT_CHECK(cnrtPlaceNotifier(end, queue));
  CNRT_CHECK(cnrtQueueSync(queue));
  CNRT_CHECK(cnrtNotifierDuration(start, end, &microseconds));
  CNRT_CHECK(cnrtMemcpy(output, output_dev, sizeof(output), cnrtMemcpyDevToHost));
  EXPECT(output[0] == 9 && output[1] == 12 && output[2] == 2 && output[3] == 4);
  EXPECT(microseconds >= 0 && microseconds < 1e8f);

  CNRT_CHECK(cnrtFree(gates_dev));
  CNRT_CHECK(cnrtFree(indices_dev));
  CNRT_CHECK(cnrtFree(locations_dev));
  CNRT_CHECK(cnrtFree(input_dev));
  CNRT_CHECK(cnrtFree(output_dev));
  MLUOP_CHECK(mluOpDestroyGroupTensorDescriptors(group, 3));
  CNRT_CHECK(cnrtNotifierDestroy(start));
  CNRT_CHECK(cnrtNotifierDestroy(end));
  CNRT_CHECK(cnrtQueueDestroy(queue));
  MLUOP_CHECK(mluOpDestroy(handle));
  return 0;
}

static int refuse(void) {
  unsigned int count = 0;
  char byte = 1;
  EXPECT(cnrtGetDeviceCount(&count) == cnrtSuccess && count == 1);
  EXPECT(cnrtGetDeviceCount(NULL) == cnrtErrorArgsInvalid && cnrtGetDevice(NULL) == cnrtErrorArgsInvalid);
  EXPECT(cnrtSetDevice(1) == cnrtErrorDeviceInvalid && cnrtSetDevice(-1) == cnrtErrorDeviceInvalid);
  EXPECT(cnrtMalloc(NULL, 1) == cnrtErrorArgsInvalid && cnrtFree(NULL) == cnrtSuccess);
  EXPECT(cnrtMemcpy(NULL, &byte, 1, cnrtMemcpyHostToDev) == cnrtErrorArgsInvalid);
  EXPECT(cnrtMemcpy(&byte, NULL, 1, cnrtMemcpyHostToDev) == cnrtErrorArgsInvalid);
  EXPECT(cnrtMemcpy(&byte, NULL, 0, cnrtMemcpyHostToDev) == cnrtSuccess);
  EXPECT(cnrtMemcpy(&byte, &byte, 1, (cnrtMemTransDir_t)6) == cnrtErrorMemcpyDirectionInvalid);
  EXPECT(cnrtMemset(NULL, 0, 1) == cnrtErrorArgsInvalid && cnrtMemset(NULL, 0, 0) == cnrtSuccess);
  EXPECT(cnrtQueueCreate(NULL) == cnrtErrorArgsInvalid && cnrtQueueDestroy(NULL) == cnrtErrorArgsInvalid);
  EXPECT(cnrtQueueSync(NULL) == cnrtSuccess);
  EXPECT(cnrtNotifierCreate(NULL) == cnrtErrorArgsInvalid);
  EXPECT(cnrtNotifierDestroy(NULL) == cnrtErrorArgsInvalid);
  EXPECT(cnrtPlaceNotifier(NULL, NULL) == cnrtErrorArgsInvalid);
  EXPECT(cnrtNotifierDuration(NULL, NULL, NULL) == cnrtErrorArgsInvalid);
  return 0;
}

int main(void) {
  const int wrong = dispatch() + refuse();
  printf("cnrt: %s\n", wrong == 0 ? "ok" : "wrong");
  return wrong;
}
