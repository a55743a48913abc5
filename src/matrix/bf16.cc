// Register tiles of bf16 products for CPUs with AVX512_BF16. CMake compiles this file for them, so nothing in
// it may run on another CPU.
#include "matrix/bf16.h"

#if defined(__x86_64__) && TURNOUT_MOST_ISA >= 4
#include <immintrin.h>

#include <algorithm>
#include <utility>

namespace turnout::core::matrix {
namespace {

using Floats = __m512;
using Pairs = __m512i;  // 16 pairs of bf16

constexpr std::int64_t kWidth = 32;  // columns of a panel: two vectors of sums
constexpr int kRows = 8;

// Calls f(i) for i = 0 .. N-1, with i as a compile-time constant.
template <int N, class F>
inline __attribute__((always_inline)) void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Calls f(std::integral_constant<int, n>()) for an n in 1 .. Most.
template <int Most, class F>
inline void with_constant(std::int64_t n, const F& f) {
  if constexpr (Most == 1) {
    f(std::integral_constant<int, 1>());
  } else if (n == Most) {
    f(std::integral_constant<int, Most>());
  } else {
    with_constant<Most - 1>(n, f);
  }
}

inline __attribute__((always_inline)) Floats add_products(Floats sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

inline __mmask32 first_of_32(std::int64_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << count) - 1u);
}
inline __mmask16 first_of_16(std::int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xffff)
                     : static_cast<__mmask16>((1u << std::max<std::int64_t>(count, 0)) - 1u);
}

// The pairs (x[i], y[i]) for i = 0 .. 15 and for i = 16 .. 31.
struct Interleaved {
  Pairs low, high;
};
inline __attribute__((always_inline)) Interleaved interleave(__m512i x, __m512i y) {
  // Word 2 i of the result is word i of x, word 2 i + 1 is word i of y; bit 5 of an index selects y.
  const __m512i ascending = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i low =
      _mm512_or_si512(ascending, _mm512_slli_epi32(_mm512_or_si512(ascending, _mm512_set1_epi32(32)), 16));
  const __m512i high = _mm512_or_si512(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(x, low, y), _mm512_permutex2var_epi16(x, high, y)};
}

// Two terms of a row, in every lane. The last term of an odd depth has none after it.
inline __attribute__((always_inline)) Pairs two_terms(const bf16* at) {
  int both;
  __builtin_memcpy(&both, at, sizeof both);
  return _mm512_set1_epi32(both);
}
inline __attribute__((always_inline)) Pairs one_term(const bf16* at) { return _mm512_set1_epi32(at->bits); }

inline __attribute__((always_inline)) void write_sums(Floats sum, float* to, __mmask16 mask, bool add) {
  if (add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
  _mm512_mask_storeu_ps(to, mask, sum);
}

// R rows, from term `begin` on, with N vectors of columns of a packed panel.
template <int R, int N>
void multiply_panel(const void* const* from, std::int64_t begin, std::int64_t depth, const Pairs* panel,
                    float* const* to, std::int64_t column, std::int64_t columns, bool add) {
  Floats sum[R][N];
  const bf16* row[R];
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    row[r] = static_cast<const bf16*>(from[r]) + begin;
    unrolled<N>([&](auto i) __attribute__((always_inline)) { sum[r][i] = _mm512_setzero_ps(); });
  });
  const auto step = [&](auto a_of) __attribute__((always_inline)) {
    Pairs b[N];
    unrolled<N>([&](auto i) __attribute__((always_inline)) { b[i] = _mm512_load_si512(panel + i); });
    unrolled<R>([&](auto r) __attribute__((always_inline)) {
      const Pairs a = a_of(row[r]);
      unrolled<N>([&](auto i)
                      __attribute__((always_inline)) { sum[r][i] = add_products(sum[r][i], a, b[i]); });
    });
    panel += N;
  };
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2)
    step([&](const bf16* at) __attribute__((always_inline)) { return two_terms(at + k); });
  if (k < depth) step([&](const bf16* at) __attribute__((always_inline)) { return one_term(at + k); });
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
      write_sums(sum[r][i], to[r] + column + 16 * i, first_of_16(columns - column - 16 * i), add);
    });
  });
}

