// SIMD: with simd/math.h the only file that includes Highway. A kernels.cc includes it like this, and
// everything between TURNOUT_ISA_BEGIN(family) and TURNOUT_ISA_END is compiled once per instruction set:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "<family>/kernels.cc"
//   #include "simd/simd.h"
//
// Only Highway's headers are used: the choice of instruction set is simd/isa.h, so nothing is linked.
// 16-bit floats are converted here, because those of Highway 1.0.3 round wrongly (bf16 truncates, NaN becomes
// infinite). To nearest even; NaN stays NaN with its sign and upper payload, quiet; subnormals are exact.
#ifndef HWY_IS_DEBUG_BUILD
#define HWY_IS_DEBUG_BUILD 0  // its assertions end in a function of the library that is not linked
#endif
#if defined(__aarch64__)  // NEON alone: no class can have an SVE vector as a member
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// Highway's name for: nothing is chosen at run time, so NEON code has no attribute. That would be crypto,
// which nothing here uses, and a constructor that g++ makes lacks it, so Highway's could not be inlined
// there.
#define TOOLCHAIN_MISS_SYS_AUXV_H
#elif !defined(TURNOUT_MOST_ISA)
#error "TURNOUT_MOST_ISA is missing: this target lacks turnout_flags"
#elif TURNOUT_MOST_ISA == 0  // what this build has no code for
#define HWY_DISABLED_TARGETS (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)
#elif TURNOUT_MOST_ISA == 1
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL)
#elif TURNOUT_MOST_ISA == 2
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#endif
#include <hwy/foreach_target.h>  // must come before highway.h
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "simd/copy.h"
#include "simd/isa.h"
#include "turnout/tensor.h"

#ifndef TURNOUT_SIMD_ONCE
#define TURNOUT_SIMD_ONCE

// What is inside belongs to its file alone: two kernel files may use the same names.
#define TURNOUT_ISA_BEGIN(family)      \
  HWY_BEFORE_NAMESPACE();              \
  namespace turnout::family {          \
  using namespace core;                \
  namespace HWY_NAMESPACE {            \
  using namespace core::HWY_NAMESPACE; \
  namespace {
#define TURNOUT_ISA_END \
  }                     \
  }                     \
  }                     \
  HWY_AFTER_NAMESPACE();

namespace turnout::core {

// Which lanes a mask of 8 (or 4) lanes keeps, as bytes, for compress() below. Highway 1.0.3 has such a table
// as a local constant, which g++ copies to the stack in every call: that was half the time of a loop.
struct CompressTable {
  alignas(64) std::uint8_t lanes[256][8];
  alignas(64) std::uint8_t bytes[16][16];
  constexpr CompressTable() : lanes(), bytes() {
    for (unsigned mask = 0; mask < 256; ++mask)
      for (std::uint8_t lane = 0, next = 0; lane < 8; ++lane)
        if (mask >> lane & 1) lanes[mask][next++] = lane;
    for (unsigned mask = 0; mask < 16; ++mask)
      for (unsigned b = 0; b < 16; ++b)
        bytes[mask][b] = static_cast<std::uint8_t>(lanes[mask][b / 4] * 4 + b % 4);
  }
};
inline constexpr CompressTable kCompressTable;

}  // namespace turnout::core

// TURNOUT_KERNEL_TABLE(x): a KernelTable of each instruction set's object x.
#if HWY_TARGETS & HWY_SSE4
#define TURNOUT_ON_SSE4(x) &N_SSE4::x
#else
#define TURNOUT_ON_SSE4(x) nullptr
#endif
#if HWY_TARGETS & HWY_AVX2
#define TURNOUT_ON_AVX2(x) &N_AVX2::x
#else
#define TURNOUT_ON_AVX2(x) nullptr
#endif
#if HWY_TARGETS & HWY_AVX3
#define TURNOUT_ON_AVX512(x) &N_AVX3::x
#else
#define TURNOUT_ON_AVX512(x) nullptr
#endif
#if HWY_TARGETS & HWY_AVX3_DL
#define TURNOUT_ON_AVX512_DL(x) &N_AVX3_DL::x
#else
#define TURNOUT_ON_AVX512_DL(x) nullptr
#endif
#if HWY_TARGETS & HWY_NEON
#define TURNOUT_ON_NEON(x) &N_NEON::x
#else
#define TURNOUT_ON_NEON(x) nullptr
#endif
#define TURNOUT_KERNEL_TABLE(x)                                                            \
  {                                                                                        \
    TURNOUT_ON_SSE4(x), TURNOUT_ON_AVX2(x), TURNOUT_ON_AVX512(x), TURNOUT_ON_AVX512_DL(x), \
        TURNOUT_ON_NEON(x)                                                                 \
  }

