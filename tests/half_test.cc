// Conversions of 16-bit floats: compares the scalar ones with arithmetic, and the vector ones of every
// instruction set with the scalar ones.
#include "simd/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "half_kernels.h"
#include "simd/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "half_test.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(core)

template <class T>
void copy(const T* from, T* to) {
  for (std::int64_t i = 0; i < kBatch; i += block_size<T>())
    Block<T>::store(Block<T>::map([](auto v) HWY_ATTR { return v; }, from + i), to + i);
}
template <class T>
void narrow_all(const float* from, T* to) {
  const F32 d;
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(d))
    hn::StoreU(narrow(T{}, hn::LoadU(d, from + i)), U16(), &to[i].bits);
}
template <class T>
void widen_all(const T* from, float* to) {
  const F32 d;
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(d)) hn::StoreU(widen(from + i), d, to + i);
}
constexpr HalfKernels kHalfKernels = {&copy<f16>,        &copy<bf16>,     &narrow_all<f16>,
                                      &narrow_all<bf16>, &widen_all<f16>, &widen_all<bf16>};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::core {

const HalfKernels* half_kernels(Isa isa) {
  static constexpr KernelTable<HalfKernels> kTable = TURNOUT_KERNEL_TABLE(kHalfKernels);
  return is_supported(isa) ? kTable[static_cast<std::size_t>(isa)] : nullptr;
}

namespace {

// The value by the definition of the format, from sign, exponent and fraction.
template <class T>
double value_of(T half, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = half.bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = half.bits & ((1 << mantissa_bits) - 1);
  const double sign = half.bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}
double value_of(f16 v) { return value_of(v, 5, 10); }
double value_of(bf16 v) { return value_of(v, 8, 7); }

template <class T>
class HalfTest : public testing::Test {};
using Halves = testing::Types<f16, bf16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, WideningMatchesTheDefinition) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam half{static_cast<std::uint16_t>(bits)};
    const double expected = value_of(half);
    const float actual = to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
    } else {
      EXPECT_EQ(expected, static_cast<double>(actual)) << bits;
      EXPECT_EQ(std::signbit(expected), std::signbit(actual)) << bits;
    }
  }
}

// Values at which rounding changes: each half float, the midpoint to the next one, and both neighbours of the
// midpoint.
template <class T>
std::vector<float> decisive_floats() {
  std::vector<float> all;
  for (int bits = 0; bits < 65536; ++bits) {
    const T half{static_cast<std::uint16_t>(bits)}, next{static_cast<std::uint16_t>(bits + 1)};
    const float a = to_float(half), b = to_float(next);
    const auto middle = static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2);
    all.insert(all.end(), {a, middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)});
  }
  for (std::uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC12345u, 0x477FEFFFu, 0x477FF000u, 0x477FF001u,
                             0x7F7FFFFFu, 0x00000001u, 0x807FFFFFu, 0x33000000u, 0x33000001u})
    all.push_back(std::bit_cast<float>(bits));
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  while (all.size() % kBatch) all.push_back(0.0f);
  return all;
}

TYPED_TEST(HalfTest, NarrowingIsToNearestEven) {
  for (float v : decisive_floats<TypeParam>()) {
    const TypeParam half = from_float<TypeParam>(v);
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(value_of(half)));
      EXPECT_EQ(half.bits >> 15, std::bit_cast<std::uint32_t>(v) >> 31);
      continue;
    }
    const double got = value_of(half);
    EXPECT_EQ(std::signbit(got), std::signbit(v));
    if (std::isinf(got)) {  // for values at least half a step above the largest finite value
      const TypeParam greatest{static_cast<std::uint16_t>((half.bits & 0x7FFF) - 1)};
      const TypeParam before{static_cast<std::uint16_t>(greatest.bits - 1)};
      EXPECT_GE(std::abs(static_cast<double>(v)),
                value_of(greatest) + (value_of(greatest) - value_of(before)) / 2);
      continue;
    }
    const double error = std::abs(got - static_cast<double>(v));
    for (int step : {-1, 1}) {
      const TypeParam neighbour{static_cast<std::uint16_t>(half.bits + step)};
      const double other = value_of(neighbour);
      if (!std::isfinite(other) || std::signbit(other) != std::signbit(got)) continue;
      const double other_error = std::abs(other - static_cast<double>(v));
      EXPECT_TRUE(error < other_error || (error == other_error && half.bits % 2 == 0)) << v;
    }
  }
}

TYPED_TEST(HalfTest, EveryIsaHasTheSameBits) {
  const auto floats = decisive_floats<TypeParam>();
  int tested = 0;
  for (int i = 0; i < kIsaCount; ++i) {
    const HalfKernels* kernels = half_kernels(static_cast<Isa>(i));
    if (kernels == nullptr) continue;
    ++tested;
    SCOPED_TRACE(name_of(static_cast<Isa>(i)));
    TypeParam in[kBatch], out[kBatch];
    float wide[kBatch];
    constexpr bool kIsF16 = std::is_same_v<TypeParam, f16>;
    for (int base = 0; base < 65536; base += kBatch) {
      for (int k = 0; k < kBatch; ++k) in[k] = {static_cast<std::uint16_t>(base + k)};
      if constexpr (kIsF16) {
        kernels->copy_f16(in, out);
        kernels->widen_f16(in, wide);
      } else {
        kernels->copy_bf16(in, out);
        kernels->widen_bf16(in, wide);
      }
      for (int k = 0; k < kBatch; ++k) {
        EXPECT_EQ(out[k].bits, from_float<TypeParam>(to_float(in[k])).bits) << base + k;
        EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[k]), std::bit_cast<std::uint32_t>(to_float(in[k])))
            << base + k;
      }
    }
    for (std::size_t base = 0; base < floats.size(); base += kBatch) {
      if constexpr (kIsF16) {
        kernels->narrow_f16(&floats[base], out);
      } else {
        kernels->narrow_bf16(&floats[base], out);
      }
      for (std::size_t k = 0; k < kBatch; ++k)
        ASSERT_EQ(out[k].bits, from_float<TypeParam>(floats[base + k]).bits) << floats[base + k];
    }
  }
  EXPECT_GE(tested, 1);
}

}  // namespace
}  // namespace turnout::core
#endif