// All rows with a panel.
template <int N>
void multiply_rows(const void* const* from, float* const* to, std::int64_t rows, std::int64_t begin,
                   std::int64_t depth, const Pairs* panel, std::int64_t column, std::int64_t columns,
                   bool add) {
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    multiply_panel<kRows, N>(from + r, begin, depth, panel, to + r, column, columns, add);
  if (r == rows) return;
  with_constant<kRows - 1>(rows - r, [&](auto left) {
    multiply_panel<left.value, N>(from + r, begin, depth, panel, to + r, column, columns, add);
  });
}

// Two consecutive terms of up to 32 columns, which are contiguous. Without a second term it is 0.
inline __attribute__((always_inline)) Interleaved two_lines(const bf16* at, std::int64_t stride, bool both,
                                                            __mmask32 mask) {
  const __m512i x = _mm512_maskz_loadu_epi16(mask, at);
  return interleave(x, both ? _mm512_maskz_loadu_epi16(mask, at + stride) : _mm512_setzero_si512());
}

// Packs `vectors` vectors of columns of `depth` terms: panel[k / 2][vector].
void pack_panel(const bf16* from, std::int64_t depth_stride, std::int64_t column_stride, std::int64_t depth,
                std::int64_t columns, int vectors, Pairs* panel) {
  if (column_stride == 1) {
    const __mmask32 mask = first_of_32(columns);
    for (std::int64_t k = 0; k < depth; k += 2, panel += vectors) {
      const Interleaved b = two_lines(from + k * depth_stride, depth_stride, k + 1 < depth, mask);
      _mm512_store_si512(panel, b.low);
      if (vectors == 2) _mm512_store_si512(panel + 1, b.high);
    }
    return;
  }
  auto* to = reinterpret_cast<std::uint16_t*>(panel);
  for (std::int64_t k = 0; k < depth; k += 2) {
    for (std::int64_t c = 0; c < 16 * vectors; ++c) {
      const bf16* at = from + k * depth_stride + c * column_stride;
      to[2 * c] = c < columns ? at->bits : std::uint16_t{0};
      to[2 * c + 1] = c < columns && k + 1 < depth ? at[depth_stride].bits : std::uint16_t{0};
    }
    to += std::int64_t{32} * vectors;
  }
}

int vectors_at(std::int64_t column, std::int64_t columns) { return columns - column > 16 ? 2 : 1; }

// A few rows with N groups of 32 contiguous columns, read in place.
template <int R, int N>
void multiply_in_place(const void* const* from, std::int64_t begin, std::int64_t depth, const bf16* weights,
                       std::int64_t stride, float* const* to, std::int64_t column, std::int64_t columns,
                       bool add) {
  Floats sum[R][2 * N];
  const bf16* row[R];
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    row[r] = static_cast<const bf16*>(from[r]) + begin;
    unrolled<2 * N>([&](auto i) __attribute__((always_inline)) { sum[r][i] = _mm512_setzero_ps(); });
  });
  const auto step = [&](std::int64_t k, bool both, auto a_of) __attribute__((always_inline)) {
    Pairs b[2 * N];
    unrolled<N>([&](auto i) __attribute__((always_inline)) {
      const Interleaved two =
          two_lines(weights + k * stride + 32 * i, stride, both, first_of_32(columns - column - 32 * i));
      b[2 * i] = two.low;
      b[2 * i + 1] = two.high;
    });
    unrolled<R>([&](auto r) __attribute__((always_inline)) {
      const Pairs a = a_of(row[r] + k);
      unrolled<2 * N>([&](auto i)
                          __attribute__((always_inline)) { sum[r][i] = add_products(sum[r][i], a, b[i]); });
    });
  };
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2) step(k, true, two_terms);
  if (k < depth) step(k, false, one_term);
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    unrolled<2 * N>([&](auto i) __attribute__((always_inline)) {
      write_sums(sum[r][i], to[r] + column + 16 * i, first_of_16(columns - column - 16 * i), add);
    });
  });
}

// Rows for which a panel is packed first. Fewer read the weights in place, in wide panels: both give the same
// bits.
constexpr std::int64_t kPackedRows = 7;

void multiply_few(const void* const* from, float* const* to, std::int64_t rows, std::int64_t begin,
                  std::int64_t depth, const bf16* weights, std::int64_t stride, std::int64_t columns,
                  bool add) {
  const auto panels = [&](auto count, auto groups, std::int64_t r) {
    constexpr std::int64_t kColumns = 32 * groups.value;
    std::int64_t column = 0;
    for (; column + kColumns <= columns; column += kColumns)
      multiply_in_place<count.value, groups.value>(from + r, begin, depth, weights + column, stride, to + r,
                                                   column, columns, add);
    for (; column < columns; column += 32)
      multiply_in_place<count.value, 1>(from + r, begin, depth, weights + column, stride, to + r, column,
                                        columns, add);
  };
  std::int64_t r = 0;
  using std::integral_constant;
  for (; r + 3 <= rows; r += 3) panels(integral_constant<int, 3>(), integral_constant<int, 4>(), r);
  if (rows - r == 2) panels(integral_constant<int, 2>(), integral_constant<int, 4>(), r);
  if (rows - r == 1) panels(integral_constant<int, 1>(), integral_constant<int, 4>(), r);
}

