// Maxima and minima of groups of rows, the rows they come from, and gradients. Compiled once per instruction
// set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/extreme_kernels.cc"
#include "simd/simd.h"
//
#include "dynamic_scatter/rows.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// A maximum starts from the lowest finite number and a minimum from the greatest one, as in torch_scatter.
// Only values beyond that are taken.
template <class T, Extreme kWhich>
HWY_INLINE constexpr typename Block<T>::Lane start_of() {
  constexpr bool kIsMinimum = kWhich == Extreme::minimum;
  if constexpr (std::is_same_v<T, f16>) {
    return kIsMinimum ? 65504.0f : -65504.0f;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return kIsMinimum ? 0x1.FEp127f : -0x1.FEp127f;
  } else {
    return kIsMinimum ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  }
}

// Whether v replaces the best value so far. False for NaN.
template <Extreme kWhich, class V>
HWY_INLINE auto is_beyond(V v, V best) {
  if constexpr (std::is_arithmetic_v<V>) {
    return kWhich == Extreme::minimum ? v < best : v > best;
  } else {
    return kWhich == Extreme::minimum ? hn::Lt(v, best) : hn::Gt(v, best);
  }
}

// Stores the numbers of rows, given in lanes as wide as the compared values.
template <class Index, class V>
HWY_INLINE void store_rows_as(V v, void* arg, std::int64_t at) {
  using Number = hn::TFromV<V>;
  const hn::ScalableTag<Number> d;
  auto* const to = static_cast<Index*>(arg) + at;
  if constexpr (sizeof(Number) == sizeof(Index)) {
    hn::StoreU(v, d, to);
  } else {
    alignas(64) Number numbers[HWY_MAX_BYTES / sizeof(Number)];
    hn::Store(v, d, numbers);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<Index>(numbers[i]);
  }
}
template <class V>
HWY_INLINE void store_rows(V v, const ExtremeTask& task, void* arg, std::int64_t at) {
  if (task.arg_bytes == 4) return store_rows_as<std::int32_t>(v, arg, at);
  store_rows_as<std::int64_t>(v, arg, at);
}
inline void store_row(std::int64_t row, const ExtremeTask& task, void* arg, std::int64_t at) {
  if (task.arg_bytes == 4) {
    static_cast<std::int32_t*>(arg)[at] = static_cast<std::int32_t>(row);
  } else {
    static_cast<std::int64_t*>(arg)[at] = row;
  }
}

// Reduces kVectors vectors of channels of one group. `at` is the place of the first one in `arg`.
template <class T, Extreme kWhich, bool kRows, int kVectors>
HWY_INLINE void reduce_columns(const ExtremeTask& task, const T* src, const std::int32_t* order,
                               std::int64_t count, T* out, void* arg, std::int64_t at) {
  const hn::ScalableTag<typename Block<T>::Lane> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Number = hn::TFromD<decltype(di)>;
  constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(typename Block<T>::Lane);
  const auto no_row = hn::Set(di, static_cast<Number>(task.groups.points));
  hn::Vec<decltype(d)> best[kVectors];
  hn::Vec<decltype(di)> from[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    best[k] = hn::Set(d, start_of<T, kWhich>());
    from[k] = no_row;
  }
  const std::int64_t channels = task.channels;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const row = src + order[i] * channels;
    const auto number = hn::Set(di, static_cast<Number>(order[i]));
    for (int k = 0; k < kVectors; ++k) {
      const auto v = widen(row + k * kLanes);
      const auto is_taken = is_beyond<kWhich>(v, best[k]);
      best[k] = hn::IfThenElse(is_taken, v, best[k]);
      if constexpr (kRows) from[k] = hn::IfThenElse(hn::RebindMask(di, is_taken), number, from[k]);
    }
  }
  for (int k = 0; k < kVectors; ++k) {
    const auto is_empty = hn::Eq(best[k], hn::Set(d, start_of<T, kWhich>()));
    store_rounded(hn::IfThenZeroElse(is_empty, best[k]), out + k * kLanes);
    if constexpr (kRows) store_rows(from[k], task, arg, at + k * kLanes);
  }
}

