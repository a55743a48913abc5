// Scaled row copies, compiled once per instruction set.
#include "moe_dispatch/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/copy.h"
#include "core/dtypes.h"
#include "core/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "moe_dispatch/kernels.cc"
#include "core/simd.h"

TURNOUT_ISA_BEGIN

constexpr std::int64_t kLine = 64;

// to[j] = gate * from[j]; `next` is what will be read after this, or nullptr.
template <class T, class Lane>
void scale(Lane gate, const T* from, T* to, std::int64_t n, bool stream, const T* next) {
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  constexpr std::int64_t kPerLine = kLine / static_cast<std::int64_t>(sizeof(T));
  const auto factor = hn::Set(typename B::D(), gate);
  const auto times_gate = [&](auto v) HWY_ATTR { return hn::Mul(factor, v); };
  // Fewer elements than a block go through a buffer of one block: same instructions, same bits.
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
    // Whole lines only: a line that is filled by two kinds of stores is slower than either.
    const auto stream_line = [&](std::int64_t at) HWY_ATTR {
      for (std::int64_t b = at; b < at + kPerLine; b += kBlock)
        B::stream(B::map(times_gate, from + b), to + b);
    };
    const std::int64_t fetch_from = next == nullptr ? n : n - kAheadBytes / std::int64_t{sizeof(T)};
    for (j = head; j + kPerLine <= std::min(n, fetch_from); j += kPerLine) stream_line(j);
    for (const T* ahead = next; j + kPerLine <= n; j += kPerLine, ahead += kPerLine) {
      hwy::Prefetch(ahead);
      stream_line(j);
    }
  }
  for (; j + kBlock <= n; j += kBlock) B::store(B::map(times_gate, from + j), to + j);
  if (j < n) partial(j, n - j);
}

template <class T>
void clear(T* to, std::int64_t n, bool stream) {
  if (!stream) {
    std::memset(to, 0, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  const hn::ScalableTag<std::uint8_t> d;
  auto* bytes = reinterpret_cast<std::uint8_t*>(to);
  const std::int64_t size = n * std::int64_t{sizeof(T)};
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  std::int64_t j = std::min(size, (kLine - misaligned) % kLine);
  std::memset(bytes, 0, static_cast<std::size_t>(j));
  for (; j + kLine <= size; j += kLine)
    for (std::int64_t b = 0; b < kLine; b += HWY_MAX_BYTES) hn::Stream(hn::Zero(d), d, bytes + j + b);
  std::memset(bytes + j, 0, static_cast<std::size_t>(size - j));
}

template <class T, class Gate>
void rows(const DispatchTask& task, std::int64_t begin, std::int64_t end) {
  using Lane = typename Block<T>::Lane;
  const auto* gates = static_cast<const Gate*>(task.gates);
  const auto* input = static_cast<const T*>(task.input);
  auto* dispatch = static_cast<T*>(task.dispatch);
  const std::int64_t last_row = (end - 1) / task.pieces_per_row;
  const auto source = [&](std::int64_t q) {
    return input + (q < task.samples ? q : q % task.samples) * task.hidden;
  };
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t row = task.pieces_per_row == 1 ? p : p / task.pieces_per_row;
    const std::int64_t column = (p - row * task.pieces_per_row) * task.piece;
    const std::int64_t n = std::min(task.piece, task.hidden - column);
    T* to = dispatch + row * task.hidden + column;
    const std::int64_t q = task.last[row];
    if (q < 0) {
      if (task.zero) clear(to, n, task.stream);
      continue;
    }
    const T* next = nullptr;
    if (row < last_row && task.last[row + 1] >= 0) next = source(task.last[row + 1]);
    scale(static_cast<Lane>(to_float(gates[q])), source(q) + column, to, n, task.stream, next);
  }
  if (task.stream) hwy::FlushStream();
}

template <class T, class Gate>
void tokens(const DispatchTask& task, const std::int64_t* to_row, std::int64_t first, std::int64_t count) {
  using Lane = typename Block<T>::Lane;
  const auto* gates = static_cast<const Gate*>(task.gates);
  const auto* input = static_cast<const T*>(task.input);
  auto* dispatch = static_cast<T*>(task.dispatch);
  std::int64_t token = first % task.samples;
  for (std::int64_t i = 0; i < count; ++i) {
    if (to_row[i] >= 0)
      scale<T>(static_cast<Lane>(to_float(gates[first + i])), input + token * task.hidden,
               dispatch + to_row[i] * task.hidden, task.hidden, false, nullptr);
    if (++token == task.samples) token = 0;
  }
}

template <class Pick>
auto pick(DType token, DType gate, const Pick& with) {
  return visit_float(token, [&](auto t) {
    using T = typename decltype(t)::type;
    return gate == DType::f32 ? with(t, Type<float>{}) : with(t, Type<T>{});
  });
}

DispatchKernels::Rows pick_rows(DType token, DType gate) {
  return pick(token, gate, [](auto t, auto g) -> DispatchKernels::Rows {
    return &rows<typename decltype(t)::type, typename decltype(g)::type>;
  });
}
DispatchKernels::Tokens pick_tokens(DType token, DType gate) {
  return pick(token, gate, [](auto t, auto g) -> DispatchKernels::Tokens {
    return &tokens<typename decltype(t)::type, typename decltype(g)::type>;
  });
}

constexpr DispatchKernels kDispatchKernels = {&pick_rows, &pick_tokens};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::core {

const DispatchKernels& dispatch_kernels(Isa isa) {
  static constexpr KernelTable<DispatchKernels> kTable = TURNOUT_KERNEL_TABLE(kDispatchKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}

}  // namespace turnout::core
#endif