// -- weights whose depth is contiguous ---------------------------------------------------------------------

// Terms after which the lanes of a sum are added, so that the rows of a tile stay in the L1 cache.
constexpr std::int64_t kDotSlice = 2048;
constexpr int kDotRows = 6, kDotColumns = 4;

// The sums of the lanes of four vectors.
inline __attribute__((always_inline)) __m128 sums_of_lanes(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Floats cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  const Floats all =
      _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// R rows with C columns. The last columns of a matrix are fewer; sums of others are not written.
template <int R, int C>
void dot_tile(const void* const* from, float* const* to, const bf16* weights, std::int64_t stride,
              std::int64_t begin, std::int64_t depth, std::int64_t column, bool add) {
  Floats sum[R][4];
  const bf16 *row[R], *line[C];
  unrolled<C>([&](auto c) __attribute__((always_inline)) { line[c] = weights + c * stride + begin; });
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    row[r] = static_cast<const bf16*>(from[r]) + begin;
    unrolled<4>([&](auto c) __attribute__((always_inline)) { sum[r][c] = _mm512_setzero_ps(); });
  });
  const auto step = [&](auto load) __attribute__((always_inline)) {
    Pairs b[C];
    unrolled<C>([&](auto c) __attribute__((always_inline)) { b[c] = load(line[c]); });
    unrolled<R>([&](auto r) __attribute__((always_inline)) {
      const Pairs a = load(row[r]);
      unrolled<C>([&](auto c)
                      __attribute__((always_inline)) { sum[r][c] = add_products(sum[r][c], a, b[c]); });
    });
  };
  std::int64_t k = 0;
  for (; k + 32 <= depth; k += 32)
    step([&](const bf16* at) __attribute__((always_inline)) { return _mm512_loadu_si512(at + k); });
  if (k < depth) {
    const __mmask32 mask = first_of_32(depth - k);
    step([&](const bf16* at)
             __attribute__((always_inline)) { return _mm512_maskz_loadu_epi16(mask, at + k); });
  }
  constexpr auto kMask = static_cast<__mmask8>((1u << C) - 1u);
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    __m128 all = sums_of_lanes(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
    float* at = to[r] + column;
    if (add) all = _mm_add_ps(_mm_maskz_loadu_ps(kMask, at), all);
    _mm_mask_storeu_ps(at, kMask, all);
  });
}

template <int R>
void dot_rows(const void* const* from, float* const* to, std::int64_t rows, const Source& weights,
              std::int64_t begin, std::int64_t depth, std::int64_t column, std::int64_t columns, bool add) {
  const auto* data = static_cast<const bf16*>(weights.data) + column * weights.column_stride;
  for (; rows >= R; rows -= R, from += R, to += R)
    with_constant<kDotColumns>(columns, [&](auto c) {
      dot_tile<R, c.value>(from, to, data, weights.column_stride, begin, depth, column, add);
    });
  if constexpr (R > 1) {
    if (rows > 0) dot_rows<R == 6 ? 3 : 1>(from, to, rows, weights, begin, depth, column, columns, add);
  }
}

void multiply_dots(const void* const* from, float* const* to, std::int64_t rows, const Source& weights,
                   Write write) {
  for (std::int64_t begin = 0; begin < weights.depth; begin += kDotSlice) {
    const std::int64_t depth = std::min(kDotSlice, weights.depth - begin);
    const bool add = write == Write::add || begin > 0;
    // A tile of rows stays in the L1 cache while all columns pass, which are in the L2 cache.
    for (std::int64_t r = 0; r < rows; r += kDotRows)
      for (std::int64_t column = 0; column < weights.columns; column += kDotColumns)
        dot_rows<kDotRows>(from + r, to + r, std::min<std::int64_t>(kDotRows, rows - r), weights, begin,
                           depth, column, std::min<std::int64_t>(kDotColumns, weights.columns - column), add);
  }
}

