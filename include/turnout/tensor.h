// Tensors: non-owning views of the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "turnout/export.h"

namespace turnout {

inline constexpr int kMaxRank = 8;

enum class DType : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean,
  f8_e4m3fn,
  f8_e5m2,
  f8_e8m0,
};
inline constexpr int kDTypeCount = 16;

// Storage types of the 16-bit floats. They hold bits only; arithmetic is done in float.
struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

// Bytes of an element; 0 for a value that is no DType.
constexpr std::int64_t size_of(DType dtype) {
  constexpr std::uint8_t kSize[kDTypeCount] = {4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 1, 1};
  const int i = static_cast<int>(dtype);
  return i < kDTypeCount ? kSize[i] : 0;
}

// "f32", "bf16", "i64", ...
TURNOUT_API const char* name_of(DType dtype);

template <class T>
struct dtype_of_t;
#define TURNOUT_DTYPE_OF(type, name)            \
  template <>                                   \
  struct dtype_of_t<type> {                     \
    static constexpr DType value = DType::name; \
  }
TURNOUT_DTYPE_OF(float, f32);
TURNOUT_DTYPE_OF(double, f64);
TURNOUT_DTYPE_OF(f16, f16);
TURNOUT_DTYPE_OF(bf16, bf16);
TURNOUT_DTYPE_OF(std::int8_t, i8);
TURNOUT_DTYPE_OF(std::uint8_t, u8);
TURNOUT_DTYPE_OF(std::int16_t, i16);
TURNOUT_DTYPE_OF(std::uint16_t, u16);
TURNOUT_DTYPE_OF(std::int32_t, i32);
TURNOUT_DTYPE_OF(std::uint32_t, u32);
TURNOUT_DTYPE_OF(std::int64_t, i64);
TURNOUT_DTYPE_OF(std::uint64_t, u64);
TURNOUT_DTYPE_OF(bool, boolean);
#undef TURNOUT_DTYPE_OF
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

// A view. Data is void* (Tensor) or const void* (ConstTensor). Strides are in elements.
template <class Data>
struct BasicTensor {
  Data data = nullptr;
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};

  BasicTensor() = default;

  // A contiguous, row-major view. A rank above kMaxRank is stored, and every operator then reports it as an
  // error.
  BasicTensor(Data data_, DType dtype_, const std::int64_t* shape_, int rank_)
      : data(data_), dtype(dtype_), rank(rank_) {
    std::uint64_t step = 1;  // unsigned: huge shapes wrap here, and the operators' checks reject them
    for (int d = (rank_ < kMaxRank ? rank_ : kMaxRank) - 1; d >= 0; --d) {
      shape[d] = shape_[d];
      stride[d] = static_cast<std::int64_t>(step);
      step *= static_cast<std::uint64_t>(shape_[d]);
    }
  }
  BasicTensor(Data data_, DType dtype_, std::initializer_list<std::int64_t> shape_)
      : BasicTensor(data_, dtype_, shape_.begin(), static_cast<int>(shape_.size())) {}

  template <class Other>
  requires(!__is_same(Other, Data))
      BasicTensor(const BasicTensor<Other>& other)  // NOLINT: a Tensor is a ConstTensor
      : data(other.data), dtype(other.dtype), rank(other.rank) {
    for (int d = 0; d < kMaxRank; ++d) {
      shape[d] = other.shape[d];
      stride[d] = other.stride[d];
    }
  }
};

using Tensor = BasicTensor<void*>;
using ConstTensor = BasicTensor<const void*>;

// view(ptr, {rows, columns}): a contiguous tensor over typed memory.
template <class T>
Tensor view(T* data, std::initializer_list<std::int64_t> shape) {
  return {data, dtype_of<T>, shape};
}
template <class T>
ConstTensor view(const T* data, std::initializer_list<std::int64_t> shape) {
  return {data, dtype_of<T>, shape};
}

}  // namespace turnout
