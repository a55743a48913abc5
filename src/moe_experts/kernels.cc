// Dot products of rows with columns of weights, and weighted sums.
#include "moe_experts/kernels.h"

#include <algorithm>

#include "core/pieces.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "moe_experts/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::moe_experts)

using namespace core;

// A tile is kColumns columns by kRows rows. Its sums, one vector per column and one vector of a row fit the
// registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int kColumns = 4, kRows = 6;
#elif HWY_TARGET == HWY_AVX2
constexpr int kColumns = 3, kRows = 4;
#else
constexpr int kColumns = 2, kRows = 4;
#endif
constexpr std::int64_t kLanes = block_size<float>();

// Calls f(i) for i = 0 .. N-1, with i as a compile-time constant.
template <int N, class F>
HWY_INLINE void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) HWY_ATTR { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

// The memory layouts of a column's elements. A step has kVectors vectors: vector v of the step at element k
// holds the elements from element_of(k, v) on and is read from data + k / kPacked. Few rows take kFewColumns
// columns at a time. One column is read from memory as one stream; several columns have more independent
// sums. The faster choice was measured for each layout.
template <class B>
struct Elements {  // floats of any size
  using Data = B;
  static constexpr int kPacked = 1, kVectors = 1, kFewColumns = sizeof(B) == 2 ? 1 : kColumns;
  static constexpr bool kColumnScale = false, kGroupScales = false;
  static HWY_INLINE std::int64_t element_of(std::int64_t k, int) { return k; }
  static HWY_INLINE hn::Vec<F32> load(const B* from, int, const float*) {
    if constexpr (std::is_same_v<B, float>) {
      return hn::LoadU(F32(), from);
    } else {
      return core::HWY_NAMESPACE::widen(from);
    }
  }
  static float one(const B* column, std::int64_t k) { return to_float(column[k]); }
};
struct Bytes {  // 8 bits; the sum is multiplied by the scale of the column
  using Data = std::int8_t;
  static constexpr int kPacked = 1, kVectors = 1, kFewColumns = kLanes == 16 ? 1 : kColumns;
  static constexpr bool kColumnScale = true, kGroupScales = false;
  static HWY_INLINE std::int64_t element_of(std::int64_t k, int) { return k; }
  static HWY_INLINE hn::Vec<F32> load(const std::int8_t* from, int, const float*) {
    const hn::Rebind<std::int32_t, F32> ints;
    return hn::ConvertTo(F32(), hn::PromoteTo(ints, hn::LoadU(hn::Rebind<std::int8_t, F32>(), from)));
  }
  static float one(const std::int8_t* column, std::int64_t k) { return column[k]; }
};
struct Nibbles {  // 4 bits; elements are multiplied by their group's scale; depth is a multiple of kGroup
  using Data = std::uint8_t;
  static constexpr int kPacked = 2, kVectors = 2, kFewColumns = kColumns;
  static constexpr bool kColumnScale = false, kGroupScales = true;
  static_assert(kGroup / 2 % kLanes == 0);
  static HWY_INLINE std::int64_t element_of(std::int64_t k, int v) {
    return k / kGroup * kGroup + k % kGroup / 2 + v * (kGroup / 2);
  }
  static HWY_INLINE hn::Vec<F32> load(const std::uint8_t* from, int v, const float* scale) {
    const hn::Rebind<std::int32_t, F32> ints;
    const hn::Rebind<std::uint8_t, F32> bytes;
    if constexpr (kLanes == 16) {  // one vector is the table of the 16 possible products
      const auto both = hn::PromoteTo(ints, hn::LoadU(bytes, from));
      const auto index = v == 0 ? hn::And(both, hn::Set(ints, 15)) : hn::ShiftRight<4>(both);
      const auto products = hn::Mul(hn::Iota(F32(), -8.0f), hn::Set(F32(), *scale));
      return hn::TableLookupLanes(products, hn::IndicesFromVec(F32(), index));
    }
    const hn::RebindToSigned<decltype(bytes)> signed_bytes;
    // With the highest bit flipped, the 4 bits are the element in two's complement.
    const auto flipped = hn::Xor(hn::LoadU(bytes, from), hn::Set(bytes, 0x88));
    const auto both = hn::PromoteTo(ints, hn::BitCast(signed_bytes, flipped));
    const auto element = v == 0 ? hn::ShiftRight<28>(hn::ShiftLeft<28>(both)) : hn::ShiftRight<4>(both);
    return hn::Mul(hn::ConvertTo(F32(), element), hn::Set(F32(), *scale));
  }
  static float one(const std::uint8_t*, std::int64_t) { return 0; }  // no element is left
};

// to[r][c] (+)= the products of R rows with C columns over elements begin .. begin + length - 1.
template <class E, int C, int R>
HWY_INLINE void add_slice(const float* const* rows, float* const* to, const Columns& columns,
                          std::int64_t begin, std::int64_t length, bool fetch) {
  using Data = typename E::Data;
  const F32 d;
  hn::Vec<F32> sum[C][R];
  const float* row[R];
  const Data* column[C];
  const float* scale[C];
  unrolled<R>([&](auto r) HWY_ATTR { row[r] = rows[r] + begin; });
  unrolled<C>([&](auto c) HWY_ATTR {
    column[c] = static_cast<const Data*>(columns.data) + c * columns.stride + begin / E::kPacked;
    scale[c] = columns.scales + c * columns.scale_stride + (E::kGroupScales ? begin / kGroup : 0);
    unrolled<R>([&](auto r) HWY_ATTR { sum[c][r] = hn::Zero(d); });
  });
  constexpr std::int64_t kStep = E::kVectors * kLanes;
  constexpr std::int64_t kLine = 64 * E::kPacked / static_cast<std::int64_t>(sizeof(Data));  // cache line
  std::int64_t k = 0;
  for (; k + kStep <= length; k += kStep) {
    // Prefetch the next columns.
    if (fetch && k % kLine == 0)
      unrolled<C>([&](auto c) HWY_ATTR { hwy::Prefetch(column[c] + C * columns.stride + k / E::kPacked); });
    unrolled<E::kVectors>([&](auto v) HWY_ATTR {
      hn::Vec<F32> b[C];
      unrolled<C>([&](auto c) HWY_ATTR {
        b[c] = E::load(column[c] + k / E::kPacked, v, scale[c] + (E::kGroupScales ? k / kGroup : 0));
      });
      unrolled<R>([&](auto r) HWY_ATTR {
        const auto a = hn::LoadU(d, row[r] + E::element_of(k, v));
        unrolled<C>([&](auto c) HWY_ATTR { sum[c][r] = hn::MulAdd(a, b[c], sum[c][r]); });
      });
    });
  }
  unrolled<C>([&](auto c) HWY_ATTR {
    unrolled<R>([&](auto r) HWY_ATTR {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[c][r]));
      for (std::int64_t j = k; j < length; ++j) total += row[r][j] * E::one(column[c], j);
      if constexpr (E::kColumnScale) total *= *scale[c];
      to[r][c] = begin == 0 ? total : to[r][c] + total;
    });
  });
}

