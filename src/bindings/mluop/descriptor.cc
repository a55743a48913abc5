// Tensor descriptors and dtypes of the C interface.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "bindings/mluop/call.h"
#include "core/dtypes.h"

namespace turnout::bindings {

using namespace core;
namespace {

struct CDType {
  mluOpDataType_t value;
  std::size_t bytes;
  DType dtype;
  const char* name;
};

constexpr CDType kCDTypes[] = {
    {MLUOP_DTYPE_HALF, 2, DType::f16, "DTYPE_HALF"},
    {MLUOP_DTYPE_FLOAT, 4, DType::f32, "DTYPE_FLOAT"},
    {MLUOP_DTYPE_INT8, 1, DType::i8, "DTYPE_INT8"},
    {MLUOP_DTYPE_INT16, 2, DType::i16, "DTYPE_INT16"},
    {MLUOP_DTYPE_INT31, 4, kForeign, "DTYPE_INT31"},
    {MLUOP_DTYPE_INT32, 4, DType::i32, "DTYPE_INT32"},
    {MLUOP_DTYPE_UINT8, 1, DType::u8, "DTYPE_UINT8"},
    {MLUOP_DTYPE_BOOL, 1, DType::boolean, "DTYPE_BOOL"},
    {MLUOP_DTYPE_INT64, 8, DType::i64, "DTYPE_INT64"},
    {MLUOP_DTYPE_UINT32, 4, DType::u32, "DTYPE_UINT32"},
    {MLUOP_DTYPE_UINT64, 8, DType::u64, "DTYPE_UINT64"},
    {MLUOP_DTYPE_UINT16, 2, DType::u16, "DTYPE_UINT16"},
    {MLUOP_DTYPE_DOUBLE, 8, DType::f64, "DTYPE_DOUBLE"},
    {MLUOP_DTYPE_COMPLEX_HALF, 4, kForeign, "DTYPE_COMPLEX_HALF"},
    {MLUOP_DTYPE_COMPLEX_FLOAT, 8, kForeign, "DTYPE_COMPLEX_FLOAT"},
    {MLUOP_DTYPE_BFLOAT16, 2, DType::bf16, "DTYPE_BFLOAT16"},
    {MLUOP_DTYPE_FLOAT8_E4M3FN, 1, DType::f8_e4m3fn, "DTYPE_FLOAT8_E4M3FN"},
    {MLUOP_DTYPE_FLOAT8_E5M2, 1, DType::f8_e5m2, "DTYPE_FLOAT8_E5M2"},
    {MLUOP_DTYPE_FLOAT8_E8M0, 1, DType::f8_e8m0, "DTYPE_FLOAT8_E8M0"},
};

const CDType* find(mluOpDataType_t value) {
  for (const CDType& one : kCDTypes)
    if (one.value == value) return &one;
  return nullptr;
}

// Products wrap around, as in MLU-OPS. Setting dimensions checks nothing; the operators check, and saturate.
void set_row_major(mluOpTensorStruct& desc) {
  std::uint64_t step = 1;
  desc.stride.resize(desc.shape.size());
  for (std::size_t d = desc.shape.size(); d-- > 0;) {
    desc.stride[d] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(desc.shape[d]);
  }
}

void count_elements(mluOpTensorStruct& desc) {
  std::uint64_t count = 1;
  for (std::int64_t extent : desc.shape) count *= static_cast<std::uint64_t>(extent);
  desc.elements = count;
}

// Sets dimensions with the given strides, or row-major if not `strided`. A call that fails changes nothing.
template <class Int>
mluOpStatus_t set_dims(const char* function, mluOpTensorDescriptor_t desc, int rank, const Int* shape,
                       bool strided, const Int* stride) {
  if (desc == nullptr) return refuse_null(function, "desc");
  if (rank < 0) return refuse(function, "dimNb is %d, expected 0 or more", rank);
  if (rank == 0 && desc->pointer_mode != MLUOP_POINTER_MODE_HOST)
    return refuse(function, "dimNb is 0, expected 1 or more unless the pointer mode is HOST");
  if (rank > 0 && shape == nullptr) return refuse_null(function, "dimSize");
  if (rank > 0 && strided && stride == nullptr) return refuse_null(function, "dimStride");
  try {
    const auto size = static_cast<std::size_t>(rank);
    desc->stride.reserve(size);  // both may run out of memory, before anything has changed
    desc->shape.reserve(size);
    desc->shape.assign(shape, shape + rank);
    if (strided) {
      desc->stride.assign(stride, stride + rank);
    } else {
      set_row_major(*desc);
    }
    count_elements(*desc);
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

template <class Int>
mluOpStatus_t set_all(const char* function, mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                      mluOpDataType_t dtype, int rank, const Int* shape, bool strided = false,
                      const Int* stride = nullptr) {
  if (desc == nullptr) return refuse_null(function, "desc");
  if (layout < 0) return refuse(function, "layout is %d, expected 0 or more", layout);
  if (dtype < 0) return refuse(function, "dtype is %d, expected 0 or more", dtype);
  const mluOpStatus_t status = set_dims(function, desc, rank, shape, strided, stride);
  if (status != MLUOP_STATUS_SUCCESS) return status;
  desc->layout = layout;
  desc->dtype = dtype;
  return status;
}

// Writes through the pointers that are not null. A narrower Int truncates 64-bit values.
template <class Int>
mluOpStatus_t get(const char* function, mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                  mluOpDataType_t* dtype, int* rank, Int* shape, Int* stride) {
  if (desc == nullptr) return refuse_null(function, "desc");
  const auto narrow = [](std::int64_t value) { return static_cast<Int>(value); };
  if (layout != nullptr) *layout = desc->layout;
  if (dtype != nullptr) *dtype = desc->dtype;
  if (rank != nullptr) *rank = static_cast<int>(desc->shape.size());
  if (shape != nullptr) std::transform(desc->shape.begin(), desc->shape.end(), shape, narrow);
  if (stride != nullptr) std::transform(desc->stride.begin(), desc->stride.end(), stride, narrow);
  return succeed();
}

template <class Int>
mluOpStatus_t get_all(const char* function, mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                      mluOpDataType_t* dtype, int* rank, Int* shape, Int* stride) {
  if (desc == nullptr) return refuse_null(function, "desc");
  if (layout == nullptr) return refuse_null(function, "layout");
  if (dtype == nullptr) return refuse_null(function, "dtype");
  if (rank == nullptr) return refuse_null(function, "dimNb");
  if (shape == nullptr) return refuse_null(function, "dimSize");
  if (stride == nullptr) return refuse_null(function, "dimStride");
  return get(function, desc, layout, dtype, rank, shape, stride);
}

}  // namespace

void fill_result(const Described& result, int byte) noexcept {
  if (result.data == nullptr) return;
  const auto& shape = result.desc->shape;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) return;
  std::memset(const_cast<void*>(result.data), byte, bytes_of(*result.desc));
}

std::size_t bytes_of(const mluOpTensorStruct& desc) {
  const CDType* found = find(desc.dtype);
  return found == nullptr ? 0 : desc.elements * found->bytes;
}

DType dtype_of_c(mluOpDataType_t dtype) {
  const CDType* found = find(dtype);
  return found == nullptr ? kForeign : found->dtype;
}

}  // namespace turnout::bindings

using namespace turnout::core;
using namespace turnout::bindings;

mluOpStatus_t mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t* size) {
  if (size == nullptr) return refuse_null(__func__, "size");
  const CDType* found = find(data_type);
  if (found == nullptr)
    return refuse(__func__, "data_type is %d, expected a value of mluOpDataType_t", data_type);
  *size = found->bytes;
  return succeed();
}