// -- the interface -----------------------------------------------------------------------------------------

// A product over no elements.
void add_nothing(float* const* to, std::int64_t rows, std::int64_t columns, Write write) {
  if (write == Write::store)
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(to[r], columns, 0.0f);
}

void multiply(const void* const* from, float* const* to, std::int64_t rows, const Source& weights,
              Write write) {
  if (weights.depth == 0) return add_nothing(to, rows, weights.columns, write);
  if (weights.depth_stride == 1 && weights.depth >= kBf16Lanes)
    return multiply_dots(from, to, rows, weights, write);
  alignas(64) Pairs panel[kBf16Slice / 2 * 2];
  const auto* data = static_cast<const bf16*>(weights.data);
  for (std::int64_t begin = 0; begin < weights.depth; begin += kBf16Slice) {
    const std::int64_t depth = std::min(kBf16Slice, weights.depth - begin);
    const bool add = write == Write::add || begin > 0;
    const bf16* slice = data + begin * weights.depth_stride;
    if (rows < kPackedRows && weights.column_stride == 1) {
      multiply_few(from, to, rows, begin, depth, slice, weights.depth_stride, weights.columns, add);
      continue;
    }
    for (std::int64_t column = 0; column < weights.columns; column += kWidth) {
      const int vectors = vectors_at(column, weights.columns);
      pack_panel(slice + column * weights.column_stride, weights.depth_stride, weights.column_stride, depth,
                 weights.columns - column, vectors, panel);
      with_constant<2>(vectors, [&](auto n) {
        multiply_rows<n.value>(from, to, rows, begin, depth, panel, column, weights.columns, add);
      });
    }
  }
}

void pack(const Source& source, bf16* packed) {
  if (source.depth == 0) return;  // source.data may be null
  const auto* data = static_cast<const bf16*>(source.data);
  auto* to = reinterpret_cast<Pairs*>(packed);
  for (std::int64_t column = 0; column < source.columns; column += kWidth) {
    const int vectors = vectors_at(column, source.columns);
    pack_panel(data + column * source.column_stride, source.depth_stride, source.column_stride, source.depth,
               source.columns - column, vectors, to);
    to += (source.depth + 1) / 2 * vectors;
  }
}

void multiply_packed(const void* const* from, float* const* to, std::int64_t rows, const bf16* packed,
                     std::int64_t depth, std::int64_t columns, Write write) {
  if (depth == 0) return add_nothing(to, rows, columns, write);
  const auto* panel = reinterpret_cast<const Pairs*>(packed);
  for (std::int64_t column = 0; column < columns; column += kWidth) {
    const int vectors = vectors_at(column, columns);
    for (std::int64_t begin = 0; begin < depth; begin += kBf16Slice)
      with_constant<2>(vectors, [&](auto n) {
        multiply_rows<n.value>(from, to, rows, begin, std::min(kBf16Slice, depth - begin),
                               panel + begin / 2 * vectors, column, columns,
                               write == Write::add || begin > 0);
      });
    panel += (depth + 1) / 2 * vectors;
  }
}

// -- outer products ----------------------------------------------------------------------------------------

constexpr std::int64_t kTogether = 256;  // rows whose pairs with 32 columns stay in the L1 cache
constexpr std::int64_t kDepthBlock = 128;

// The pairs of kRows elements of each pair of rows, one panel after another for elements from `first` on:
// panels[i / kRows][j][i % kRows] = (rows[2 j][first + i], rows[2 j + 1][first + i]), 0 for i >= elements.
void pair_panels(const void* const* rows, std::int64_t count, std::int64_t first, std::int64_t elements,
                 std::uint32_t* panels) {
  static_assert(kRows == 8, "a vector of pairs has two panels");
  const std::int64_t pairs = (count + 1) / 2;
  const auto row_of = [&](std::int64_t j) { return static_cast<const bf16*>(rows[j]) + first; };
  for (std::int64_t j = 0; j < count; j += 2)
    for (std::int64_t i = 0; i < elements; i += 32) {
      const __mmask32 mask = first_of_32(elements - i);
      const __m512i x = _mm512_maskz_loadu_epi16(mask, row_of(j) + i);
      const __m512i y =
          j + 1 < count ? _mm512_maskz_loadu_epi16(mask, row_of(j + 1) + i) : _mm512_setzero_si512();
      const Interleaved both = interleave(x, y);
      std::uint32_t* to = panels + (i / kRows * pairs + j / 2) * kRows;
      const auto store = [&](std::int64_t panel, __m256i eight) __attribute__((always_inline)) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + panel * pairs * kRows), eight);
      };
      store(0, _mm512_castsi512_si256(both.low));
      store(1, _mm512_extracti64x4_epi64(both.low, 1));
      store(2, _mm512_castsi512_si256(both.high));
      store(3, _mm512_extracti64x4_epi64(both.high, 1));
    }
}

