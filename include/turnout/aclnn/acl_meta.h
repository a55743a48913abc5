/* Tensors of the two-phase interface of CANN (aclnn), on the CPU. C99 and C++; needs no vendor header.
 *
 * Types, values and functions are declared as CANN declares them, so a program includes these headers
 * instead of the vendor's, never both. Tensor data may be in any memory. Calls are synchronous; the stream
 * is ignored and may be NULL. */
#ifndef TURNOUT_ACLNN_ACL_META_H_
#define TURNOUT_ACLNN_ACL_META_H_

#include <stdint.h>

#ifndef TURNOUT_ACLNN_API
#ifdef TURNOUT_STATIC
#define TURNOUT_ACLNN_API
#else
#define TURNOUT_ACLNN_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclTensor aclTensor;
typedef struct aclOpExecutor aclOpExecutor;
typedef void* aclrtStream;

typedef int32_t aclnnStatus;
#define ACLNN_SUCCESS 0
#define ACLNN_ERR_PARAM_NULLPTR 161001 /* a required argument is NULL */
#define ACLNN_ERR_PARAM_INVALID 161002 /* any other fault of an argument */
#define ACLNN_ERR_INNER 561000         /* out of memory, or a defect of the library */

typedef enum {
  ACL_DT_UNDEFINED = -1,
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_UINT16 = 7,
  ACL_UINT32 = 8,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_STRING = 13,
  ACL_COMPLEX64 = 16,
  ACL_COMPLEX128 = 17,
  ACL_BF16 = 27,
  ACL_INT4 = 29,
  ACL_UINT1 = 30,
  ACL_COMPLEX32 = 33,
  ACL_HIFLOAT8 = 34,
  ACL_FLOAT8_E5M2 = 35,
  ACL_FLOAT8_E4M3FN = 36,
  ACL_FLOAT8_E8M0 = 37,
  ACL_FLOAT6_E3M2 = 38,
  ACL_FLOAT6_E2M3 = 39,
  ACL_FLOAT4_E2M1 = 40, /* two elements in a byte, like FLOAT4_E1M2 */
  ACL_FLOAT4_E1M2 = 41
} aclDataType;

typedef enum {
  ACL_FORMAT_UNDEFINED = -1,
  ACL_FORMAT_NCHW = 0,
  ACL_FORMAT_NHWC = 1,
  ACL_FORMAT_ND = 2
} aclFormat;

/* Creates a view of tensor_data with dims view_dims and strides `stride` (in elements; NULL: row-major) that
 * begins `offset` elements after tensor_data. The format is ignored. storage_dims is the extent of the memory
 * at tensor_data, and the view must stay inside it; with storage_dims_num 0 the extent is unknown and not
 * checked. FLOAT4 also counts elements: the last dimension must be even and have stride 1, and the offset and
 * the other strides must be even. Returns NULL if an argument is wrong or memory runs out;
 * aclGetRecentErrMsg() gives the reason. */
TURNOUT_ACLNN_API aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num,
                                             aclDataType data_type, const int64_t* stride, int64_t offset,
                                             aclFormat format, const int64_t* storage_dims,
                                             uint64_t storage_dims_num, void* tensor_data);

/* An executor does not refer to its tensors, so a tensor may be destroyed at any time. NULL: 161001. */
TURNOUT_ACLNN_API aclnnStatus aclDestroyTensor(const aclTensor* tensor);

/* Frees an executor that will not run. NULL: 161001. An executor that has run no longer exists: 161002. */
TURNOUT_ACLNN_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);

/* The error message of this thread's last call of this interface; "" after a success. Valid until the
 * thread's next call. */
TURNOUT_ACLNN_API const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif /* TURNOUT_ACLNN_ACL_META_H_ */
