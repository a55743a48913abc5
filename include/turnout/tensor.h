// Tensors: non-owning views of the caller's memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <type_traits>

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

// Bytes per element; 0 for a value that is not a DType.
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

// An element of a shape, from an integer of any type: {rows.size(), 4} needs no casts.
struct Size {
  template <std::integral Integer>
  constexpr Size(Integer value_) : value(static_cast<std::int64_t>(value_)) {}  // NOLINT: implicit by intent
  std::int64_t value;
};

// A view. Data is void* (Tensor) or const void* (ConstTensor). Strides are in elements.
template <class Data>
struct BasicTensor {
  Data data = nullptr;
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};

  BasicTensor() = default;
  // An absent optional argument.
  BasicTensor(std::nullptr_t) : rank(-1) {}  // NOLINT: implicit by intent
  bool is_absent() const { return rank == -1; }

  // A contiguous, row-major view. A rank above kMaxRank is stored; every operator then rejects the tensor.
  BasicTensor(Data data_, DType dtype_, const std::int64_t* shape_, int rank_)
      : data(data_), dtype(dtype_), rank(rank_) {
    for (int d = 0; d < rank && d < kMaxRank; ++d) shape[d] = shape_[d];
    set_strides();
  }
  BasicTensor(Data data_, DType dtype_, std::initializer_list<Size> shape_)
      : data(data_), dtype(dtype_), rank(static_cast<std::int32_t>(shape_.size())) {
    for (int d = 0; d < rank && d < kMaxRank; ++d) shape[d] = shape_.begin()[d].value;
    set_strides();
  }

  template <class Other>
  requires(!std::is_same_v<Other, Data> && std::is_convertible_v<Other, Data>)
      BasicTensor(const BasicTensor<Other>& other)  // NOLINT: a Tensor is a ConstTensor
      : data(other.data), dtype(other.dtype), rank(other.rank) {
    for (int d = 0; d < kMaxRank; ++d) {
      shape[d] = other.shape[d];
      stride[d] = other.stride[d];
    }
  }

 private:
  void set_strides() {
    std::uint64_t step = 1;  // unsigned: huge shapes wrap here, and the operators' checks reject them
    for (int d = (rank < kMaxRank ? rank : kMaxRank) - 1; d >= 0; --d) {
      stride[d] = static_cast<std::int64_t>(step);
      step *= static_cast<std::uint64_t>(shape[d]);
    }
  }
};

using Tensor = BasicTensor<void*>;
using ConstTensor = BasicTensor<const void*>;

// view(pointer, {rows, columns}): a contiguous tensor over typed memory. A const pointer gives a ConstTensor.
template <class T>
using TensorOf = std::conditional_t<std::is_const_v<T>, ConstTensor, Tensor>;
template <class T>
TensorOf<T> view(T* data, std::initializer_list<Size> shape) {
  return {data, dtype_of<std::remove_const_t<T>>, shape};
}

// view(values, {rows, columns}) views a vector, span or std::array. Throws Error(bad_param) unless it has as
// many elements as the shape. view(values) has one dimension and also accepts arrays. Temporary containers do
// not compile; spans may be temporary.
template <class C>
concept Container = !std::is_array_v<C> && requires(C & c) {
  {*std::data(c)};
  { std::size(c) } -> std::integral;
};
TURNOUT_API void expect_elements(std::size_t count, std::initializer_list<Size> shape);

template <Container C>
auto view(C& values, std::initializer_list<Size> shape) {
  expect_elements(std::size(values), shape);
  return view(std::data(values), shape);
}
template <class T, std::size_t extent>
TensorOf<T> view(std::span<T, extent> values, std::initializer_list<Size> shape) {
  expect_elements(values.size(), shape);
  return view(values.data(), shape);
}
template <class C>
requires(Container<C> || std::is_array_v<C>) auto view(C& values) {
  return view(std::data(values), {std::size(values)});
}
template <class T, std::size_t extent>
TensorOf<T> view(std::span<T, extent> values) {
  return view(values.data(), {values.size()});
}

}  // namespace turnout
