// Scalar conversions of 16-bit floats, for the reference definitions and for single values in kernels.
// They round to nearest even. NaN becomes quiet and keeps its sign and upper payload. Subnormals are exact.
#pragma once

#include <bit>
#include <cstdint>

#include "turnout/tensor.h"

namespace turnout::core {

inline float to_float(float v) { return v; }
inline double to_float(double v) { return v; }

inline float to_float(bf16 v) { return std::bit_cast<float>(std::uint32_t{v.bits} << 16); }

inline float to_float(f16 v) {
  const std::uint32_t sign = std::uint32_t{v.bits} >> 15 << 31;
  const std::uint32_t exponent = v.bits >> 10 & 31u;
  const std::uint32_t mantissa = v.bits & 0x3FFu;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

template <class T>
T from_float(float v);
template <>
inline float from_float<float>(float v) {
  return v;
}
template <>
inline bf16 from_float<bf16>(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  if (v != v) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}
template <>
inline f16 from_float<f16>(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  } else if (magnitude >= 143u << 23) {  // 65536 and above, infinity
    half = 0x7C00u;
  } else if (magnitude >= 113u << 23) {  // a carry from the mantissa into the exponent is correct
    half = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // subnormal: adding 0.5 rounds at 2^-24, the last bit of 0.5's mantissa and of the f16
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

}  // namespace turnout::core
