/* The C interface: functions of MLU-OPS 1.11.1, on the CPU. C99 and C++; needs no vendor header.
 *
 * Any memory will do for tensors. A call has finished when it returns. A call that does not return
 * MLUOP_STATUS_SUCCESS has written to none of its outputs, and turnoutLastError() says what was wrong.
 * Unless stated otherwise a NULL handle, descriptor or output pointer gives MLUOP_STATUS_BAD_PARAM. */
#ifndef TURNOUT_MLUOP_MLU_OP_H_
#define TURNOUT_MLUOP_MLU_OP_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why this thread's last call of this interface failed, as one sentence that names the operator, the
 * argument, its value and what was expected; "" after a success. Destroying something leaves it as it is, so
 * that cleaning up does not hide it. Valid until the thread's next call. */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API turnoutLastError(void);

/* ---- Handle. Its number of threads is fixed at creation: TURNOUT_NUM_THREADS, or one per CPU. Clients that
 * look into it find { int32_t device; cnrtQueue_t queue; int32_t arch; } at its beginning: 0, the queue that
 * was set, and 592, the newest device that MLU-OPS knows. ---- */

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpCreate(mluOpHandle_t* handle);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDestroy(mluOpHandle_t handle);
/* There are no device limits to refresh. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpUpdateContextInformation(mluOpHandle_t handle);

/* The queue may be NULL, and is at first. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetQueue(mluOpHandle_t handle, cnrtQueue_t queue);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetQueue(mluOpHandle_t handle, cnrtQueue_t* queue);

/* Kept and given back, without effect. At first HALF_TO_EVEN and NOT_ALLOWED. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetQuantizeRoundMode(mluOpHandle_t handle,
                                                                        mluOpQuantizeRoundMode_t round_mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetQuantizeRoundMode(mluOpHandle_t handle,
                                                                        mluOpQuantizeRoundMode_t* round_mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetAtomicsMode(mluOpHandle_t handle,
                                                                  mluOpAtomicsMode_t atomics_mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetAtomicsMode(mluOpHandle_t handle,
                                                                  mluOpAtomicsMode_t* atomics_mode);

/* ---- Names, sizes, version. ---- */

/* "MLUOP_STATUS_BAD_PARAM"; any other value: "MLUOP_STATUS_UNKNOWN". */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API mluOpGetErrorString(mluOpStatus_t status);
/* "DTYPE_FLOAT"; any other value: "DTYPE_INVALID". */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API mluOpGetNameOfDataType(mluOpDataType_t dtype);
/* "LAYOUT_NHWC"; any other value: "LAYOUT_ARRAY". */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API mluOpGetNameOfTensorLayout(mluOpTensorLayout_t layout);
/* In bytes; MLUOP_DTYPE_INVALID and values outside the list: BAD_PARAM. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t* size);
/* Each pointer may be NULL. */
TURNOUT_MLUOP_API void MLUOP_WIN_API mluOpGetLibVersion(int* major, int* minor, int* patch);

/* Recording of test cases: accepted, and nothing is recorded. The directory is kept for the whole process and
 * given back, at first ""; NULL: BAD_PARAM. What was given back stays valid. */
TURNOUT_MLUOP_API void MLUOP_WIN_API mluOpSetGenCaseMode(int mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetGenCaseDirectory(const char* directory);
TURNOUT_MLUOP_API const char* MLUOP_WIN_API mluOpGetGenCaseDirectory(void);

/* ---- Tensor descriptors. A call reads them; they may be changed or destroyed right after it. ---- */

/* At first, and after a reset: ARRAY, FLOAT, no dimensions, no elements, on-chip type INVALID, pointer mode
 * DEVICE. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpCreateTensorDescriptor(mluOpTensorDescriptor_t* desc);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpResetTensorDescriptor(mluOpTensorDescriptor_t desc);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDestroyTensorDescriptor(mluOpTensorDescriptor_t desc);

/* Row-major, without gaps. BAD_PARAM: a negative layout, dtype or dimNb; dimNb == 0 unless the pointer mode
 * is HOST (a scalar, one element); dimSize NULL with dimNb > 0. The sizes themselves may be zero or negative,
 * and more than MLUOP_DIM_MAX; the operators judge. A descriptor may be set again and again. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptor(mluOpTensorDescriptor_t desc,
                                                                       mluOpTensorLayout_t layout,
                                                                       mluOpDataType_t dtype, int dimNb,
                                                                       const int dimSize[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptor_v2(mluOpTensorDescriptor_t desc,
                                                                          mluOpTensorLayout_t layout,
                                                                          mluOpDataType_t dtype, int dimNb,
                                                                          const int64_t dimSize[]);
/* With strides in elements. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorEx(mluOpTensorDescriptor_t desc,
                                                                         mluOpTensorLayout_t layout,
                                                                         mluOpDataType_t dtype, int dimNb,
                                                                         const int dimSize[],
                                                                         const int dimStride[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc,
                                                                            mluOpTensorLayout_t layout,
                                                                            mluOpDataType_t dtype, int dimNb,
                                                                            const int64_t dimSize[],
                                                                            const int64_t dimStride[]);
/* Dimensions alone, row-major. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorDim(mluOpTensorDescriptor_t desc,
                                                                          int dimNb, const int* dimSize);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorDim_v2(mluOpTensorDescriptor_t desc,
                                                                             int dimNb,
                                                                             const int64_t* dimSize);

/* Each output pointer may be NULL. int variants cut 64-bit sizes off. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor(const mluOpTensorDescriptor_t desc,
                                                                       mluOpTensorLayout_t* layout,
                                                                       mluOpDataType_t* dtype, int* dimNb,
                                                                       int dimSize[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor_v2(const mluOpTensorDescriptor_t desc,
                                                                          mluOpTensorLayout_t* layout,
                                                                          mluOpDataType_t* dtype, int* dimNb,
                                                                          int64_t dimSize[]);
/* Each output pointer is required. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorEx(const mluOpTensorDescriptor_t desc,
                                                                         mluOpTensorLayout_t* layout,
                                                                         mluOpDataType_t* dtype, int* dimNb,
                                                                         int dimSize[], int dimStride[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorEx_v2(const mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                              mluOpDataType_t* dtype, int* dimNb, int64_t dimSize[], int64_t dimStride[]);

/* The product of the sizes, whatever the strides; 0 for NULL. */
TURNOUT_MLUOP_API size_t MLUOP_WIN_API mluOpGetTensorElementNum(const mluOpTensorDescriptor_t desc);

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc, mluOpPointerMode_t pointer_mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorPointerMode(const mluOpTensorDescriptor_t desc, mluOpPointerMode_t* pointer_mode);

/* Kept and given back, without effect. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc, mluOpDataType_t onchip_dtype);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorOnchipDataType(const mluOpTensorDescriptor_t desc, mluOpDataType_t* onchip_dtype);

#ifdef __cplusplus
}
#endif

/* The operators. */
#include "dynamic_scatter.h"
#include "moe_dispatch.h"
#include "mutual_information.h"
#include "sparse_conv.h"
/* Those that MLU-OPS does not have. */
#include "moe_re_routing.h"

#endif /* TURNOUT_MLUOP_MLU_OP_H_ */
