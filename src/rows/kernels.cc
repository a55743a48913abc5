// Rows scattered, gathered and multiplied with each other, compiled once per instruction set.
#include "rows/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(rows)

// -- scatter -----------------------------------------------------------------------------------------------

// to[j] = weight * from[j]
template <class T, class Lane>
void scale(Lane weight, const T* from, T* to, std::int64_t n, bool stream) {
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  constexpr std::int64_t kPerLine = kLine / static_cast<std::int64_t>(sizeof(T));
  const auto factor = hn::Set(typename B::D(), weight);
  const auto times_weight = [&](auto v) HWY_ATTR { return hn::Mul(factor, v); };
  // A partial block goes through a buffer of one block, so that it is computed by the same instructions.
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

// move(t, k, from, to) for each token and choice with a row; `from` and `to` are its first columns.
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

template <class T, class Weight>
void scatter_scaled(const ScatterTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                    std::int64_t choice, std::int64_t choices, Columns columns) {
  using Lane = typename Block<T>::Lane;
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
  scatter_by(task, rows, token, count, choice, choices, columns,
             [&](std::int64_t, std::int64_t, const std::byte* from, std::byte* to) HWY_ATTR {
               if (task.stream) {
                 stream_bytes(to, from, bytes);
               } else {
                 std::memcpy(to, from, static_cast<std::size_t>(bytes));
               }
             });
}

RowKernels::Scatter pick_scatter(DType dtype, bool weighted, DType weight) {
  if (!weighted) return &scatter_copied;
  return visit_float(dtype, [&](auto type) -> RowKernels::Scatter {
    using T = typename decltype(type)::type;
    return weight == DType::f32 ? &scatter_scaled<T, float> : &scatter_scaled<T, T>;
  });
}

// -- gather ------------------------------------------------------------------------------------------------

// Scattered reads are prefetched about this many bytes ahead; of longer rows only the beginning, because the
// hardware continues it.
constexpr std::int64_t kBytesAhead = 4096;

// One vector of lanes from memory, widened where T is a 16-bit float.
HWY_INLINE auto lanes_at(const float* from) { return hn::LoadU(hn::ScalableTag<float>(), from); }
HWY_INLINE auto lanes_at(const double* from) { return hn::LoadU(hn::ScalableTag<double>(), from); }
template <class T>
HWY_INLINE auto lanes_at(const T* from) {
  return widen(from);
}

template <class T, class Lane>
T rounded(Lane lane) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(lane);
  } else {
    return lane;
  }
}

// One block of T, from the lanes that at(0), at(lanes), .. give.
template <class T, class At>
HWY_INLINE auto block_of(const At& at) {
  if constexpr (sizeof(T) == 2) {
    const auto low = narrow(T{}, at(std::int64_t{0}));
    const auto high = narrow(T{}, at(static_cast<std::int64_t>(hn::Lanes(F32()))));
    return hn::Combine(typename Block<T>::Storage(), high, low);
  } else {
    return at(std::int64_t{0});
  }
}

// to[0 .. n-1]: block(j) is the block at column j, one(j) the single element.
template <class T, class MakeBlock, class MakeOne>
HWY_INLINE void write_row(T* to, std::int64_t n, bool stream, const MakeBlock& block, const MakeOne& one) {
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  constexpr std::int64_t kPerLine = kLine / static_cast<std::int64_t>(sizeof(T));
  std::int64_t j = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::int64_t head = std::min(n, (kLine - misaligned) % kLine / std::int64_t{sizeof(T)});
    for (; j < head; ++j) to[j] = one(j);
    for (; j + kPerLine <= n; j += kPerLine)
      for (std::int64_t b = j; b < j + kPerLine; b += kBlock) B::stream(block(b), to + b);
    for (; j < n; ++j) to[j] = one(j);
    return;
  }
  for (; j + kBlock <= n; j += kBlock) B::store(block(j), to + j);
  if (j < n && n >= kBlock) {
    B::store(block(n - kBlock), to + n - kBlock);  // the columns that overlap get the same values again
  } else {
    for (; j < n; ++j) to[j] = one(j);
  }
}

// The rows of one token that exist, in the order of its choices.
template <class T>
struct Terms {
  using Lane = typename Block<T>::Lane;
  static constexpr std::int64_t kMost = 64;
  const T* from[kMost];
  Lane weights[kMost];
  std::int64_t count = 0;
  bool add_zero = false;  // a choice is missing: the sum of the others gets +0 added
};