template <class T, Extreme kWhich, bool kRows>
void reduce(const ExtremeTask& task, std::int64_t first, std::int64_t last, void* out_rows, void* arg) {
  constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(typename Block<T>::Lane);
  const VoxelGroups& groups = task.groups;
  const std::int64_t channels = task.channels, none = groups.points;
  const Ahead ahead(channels * std::int64_t{sizeof(T)});
  auto* out = static_cast<T*>(out_rows);
  // Without points src is not read, but offsets from null are undefined.
  const auto* const src = task.src == nullptr ? out : static_cast<const T*>(task.src);
  for (std::int64_t v = first; v < last; ++v, out += channels) {
    const std::int64_t begin = groups.starts[v], count = groups.count(v), place = (v - first) * channels;
    const std::int32_t* const order = groups.order + begin;
    fetch_rows(src, groups, channels, ahead, begin, count, fetch);
    std::int64_t j = 0;
    for (; j + 4 * kLanes <= channels; j += 4 * kLanes)
      reduce_columns<T, kWhich, kRows, 4>(task, src + j, order, count, out + j, arg, place + j);
    for (; j + kLanes <= channels; j += kLanes)
      reduce_columns<T, kWhich, kRows, 1>(task, src + j, order, count, out + j, arg, place + j);
    for (; j < channels; ++j) {
      auto best = start_of<T, kWhich>();
      std::int64_t from = none;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = lane_of(src[order[i] * channels + j]);
        const bool is_taken = is_beyond<kWhich>(value, best);
        best = is_taken ? value : best;
        from = is_taken ? order[i] : from;
      }
      out[j] = from == none ? T{} : rounded<T>(best);
      if constexpr (kRows) store_row(from, task, arg, place + j);
    }
  }
}

// -- in the order of the rows ------------------------------------------------------------------------------

template <class T, Extreme kWhich>
void start(std::int64_t elements, void* best) {
  std::fill_n(static_cast<typename Block<T>::Lane*>(best), elements, start_of<T, kWhich>());
}

template <class T, Extreme kWhich>
void finish(std::int64_t elements, const void* best, void* out) {
  const auto* const from = static_cast<const typename Block<T>::Lane*>(best);
  auto* const to = static_cast<T*>(out);
  for (std::int64_t i = 0; i < elements; ++i)
    to[i] = from[i] == start_of<T, kWhich>() ? T{} : rounded<T>(from[i]);
}

// kChannels: a constant number of them, or 0.
template <class T, Extreme kWhich, bool kRows, int kChannels>
HWY_INLINE void add_elements(const T* src, std::int64_t count, std::int32_t row,
                             typename Block<T>::Lane* best, std::int32_t* from) {
  for (std::int64_t c = 0; c < (kChannels > 0 ? kChannels : count); ++c) {
    const auto v = lane_of(src[c]), old = best[c];
    const bool is_taken = is_beyond<kWhich>(v, old);
    best[c] = is_taken ? v : old;
    if constexpr (kRows) from[c] = is_taken ? row : from[c];
  }
}

template <class T, Extreme kWhich, bool kRows, int kChannels>
void add_narrow(const DirectExtremeTask& task, std::int64_t first, std::int64_t last) {
  using Lane = typename Block<T>::Lane;
  const auto* src = static_cast<const T*>(task.src) + first * kChannels;
  for (std::int64_t x = first; x < last; ++x, src += kChannels) {
    const std::int64_t group = task.map[x] * std::int64_t{kChannels};
    add_elements<T, kWhich, kRows, kChannels>(src, kChannels, static_cast<std::int32_t>(x),
                                              static_cast<Lane*>(task.best) + group,
                                              kRows ? task.from + group : nullptr);
  }
}

