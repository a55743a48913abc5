// Register tiles of matrix products, compiled once per instruction set.
#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "matrix/matrix.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "matrix/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(core::matrix)

// A tile is kRows rows by kVectors vectors of columns. Its accumulators and operands fit 16 vector registers
// (32 with AVX-512 and NEON), and the addresses of its rows fit 16 general registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int kRows = 8;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6;
#else
constexpr int kRows = 4;  // without a fused multiply-add each product needs a register too
#endif
constexpr int kVectors = 2;
constexpr std::int64_t kAhead = 2 * kRows;  // rows to prefetch ahead

template <class Lane>
using Tag = hn::ScalableTag<Lane>;
template <class Lane>
constexpr std::int64_t lanes_of() {
  return block_size<Lane>();
}

// Calls f(i) for i = 0 .. N-1, with i as a compile-time constant.
template <int N, class F>
HWY_INLINE void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) HWY_ATTR { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

// The width of the panel at `column`, in vectors.
template <class Lane>
std::int64_t panel_vectors(std::int64_t column, std::int64_t padded_columns) {
  return std::min<std::int64_t>(kVectors, (padded_columns - column) / lanes_of<Lane>());
}

template <class Lane>
std::int64_t padded_to_lanes(std::int64_t columns) {
  return (columns + lanes_of<Lane>() - 1) / lanes_of<Lane>() * lanes_of<Lane>();
}

template <class T, class Lane>
void pack_from(const Source& source, Lane* packed) {
  if (source.depth == 0) return;  // source.data may be null
  const auto* from = static_cast<const T*>(source.data);
  const std::int64_t padded_columns = padded_to_lanes<Lane>(source.columns);
  for (std::int64_t column = 0; column < source.columns;) {
    const std::int64_t width = panel_vectors<Lane>(column, padded_columns) * lanes_of<Lane>();
    const std::int64_t there = std::min(width, source.columns - column);
    const T* panel = from + column * source.column_stride;
    // Reads along the contiguous dimension: row by row if rows are contiguous, otherwise column by column.
    if (source.column_stride == 1) {
      for (std::int64_t d = 0; d < source.depth; ++d) {
        const T* row = panel + d * source.depth_stride;
        Lane* to = packed + d * width;
        for (std::int64_t c = 0; c < there; ++c) to[c] = static_cast<Lane>(to_float(row[c]));
        std::fill(to + there, to + width, Lane{0});
      }
    } else {
      for (std::int64_t c = 0; c < there; ++c)
        for (std::int64_t d = 0; d < source.depth; ++d)
          packed[d * width + c] =
              static_cast<Lane>(to_float(panel[d * source.depth_stride + c * source.column_stride]));
      for (std::int64_t d = 0; d < source.depth; ++d)
        std::fill(packed + d * width + there, packed + (d + 1) * width, Lane{0});
    }
    packed += source.depth * width;
    column += width;
  }
}

template <class Lane>
void pack(const Source& source, Lane* packed) {
  if constexpr (sizeof(Lane) == 8) {
    pack_from<double>(source, packed);
  } else if (source.dtype == DType::f16) {
    pack_from<f16>(source, packed);
  } else if (source.dtype == DType::bf16) {
    pack_from<bf16>(source, packed);
  } else {
    pack_from<float>(source, packed);
  }
}

// Stores N vectors to `to`, or adds them to it; only the first `columns` elements are written.
template <int N, class Lane>
HWY_INLINE void write_row(const hn::Vec<Tag<Lane>>* v, Lane* to, std::int64_t columns, Write write) {
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  if (HWY_LIKELY(columns >= N * kLanes)) {
    unrolled<N>([&](auto i) HWY_ATTR {
      Lane* at = to + i * kLanes;
      hn::StoreU(write == Write::add ? hn::Add(hn::LoadU(d, at), v[i]) : v[i], d, at);
    });
    return;
  }
  // The last vectors are incomplete. Through a buffer, the same instructions give the same bits.
  HWY_ALIGN Lane buffer[N * kLanes] = {};
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(Lane);
  std::memcpy(buffer, to, bytes);
  unrolled<N>([&](auto i) HWY_ATTR {
    Lane* at = buffer + i * kLanes;
    hn::Store(write == Write::add ? hn::Add(hn::Load(d, at), v[i]) : v[i], d, at);
  });
  std::memcpy(to, buffer, bytes);
}

// Multiplies R rows with a panel of N vectors of columns.
template <int R, int N, class Lane>
HWY_INLINE void multiply_tile(const Lane* const* from, Lane* const* to, const Lane* panel, std::int64_t depth,
                              std::int64_t columns, Write write) {
  using V = hn::Vec<Tag<Lane>>;
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  V sum[R][N];
  const Lane* row[R];
  unrolled<R>([&](auto r) HWY_ATTR {
    row[r] = from[r];
    unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::Zero(d); });
  });
  for (std::int64_t k = 0; k < depth; ++k, panel += N * kLanes) {
    V b[N];
    unrolled<N>([&](auto i) HWY_ATTR { b[i] = hn::Load(d, panel + i * kLanes); });
    unrolled<R>([&](auto r) HWY_ATTR {
      const V a = hn::Set(d, row[r][k]);
      unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::MulAdd(a, b[i], sum[r][i]); });
    });
  }
  unrolled<R>([&](auto r) HWY_ATTR { write_row<N>(sum[r], to[r], columns, write); });
}

