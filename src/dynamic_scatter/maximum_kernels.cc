// Maxima of groups of rows, the rows they come from, and gradients. Compiled once per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/maximum_kernels.cc"
#include "simd/simd.h"
//
#include "dynamic_scatter/rows.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// The start value of a maximum: the lowest finite number, as in torch_scatter. Only larger values are taken.
template <class T>
HWY_INLINE typename Block<T>::Lane lowest() {
  if constexpr (std::is_same_v<T, f16>) {
    return -65504.0f;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return -0x1.FEp127f;
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// Row numbers, in lanes as wide as the compared values.
template <class V, class Index>
HWY_INLINE void store_rows(V v, Index* to) {
  using Number = hn::TFromV<V>;
  const hn::ScalableTag<Number> d;
  if constexpr (sizeof(Number) == sizeof(Index)) {
    hn::StoreU(v, d, to);
  } else {
    alignas(64) Number numbers[HWY_MAX_BYTES / sizeof(Number)];
    hn::Store(v, d, numbers);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<Index>(numbers[i]);
  }
}

// Reduces kVectors vectors of channels of one group.
template <class T, class Index, int kVectors>
HWY_INLINE void maximum_columns(const T* src, std::int64_t channels, const std::int32_t* order,
                                std::int64_t count, std::int64_t none, T* out, Index* argmax) {
  const hn::ScalableTag<typename Block<T>::Lane> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Number = hn::TFromD<decltype(di)>;
  constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(typename Block<T>::Lane);
  const auto no_row = hn::Set(di, static_cast<Number>(none));
  hn::Vec<decltype(d)> best[kVectors];
  hn::Vec<decltype(di)> from[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    best[k] = hn::Set(d, lowest<T>());
    from[k] = no_row;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const row = src + order[i] * channels;
    const auto number = hn::Set(di, static_cast<Number>(order[i]));
    for (int k = 0; k < kVectors; ++k) {
      const auto v = widen(row + k * kLanes);
      const auto is_larger = hn::Gt(v, best[k]);  // false for NaN
      best[k] = hn::IfThenElse(is_larger, v, best[k]);
      from[k] = hn::IfThenElse(hn::RebindMask(di, is_larger), number, from[k]);
    }
  }
  for (int k = 0; k < kVectors; ++k) {
    const auto is_empty = hn::RebindMask(d, hn::Eq(from[k], no_row));
    store_rounded(hn::IfThenZeroElse(is_empty, best[k]), out + k * kLanes);
    store_rows(from[k], argmax + k * kLanes);
  }
}

template <class T, class Index>
void maximum(const MaximumTask& task, std::int64_t first, std::int64_t last, void* out_rows,
             void* argmax_rows) {
  constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(typename Block<T>::Lane);
  const VoxelGroups& groups = task.groups;
  const std::int64_t channels = task.channels, none = groups.points;
  const Ahead ahead(channels * std::int64_t{sizeof(T)});
  auto* out = static_cast<T*>(out_rows);
  // Without points src is not read, but offsets from null are undefined.
  const auto* const src = task.src == nullptr ? out : static_cast<const T*>(task.src);
  auto* argmax = static_cast<Index*>(argmax_rows);
  for (std::int64_t v = first; v < last; ++v, out += channels, argmax += channels) {
    const std::int64_t begin = groups.starts[v], count = groups.count(v);
    const std::int32_t* const order = groups.order + begin;
    fetch_rows(src, groups, channels, ahead, begin, count, fetch);
    std::int64_t j = 0;
    for (; j + 4 * kLanes <= channels; j += 4 * kLanes)
      maximum_columns<T, Index, 4>(src + j, channels, order, count, none, out + j, argmax + j);
    for (; j + kLanes <= channels; j += kLanes)
      maximum_columns<T, Index, 1>(src + j, channels, order, count, none, out + j, argmax + j);
    for (; j < channels; ++j) {
      auto best = lowest<T>();
      std::int64_t from = none;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = lane_of(src[order[i] * channels + j]);
        const bool is_larger = value > best;
        best = is_larger ? value : best;
        from = is_larger ? order[i] : from;
      }
      out[j] = from == none ? T{} : rounded<T>(best);
      argmax[j] = static_cast<Index>(from);
    }
  }
}

// Goes point by point and copies a gradient where the maximum comes from this point. Bits is as wide as an
// element.
template <class Bits, class Index>
void backward(const MaximumBackwardTask& task, std::int64_t first, std::int64_t last, void* to) {
  const std::int64_t channels = task.channels;
  const auto* const grads = static_cast<const Bits*>(task.grad_out);
  const auto* const argmax = static_cast<const Index*>(task.argmax);
  const Ahead ahead(channels * std::int64_t{sizeof(Bits)});
  auto* row = static_cast<Bits*>(to);
  for (std::int64_t x = first; x < last; ++x, row += channels) {
    if (x + ahead.rows < last) {
      const std::int64_t next = task.map[x + ahead.rows] * channels;
      fetch(grads + next, ahead.bytes);
      fetch(argmax + next, ahead.bytes * std::int64_t{sizeof(Index)} / std::int64_t{sizeof(Bits)});
    }
    const std::int64_t group = task.map[x] * channels;
    const auto number = static_cast<Index>(x);
    for (std::int64_t j = 0; j < channels; ++j)
      row[j] = argmax[group + j] == number ? grads[group + j] : Bits{0};
  }
}

MaximumKernels::Range pick_maximum(DType src, DType argmax) {
  return visit_index(argmax, [&](auto index) -> MaximumKernels::Range {
    using Index = typename decltype(index)::type;
    if (src == DType::i32) return &maximum<std::int32_t, Index>;
    if (src == DType::i64) return &maximum<std::int64_t, Index>;
    return visit_float(src, [](auto type) -> MaximumKernels::Range {
      return &maximum<typename decltype(type)::type, Index>;
    });
  });
}

MaximumKernels::BackwardRange pick_backward(DType grad, DType argmax) {
  return visit_index(argmax, [&](auto index) -> MaximumKernels::BackwardRange {
    using Index = typename decltype(index)::type;
    if (size_of(grad) == 8) return &backward<std::uint64_t, Index>;
    return size_of(grad) == 4 ? &backward<std::uint32_t, Index> : &backward<std::uint16_t, Index>;
  });
}

constexpr MaximumKernels kMaximumKernels = {&pick_maximum, &pick_backward};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, MaximumKernels, maximum_kernels, kMaximumKernels)
#endif
