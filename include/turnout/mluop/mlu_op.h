/* The C interface: functions of MLU-OPS 1.11.1, on the CPU. C99 and C++; needs no vendor header.
 *
 * Tensors are in ordinary host memory. Calls are synchronous. A call that does not return
 * MLUOP_STATUS_SUCCESS has not written to its outputs, and turnoutLastError() describes the error. Unless
 * stated otherwise, a NULL handle, descriptor or output pointer gives MLUOP_STATUS_BAD_PARAM. */
#ifndef TURNOUT_MLUOP_MLU_OP_H_
#define TURNOUT_MLUOP_MLU_OP_H_

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The error message of this thread's last call of this interface; "" after a success. It names the function,
 * the argument, its value and the expected value. The destroy functions do not change it, so that clean-up
 * code keeps the error. The pointer is valid until the thread's next call. */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API turnoutLastError(void);

/* ---- Handle. Its number of threads is fixed at creation: TURNOUT_NUM_THREADS, or one per CPU. For clients
 * that read its members, the handle begins with those of MLU-OPS 1.11.1:
 *   device, queue, arch         0, the queue that was set, and 592 (MLU590)
 *   device_name                 "CPU"
 *   cluster_num                 1
 *   core_num_per_cluster        the number of threads
 *   nram_size, wram_size, sram_size, clock_rate, l2cache_size, persisting_l2cache_maxsize and
 *   memory_band_width           0: a CPU does not have or report them
 *   capability_cluster_num      1
 *   capability_job_limit        1, a block
 *   round_mode, atomics_mode    as set
 *   job_num                     the number of threads for blocks, 0 for unions ---- */

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpCreate(mluOpHandle_t* handle);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDestroy(mluOpHandle_t handle);
/* Has no effect: there are no device limits to refresh. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpUpdateContextInformation(mluOpHandle_t handle);

/* The queue may be NULL, which is the default. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetQueue(mluOpHandle_t handle, cnrtQueue_t queue);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetQueue(mluOpHandle_t handle, cnrtQueue_t* queue);

/* Stored and returned, without effect. The defaults are HALF_TO_EVEN and NOT_ALLOWED. A round mode that is
 * not one of the enumerators gives BAD_PARAM. */
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

/* Records calls with their data, each in a folder that `turnout replay` runs again. Mode 0, the default,
 * leaves recording to the variable TURNOUT_RECORD; any other mode records every call. */
TURNOUT_MLUOP_API void MLUOP_WIN_API mluOpSetGenCaseMode(int mode);
/* Sets the directory of recorded calls, for all threads. NULL gives BAD_PARAM. "" means the folder `gen_case`
 * of the working directory. The first "{pid}" becomes "pid" and the process id, and the first "{deviceid}"
 * becomes "deviceid0". */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetGenCaseDirectory(const char* path);
/* Returns that directory, or the working directory if none was set. If buffer is NULL, the result is memory
 * that the caller releases with free(); otherwise it is buffer, which has room for bufferSize bytes. pathLen
 * receives the length without the terminating zero, or 0 after an error; status receives
 *   SUCCESS         the directory was returned
 *   BAD_PARAM       buffer is too small: it is returned unchanged
 *   ALLOC_FAILED    out of memory: the result is NULL
 *   INTERNAL_ERROR  there is no working directory: the result is NULL
 * Either pointer may be NULL. */
TURNOUT_MLUOP_API const char* MLUOP_WIN_API mluOpGetGenCaseDirectory(char* buffer, size_t bufferSize,
                                                                     size_t* pathLen, mluOpStatus_t* status);

/* ---- Tensor descriptors. A call reads them; they may be changed or destroyed as soon as it returns. ---- */

/* Initially, and after a reset: ARRAY, FLOAT, no dimensions, no elements, on-chip type INVALID, pointer mode
 * DEVICE, position 0, scale 1, offset 0. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpCreateTensorDescriptor(mluOpTensorDescriptor_t* desc);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpResetTensorDescriptor(mluOpTensorDescriptor_t desc);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpDestroyTensorDescriptor(mluOpTensorDescriptor_t desc);

/* Row-major, without gaps. BAD_PARAM: a negative layout, dtype or dimNb; dimNb == 0 unless the pointer mode
 * is HOST (a scalar, one element); dimSize NULL with dimNb > 0. Sizes may be zero or negative, and dimNb
 * may exceed MLUOP_DIM_MAX; the operators check them. A descriptor may be set repeatedly. */
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
/* Sets only the dimensions, row-major. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorDim(mluOpTensorDescriptor_t desc,
                                                                          int dimNb, const int* dimSize);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorDim_v2(mluOpTensorDescriptor_t desc,
                                                                             int dimNb,
                                                                             const int64_t* dimSize);

/* Each output pointer may be NULL. The int variants truncate 64-bit sizes. */
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