template <class T, Extreme kWhich, bool kRows>
void add(const DirectExtremeTask& task, std::int64_t first, std::int64_t last) {
  using Lane = typename Block<T>::Lane;
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t channels = task.channels;
  if (channels == 1) return add_narrow<T, kWhich, kRows, 1>(task, first, last);
  if (channels == 2) return add_narrow<T, kWhich, kRows, 2>(task, first, last);
  if (channels == 3) return add_narrow<T, kWhich, kRows, 3>(task, first, last);
  if (channels == 4) return add_narrow<T, kWhich, kRows, 4>(task, first, last);
  constexpr std::int64_t kAhead = 8;                      // rows
  constexpr bool kVectors = !kRows || sizeof(Lane) == 4;  // so that row numbers have the lanes of values
  const auto* const src = static_cast<const T*>(task.src);
  auto* const best = static_cast<Lane*>(task.best);
  for (std::int64_t x = first; x < last; ++x) {
    if (x + kAhead < last) fetch_line(best + task.map[x + kAhead] * channels);
    const T* const row = src + x * channels;
    Lane* const to = best + task.map[x] * channels;
    std::int32_t* const from = kRows ? task.from + task.map[x] * channels : nullptr;
    const auto number = static_cast<std::int32_t>(x);
    std::int64_t c = 0;
    if constexpr (kVectors) {
      for (; c + lanes <= channels; c += lanes) {
        const auto v = widen(row + c), old = hn::LoadU(d, to + c);
        const auto is_taken = is_beyond<kWhich>(v, old);
        hn::StoreU(hn::IfThenElse(is_taken, v, old), d, to + c);
        if constexpr (kRows) {
          const hn::Rebind<std::int32_t, decltype(d)> di;
          const auto taken = hn::RebindMask(di, is_taken);
          hn::StoreU(hn::IfThenElse(taken, hn::Set(di, number), hn::LoadU(di, from + c)), di, from + c);
        }
      }
    }
    add_elements<T, kWhich, kRows, 0>(row + c, channels - c, number, to + c, kRows ? from + c : nullptr);
  }
}

// Goes point by point and copies a gradient where the extreme comes from this point. Bits is as wide as an
// element.
template <class Bits, class Index>
void backward(const ExtremeBackwardTask& task, std::int64_t first, std::int64_t last, void* to) {
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

template <class F>
auto visit_number(DType dtype, const F& f) {
  if (dtype == DType::i32) return f(Type<std::int32_t>{});
  if (dtype == DType::i64) return f(Type<std::int64_t>{});
  return visit_float(dtype, f);
}

// Calls f(Type<T>{}, a constant of type Extreme).
template <class F>
auto visit_extreme(DType src, Extreme which, const F& f) {
  return visit_number(src, [&](auto type) {
    return which == Extreme::minimum ? f(type, std::integral_constant<Extreme, Extreme::minimum>{})
                                     : f(type, std::integral_constant<Extreme, Extreme::maximum>{});
  });
}

ExtremeKernels::Range pick_reduce(Extreme which, DType src, bool has_rows) {
  return visit_extreme(src, which, [&](auto type, auto extreme) -> ExtremeKernels::Range {
    using T = typename decltype(type)::type;
    return has_rows ? &reduce<T, extreme(), true> : &reduce<T, extreme(), false>;
  });
}

ExtremeKernels::Start pick_start(Extreme which, DType src) {
  return visit_extreme(src, which, [](auto type, auto extreme) -> ExtremeKernels::Start {
    return &start<typename decltype(type)::type, extreme()>;
  });
}
ExtremeKernels::Add pick_add(Extreme which, DType src, bool has_rows) {
  return visit_extreme(src, which, [&](auto type, auto extreme) -> ExtremeKernels::Add {
    using T = typename decltype(type)::type;
    return has_rows ? &add<T, extreme(), true> : &add<T, extreme(), false>;
  });
}
ExtremeKernels::Finish pick_finish(Extreme which, DType src) {
  return visit_extreme(src, which, [](auto type, auto extreme) -> ExtremeKernels::Finish {
    return &finish<typename decltype(type)::type, extreme()>;
  });
}

ExtremeKernels::BackwardRange pick_backward(DType grad, DType argmax) {
  return visit_index(argmax, [&](auto index) -> ExtremeKernels::BackwardRange {
    using Index = typename decltype(index)::type;
    if (size_of(grad) == 8) return &backward<std::uint64_t, Index>;
    return size_of(grad) == 4 ? &backward<std::uint32_t, Index> : &backward<std::uint16_t, Index>;
  });
}

constexpr ExtremeKernels kExtremeKernels = {&pick_reduce, &pick_start, &pick_add, &pick_finish,
                                            &pick_backward};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, ExtremeKernels, extreme_kernels, kExtremeKernels)
#endif
