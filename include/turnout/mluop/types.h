/* Types, constants and enumerations of the C interface, with the values of MLU-OPS 1.11.1. C99 and C++. */
#ifndef TURNOUT_MLUOP_TYPES_H_
#define TURNOUT_MLUOP_TYPES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "queue.h"

#ifndef MLUOP_WIN_API
#ifdef _WIN32
#define MLUOP_WIN_API __stdcall
#else
#define MLUOP_WIN_API
#endif
#endif

/* TURNOUT_STATIC is defined for the static library, which exports nothing. */
#if defined(__GNUC__) && !defined(TURNOUT_STATIC)
#define TURNOUT_MLUOP_API __attribute__((visibility("default")))
#else
#define TURNOUT_MLUOP_API
#endif

/* In C++ a value outside the enumerators is undefined behaviour unless the enum has a fixed type. With one,
 * the functions can check the value and return an error. */
#ifdef __cplusplus
#define TURNOUT_MLUOP_INT : int
#else
#define TURNOUT_MLUOP_INT
#endif

/* The version of MLU-OPS that this library implements, not the library's own. Call mluOpGetLibVersion instead
 * of decoding MLUOP_VERSION, which is ambiguous (2101 would also be 2.1.1). */
#define MLUOP_MAJOR 1
#define MLUOP_MINOR 11
#define MLUOP_PATCHLEVEL 1
#define MLUOP_VERSION (MLUOP_MAJOR * 1000 + MLUOP_MINOR * 100 + MLUOP_PATCHLEVEL)

/* Descriptors may have more dimensions than this; operators accept at most this many. */
#define MLUOP_DIM_MAX 8

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_STATUS_SUCCESS = 0, /* done, or nothing to do */
  MLUOP_STATUS_NOT_INITIALIZED = 1,
  MLUOP_STATUS_ALLOC_FAILED = 2,
  MLUOP_STATUS_BAD_PARAM = 3,
  MLUOP_STATUS_INTERNAL_ERROR = 4,
  MLUOP_STATUS_ARCH_MISMATCH = 5,
  MLUOP_STATUS_EXECUTION_FAILED = 6,
  MLUOP_STATUS_NOT_SUPPORTED = 7, /* 2^31 elements or more, strided tensors, and limits of single operators */
  MLUOP_STATUS_NUMERICAL_OVERFLOW = 8
} mluOpStatus_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_DTYPE_INVALID = 0,
  MLUOP_DTYPE_HALF = 1,
  MLUOP_DTYPE_FLOAT = 2,
  MLUOP_DTYPE_INT8 = 3,
  MLUOP_DTYPE_INT16 = 4,
  MLUOP_DTYPE_INT31 = 5,
  MLUOP_DTYPE_INT32 = 6,
  MLUOP_DTYPE_UINT8 = 7,
  MLUOP_DTYPE_BOOL = 8,
  MLUOP_DTYPE_INT64 = 9,
  MLUOP_DTYPE_UINT32 = 11,
  MLUOP_DTYPE_UINT64 = 12,
  MLUOP_DTYPE_UINT16 = 13,
  MLUOP_DTYPE_DOUBLE = 14,
  MLUOP_DTYPE_COMPLEX_HALF = 15,
  MLUOP_DTYPE_COMPLEX_FLOAT = 16,
  MLUOP_DTYPE_BFLOAT16 = 17,
  /* Not in MLU-OPS: the 8-bit floats of the re-routing operators. */
  MLUOP_DTYPE_FLOAT8_E4M3FN = 100,
  MLUOP_DTYPE_FLOAT8_E5M2 = 101,
  MLUOP_DTYPE_FLOAT8_E8M0 = 102
} mluOpDataType_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_LAYOUT_NCHW = 0,
  MLUOP_LAYOUT_NHWC = 1,
  MLUOP_LAYOUT_HWCN = 2,
  MLUOP_LAYOUT_NDHWC = 3,
  MLUOP_LAYOUT_ARRAY = 4,
  MLUOP_LAYOUT_NCDHW = 5,
  MLUOP_LAYOUT_TNC = 6,
  MLUOP_LAYOUT_NTC = 7,
  MLUOP_LAYOUT_NC = 8,
  MLUOP_LAYOUT_NLC = 9,
  MLUOP_LAYOUT_NCL = 10
} mluOpTensorLayout_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_REDUCE_DSUM = 0,
  MLUOP_REDUCE_DMEAN = 1,
  MLUOP_REDUCE_DMAX = 2
} mluOpReduceMode_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_POINTER_MODE_HOST = 0,
  MLUOP_POINTER_MODE_DEVICE = 1
} mluOpPointerMode_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_ATOMICS_NOT_ALLOWED = 1, /* there is no 0 */
  MLUOP_ATOMICS_ALLOWED = 2
} mluOpAtomicsMode_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_ROUND_HALF_TO_EVEN = 0,
  MLUOP_ROUND_HALF_UP = 1,
  MLUOP_ROUND_HALF_OFF_ZERO = 2
} mluOpQuantizeRoundMode_t;

typedef enum TURNOUT_MLUOP_INT { MLUOP_NOT_PROPAGATE_NAN = 0, MLUOP_PROPAGATE_NAN = 1 } mluOpNanPropagation_t;

typedef enum TURNOUT_MLUOP_INT {
  MLUOP_COMPUTATION_FAST = 0,
  MLUOP_COMPUTATION_HIGH_PRECISION = 1,
  MLUOP_COMPUTATION_ULTRAHIGH_PRECISION = 2
} mluOpComputationPreference_t;

/* Other names that clients use. */
typedef mluOpStatus_t mluopStatus_t;
#define MLUOP_REDUCEMODE_MAX MLUOP_REDUCE_DMAX

typedef struct mluOpContext* mluOpHandle_t;
typedef struct mluOpTensorStruct* mluOpTensorDescriptor_t;
typedef struct mluOpTensorSetStruct* mluOpTensorSetDescriptor_t;
typedef struct mluOpSparseConvolutionStruct* mluOpSparseConvolutionDescriptor_t;

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_MLUOP_TYPES_H_ */