const char* mluOpGetNameOfDataType(mluOpDataType_t dtype) {
  const CDType* found = find(dtype);
  return found == nullptr ? "DTYPE_INVALID" : found->name;
}

const char* mluOpGetNameOfTensorLayout(mluOpTensorLayout_t layout) {
  static constexpr const char* kNames[] = {"LAYOUT_NCHW",  "LAYOUT_NHWC",  "LAYOUT_HWCN", "LAYOUT_NDHWC",
                                           "LAYOUT_ARRAY", "LAYOUT_NCDHW", "LAYOUT_TNC",  "LAYOUT_NTC",
                                           "LAYOUT_NC",    "LAYOUT_NLC",   "LAYOUT_NCL"};
  const auto i = static_cast<unsigned>(layout);
  return i < std::size(kNames) ? kNames[i] : "LAYOUT_ARRAY";
}

mluOpStatus_t mluOpCreateTensorDescriptor(mluOpTensorDescriptor_t* desc) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  try {
    *desc = new mluOpTensorStruct;
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

mluOpStatus_t mluOpResetTensorDescriptor(mluOpTensorDescriptor_t desc) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  *desc = mluOpTensorStruct{};
  return succeed();
}

mluOpStatus_t mluOpDestroyTensorDescriptor(mluOpTensorDescriptor_t desc) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  delete desc;
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpSetTensorDescriptor(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                       mluOpDataType_t dtype, int dimNb, const int dimSize[]) {
  return set_all(__func__, desc, layout, dtype, dimNb, dimSize);
}
mluOpStatus_t mluOpSetTensorDescriptor_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                          mluOpDataType_t dtype, int dimNb, const int64_t dimSize[]) {
  return set_all(__func__, desc, layout, dtype, dimNb, dimSize);
}
mluOpStatus_t mluOpSetTensorDescriptorEx(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                         mluOpDataType_t dtype, int dimNb, const int dimSize[],
                                         const int dimStride[]) {
  return set_all(__func__, desc, layout, dtype, dimNb, dimSize, true, dimStride);
}
mluOpStatus_t mluOpSetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                            mluOpDataType_t dtype, int dimNb, const int64_t dimSize[],
                                            const int64_t dimStride[]) {
  return set_all(__func__, desc, layout, dtype, dimNb, dimSize, true, dimStride);
}
mluOpStatus_t mluOpSetTensorDescriptorDim(mluOpTensorDescriptor_t desc, int dimNb, const int* dimSize) {
  return set_dims<int>(__func__, desc, dimNb, dimSize, false, nullptr);
}
mluOpStatus_t mluOpSetTensorDescriptorDim_v2(mluOpTensorDescriptor_t desc, int dimNb,
                                             const int64_t* dimSize) {
  return set_dims<std::int64_t>(__func__, desc, dimNb, dimSize, false, nullptr);
}

