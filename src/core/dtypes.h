// Sets of dtypes, and dispatch from a DType at run time to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "turnout/tensor.h"

namespace turnout::core {

using DTypes = std::uint32_t;  // one bit per DType

template <class... D>
constexpr DTypes dtypes(D... d) {
  return ((DTypes{1} << static_cast<int>(d)) | ...);
}
// A dtype of another library that has no DType. It is in no set.
inline constexpr DType kForeign = static_cast<DType>(31);
constexpr bool is_dtype(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }
// False for a number that is not a DType; an enum can hold any number.
constexpr bool contains(DTypes set, DType dtype) {
  return is_dtype(dtype) && ((set >> static_cast<int>(dtype)) & 1);
}

// Whether `data` is aligned to the size of an element. True for a value that is not a DType: it has no size.
inline bool is_aligned(const void* data, DType dtype) {
  const auto size = static_cast<std::uintptr_t>(size_of(dtype));
  return size == 0 || (std::bit_cast<std::uintptr_t>(data) & (size - 1)) == 0;  // a power of two
}

inline constexpr DTypes kFloats = dtypes(DType::f32, DType::f64, DType::f16, DType::bf16);
inline constexpr DTypes kIndices = dtypes(DType::i32, DType::i64);
inline constexpr DTypes kAnyDType = (DTypes{1} << kDTypeCount) - 1;

template <class T>
struct Type {
  using type = T;
};

// Calls f(Type<T>{}) with the float or index type T of `dtype`, which the caller has checked.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(Type<double>{});
    case DType::f16:
      return f(Type<f16>{});
    case DType::bf16:
      return f(Type<bf16>{});
    default:
      return f(Type<float>{});
  }
}
template <class F>
decltype(auto) visit_index(DType dtype, F&& f) {
  return dtype == DType::i64 ? f(Type<std::int64_t>{}) : f(Type<std::int32_t>{});
}
// The type in which values of a float dtype are computed.
template <class F>
decltype(auto) visit_lane(DType dtype, F&& f) {
  return dtype == DType::f64 ? f(Type<double>{}) : f(Type<float>{});
}
// Calls f(Type<T>{}) with an unsigned integer T of 2, 4 or 8 bytes, for code that only moves elements.
template <class F>
decltype(auto) visit_bytes(std::int64_t bytes, F&& f) {
  if (bytes == 2) return f(Type<std::uint16_t>{});
  if (bytes == 4) return f(Type<std::uint32_t>{});
  return f(Type<std::uint64_t>{});
}

}  // namespace turnout::core