// const Kernels& function(Isa isa): each instruction set's object. Within #if HWY_ONCE, after
// TURNOUT_ISA_END.
#define TURNOUT_KERNELS(family, Kernels, function, object)                       \
  namespace turnout::family {                                                    \
  const Kernels& function(Isa isa) {                                             \
    static constexpr KernelTable<Kernels> kTable = TURNOUT_KERNEL_TABLE(object); \
    return *kTable[static_cast<std::size_t>(isa)];                               \
  }                                                                              \
  }

#endif  // TURNOUT_SIMD_ONCE

// The part below is compiled once per instruction set.
#if defined(TURNOUT_SIMD_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_SIMD_PER_ISA
#undef TURNOUT_SIMD_PER_ISA
#else
#define TURNOUT_SIMD_PER_ISA
#endif

TURNOUT_ISA_BEGIN(core)

namespace hn = hwy::HWY_NAMESPACE;

// A Block<T> is what fills one vector register with T. map(op, from) widens a block to lanes of Lane<T>,
// applies op to each vector of lanes, and rounds back to T: one step for f32 and f64, two halves for 16-bit
// floats.
template <class T>
struct Block {
  using Lane = T;
  using D = hn::ScalableTag<T>;        // of the lanes
  using Storage = hn::ScalableTag<T>;  // of the register that is stored
  template <class Op>
  static HWY_INLINE hn::Vec<Storage> map(const Op& op, const T* from) {
    return op(hn::LoadU(D(), from));
  }
  static HWY_INLINE void store(hn::Vec<Storage> v, T* to) { hn::StoreU(v, Storage(), to); }
  static HWY_INLINE void stream(hn::Vec<Storage> v, T* to) { hn::Stream(v, Storage(), to); }
};
template <class T>
constexpr std::int64_t block_size() {
  return HWY_MAX_BYTES / sizeof(T);
}

// Lines that will be read soon, into the second cache: it can wait for several times as many lines as the
// first, so that rows from wherever they lie come in twice as fast.
inline constexpr std::int64_t kLine = 64;
HWY_INLINE void fetch_line(const void* p) { __builtin_prefetch(p, 0, 2); }
HWY_INLINE void fetch(const void* from, std::int64_t bytes) {
  const auto* line = static_cast<const char*>(from);
  const auto* const last = line + bytes - 1;
  for (; line < last; line += kLine) fetch_line(line);
  fetch_line(last);
}

// Calls line(i) for each vector of the whole lines of the target, and edge(i, n) for the bytes before and
// behind them.
template <class Line, class Edge>
HWY_INLINE void by_lines(const void* to, std::int64_t bytes, const Line& line, const Edge& edge) {
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  std::int64_t i = std::min(bytes, (kLine - misaligned) % kLine);
  if (i > 0) edge(std::int64_t{0}, static_cast<std::size_t>(i));
  for (; i + kLine <= bytes; i += kLine)
    for (std::int64_t b = i; b < i + kLine; b += HWY_MAX_BYTES) line(b);
  if (i < bytes) edge(i, static_cast<std::size_t>(bytes - i));
}

// to[0 .. bytes-1] = from[0 .. bytes-1], whole lines past the cache.
HWY_INLINE void stream_bytes(void* to, const void* from, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  by_lines(
      to, bytes, [&](std::int64_t i) HWY_ATTR { hn::Stream(hn::LoadU(d, in + i), d, out + i); },
      [&](std::int64_t i, std::size_t n) { copy_short(out + i, in + i, static_cast<std::int64_t>(n)); });
}

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;  // half a vector

