// Reduces rows by voxel. Compiled once per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/reduce_kernels.cc"
#include "simd/simd.h"
//
#include "dynamic_scatter/rows.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// The steps of a reduction, the same for vectors and for single lanes.
template <Reduce kReduce>
struct Step {
  template <class V>
  static HWY_INLINE V add(V sum, V v) {
    if constexpr (kReduce == Reduce::max) {
#if HWY_ARCH_X86
      return hn::Max(
          v, sum);  // MAXPS returns its second operand unless the first is larger, like the line below
#else
      return hn::IfThenElse(hn::Gt(v, sum), v, sum);  // skips NaN, keeps the first of +0 and -0
#endif
    } else {
      return hn::Add(sum, v);
    }
  }
  template <class V>
  static HWY_INLINE V end(V sum, V count) {
    if constexpr (kReduce == Reduce::mean) {
      return hn::Div(sum, count);
    } else {
      return sum;
    }
  }
  template <class Lane>
  static HWY_INLINE Lane add_lane(Lane sum, Lane v) {
    return kReduce == Reduce::max ? (v > sum ? v : sum) : sum + v;
  }
  template <class Lane>
  static HWY_INLINE Lane end_lane(Lane sum, Lane count) {
    return kReduce == Reduce::mean ? sum / count : sum;
  }
};

// The divisor of a mean of `count` points; 1 for none, so that their mean is 0.
template <class Lane>
HWY_INLINE Lane divisor(std::int64_t count) {
  return static_cast<Lane>(std::max<std::int64_t>(count, 1));
}

// Reduces kVectors vectors of channels of one voxel.
template <class T, Reduce kReduce, int kVectors>
HWY_INLINE void reduce_columns(const T* feats, std::int64_t channels, const std::int32_t* order,
                               std::int64_t count, T* to) {
  using Lane = typename Block<T>::Lane;
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto start =
      kReduce == Reduce::max ? hn::Set(d, -std::numeric_limits<Lane>::infinity()) : hn::Zero(d);
  auto a = start, b = start, c = start, e = start;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = feats + order[i] * channels;
    a = Step<kReduce>::add(a, widen(row));
    if constexpr (kVectors > 1) {
      b = Step<kReduce>::add(b, widen(row + lanes));
      c = Step<kReduce>::add(c, widen(row + 2 * lanes));
      e = Step<kReduce>::add(e, widen(row + 3 * lanes));
    }
  }
  const auto n = hn::Set(d, divisor<Lane>(count));
  store_rounded(Step<kReduce>::end(a, n), to);
  if constexpr (kVectors > 1) {
    store_rounded(Step<kReduce>::end(b, n), to + lanes);
    store_rounded(Step<kReduce>::end(c, n), to + 2 * lanes);
    store_rounded(Step<kReduce>::end(e, n), to + 3 * lanes);
  }
}

// For a voxel with more than kManyBytes of rows, which would not stay in the cache from one group of channels
// to the next. Reads each row whole, with the sums in memory.
constexpr std::int64_t kManyBytes = 32 << 10;
constexpr std::int64_t kSums = 1024;
template <class T, Reduce kReduce, class Lane>
void reduce_many(const T* feats, std::int64_t channels, const std::int32_t* order, std::int64_t count, T* to,
                 Lane start) {
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  alignas(64) Lane sums[kSums];
  for (const auto [column, width] : pieces(0, channels, kSums)) {
    const Ahead ahead(width * std::int64_t{sizeof(T)});
    std::fill_n(sums, width, start);
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + ahead.rows < count) fetch(feats + order[i + ahead.rows] * channels + column, ahead.bytes);
      const T* row = feats + order[i] * channels + column;
      std::int64_t j = 0;
      for (; j + lanes <= width; j += lanes)
        hn::Store(Step<kReduce>::add(hn::Load(d, sums + j), widen(row + j)), d, sums + j);
      for (; j < width; ++j) sums[j] = Step<kReduce>::add_lane(sums[j], lane_of(row[j]));
    }
    for (std::int64_t j = 0; j < width; ++j)
      to[column + j] = rounded<T>(Step<kReduce>::end_lane(sums[j], divisor<Lane>(count)));
  }
}

template <class T, Reduce kReduce>
void reduce(const ReduceTask& task, std::int64_t first, std::int64_t last, void* to) {
  using Lane = typename Block<T>::Lane;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<Lane>()));
  constexpr Lane kStart = kReduce == Reduce::max ? -std::numeric_limits<Lane>::infinity() : Lane{0};
  const std::int64_t channels = task.channels, row_bytes = channels * std::int64_t{sizeof(T)};
  const Ahead ahead(row_bytes);
  const auto* feats = static_cast<const T*>(task.feats);
  auto* row = static_cast<T*>(to);
  if (feats == nullptr) feats = row;  // not read without points, but offsets from null are undefined
  for (std::int64_t v = first; v < last; ++v, row += channels) {
    const std::int64_t begin = task.groups.starts[v], count = task.groups.count(v);
    const std::int32_t* order = task.groups.order + begin;
    if (count * row_bytes > kManyBytes) {
      reduce_many<T, kReduce>(feats, channels, order, count, row, kStart);
      continue;
    }
    fetch_rows(feats, task.groups, channels, ahead, begin, count, fetch);
    std::int64_t j = 0;
    for (; j + 4 * lanes <= channels; j += 4 * lanes)
      reduce_columns<T, kReduce, 4>(feats + j, channels, order, count, row + j);
    for (; j + lanes <= channels; j += lanes)
      reduce_columns<T, kReduce, 1>(feats + j, channels, order, count, row + j);
    for (; j < channels; ++j) {
      Lane sum = kStart;
      for (std::int64_t i = 0; i < count; ++i)
        sum = Step<kReduce>::add_lane(sum, lane_of(feats[order[i] * channels + j]));
      row[j] = rounded<T>(Step<kReduce>::end_lane(sum, divisor<Lane>(count)));
    }
  }
}

ReduceKernels::Range pick_reduce(DType dtype, Reduce reduce_type) {
  // Unsigned, so that sums wrap around.
  if (dtype == DType::i32) return &reduce<std::uint32_t, Reduce::sum>;
  if (dtype == DType::i64) return &reduce<std::uint64_t, Reduce::sum>;
  return visit_float(dtype, [&](auto type) -> ReduceKernels::Range {
    using T = typename decltype(type)::type;
    if (reduce_type == Reduce::max) return &reduce<T, Reduce::max>;
    return reduce_type == Reduce::mean ? &reduce<T, Reduce::mean> : &reduce<T, Reduce::sum>;
  });
}

constexpr ReduceKernels kReduceKernels = {&pick_reduce};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, ReduceKernels, reduce_kernels, kReduceKernels)
#endif
