/* The part of Cambricon's runtime that programs for MLU-OPS use, on a machine without an accelerator. The
 * only device is 0, its memory is host memory, and calls on queues have finished when they return. C99 and
 * C++; everything is inline, so that no library is needed. The values are those of CNRT 6.
 *
 * Unmodified programs need this header. It has its own folder and CMake target, turnout::mluop_runtime,
 * because a program that has the vendor's cnrt.h must not find this one. */
#ifndef TURNOUT_CNRT_H_
#define TURNOUT_CNRT_H_

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "../queue.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  cnrtSuccess = 0,
  cnrtErrorNotReady = 1,
  cnrtErrorDeviceInvalid = 100005,
  cnrtErrorArgsInvalid = 100006,
  cnrtErrorNoMem = 100100,
  cnrtErrorMemcpyDirectionInvalid = 632013
} cnrtRet_t;

typedef enum {
  cnrtMemcpyHostToDev = 0,
  cnrtMemcpyDevToDev = 1,
  cnrtMemcpyDevToHost = 2,
  cnrtMemcpyHostToHost = 3,
  cnrtMemcpyPeerToPeer = 4,
  cnrtMemcpyNoDirection = 5
} cnrtMemTransDir_t;

struct cnrtNotifier {
  struct timeval placed; /* zero until placed */
};
typedef struct cnrtNotifier* cnrtNotifier_t;

/* Unless the result is cnrtSuccess, prints the call and its result to stderr and exits. */
#define CNRT_CHECK(...)                                                                                  \
  do {                                                                                                   \
    const int turnout_cnrt_result = (int)(__VA_ARGS__);                                                  \
    if (turnout_cnrt_result != cnrtSuccess) {                                                            \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #__VA_ARGS__, turnout_cnrt_result); \
      exit(EXIT_FAILURE);                                                                                \
    }                                                                                                    \
  } while (0)

/* ---- Device. ---- */

static inline cnrtRet_t cnrtGetDeviceCount(unsigned int* count) {
  if (count == NULL) return cnrtErrorArgsInvalid;
  *count = 1;
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtGetDevice(int* device) {
  if (device == NULL) return cnrtErrorArgsInvalid;
  *device = 0;
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtSetDevice(int device) {
  return device == 0 ? cnrtSuccess : cnrtErrorDeviceInvalid;
}

/* ---- Memory. ---- */

static inline cnrtRet_t cnrtMalloc(void** ptr, size_t bytes) {
  if (ptr == NULL) return cnrtErrorArgsInvalid;
  *ptr = malloc(bytes > 0 ? bytes : 1);
  return *ptr != NULL ? cnrtSuccess : cnrtErrorNoMem;
}
static inline cnrtRet_t cnrtFree(void* ptr) {
  free(ptr);
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtMemcpy(void* dst, const void* src, size_t bytes, cnrtMemTransDir_t dir) {
  if ((int)dir < cnrtMemcpyHostToDev || (int)dir > cnrtMemcpyNoDirection)
    return cnrtErrorMemcpyDirectionInvalid;
  if (bytes == 0) return cnrtSuccess;
  if (dst == NULL || src == NULL) return cnrtErrorArgsInvalid;
  memmove(dst, src, bytes);
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtMemset(void* ptr, int value, size_t bytes) {
  if (bytes == 0) return cnrtSuccess;
  if (ptr == NULL) return cnrtErrorArgsInvalid;
  memset(ptr, value, bytes);
  return cnrtSuccess;
}

/* ---- Queues, for mluOpSetQueue(). A NULL queue is the default queue. ---- */

static inline cnrtRet_t cnrtQueueCreate(cnrtQueue_t* queue) {
  if (queue == NULL) return cnrtErrorArgsInvalid;
  *queue = (cnrtQueue_t)malloc(1);
  return *queue != NULL ? cnrtSuccess : cnrtErrorNoMem;
}
static inline cnrtRet_t cnrtQueueDestroy(cnrtQueue_t queue) {
  if (queue == NULL) return cnrtErrorArgsInvalid;
  free(queue);
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtQueueSync(cnrtQueue_t queue) {
  (void)queue; /* calls are synchronous */
  return cnrtSuccess;
}

/* ---- Notifiers, which record times. ---- */

static inline cnrtRet_t cnrtNotifierCreate(cnrtNotifier_t* notifier) {
  if (notifier == NULL) return cnrtErrorArgsInvalid;
  *notifier = (cnrtNotifier_t)calloc(1, sizeof(**notifier));
  return *notifier != NULL ? cnrtSuccess : cnrtErrorNoMem;
}
static inline cnrtRet_t cnrtNotifierDestroy(cnrtNotifier_t notifier) {
  if (notifier == NULL) return cnrtErrorArgsInvalid;
  free(notifier);
  return cnrtSuccess;
}
static inline cnrtRet_t cnrtPlaceNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue) {
  (void)queue;
  if (notifier == NULL) return cnrtErrorArgsInvalid;
  gettimeofday(&notifier->placed, NULL);
  return cnrtSuccess;
}
/* In microseconds. NotReady: one of the two has not been placed. */
static inline cnrtRet_t cnrtNotifierDuration(cnrtNotifier_t start, cnrtNotifier_t end, float* us) {
  if (start == NULL || end == NULL || us == NULL) return cnrtErrorArgsInvalid;
  if (start->placed.tv_sec == 0 || end->placed.tv_sec == 0) return cnrtErrorNotReady;
  *us = (float)((double)(end->placed.tv_sec - start->placed.tv_sec) * 1e6 +
                (double)(end->placed.tv_usec - start->placed.tv_usec));
  return cnrtSuccess;
}

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_CNRT_H_ */
