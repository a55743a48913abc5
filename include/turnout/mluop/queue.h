/* The queue type, declared exactly as the vendor's own header declares it, so that a file may include both,
 * in either order. C99 has no second declaration of a typedef, not even the same one; compilers allow it when
 * one of the two is in a system header. That is why this declaration has a file of its own. */
#ifndef TURNOUT_MLUOP_QUEUE_H_
#define TURNOUT_MLUOP_QUEUE_H_

#if defined(__GNUC__)
#pragma GCC system_header
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Queues are kept and given back, never used: every call has finished when it returns. */
typedef struct cnrtQueue* cnrtQueue_t;

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_QUEUE_H_ */