mluOpStatus_t mluOpGetTensorDescriptor(const mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                                       mluOpDataType_t* dtype, int* dimNb, int dimSize[]) {
  return get<int>(__func__, desc, layout, dtype, dimNb, dimSize, nullptr);
}
mluOpStatus_t mluOpGetTensorDescriptor_v2(const mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                                          mluOpDataType_t* dtype, int* dimNb, int64_t dimSize[]) {
  return get<std::int64_t>(__func__, desc, layout, dtype, dimNb, dimSize, nullptr);
}
mluOpStatus_t mluOpGetTensorDescriptorEx(const mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                                         mluOpDataType_t* dtype, int* dimNb, int dimSize[], int dimStride[]) {
  return get_all(__func__, desc, layout, dtype, dimNb, dimSize, dimStride);
}
mluOpStatus_t mluOpGetTensorDescriptorEx_v2(const mluOpTensorDescriptor_t desc, mluOpTensorLayout_t* layout,
                                            mluOpDataType_t* dtype, int* dimNb, int64_t dimSize[],
                                            int64_t dimStride[]) {
  return get_all(__func__, desc, layout, dtype, dimNb, dimSize, dimStride);
}

size_t mluOpGetTensorElementNum(const mluOpTensorDescriptor_t desc) {
  return desc == nullptr ? 0 : desc->elements;
}

mluOpStatus_t mluOpSetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t pointer_mode) {
  if (desc != nullptr && pointer_mode < 0)
    return refuse(__func__, "pointer_mode is %d, expected 0 or more", pointer_mode);
  return keep(__func__, "desc", desc, &mluOpTensorStruct::pointer_mode, pointer_mode);
}
mluOpStatus_t mluOpGetTensorDescriptorPointerMode(const mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t* pointer_mode) {
  return give(__func__, "desc", desc, &mluOpTensorStruct::pointer_mode, "pointer_mode", pointer_mode);
}
mluOpStatus_t mluOpSetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t onchip_dtype) {
  return keep(__func__, "desc", desc, &mluOpTensorStruct::onchip_dtype, onchip_dtype);
}
mluOpStatus_t mluOpGetTensorDescriptorOnchipDataType(const mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t* onchip_dtype) {
  return give(__func__, "desc", desc, &mluOpTensorStruct::onchip_dtype, "onchip_dtype", onchip_dtype);
}

mluOpStatus_t mluOpSetTensorDescriptorPosition(mluOpTensorDescriptor_t desc, int position) {
  return keep(__func__, "desc", desc, &mluOpTensorStruct::position, position);
}
mluOpStatus_t mluOpSetTensorDescriptorPositionAndScale(mluOpTensorDescriptor_t desc, int position,
                                                       float scale) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  desc->position = position;
  desc->scale = scale;
  return succeed();
}
mluOpStatus_t mluOpSetTensorDescriptorPositionScaleAndOffset(mluOpTensorDescriptor_t desc, int position,
                                                             float scale, int offset) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  desc->position = position;
  desc->scale = scale;
  desc->offset = offset;
  return succeed();
}
mluOpStatus_t mluOpGetTensorDescriptorPosition(const mluOpTensorDescriptor_t desc, int* position) {
  return give(__func__, "desc", desc, &mluOpTensorStruct::position, "position", position);
}
mluOpStatus_t mluOpGetTensorDescriptorPositionAndScale(const mluOpTensorDescriptor_t desc, int* position,
                                                       float* scale) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  if (position == nullptr) return refuse_null(__func__, "position");
  if (scale == nullptr) return refuse_null(__func__, "scale");
  *position = desc->position;
  *scale = desc->scale;
  return succeed();
}
mluOpStatus_t mluOpGetTensorDescriptorPositionScaleAndOffset(const mluOpTensorDescriptor_t desc,
                                                             int* position, float* scale, int* offset) {
  if (desc == nullptr) return refuse_null(__func__, "desc");
  if (position == nullptr) return refuse_null(__func__, "position");
  if (scale == nullptr) return refuse_null(__func__, "scale");
  if (offset == nullptr) return refuse_null(__func__, "offset");
  *position = desc->position;
  *scale = desc->scale;
  *offset = desc->offset;
  return succeed();
}