// low[j], high[j] = the halves of table[index[j]]. One load for both, and on AVX2 and SSE4 no gather: on Zen
// 3 that costs four times the loads.
struct Halves {
  hn::Vec<U32> low, high;
};
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
HWY_INLINE __m128 load_two(const std::uint64_t* table, const std::uint32_t* index) {
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + index[0]));
  return _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(table + index[1]));
}
#endif
#if HWY_TARGET == HWY_AVX2
HWY_INLINE Halves gather_halves(const std::uint64_t* table, const std::uint32_t* index) {
  // Lanes 0, 1, 4, 5 and 2, 3, 6, 7: the shuffles below work within 128 bits.
  const __m256 a = _mm256_set_m128(load_two(table, index + 4), load_two(table, index));
  const __m256 b = _mm256_set_m128(load_two(table, index + 6), load_two(table, index + 2));
  return {hn::Vec<U32>{_mm256_castps_si256(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)))},
          hn::Vec<U32>{_mm256_castps_si256(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)))}};
}
#elif HWY_TARGET == HWY_SSE4
HWY_INLINE Halves gather_halves(const std::uint64_t* table, const std::uint32_t* index) {
  const __m128 a = load_two(table, index), b = load_two(table, index + 2);
  return {hn::Vec<U32>{_mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)))},
          hn::Vec<U32>{_mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)))}};
}
#else
HWY_INLINE Halves gather_halves(const std::uint64_t* table, const std::uint32_t* index) {
  const U32 d;
  const hn::RebindToSigned<U32> di;
  const auto twice = hn::ShiftLeft<1>(hn::LoadU(d, index));
  const auto* words = reinterpret_cast<const std::uint32_t*>(table);
  return {hn::GatherIndex(d, words, hn::BitCast(di, twice)),
          hn::GatherIndex(d, words + 1, hn::BitCast(di, twice))};
}
#endif

// The lanes that `mask` has, in order; what follows them is anything.
#if HWY_TARGET == HWY_AVX2
HWY_INLINE hn::Vec<U32> compress(hn::Vec<U32> v, hn::Mask<U32> mask) {
  const auto bits = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.raw)));
  const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompressTable.lanes[bits]));
  return hn::Vec<U32>{_mm256_permutevar8x32_epi32(v.raw, _mm256_cvtepu8_epi32(packed))};
}
#elif HWY_TARGET == HWY_SSE4
HWY_INLINE hn::Vec<U32> compress(hn::Vec<U32> v, hn::Mask<U32> mask) {
  const auto bits = static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(mask.raw)));
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kCompressTable.bytes[bits]));
  return hn::Vec<U32>{_mm_shuffle_epi8(v.raw, order)};
}
#else
HWY_INLINE hn::Vec<U32> compress(hn::Vec<U32> v, hn::Mask<U32> mask) { return hn::Compress(v, mask); }
#endif

// The bits of a bf16, nearest even, of each float.
HWY_INLINE hn::Vec<U32> bf16_bits_of(hn::Vec<F32> v) {
  const U32 d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40u));
  // Not v != v: with AVX2, Highway 1.0.3 compares in the way that is false for NaN.
  const hn::RebindToSigned<U32> di;
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(d, 0x7FFFFFFFu)));
  const auto is_nan = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(di, 0x7F800000)));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

// The float of each f16, in integer steps that leave NaN and subnormals exact.
HWY_INLINE hn::Vec<F32> float_of_f16_bits(hn::Vec<U32> half) {
  const U32 d;
  const F32 df;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(d, 0x7FFFu)));
  const auto exponent = hn::And(magnitude, hn::Set(d, 0x0F800000u));
  // Normal numbers: rebias by 112. Infinities and NaN: by another 112, and NaN becomes quiet.
  const auto normal = hn::Add(magnitude, hn::Set(d, 112u << 23));
  const auto special = hn::Add(normal, hn::Set(d, 112u << 23));
  const auto is_nan = hn::Gt(hn::BitCast(hn::RebindToSigned<U32>(), magnitude),
                             hn::Set(hn::RebindToSigned<U32>(), 0x0F800000));
  const auto quiet = hn::IfThenElse(hn::RebindMask(d, is_nan), hn::Set(d, 0x00400000u), hn::Zero(d));
  // Subnormals: 2^-14 * (1 + m/1024) - 2^-14 is exact.
  const auto subnormal = hn::BitCast(
      d, hn::Sub(hn::BitCast(df, hn::Add(magnitude, hn::Set(d, 113u << 23))), hn::Set(df, 6.103515625e-5f)));
  auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), subnormal, normal);
  bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, 0x0F800000u)), hn::Or(special, quiet), bits);
  return hn::BitCast(df, hn::Or(bits, sign));
}