// kCount is the number of terms, or 0 when it is known at run time alone.
template <class T, bool kWeighted, int kCount>
HWY_INLINE void write_sum(const Terms<T>& terms, T* to, std::int64_t n, bool stream) {
  using Lane = typename Block<T>::Lane;
  using D = typename Block<T>::D;
  const D d;
  const std::int64_t count = kCount > 0 ? kCount : terms.count;
  const auto term = [&](std::int64_t k, std::int64_t j) HWY_ATTR {
    const auto value = lanes_at(terms.from[k] + j);
    if constexpr (kWeighted) {
      return hn::Mul(hn::Set(d, terms.weights[k]), value);
    } else {
      return value;
    }
  };
  const auto sum = [&](std::int64_t j) HWY_ATTR {
    auto lanes = term(0, j);
    for (std::int64_t k = 1; k < count; ++k) lanes = hn::Add(lanes, term(k, j));
    return terms.add_zero ? hn::Add(lanes, hn::Zero(d)) : lanes;
  };
  const auto one = [&](std::int64_t j) -> T {
    const auto scalar_term = [&](std::int64_t k) -> Lane {
      const Lane value = to_float(terms.from[k][j]);
      return kWeighted ? terms.weights[k] * value : value;
    };
    Lane lane = scalar_term(0);
    for (std::int64_t k = 1; k < count; ++k) lane = lane + scalar_term(k);
    return rounded<T>(terms.add_zero ? lane + Lane{0} : lane);
  };
  write_row(
      to, n, stream,
      [&](std::int64_t j)
          HWY_ATTR { return block_of<T>([&](std::int64_t offset) HWY_ATTR { return sum(j + offset); }); },
      one);
}

// The same for any number of choices, a tile of columns at a time.
template <class T, class Weight>
void write_long_sum(const T* routed, std::int64_t hidden, const std::int64_t* rows, std::int64_t choices,
                    const Weight* weights, std::int64_t weight_stride, T* to, std::int64_t n) {
  using Lane = typename Block<T>::Lane;
  constexpr std::int64_t kTile = 256;
  for (std::int64_t first = 0; first < n; first += kTile) {
    const std::int64_t width = std::min(kTile, n - first);
    Lane sums[kTile] = {};
    bool is_first = true, add_zero = false;
    for (std::int64_t k = 0; k < choices; ++k) {
      if (rows[k] < 0) {
        add_zero = true;
        continue;
      }
      const T* from = routed + rows[k] * hidden + first;
      const Lane weight =
          weights == nullptr ? Lane{1} : static_cast<Lane>(to_float(weights[k * weight_stride]));
      for (std::int64_t j = 0; j < width; ++j) {
        const Lane term = weight * static_cast<Lane>(to_float(from[j]));
        sums[j] = is_first ? term : sums[j] + term;
      }
      is_first = false;
    }
    for (std::int64_t j = 0; j < width; ++j)
      to[first + j] = rounded<T>(add_zero ? sums[j] + Lane{0} : sums[j]);
  }
}

// Fetches the rows of the tokens that come kBytesAhead later.
struct Ahead {
  std::int64_t tokens, bytes;
  Ahead(std::int64_t row_bytes, std::int64_t choices)
      : tokens(std::max<std::int64_t>(1, kBytesAhead / std::max<std::int64_t>(1, row_bytes * choices))),
        bytes(std::min(row_bytes, kBytesAhead)) {}
  HWY_INLINE void fetch_rows(const std::byte* routed, std::int64_t row_bytes, const std::int64_t* rows,
                             std::int64_t tokens_left, std::int64_t choices) const {
    if (tokens >= tokens_left || bytes == 0) return;
    for (const std::int64_t* row = rows + tokens * choices; row < rows + (tokens + 1) * choices; ++row)
      if (*row >= 0) fetch(routed + *row * row_bytes, bytes);
  }
};