/* The product of the sizes, independent of the strides; 0 for NULL. */
TURNOUT_MLUOP_API size_t MLUOP_WIN_API mluOpGetTensorElementNum(const mluOpTensorDescriptor_t desc);

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc, mluOpPointerMode_t pointer_mode);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorPointerMode(const mluOpTensorDescriptor_t desc, mluOpPointerMode_t* pointer_mode);

/* Stored and returned, without effect. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc, mluOpDataType_t onchip_dtype);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorOnchipDataType(const mluOpTensorDescriptor_t desc, mluOpDataType_t* onchip_dtype);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorPosition(mluOpTensorDescriptor_t desc,
                                                                               int position);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetTensorDescriptorPositionAndScale(mluOpTensorDescriptor_t desc, int position, float scale);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpSetTensorDescriptorPositionScaleAndOffset(
    mluOpTensorDescriptor_t desc, int position, float scale, int offset);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorPosition(const mluOpTensorDescriptor_t desc, int* position);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorDescriptorPositionAndScale(const mluOpTensorDescriptor_t desc, int* position, float* scale);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorPositionScaleAndOffset(
    const mluOpTensorDescriptor_t desc, int* position, float* scale, int* offset);

/* ---- Groups of tensor descriptors: group_desc is an array of desc_num pointers to descriptors. If desc_num
 * is not positive or a pointer is NULL, the functions return BAD_PARAM and do nothing. ---- */

TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpCreateGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[], const int desc_num);
/* group_dimSize has the sizes of all tensors, concatenated. As in MLU-OPS, a tensor that
 * mluOpSetTensorDescriptor rejects stays unchanged, and the status is still SUCCESS. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpSetGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[],
                               const mluOpTensorLayout_t group_layout[], const mluOpDataType_t group_dtype[],
                               const int group_dimNb[], const int group_dimSize[], const int desc_num);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpDestroyGroupTensorDescriptors(mluOpTensorDescriptor_t* group_desc[], const int desc_num);

/* ---- Tensor sets: an array with setDimNb dimensions whose members are tensor descriptors. The data of the
 * members are contiguous, in row-major order of the members. The functions return BAD_PARAM if setDimNb is
 * not that of the set, or if tensorIndex is out of range. ---- */

/* BAD_PARAM: setDimNb or a size is negative; there would be 2^31 members or more. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpCreateTensorSetDescriptor(
    mluOpTensorSetDescriptor_t* tensorSetDesc, const int setDimNb, const int setDimSize[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorSetDescriptor(mluOpTensorSetDescriptor_t tensorSetDesc, int* setDimNb, int setDimSize[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpDestroyTensorSetDescriptor(mluOpTensorSetDescriptor_t tensorSetDesc);
/* BAD_PARAM also if mluOpSetTensorDescriptor rejects the values. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpInitTensorSetMemberDescriptor(
    mluOpTensorSetDescriptor_t tensorSetDesc, const int setDimNb, const int tensorIndex[],
    mluOpTensorLayout_t layout, mluOpDataType_t dtype, const int dimNb, const int dimSize[]);
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpInitTensorSetMemberDescriptorPositionAndScale(
    mluOpTensorSetDescriptor_t tensorSetDesc, const int setDimNb, const int tensorIndex[], const int position,
    const float scale);
/* The bytes of all members together, truncated to an int. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API
mluOpGetTensorSetDescriptorSize(mluOpTensorSetDescriptor_t tensorSetDesc, int* sizeInBytes);
/* The descriptor of a member, which belongs to the set, and the address of its data if the set's data begin
 * at `data`. */
TURNOUT_MLUOP_API mluOpStatus_t MLUOP_WIN_API mluOpGetTensorAndDataFromTensorSet(
    mluOpTensorSetDescriptor_t tensorSetDesc, const int setDimNb, const int tensorIndex[], void* data,
    mluOpTensorDescriptor_t* tensorDesc, void** dataAddrInDevice);

#ifdef __cplusplus
}
#endif

/* The operators. */
#include "boxes.h"
#include "dynamic_scatter.h"
#include "grouping.h"
#include "moe_dispatch.h"
#include "mutual_information.h"
#include "points.h"
#include "roi_pooling.h"
#include "sparse_conv.h"
/* Operators that MLU-OPS does not have. */
#include "moe_re_routing.h"

#endif /* TURNOUT_MLUOP_MLU_OP_H_ */
