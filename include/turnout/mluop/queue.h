/* The queue type, declared exactly as in the vendor's header, so that a file may include both in either
 * order. C99 does not allow a typedef to be repeated, but compilers accept it if one of the two is in a
 * system header. Therefore this declaration has its own file. */
#ifndef TURNOUT_MLUOP_QUEUE_H_
#define TURNOUT_MLUOP_QUEUE_H_

#if defined(__GNUC__)
#pragma GCC system_header
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Queues are stored and returned, but not used: all calls are synchronous. */
typedef struct cnrtQueue* cnrtQueue_t;

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_QUEUE_H_ */