// pairs[j] = (rows[2 j][first + i], rows[2 j + 1][first + i]) for i < 32, 0 for i >= elements.
void pair_columns(const void* const* rows, std::int64_t count, std::int64_t first, std::int64_t elements,
                  Pairs* pairs) {
  const auto row_of = [&](std::int64_t j) { return static_cast<const bf16*>(rows[j]) + first; };
  const __mmask32 mask = first_of_32(elements);
  for (std::int64_t j = 0; j < count; j += 2) {
    const __m512i x = _mm512_maskz_loadu_epi16(mask, row_of(j));
    const __m512i y = j + 1 < count ? _mm512_maskz_loadu_epi16(mask, row_of(j + 1)) : _mm512_setzero_si512();
    const Interleaved both = interleave(x, y);
    _mm512_store_si512(pairs++, both.low);
    _mm512_store_si512(pairs++, both.high);
  }
}

// R rows of the result with 32 columns: sums over `pairs` pairs of rows.
template <int R>
void outer_tile(const std::uint32_t* from, const Pairs* with, std::int64_t pairs, float* to,
                std::int64_t stride, __mmask16 low, __mmask16 high) {
  Floats sum[R][2];
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    sum[r][0] = _mm512_maskz_loadu_ps(low, to + r * stride);
    sum[r][1] = _mm512_maskz_loadu_ps(high, to + r * stride + 16);
  });
  for (std::int64_t j = 0; j < pairs; ++j, from += kRows, with += 2) {
    const Pairs b0 = _mm512_load_si512(with), b1 = _mm512_load_si512(with + 1);
    unrolled<R>([&](auto r) __attribute__((always_inline)) {
      const Pairs a = _mm512_set1_epi32(static_cast<int>(from[r]));
      sum[r][0] = add_products(sum[r][0], a, b0);
      sum[r][1] = add_products(sum[r][1], a, b1);
    });
  }
  unrolled<R>([&](auto r) __attribute__((always_inline)) {
    _mm512_mask_storeu_ps(to + r * stride, low, sum[r][0]);
    _mm512_mask_storeu_ps(to + r * stride + 16, high, sum[r][1]);
  });
}

void add_outer(const void* const* from, const void* const* with, std::int64_t rows, std::int64_t depth,
               std::int64_t columns, float* to, std::int64_t to_stride) {
  alignas(64) std::uint32_t from_pairs[kTogether / 2 * kDepthBlock];
  alignas(64) Pairs with_pairs[kTogether / 2 * 2];
  for (std::int64_t row = 0; row < rows; row += kTogether) {
    const std::int64_t count = std::min(kTogether, rows - row), pairs = (count + 1) / 2;
    for (std::int64_t d = 0; d < depth; d += kDepthBlock) {
      const std::int64_t block = std::min(kDepthBlock, depth - d);
      pair_panels(from + row, count, d, block, from_pairs);
      for (std::int64_t column = 0; column < columns; column += kWidth) {
        pair_columns(with + row, count, column, columns - column, with_pairs);
        const __mmask16 low = first_of_16(columns - column), high = first_of_16(columns - column - 16);
        for (std::int64_t i = 0; i < block; i += kRows)
          with_constant<kRows>(std::min<std::int64_t>(kRows, block - i), [&](auto r) {
            outer_tile<r.value>(from_pairs + i * pairs, with_pairs, pairs, to + (d + i) * to_stride + column,
                                to_stride, low, high);
          });
      }
    }
  }
}

void split(const float* from, std::int64_t count, bf16* high, bf16* low) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = first_of_16(count - i);
    const Floats value = _mm512_maskz_loadu_ps(mask, from + i);
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value));
    _mm256_mask_storeu_epi16(high + i, mask, rounded);
    if (low == nullptr) continue;
    const Floats back = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
    _mm256_mask_storeu_epi16(low + i, mask,
                             reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_sub_ps(value, back))));
  }
}

}  // namespace

const Bf16Kernels kBf16Kernels = {&multiply, &pack, &multiply_packed, &add_outer, &split};

}  // namespace turnout::core::matrix
#endif