// Calls f(std::integral_constant<int, n>()) for n in 1 .. Most.
template <int Most, class F>
HWY_INLINE void with_constant(std::int64_t n, const F& f) {
  if constexpr (Most == 1) {
    f(std::integral_constant<int, 1>());
  } else if (n == Most) {
    f(std::integral_constant<int, Most>());
  } else {
    with_constant<Most - 1>(n, f);
  }
}

template <int N, class Lane>
void multiply_panel(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* panel,
                    std::int64_t depth, std::int64_t columns, Write write, bool first) {
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    if (first) {
      const std::int64_t end = std::min(r + kAhead + kRows, rows);
      for (std::int64_t next = r + kAhead; next < end; ++next)
        for (std::int64_t k = 0; k < depth; k += kLine / std::int64_t{sizeof(Lane)})
          hwy::Prefetch(from[next] + k);
    }
    multiply_tile<kRows, N>(from + r, to + r, panel, depth, columns, write);
  }
  if (r == rows) return;
  with_constant<kRows - 1>(rows - r, [&](auto left) HWY_ATTR {
    multiply_tile<left.value, N>(from + r, to + r, panel, depth, columns, write);
  });
}

template <class Lane>
void multiply(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* packed,
              std::int64_t depth, std::int64_t columns, Write write) {
  constexpr std::int64_t kBatch = 256;
  const std::int64_t padded_columns = padded_to_lanes<Lane>(columns);
  Lane* shifted[kBatch];
  for (const Piece batch : pieces(0, rows, kBatch)) {
    const Lane* panel = packed;
    for (std::int64_t column = 0; column < columns;) {
      const std::int64_t vectors = panel_vectors<Lane>(column, padded_columns);
      const std::int64_t width = vectors * lanes_of<Lane>();
      for (std::int64_t r = 0; r < batch.count; ++r) shifted[r] = to[batch.begin + r] + column;
      with_constant<kVectors>(vectors, [&](auto n) HWY_ATTR {
        multiply_panel<n.value>(from + batch.begin, shifted, batch.count, panel, depth, columns - column,
                                write, column == 0);
      });
      panel += depth * width;
      column += width;
    }
  }
}

// Few rows and many columns: a tile reads kWide vectors of each row of the weights.
constexpr int kFewRows = kRows == 8 ? 3 : 2, kWide = kRows == 8 ? 8 : 4;

template <int R, int N, class Lane>
HWY_INLINE void wide_tile(const Lane* const* from, Lane* const* to, const Lane* weights, std::int64_t stride,
                          std::int64_t depth, std::int64_t column) {
  using V = hn::Vec<Tag<Lane>>;
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  V sum[R][N];
  unrolled<R>([&](auto r) HWY_ATTR { unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::Zero(d); }); });
  for (std::int64_t k = 0; k < depth; ++k) {
    const Lane* line = weights + k * stride + column;
    V a[R];
    unrolled<R>([&](auto r) HWY_ATTR { a[r] = hn::Set(d, from[r][k]); });
    unrolled<N>([&](auto i) HWY_ATTR {
      const V b = hn::LoadU(d, line + i * kLanes);
      unrolled<R>([&](auto r) HWY_ATTR { sum[r][i] = hn::MulAdd(a[r], b, sum[r][i]); });
    });
  }
  unrolled<R>([&](auto r) HWY_ATTR {
    unrolled<N>([&](auto i) HWY_ATTR { hn::StoreU(sum[r][i], d, to[r] + column + i * kLanes); });
  });
}

