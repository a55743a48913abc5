// Adds rows to the sums of their groups in the order of the rows. Compiled once per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/direct_kernels.cc"
#include "simd/simd.h"
//
#include "dynamic_scatter/rows.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// Rows of a constant number of channels, with the sum of the last group in registers: if the next row is of
// the same group, the addition need not wait for the store.
template <class T, int kChannels>
void add_narrow(const DirectTask& task, std::int64_t first, std::int64_t last) {
  using Lane = typename Block<T>::Lane;
  const auto* src = static_cast<const T*>(task.src) + first * kChannels;
  auto* const sums = static_cast<Lane*>(task.sums);
  for (std::int64_t x = first; x < last; ++x, src += kChannels) {
    Lane* const to = sums + task.map[x] * std::int64_t{kChannels};
    for (int c = 0; c < kChannels; ++c) to[c] = to[c] + lane_of(src[c]);
  }
}

template <class T>
void add(const DirectTask& task, std::int64_t first, std::int64_t last) {
  using Lane = typename Block<T>::Lane;
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t channels = task.channels;
  if (channels == 1) return add_narrow<T, 1>(task, first, last);
  if (channels == 2) return add_narrow<T, 2>(task, first, last);
  if (channels == 3) return add_narrow<T, 3>(task, first, last);
  if (channels == 4) return add_narrow<T, 4>(task, first, last);
  constexpr std::int64_t kAhead = 8;  // rows
  const auto* const src = static_cast<const T*>(task.src);
  auto* const sums = static_cast<Lane*>(task.sums);
  for (std::int64_t x = first; x < last; ++x) {
    if (x + kAhead < last) fetch_line(sums + task.map[x + kAhead] * channels);
    const T* const from = src + x * channels;
    Lane* const to = sums + task.map[x] * channels;
    std::int64_t c = 0;
    for (; c + lanes <= channels; c += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, to + c), widen(from + c)), d, to + c);
    for (; c < channels; ++c) to[c] = to[c] + lane_of(from[c]);
  }
}

template <class T, bool kMean>
void finish(const void* from, const std::int32_t* counts, std::int64_t groups, std::int64_t channels,
            void* to) {
  using Lane = typename Block<T>::Lane;
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* sums = static_cast<const Lane*>(from);
  auto* out = static_cast<T*>(to);
  for (std::int64_t g = 0; g < groups; ++g, sums += channels, out += channels) {
    const Lane n = kMean ? static_cast<Lane>(std::max(counts[g], 1)) : Lane{1};
    const auto by = hn::Set(d, n);
    std::int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) {
      const auto v = hn::LoadU(d, sums + c);
      store_rounded(kMean ? hn::Div(v, by) : v, out + c);
    }
    for (; c < channels; ++c) out[c] = rounded<T>(kMean ? sums[c] / n : sums[c]);
  }
}

DirectKernels::Add pick_add(DType dtype) {
  // Unsigned, so that sums wrap around.
  if (dtype == DType::i32) return &add<std::uint32_t>;
  if (dtype == DType::i64) return &add<std::uint64_t>;
  return visit_float(dtype,
                     [&](auto type) -> DirectKernels::Add { return &add<typename decltype(type)::type>; });
}

DirectKernels::Finish pick_finish(DType dtype, Reduce reduce_type) {
  if (dtype == DType::i32 || dtype == DType::i64) return nullptr;  // integers have no means
  return visit_float(dtype, [&](auto type) -> DirectKernels::Finish {
    using T = typename decltype(type)::type;
    return reduce_type == Reduce::mean ? &finish<T, true> : &finish<T, false>;
  });
}

constexpr DirectKernels kDirectKernels = {&pick_add, &pick_finish};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, DirectKernels, direct_kernels, kDirectKernels)
#endif
