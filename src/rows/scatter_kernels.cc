// Scatters rows, weighted or unchanged; compiled once per instruction set.
#include "rows/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/scatter_kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(rows)

using namespace core;

// to[j] = weight * from[j]
template <class T, class Lane>
void scale(Lane weight, const T* from, T* to, std::int64_t n, bool stream) {
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  constexpr std::int64_t kPerLine = kLine / static_cast<std::int64_t>(sizeof(T));
  const auto factor = hn::Set(typename B::D(), weight);
  const auto times_weight = [&](auto v) HWY_ATTR { return hn::Mul(factor, v); };
  // A partial block goes through a buffer of one block, so that the same instructions compute it.
  const auto partial = [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    alignas(kLine) T buffer[kBlock] = {};
    std::memcpy(buffer, from + first, static_cast<std::size_t>(count) * sizeof(T));
    B::store(B::map(times_weight, buffer), buffer);
    std::memcpy(to + first, buffer, static_cast<std::size_t>(count) * sizeof(T));
  };

  std::int64_t j = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::int64_t head = std::min(n, (kLine - misaligned) % kLine / std::int64_t{sizeof(T)});
    for (; j + kBlock <= head; j += kBlock) B::store(B::map(times_weight, from + j), to + j);
    if (j < head) partial(j, head - j);
    // Stream whole cache lines only: a line that gets both streamed and plain stores is slower than either.
    for (j = head; j + kPerLine <= n; j += kPerLine)
      for (std::int64_t b = j; b < j + kPerLine; b += kBlock)
        B::stream(B::map(times_weight, from + b), to + b);
  }
  for (; j + kBlock <= n; j += kBlock) B::store(B::map(times_weight, from + j), to + j);
  if (j < n) partial(j, n - j);
}

// Calls move(t, k, from, to) for each token and choice with a row; `from` and `to` are its first columns.
template <class Move>
HWY_INLINE void scatter_by(const ScatterTask& task, const std::int64_t* rows, std::int64_t token,
                           std::int64_t count, std::int64_t choice, std::int64_t choices, Columns columns,
                           const Move& move) {
  const std::int64_t row_bytes = task.hidden * task.element_bytes;
  const auto* tokens = static_cast<const std::byte*>(task.tokens) + columns.first * task.element_bytes;
  auto* routed = static_cast<std::byte*>(task.routed) + columns.first * task.element_bytes;
  // A row that does not start at a cache line shares its first and last line with its neighbours. These two
  // lines are stored through the cache and prefetched kAhead rows ahead: without that, rows of 2 KB take a
  // fifth more time.
  constexpr std::int64_t kAhead = 4;
  const bool shares_lines =
      task.stream && (reinterpret_cast<std::uintptr_t>(routed) % kLine != 0 || row_bytes % kLine != 0);
  const std::int64_t* const end = rows + count * choices;
  for (std::int64_t i = token; i < token + count; ++i) {
    for (std::int64_t k = choice; k < choice + choices; ++k) {
      if (shares_lines && end - rows > kAhead && rows[kAhead] >= 0) {
        const std::byte* to = routed + rows[kAhead] * row_bytes;
        hwy::Prefetch(to);
        hwy::Prefetch(to + columns.count * task.element_bytes - 1);
      }
      const std::int64_t row = *rows++;
      if (row >= 0) move(i, k, tokens + i * row_bytes, routed + row * row_bytes);
    }
  }
}

// Whole rows of at most two vectors: the parts at both ends of the row, which may overlap.
template <class T, class Weight, int kLanes>
void scatter_scaled_short(const ScatterTask& task, const std::int64_t* rows, std::int64_t token,
                          std::int64_t count, std::int64_t choice, std::int64_t choices) {
  using Part = Few<T, kLanes>;
  using Lane = typename Block<T>::Lane;
  const typename Part::D d;
  const std::int64_t second = kLanes == 1 ? 0 : task.hidden - kLanes;
  const auto* weights = static_cast<const Weight*>(task.weights);
  for (std::int64_t i = token; i < token + count; ++i) {
    const T* const from = static_cast<const T*>(task.tokens) + i * task.hidden;
    const auto x = Part::load(from), y = kLanes == 1 ? x : Part::load(from + second);
    for (std::int64_t k = choice; k < choice + choices; ++k) {
      const std::int64_t row = *rows++;
      if (row < 0) continue;
      T* const to = static_cast<T*>(task.routed) + row * task.hidden;
      const Weight weight = weights[i * task.layout.token + k * task.layout.choice];
      const auto factor = hn::Set(d, static_cast<Lane>(to_float(weight)));
      Part::store(hn::Mul(factor, x), to);
      if constexpr (kLanes > 1) Part::store(hn::Mul(factor, y), to + second);
    }
  }
}

template <class T, class Weight>
void scatter_scaled(const ScatterTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                    std::int64_t choice, std::int64_t choices, Columns columns) {
  using Lane = typename Block<T>::Lane;
  if (columns.count == task.hidden && with_few_lanes<T>(task.hidden, [&](auto lanes) {
        constexpr int kLanes = decltype(lanes)::value;
        scatter_scaled_short<T, Weight, kLanes>(task, rows, token, count, choice, choices);
      }))
    return;
  const auto* weights = static_cast<const Weight*>(task.weights);
  scatter_by(task, rows, token, count, choice, choices, columns,
             [&](std::int64_t i, std::int64_t k, const std::byte* from, std::byte* to) HWY_ATTR {
               const Weight weight = weights[i * task.layout.token + k * task.layout.choice];
               scale<T>(static_cast<Lane>(to_float(weight)), reinterpret_cast<const T*>(from),
                        reinterpret_cast<T*>(to), columns.count, task.stream);
             });
}

void scatter_copied(const ScatterTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                    std::int64_t choice, std::int64_t choices, Columns columns) {
  const std::int64_t bytes = columns.count * task.element_bytes;
  if (columns.count == task.hidden && bytes <= kShortRow)
    return with_row_copy(bytes, [&](const auto& copy) {
      const auto* from = static_cast<const std::byte*>(task.tokens) + token * bytes;
      auto* const routed = static_cast<std::byte*>(task.routed);
      for (std::int64_t i = 0; i < count; ++i, from += bytes)
        for (std::int64_t k = 0; k < choices; ++k, ++rows)
          if (*rows >= 0) copy(routed + *rows * bytes, from);
    });
  scatter_by(task, rows, token, count, choice, choices, columns,
             [&](std::int64_t, std::int64_t, const std::byte* from, std::byte* to) HWY_ATTR {
               if (task.stream) {
                 stream_bytes(to, from, bytes);
               } else {
                 std::memcpy(to, from, static_cast<std::size_t>(bytes));
               }
             });
}

ScatterKernels::Scatter pick_scatter(DType dtype, bool weighted, DType weight) {
  if (!weighted) return &scatter_copied;
  return visit_float(dtype, [&](auto type) -> ScatterKernels::Scatter {
    using T = typename decltype(type)::type;
    return weight == DType::f32 ? &scatter_scaled<T, float> : &scatter_scaled<T, T>;
  });
}

constexpr ScatterKernels kScatterKernels = {&pick_scatter};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(rows, ScatterKernels, scatter_kernels, kScatterKernels)
#endif