template <class Lane>
void multiply_in_place(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* weights,
                       std::int64_t depth_stride, std::int64_t depth, std::int64_t columns) {
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  for (const Piece tile : pieces(0, rows, kFewRows)) {
    const Lane* const* const rows_from = from + tile.begin;
    Lane* const* const rows_to = to + tile.begin;
    std::int64_t column = 0;
    with_constant<kFewRows>(tile.count, [&](auto r) HWY_ATTR {
      for (; column + kWide * kLanes <= columns; column += kWide * kLanes)
        wide_tile<r.value, kWide>(rows_from, rows_to, weights, depth_stride, depth, column);
      for (; column + kLanes <= columns; column += kLanes)
        wide_tile<r.value, 1>(rows_from, rows_to, weights, depth_stride, depth, column);
    });
    // Columns that do not fill a vector: one at a time, by the same instructions.
    for (; column < columns; ++column)
      for (std::int64_t r = 0; r < tile.count; ++r) {
        auto sum = hn::Zero(d);
        for (std::int64_t k = 0; k < depth; ++k)
          sum = hn::MulAdd(hn::Set(d, rows_from[r][k]), hn::Set(d, weights[k * depth_stride + column]), sum);
        rows_to[r][column] = hn::GetLane(sum);
      }
  }
}

// Adds to R rows by N vectors of the result. `with` has whole vectors at `column`.
template <int R, int N, class Lane>
HWY_INLINE void outer_tile(const Lane* const* from, const Lane* const* with, std::int64_t rows,
                           std::int64_t first, std::int64_t column, Lane* to, std::int64_t to_stride) {
  using V = hn::Vec<Tag<Lane>>;
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  V sum[R][N];
  unrolled<R>([&](auto r) HWY_ATTR {
    unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::LoadU(d, to + r * to_stride + i * kLanes); });
  });
  for (std::int64_t j = 0; j < rows; ++j) {
    const Lane* a = from[j] + first;
    const Lane* at = with[j] + column;
    V b[N];
    unrolled<N>([&](auto i) HWY_ATTR { b[i] = hn::LoadU(d, at + i * kLanes); });
    unrolled<R>([&](auto r) HWY_ATTR {
      const V factor = hn::Set(d, a[r]);
      unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::MulAdd(factor, b[i], sum[r][i]); });
    });
  }
  unrolled<R>([&](auto r) HWY_ATTR {
    unrolled<N>([&](auto i) HWY_ATTR { hn::StoreU(sum[r][i], d, to + r * to_stride + i * kLanes); });
  });
}

template <int N, class Lane>
void outer_panel(const Lane* const* from, const Lane* const* with, std::int64_t rows, std::int64_t depth,
                 std::int64_t column, Lane* to, std::int64_t to_stride) {
  std::int64_t first = 0;
  for (; first + kRows <= depth; first += kRows)
    outer_tile<kRows, N>(from, with, rows, first, column, to + first * to_stride, to_stride);
  if (first == depth) return;
  with_constant<kRows - 1>(depth - first, [&](auto left) HWY_ATTR {
    outer_tile<left.value, N>(from, with, rows, first, column, to + first * to_stride, to_stride);
  });
}

// Bytes of rows that stay in the L1 cache while all tiles of a result use them.
constexpr std::int64_t kNearBytes = 24 << 10;
constexpr std::int64_t kMostTogether = 128, kLeastTogether = 16;

