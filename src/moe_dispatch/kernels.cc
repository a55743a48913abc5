// Row copies times a gate, compiled once per instruction set.
#include "moe_dispatch/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "moe_dispatch/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::moe_dispatch)

// to[j] = gate * from[j]
template <class T, class Lane>
void scale(Lane gate, const T* from, T* to, std::int64_t n, bool stream) {
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  constexpr std::int64_t kPerLine = kLine / static_cast<std::int64_t>(sizeof(T));
  const auto factor = hn::Set(typename B::D(), gate);
  const auto times_gate = [&](auto v) HWY_ATTR { return hn::Mul(factor, v); };
  // A partial block goes through a buffer of one block, so that it is computed by the same instructions.
  const auto partial = [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    alignas(kLine) T buffer[kBlock] = {};
    std::memcpy(buffer, from + first, static_cast<std::size_t>(count) * sizeof(T));
    B::store(B::map(times_gate, buffer), buffer);
    std::memcpy(to + first, buffer, static_cast<std::size_t>(count) * sizeof(T));
  };

  std::int64_t j = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::int64_t head = std::min(n, (kLine - misaligned) % kLine / std::int64_t{sizeof(T)});
    for (; j + kBlock <= head; j += kBlock) B::store(B::map(times_gate, from + j), to + j);
    if (j < head) partial(j, head - j);
    // Stream whole cache lines only: a line that gets both streamed and plain stores is slower than either.
    for (j = head; j + kPerLine <= n; j += kPerLine)
      for (std::int64_t b = j; b < j + kPerLine; b += kBlock) B::stream(B::map(times_gate, from + b), to + b);
  }
  for (; j + kBlock <= n; j += kBlock) B::store(B::map(times_gate, from + j), to + j);
  if (j < n) partial(j, n - j);
}

template <class T, class Gate>
void tokens(const DispatchTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
            std::int64_t choice, std::int64_t choices, Columns columns) {
  using Lane = typename Block<T>::Lane;
  const auto* input = static_cast<const T*>(task.input) + columns.first;
  auto* dispatch = static_cast<T*>(task.dispatch) + columns.first;
  // A row that does not start at a cache line shares its first and last line with its neighbours. These two
  // lines are stored through the cache and prefetched kAhead rows ahead: without that, rows of 2 KB take a
  // fifth more time.
  constexpr std::int64_t kAhead = 4;
  const bool shares_lines = task.stream && (reinterpret_cast<std::uintptr_t>(dispatch) % kLine != 0 ||
                                            task.hidden * std::int64_t{sizeof(T)} % kLine != 0);
  const std::int64_t* const end = rows + count * choices;
  for (std::int64_t i = token; i < token + count; ++i) {
    const auto* gate = static_cast<const Gate*>(task.gates) + choice * task.samples + i;
    for (std::int64_t k = 0; k < choices; ++k, gate += task.samples) {
      if (shares_lines && end - rows > kAhead && rows[kAhead] >= 0) {
        const T* to = dispatch + rows[kAhead] * task.hidden;
        hwy::Prefetch(to);
        hwy::Prefetch(to + columns.count - 1);
      }
      const std::int64_t row = *rows++;
      if (row < 0) continue;
      scale<T>(static_cast<Lane>(to_float(*gate)), input + i * task.hidden, dispatch + row * task.hidden,
               columns.count, task.stream);
    }
  }
}

DispatchKernels::Tokens pick_tokens(DType token, DType gate) {
  return visit_float(token, [&](auto type) -> DispatchKernels::Tokens {
    using T = typename decltype(type)::type;
    return gate == DType::f32 ? &tokens<T, float> : &tokens<T, T>;
  });
}

constexpr DispatchKernels kDispatchKernels = {&pick_tokens};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::moe_dispatch, DispatchKernels, dispatch_kernels, kDispatchKernels)
#endif
