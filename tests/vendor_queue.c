/* Includes the vendor's queue header and ours, in either order. */
#ifdef vendor_is_last
#include "turnout/mluop/mlu_op.h"
#endif

/* The vendor's declaration. */
#ifdef __cplusplus
extern "C" {
#endif
typedef struct cnrtQueue* cnrtQueue_t;
#ifdef __cplusplus
}
#endif

#ifdef vendor_is_first
#include "turnout/mluop/mlu_op.h"
#endif

mluOpStatus_t give_queue(mluOpHandle_t handle, struct cnrtQueue* queue);
mluOpStatus_t give_queue(mluOpHandle_t handle, struct cnrtQueue* queue) {
  return mluOpSetQueue(handle, queue);
}