// Adds to R rows by N vectors of the result, from copies of these elements and columns of the rows.
template <int R, int N, class Lane>
HWY_INLINE void copied_tile(const Lane* from, const Lane* with, std::int64_t rows, Lane* to,
                            std::int64_t to_stride) {
  using V = hn::Vec<Tag<Lane>>;
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  V sum[R][N];
  unrolled<R>([&](auto r) HWY_ATTR {
    unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::LoadU(d, to + r * to_stride + i * kLanes); });
  });
  for (std::int64_t j = 0; j < rows; ++j, from += R, with += N * kLanes) {
    V b[N];
    unrolled<N>([&](auto i) HWY_ATTR { b[i] = hn::Load(d, with + i * kLanes); });
    unrolled<R>([&](auto r) HWY_ATTR {
      const V factor = hn::Set(d, from[r]);
      unrolled<N>([&](auto i) HWY_ATTR { sum[r][i] = hn::MulAdd(factor, b[i], sum[r][i]); });
    });
  }
  unrolled<R>([&](auto r) HWY_ATTR {
    unrolled<N>([&](auto i) HWY_ATTR { hn::StoreU(sum[r][i], d, to + r * to_stride + i * kLanes); });
  });
}

// Results of at least this depth pay for copies of the rows. Rows that are a power of two apart would share
// few lines of the L1 cache.
constexpr std::int64_t kCopiedDepth = 32;

template <class Lane>
void add_outer_of_copies(const Lane* const* from, const Lane* const* with, std::int64_t rows,
                         std::int64_t depth, std::int64_t columns, Lane* to, std::int64_t to_stride) {
  constexpr std::int64_t kLanes = lanes_of<Lane>(), kBlock = 128 / kRows * kRows;
  HWY_ALIGN Lane from_copy[kMostTogether * kBlock], with_copy[kMostTogether * kVectors * kLanes];
  const std::int64_t padded_columns = padded_to_lanes<Lane>(columns);
  for (const Piece batch : pieces(0, rows, kMostTogether))
    for (const Piece block : pieces(0, depth, kBlock)) {
      for (const Piece tile : pieces(0, block.count, kRows))
        with_constant<kRows>(tile.count, [&](auto r) HWY_ATTR {  // a constant size is copied without a call
          Lane* copy = from_copy + tile.begin * batch.count;
          for (std::int64_t j = 0; j < batch.count; ++j, copy += r)
            std::memcpy(copy, from[batch.begin + j] + block.begin + tile.begin, r * sizeof(Lane));
        });
      for (std::int64_t column = 0; column < columns;) {
        const std::int64_t vectors = panel_vectors<Lane>(column, padded_columns), width = vectors * kLanes;
        const std::int64_t there = std::min(width, columns - column);
        for (std::int64_t j = 0; j < batch.count; ++j) {
          std::copy_n(with[batch.begin + j] + column, there, with_copy + j * width);
          std::fill_n(with_copy + j * width + there, width - there, Lane{0});
        }
        with_constant<kVectors>(vectors, [&](auto n) HWY_ATTR {
          for (const Piece tile : pieces(0, block.count, kRows))
            with_constant<kRows>(tile.count, [&](auto r) HWY_ATTR {
              copied_tile<r.value, n.value>(from_copy + tile.begin * batch.count, with_copy, batch.count,
                                            to + (block.begin + tile.begin) * to_stride + column, to_stride);
            });
        });
        column += width;
      }
    }
}

template <class Lane>
void add_outer(const Lane* const* from, const Lane* const* with, std::int64_t rows, std::int64_t depth,
               std::int64_t columns, Lane* to, std::int64_t to_stride) {
  if (depth >= kCopiedDepth) return add_outer_of_copies(from, with, rows, depth, columns, to, to_stride);
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  // If the last columns do not fill a vector, they are copied: reading a whole vector could go beyond the
  // caller's memory.
  HWY_ALIGN Lane last[kMostTogether * kLanes];
  const Lane* last_rows[kMostTogether];
  const std::int64_t whole = columns / kLanes * kLanes, left = columns - whole;
  const std::int64_t together = std::clamp(kNearBytes / ((depth + columns + 1) * std::int64_t{sizeof(Lane)}),
                                           kLeastTogether, kMostTogether);
  for (const Piece batch : pieces(0, rows, together)) {
    const Lane* const* const batch_from = from + batch.begin;
    const Lane* const* const batch_with = with + batch.begin;
    for (std::int64_t column = 0; column < whole;) {
      const std::int64_t vectors = panel_vectors<Lane>(column, whole);
      with_constant<kVectors>(vectors, [&](auto n) HWY_ATTR {
        outer_panel<n.value>(batch_from, batch_with, batch.count, depth, column, to + column, to_stride);
      });
      column += vectors * kLanes;
    }
    if (left == 0) continue;
    for (std::int64_t j = 0; j < batch.count; ++j) {
      last_rows[j] = last + j * kLanes;
      std::copy_n(batch_with[j] + whole, left, last + j * kLanes);
      std::fill_n(last + j * kLanes + left, kLanes - left, Lane{0});
    }
    outer_panel<1>(batch_from, last_rows, batch.count, depth, 0, to + whole, to_stride);
  }
}