template <class T, class Weight, bool kWeighted>
void gather(const GatherTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
            std::int64_t choices, Columns columns) {
  using Lane = typename Block<T>::Lane;
  if (columns.count == 0) return;  // rows without elements may have no memory
  const std::int64_t row_bytes = task.hidden * task.element_bytes;
  const auto* routed = static_cast<const T*>(task.routed);
  if (routed != nullptr) routed += columns.first;  // there may be no routed rows
  const auto* weights = static_cast<const Weight*>(task.weights);
  auto* to = static_cast<T*>(task.tokens) + token * task.hidden + columns.first;
  const Ahead ahead(columns.count * task.element_bytes, choices);
  Terms<T> terms;
  for (std::int64_t i = 0; i < count; ++i, rows += choices, to += task.hidden) {
    ahead.fetch_rows(reinterpret_cast<const std::byte*>(routed), row_bytes, rows, count - i, choices);
    const Weight* weight = weights == nullptr ? nullptr : weights + (token + i) * task.layout.token;
    terms.count = 0;
    bool fit = true;
    for (std::int64_t k = 0; k < choices; ++k) {
      if (rows[k] < 0) continue;
      fit = terms.count < Terms<T>::kMost;
      if (!fit) break;
      terms.from[terms.count] = routed + rows[k] * task.hidden;
      if constexpr (kWeighted)
        terms.weights[terms.count] = static_cast<Lane>(to_float(weight[k * task.layout.choice]));
      ++terms.count;
    }
    terms.add_zero = terms.count < choices;
    if (!fit) {
      write_long_sum(routed, task.hidden, rows, choices, weight, task.layout.choice, to, columns.count);
    } else if (terms.count == 0) {
      std::memset(to, 0, static_cast<std::size_t>(columns.count) * sizeof(T));
    } else if (!kWeighted && choices == 1) {
      if (task.stream) {
        stream_bytes(to, terms.from[0], columns.count * std::int64_t{sizeof(T)});
      } else {
        std::memcpy(to, terms.from[0], static_cast<std::size_t>(columns.count) * sizeof(T));
      }
    } else if (terms.count == 1) {
      write_sum<T, kWeighted, 1>(terms, to, columns.count, task.stream);
    } else if (terms.count == 2) {
      write_sum<T, kWeighted, 2>(terms, to, columns.count, task.stream);
    } else {
      write_sum<T, kWeighted, 0>(terms, to, columns.count, task.stream);
    }
  }
}

RowKernels::Gather pick_gather(DType dtype, bool weighted, DType weight) {
  return visit_float(dtype, [&](auto type) -> RowKernels::Gather {
    using T = typename decltype(type)::type;
    if (!weighted) return &gather<T, T, false>;
    return weight == DType::f32 ? &gather<T, float, true> : &gather<T, T, true>;
  });
}

// -- dot products ------------------------------------------------------------------------------------------

// 16-bit floats and f32 are added in f32, kFlush elements at a time, and these sums in f64: the error does
// not grow with the length of the row.
template <class T>
double dot_row(const T* a, const T* b, std::int64_t n) {
  using D = typename Block<T>::D;
  using Lane = typename Block<T>::Lane;
  constexpr std::int64_t kFlush = 1024;
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  double total = 0;
  std::int64_t j = 0;
  while (j + 4 * lanes <= n) {
    const std::int64_t stop = std::min(n, j + kFlush);
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
    for (; j + 4 * lanes <= stop; j += 4 * lanes) {
      sum0 = hn::MulAdd(lanes_at(a + j), lanes_at(b + j), sum0);
      sum1 = hn::MulAdd(lanes_at(a + j + lanes), lanes_at(b + j + lanes), sum1);
      sum2 = hn::MulAdd(lanes_at(a + j + 2 * lanes), lanes_at(b + j + 2 * lanes), sum2);
      sum3 = hn::MulAdd(lanes_at(a + j + 3 * lanes), lanes_at(b + j + 3 * lanes), sum3);
    }
    alignas(kLine) Lane sums[HWY_MAX_BYTES / sizeof(Lane)];
    hn::Store(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), d, sums);
    for (std::int64_t l = 0; l < lanes; ++l) total += static_cast<double>(sums[l]);
  }
  for (; j < n; ++j) total += static_cast<double>(to_float(a[j])) * static_cast<double>(to_float(b[j]));
  return total;
}

template <class T, class Product>
void dot(const DotTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
         std::int64_t choices) {
  if (choices == 0) return;  // without products there may be no memory for them
  const std::int64_t row_bytes = task.hidden * std::int64_t{sizeof(T)};
  const auto* routed = static_cast<const T*>(task.routed);
  const Ahead ahead(row_bytes, choices);
  for (std::int64_t i = 0; i < count; ++i, rows += choices) {
    ahead.fetch_rows(static_cast<const std::byte*>(task.routed), row_bytes, rows, count - i, choices);
    const T* from = static_cast<const T*>(task.tokens) + (token + i) * task.hidden;
    auto* to = static_cast<Product*>(task.products) + (token + i) * task.layout.token;
    for (std::int64_t k = 0; k < choices; ++k) {
      const double product = rows[k] < 0 ? 0.0 : dot_row(from, routed + rows[k] * task.hidden, task.hidden);
      if constexpr (sizeof(Product) == 8) {
        to[k * task.layout.choice] = product;
      } else {
        to[k * task.layout.choice] = from_float<Product>(static_cast<float>(product));
      }
    }
  }
}

RowKernels::Dot pick_dot(DType dtype, DType product) {
  return visit_float(dtype, [&](auto type) -> RowKernels::Dot {
    using T = typename decltype(type)::type;
    return product == DType::f32 ? &dot<T, float> : &dot<T, T>;
  });
}

constexpr RowKernels kRowKernels = {&pick_scatter, &pick_gather, &pick_dot};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(rows, RowKernels, row_kernels, kRowKernels)
#endif