// C columns with `count` rows: tiles of R rows, then smaller tiles for the rest. A tile size for every number
// of rows would triple the compile time; the smaller tiles read the columns from the L1 cache.
template <class E, int C, int R>
void add_tiles(const float* const* rows, float* const* to, std::int64_t count, const Columns& columns,
               std::int64_t begin, std::int64_t end, bool fetch) {
  for (; count >= R; count -= R, rows += R, to += R) {
    for (const Piece slice : pieces(begin, end, kSlice))
      add_slice<E, C, R>(rows, to, columns, slice.begin, slice.count, fetch);
    fetch = false;
  }
  if constexpr (R > 1) {
    if (count > 0) add_tiles<E, C, R == 6 ? 4 : R / 2>(rows, to, count, columns, begin, end, fetch);
  }
}

// All columns with up to kRows rows, over elements begin .. end - 1.
template <class E, int C>
void add_columns(const float* const* rows, float* const* to, std::int64_t count, const Columns& columns,
                 std::int64_t begin, std::int64_t end, bool fetch) {
  const auto* data = static_cast<const typename E::Data*>(columns.data);
  for (std::int64_t c = 0; c < columns.count;) {
    float* at[kRows];
    for (std::int64_t r = 0; r < count; ++r) at[r] = to[r] + c;
    Columns from = columns;
    from.data = data + c * columns.stride;
    from.scales = columns.scales + c * columns.scale_stride;
    const bool is_last = c + 2 * C > columns.count;  // the next columns are not part of this call
    if (c + C <= columns.count) {
      add_tiles<E, C, kRows>(rows, at, count, from, begin, end, fetch && !is_last);
      c += C;
    } else {
      add_tiles<E, 1, kRows>(rows, at, count, from, begin, end, false);
      ++c;
    }
  }
}

template <class E>
void dots(const float* const* rows, float* const* to, std::int64_t count, const Columns& columns) {
  if (columns.depth == 0) {
    for (std::int64_t r = 0; r < count; ++r) std::fill_n(to[r], columns.count, 0.0f);
    return;
  }
  // Few rows: read each column from memory once, from its first element to its last.
  if (count <= kRows) return add_columns<E, E::kFewColumns>(rows, to, count, columns, 0, columns.depth, true);
  // Many rows: slices of a tile of rows stay in the L1 cache while all columns pass from the L2 cache.
  for (const Piece slice : pieces(0, columns.depth, kSlice)) {
    for (const Piece tile : pieces(0, count, kRows))
      add_columns<E, kColumns>(rows + tile.begin, to + tile.begin, tile.count, columns, slice.begin,
                               slice.end(), false);
  }
}

ExpertKernels::Dots dots_of(DType weight) {
  switch (weight) {
    case DType::f16:
      return &dots<Elements<f16>>;
    case DType::bf16:
      return &dots<Elements<bf16>>;
    case DType::i8:
      return &dots<Bytes>;
    case DType::u8:
      return &dots<Nibbles>;
    default:
      return &dots<Elements<float>>;
  }
}

void weighted_sum(const float* const* rows, const float* weights, std::int64_t count, std::int64_t columns,
                  float* to) {
  const F32 d;
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    auto sum = hn::Zero(d);
    for (std::int64_t r = 0; r < count; ++r) {
      const auto term = hn::Mul(hn::Set(d, weights[r]), hn::LoadU(d, rows[r] + c));
      sum = r == 0 ? term : hn::Add(sum, term);
    }
    hn::StoreU(sum, d, to + c);
  }
  for (; c < columns; ++c) {
    float sum = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const float term = weights[r] * rows[r][c];
      sum = r == 0 ? term : sum + term;
    }
    to[c] = sum;
  }
}

constexpr ExpertKernels kExpertKernels = {&dots_of, &weighted_sum};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::moe_experts, ExpertKernels, expert_kernels, kExpertKernels)
#endif
