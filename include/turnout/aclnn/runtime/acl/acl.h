/* The part of CANN's runtime that programs around an aclnn function call: devices, contexts, streams, memory
 * and copies. C99 and C++. These functions are inline and stateless, so that no library exports CANN's names
 * and only programs that choose this folder get them.
 *
 * The host is device 0, and device memory is host memory. Calls on a stream have finished when they return.
 * A function returns ACL_SUCCESS or an error below; aclGetRecentErrMsg() covers aclnn functions only. */
#ifndef TURNOUT_ACLNN_RUNTIME_ACL_ACL_H_
#define TURNOUT_ACLNN_RUNTIME_ACL_ACL_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int aclError;
typedef void* aclrtContext;

static const int ACL_SUCCESS = 0;
static const int ACL_ERROR_NONE = 0;
static const int ACL_ERROR_INVALID_PARAM = 100000; /* a pointer is NULL, or a size is 0 */
#define ACL_ERROR_RT_PARAM_INVALID 107000          /* a copy is larger than its target */
#define ACL_ERROR_RT_INVALID_DEVICEID 107001       /* the device is not 0 */
#define ACL_ERROR_RT_MEMORY_ALLOCATION 207001      /* out of memory */

typedef enum aclrtMemcpyKind {
  ACL_MEMCPY_HOST_TO_HOST,
  ACL_MEMCPY_HOST_TO_DEVICE,
  ACL_MEMCPY_DEVICE_TO_HOST,
  ACL_MEMCPY_DEVICE_TO_DEVICE,
  ACL_MEMCPY_DEFAULT
} aclrtMemcpyKind;

typedef enum aclrtMemMallocPolicy {
  ACL_MEM_MALLOC_HUGE_FIRST,
  ACL_MEM_MALLOC_HUGE_ONLY,
  ACL_MEM_MALLOC_NORMAL_ONLY,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P
} aclrtMemMallocPolicy;

/* The configuration file is not read. A second aclInit() succeeds too. */
static inline aclError aclInit(const char* configPath) {
  (void)configPath;
  return ACL_SUCCESS;
}
static inline aclError aclFinalize(void) { return ACL_SUCCESS; }

static inline aclError aclrtSetDevice(int32_t deviceId) {
  return deviceId == 0 ? ACL_SUCCESS : ACL_ERROR_RT_INVALID_DEVICEID;
}
static inline aclError aclrtResetDevice(int32_t deviceId) { return aclrtSetDevice(deviceId); }
static inline aclError aclrtGetDevice(int32_t* deviceId) {
  if (deviceId == NULL) return ACL_ERROR_INVALID_PARAM;
  *deviceId = 0;
  return ACL_SUCCESS;
}
static inline aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == NULL) return ACL_ERROR_INVALID_PARAM;
  *count = 1;
  return ACL_SUCCESS;
}
static inline aclError aclrtSynchronizeDevice(void) { return ACL_SUCCESS; }

/* The policy is ignored. Memory has the alignment of malloc(). */
static inline aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  void* memory;
  (void)policy;
  if (devPtr == NULL || size == 0) return ACL_ERROR_INVALID_PARAM;
  memory = malloc(size);
  if (memory == NULL) return ACL_ERROR_RT_MEMORY_ALLOCATION;
  *devPtr = memory;
  return ACL_SUCCESS;
}
static inline aclError aclrtFree(void* devPtr) {
  if (devPtr == NULL) return ACL_ERROR_INVALID_PARAM;
  free(devPtr);
  return ACL_SUCCESS;
}
static inline aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return aclrtMalloc(hostPtr, size, ACL_MEM_MALLOC_NORMAL_ONLY);
}
static inline aclError aclrtFreeHost(void* hostPtr) { return aclrtFree(hostPtr); }

/* Copies `count` bytes; source and target may overlap. Nothing is copied if count > destMax. */
static inline aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                                   aclrtMemcpyKind kind) {
  (void)kind;
  if (count == 0) return ACL_SUCCESS;
  if (dst == NULL || src == NULL) return ACL_ERROR_INVALID_PARAM;
  if (count > destMax) return ACL_ERROR_RT_PARAM_INVALID;
  memmove(dst, src, count);
  return ACL_SUCCESS;
}
static inline aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                                        aclrtMemcpyKind kind, aclrtStream stream) {
  (void)stream;
  return aclrtMemcpy(dst, destMax, src, count, kind);
}

/* Sets `count` bytes to the low byte of `value`. */
static inline aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  if (count == 0) return ACL_SUCCESS;
  if (devPtr == NULL) return ACL_ERROR_INVALID_PARAM;
  if (count > maxCount) return ACL_ERROR_RT_PARAM_INVALID;
  memset(devPtr, value, count);
  return ACL_SUCCESS;
}
static inline aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                                        aclrtStream stream) {
  (void)stream;
  return aclrtMemset(devPtr, maxCount, value, count);
}

/* Streams and contexts are handles without effect. Each must be destroyed once. */
static inline aclError aclrtCreateStream(aclrtStream* stream) {
  return aclrtMalloc(stream, 1, ACL_MEM_MALLOC_NORMAL_ONLY);
}
static inline aclError aclrtDestroyStream(aclrtStream stream) { return aclrtFree(stream); }
static inline aclError aclrtSynchronizeStream(aclrtStream stream) {
  (void)stream;
  return ACL_SUCCESS;
}
static inline aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  (void)timeout;
  return aclrtSynchronizeStream(stream);
}
static inline aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  const aclError status = aclrtSetDevice(deviceId);
  return status == ACL_SUCCESS ? aclrtMalloc(context, 1, ACL_MEM_MALLOC_NORMAL_ONLY) : status;
}
static inline aclError aclrtDestroyContext(aclrtContext context) { return aclrtFree(context); }
static inline aclError aclrtSetCurrentContext(aclrtContext context) {
  return context == NULL ? ACL_ERROR_INVALID_PARAM : ACL_SUCCESS;
}

/* The bytes of an element; 1 for types that share a byte, 0 for types without a size. */
static inline size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_DT_UNDEFINED:
    case ACL_STRING:
      return 0;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 1;
  }
}

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_ACLNN_RUNTIME_ACL_ACL_H_ */
