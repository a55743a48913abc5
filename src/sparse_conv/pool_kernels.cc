// Implements PoolKernels.
#include "sparse_conv/pool_kernels.h"

#include <type_traits>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse_conv/pool_kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::sparse_conv)

using namespace core;

// Vectors of at most kPoolTurns lanes: kPoolTurns rows of any number of channels are whole vectors.
template <class Lane>
using Tag = hn::CappedTag<Lane, kPoolTurns>;

template <class T>
HWY_INLINE auto load(const T* from) {
  if constexpr (!std::is_same_v<T, f16>) {
    return Few<T, kPoolTurns>::load(from);
  } else {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const auto* bits = reinterpret_cast<const __m128i*>(&from->bits);
    return hn::Vec<Tag<float>>{_mm256_cvtph_ps(_mm_loadu_si128(bits))};
#else
    return widen(from);
#endif
  }
}

template <bool kMax, class V>
HWY_INLINE V step(V result, V v) {
  if constexpr (kMax) {
    return hn::IfThenElse(hn::Gt(v, result), v, result);  // skips NaN
  } else {
    return hn::Add(result, v);
  }
}

// kVectors vectors of all groups of kPoolTurns rows, which are `stride` elements apart.
template <class T, bool kMax, int kVectors, class Lane>
HWY_INLINE void reduce_vectors(const T* from, std::int64_t groups, std::int64_t stride, Lane* results) {
  const Tag<Lane> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag<Lane>()));
  hn::Vec<Tag<Lane>> result[kVectors];
  for (int i = 0; i < kVectors; ++i) result[i] = hn::LoadU(d, results + i * kLanes);
  for (std::int64_t g = 0; g < groups; ++g, from += stride)
    for (int i = 0; i < kVectors; ++i) result[i] = step<kMax>(result[i], load(from + i * kLanes));
  for (int i = 0; i < kVectors; ++i) hn::StoreU(result[i], d, results + i * kLanes);
}

template <class T, bool kMax, class Lane>
void reduce(const void* rows, std::int64_t count, std::int64_t channels, Lane* results) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag<Lane>()));
  const auto* const from = static_cast<const T*>(rows);
  const std::int64_t groups = count / kPoolTurns, stride = kPoolTurns * channels;
  std::int64_t j = 0;
  for (; j + 8 * kLanes <= stride; j += 8 * kLanes)
    reduce_vectors<T, kMax, 8>(from + j, groups, stride, results + j);
  for (; j < stride; j += kLanes) reduce_vectors<T, kMax, 1>(from + j, groups, stride, results + j);
  // The last rows are consecutive, and so are their results.
  const T* const last = from + groups * stride;
  const std::int64_t rest = count * channels - groups * stride;
  for (j = 0; j + kLanes <= rest; j += kLanes) reduce_vectors<T, kMax, 1>(last + j, 1, 0, results + j);
  for (; j < rest; ++j) {
    const Lane v = to_float(last[j]);
    results[j] = !kMax ? results[j] + v : v > results[j] ? v : results[j];
  }
}

template <class Lane>
typename PoolKernels<Lane>::Reduce pick_reduce(DType dtype, bool is_max) {
  if constexpr (std::is_same_v<Lane, double>) {
    return is_max ? &reduce<double, true, double> : &reduce<double, false, double>;
  } else {
    if (dtype == DType::f16) return is_max ? &reduce<f16, true, float> : &reduce<f16, false, float>;
    if (dtype == DType::bf16) return is_max ? &reduce<bf16, true, float> : &reduce<bf16, false, float>;
    return is_max ? &reduce<float, true, float> : &reduce<float, false, float>;
  }
}

constexpr PoolKernels<float> kFloatKernels = {&pick_reduce<float>};
constexpr PoolKernels<double> kDoubleKernels = {&pick_reduce<double>};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::families::sparse_conv {

template <>
const PoolKernels<float>& pool_kernels<float>(Isa isa) {
  static constexpr core::KernelTable<PoolKernels<float>> kTable = TURNOUT_KERNEL_TABLE(kFloatKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}
template <>
const PoolKernels<double>& pool_kernels<double>(Isa isa) {
  static constexpr core::KernelTable<PoolKernels<double>> kTable = TURNOUT_KERNEL_TABLE(kDoubleKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}

}  // namespace turnout::families::sparse_conv
#endif