// The bits of an f16, nearest even, of each float.
HWY_INLINE hn::Vec<U32> f16_bits_of(hn::Vec<F32> v) {
  const U32 d;
  const F32 df;
  const hn::RebindToSigned<U32> di;
  const auto bits = hn::BitCast(d, v);
  const auto sign = hn::And(bits, hn::Set(d, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  // Normal result: rebias and round on the 13 bits that go; a carry into the exponent is right, up to
  // infinity.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(d, 0xFFFu - (112u << 23)))));
  // Subnormal result: adding 0.5 leaves the f16's bits, rounded by the adder, in the low mantissa.
  const auto half = hn::Set(df, 0.5f);
  const auto subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(d, half));
  const auto infinity = hn::Set(d, 0x7C00u);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3FFu)), hn::Set(d, 0x7E00u));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto is_small = hn::RebindMask(d, hn::Lt(signed_magnitude, hn::Set(di, 113 << 23)));
  const auto is_large = hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, ((127 + 16) << 23) - 1)));
  const auto is_nan = hn::RebindMask(d, hn::Gt(signed_magnitude, hn::Set(di, 0x7F800000)));
  auto result = hn::IfThenElse(is_small, subnormal, normal);
  result = hn::IfThenElse(is_large, infinity, result);
  result = hn::IfThenElse(is_nan, nan, result);
  return hn::Or(result, hn::ShiftRight<16>(sign));
}

HWY_INLINE hn::Vec<F32> widen(const bf16* from) {
  const auto bits = hn::PromoteTo(U32(), hn::LoadU(U16(), &from->bits));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE hn::Vec<U16> narrow(bf16, hn::Vec<F32> v) {
  return hn::DemoteTo(U16(), hn::BitCast(hn::RebindToSigned<U32>(), bf16_bits_of(v)));
}

#if HWY_TARGET == HWY_AVX2
HWY_INLINE hn::Vec<F32> widen(const f16* from) {
  return hn::Vec<F32>{_mm256_cvtph_ps(hn::LoadU(U16(), &from->bits).raw)};
}
HWY_INLINE hn::Vec<U16> narrow(f16, hn::Vec<F32> v) {
  return hn::Vec<U16>{_mm256_cvtps_ph(v.raw, _MM_FROUND_TO_NEAREST_INT)};
}
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
HWY_INLINE hn::Vec<F32> widen(const f16* from) {
  return hn::Vec<F32>{_mm512_cvtph_ps(hn::LoadU(U16(), &from->bits).raw)};
}
HWY_INLINE hn::Vec<U16> narrow(f16, hn::Vec<F32> v) {
  return hn::Vec<U16>{_mm512_cvtps_ph(v.raw, _MM_FROUND_TO_NEAREST_INT)};
}
#else
HWY_INLINE hn::Vec<F32> widen(const f16* from) {
  return float_of_f16_bits(hn::PromoteTo(U32(), hn::LoadU(U16(), &from->bits)));
}
HWY_INLINE hn::Vec<U16> narrow(f16, hn::Vec<F32> v) {
  return hn::DemoteTo(U16(), hn::BitCast(hn::RebindToSigned<U32>(), f16_bits_of(v)));
}
#endif

template <class T>
struct HalfBlock {
  using Lane = float;
  using D = F32;
  using Storage = hn::ScalableTag<std::uint16_t>;
  template <class Op>
  static HWY_INLINE hn::Vec<Storage> map(const Op& op, const T* from) {
    const auto low = narrow(T{}, op(widen(from)));
    const auto high = narrow(T{}, op(widen(from + hn::Lanes(F32()))));
    return hn::Combine(Storage(), high, low);
  }
  static HWY_INLINE void store(hn::Vec<Storage> v, T* to) { hn::StoreU(v, Storage(), &to->bits); }
  static HWY_INLINE void stream(hn::Vec<Storage> v, T* to) { hn::Stream(v, Storage(), &to->bits); }
};
template <>
struct Block<f16> : HalfBlock<f16> {};
template <>
struct Block<bf16> : HalfBlock<bf16> {};

TURNOUT_ISA_END
#endif  // per instruction set