template <class T>
void widen_halves(const void* const* from, std::int64_t rows, std::int64_t columns, float* to,
                  std::int64_t to_stride) {
  const F32 d;
  constexpr std::int64_t kLanes = lanes_of<float>();
  for (std::int64_t r = 0; r < rows; ++r, to += to_stride) {
    const auto* row = static_cast<const T*>(from[r]);
    std::int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) hn::StoreU(core::HWY_NAMESPACE::widen(row + c), d, to + c);
    for (; c < columns; ++c) to[c] = to_float(row[c]);
  }
}

template <class Lane>
void widen_rows(const void* const* from, DType dtype, std::int64_t rows, std::int64_t columns, Lane* to,
                std::int64_t to_stride) {
  if constexpr (sizeof(Lane) == 4) {
    if (dtype == DType::f16) return widen_halves<f16>(from, rows, columns, to, to_stride);
    if (dtype == DType::bf16) return widen_halves<bf16>(from, rows, columns, to, to_stride);
  }
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(static_cast<const Lane*>(from[r]), columns, to + r * to_stride);
}

template <class T, class Lane>
void round_to(const Lane* from, const Lane* bias, std::int64_t columns, T* to) {
  const Tag<Lane> d;
  constexpr std::int64_t kLanes = lanes_of<Lane>();
  const auto store = [&](hn::Vec<Tag<Lane>> v, T* at) HWY_ATTR {
    if constexpr (sizeof(T) == 2) {
      hn::StoreU(narrow(T{}, v), U16(), &at->bits);
    } else {
      hn::StoreU(v, d, at);
    }
  };
  const auto sum = [&](std::int64_t c) HWY_ATTR {
    const auto v = hn::LoadU(d, from + c);
    return bias == nullptr ? v : hn::Add(v, hn::LoadU(d, bias + c));
  };
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) store(sum(c), to + c);
  if (c == columns) return;
  const std::int64_t left = columns - c;
  HWY_ALIGN Lane last[kLanes] = {}, last_bias[kLanes] = {};
  HWY_ALIGN T rounded[kLanes];
  std::copy_n(from + c, left, last);
  if (bias != nullptr) std::copy_n(bias + c, left, last_bias);
  const auto v = hn::Load(d, last);
  store(bias == nullptr ? v : hn::Add(v, hn::Load(d, last_bias)), rounded);
  std::copy_n(rounded, left, to + c);
}

template <class Lane>
void round(const Lane* from, const Lane* bias, std::int64_t columns, void* to, DType dtype) {
  if constexpr (sizeof(Lane) == 4) {
    if (dtype == DType::f16) return round_to(from, bias, columns, static_cast<f16*>(to));
    if (dtype == DType::bf16) return round_to(from, bias, columns, static_cast<bf16*>(to));
  }
  round_to(from, bias, columns, static_cast<Lane*>(to));
}

template <class Lane>
constexpr Kernels<Lane> kMatrixKernels = {
    lanes_of<Lane>(),  kRows,       &pack<Lane>, &multiply<Lane>, &multiply_in_place<Lane>, &add_outer<Lane>,
    &widen_rows<Lane>, &round<Lane>};
constexpr Kernels<float> kF32Kernels = kMatrixKernels<float>;
constexpr Kernels<double> kF64Kernels = kMatrixKernels<double>;

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(core::matrix, Kernels<float>, f32_kernels, kF32Kernels)
TURNOUT_KERNELS(core::matrix, Kernels<double>, f64_kernels, kF64Kernels)
#endif
