// Gathers rows with weights, and computes dot products of rows; compiled once per instruction set.
#include "rows/kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rows/gather_kernels.cc"
#include "simd/simd.h"
//
#include "rows/short_rows.h"

TURNOUT_ISA_BEGIN(rows)

using namespace core;

// A call per block would load all constants and weights again.
#define ALWAYS_INLINE __attribute__((always_inline))

// -- gather ------------------------------------------------------------------------------------------------

// Scattered reads are prefetched about this many bytes ahead; of a longer row only the beginning, because the
// hardware prefetches the rest.
constexpr std::int64_t kBytesAhead = 4096;

// One vector of lanes from memory, widened if T is a 16-bit float.
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

// Writes to[0 .. n-1]: block(j) is the block at column j, one(j) the single element.
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
  } else if (n >= kBlock) {
    for (; j + kBlock < n; j += kBlock) B::store(block(j), to + j);
    B::store(block(n - kBlock), to + n - kBlock);  // overlapping columns get the same values again
    return;
  }
  for (; j < n; ++j) to[j] = one(j);
}

// The existing rows of one token, in the order of its choices.
template <class T>
struct Terms {
  using Lane = typename Block<T>::Lane;
  static constexpr std::int64_t kMost = 64;
  const T* from[kMost];
  Lane weights[kMost];
  std::int64_t count = 0;
  bool add_zero = false;  // a choice is missing: +0 is added to the sum of the others
};

// Columns [first, first + n) of the sum. kCount is the number of terms, or 0 if it is not a constant.
template <class T, bool kWeighted, int kCount>
HWY_INLINE void write_sum(const Terms<T>& terms, std::int64_t first, T* to, std::int64_t n, bool stream) {
  using Lane = typename Block<T>::Lane;
  using D = typename Block<T>::D;
  const D d;
  const std::int64_t count = kCount > 0 ? kCount : terms.count;
  using V = hn::Vec<D>;
  const auto weighted = [&](std::int64_t k, V value) HWY_ATTR ALWAYS_INLINE {
    if constexpr (kWeighted) value = hn::Mul(hn::Set(d, terms.weights[k]), value);
    return value;
  };
  const auto ended = [&](V sum)
                         HWY_ATTR ALWAYS_INLINE { return terms.add_zero ? hn::Add(sum, hn::Zero(d)) : sum; };
  const auto block = [&](std::int64_t j) HWY_ATTR ALWAYS_INLINE {
    const auto at = [&](std::int64_t k) { return terms.from[k] + first + j; };
    if constexpr (sizeof(T) == 2) {
      const auto term = [&](std::int64_t k) HWY_ATTR ALWAYS_INLINE {
        const Both value = widen_both(at(k));
        return Both{weighted(k, value.first), weighted(k, value.second)};
      };
      Both sum = term(0);
      for (std::int64_t k = 1; k < count; ++k) {
        const Both next = term(k);
        sum = {hn::Add(sum.first, next.first), hn::Add(sum.second, next.second)};
      }
      return narrow_both(T{}, {ended(sum.first), ended(sum.second)});
    } else {
      V sum = weighted(0, hn::LoadU(d, at(0)));
      for (std::int64_t k = 1; k < count; ++k) sum = hn::Add(sum, weighted(k, hn::LoadU(d, at(k))));
      return ended(sum);
    }
  };
  const auto one = [&](std::int64_t j) -> T {
    const auto scalar_term = [&](std::int64_t k) -> Lane {
      const Lane value = to_float(terms.from[k][first + j]);
      return kWeighted ? terms.weights[k] * value : value;
    };
    Lane lane = scalar_term(0);
    for (std::int64_t k = 1; k < count; ++k) lane = lane + scalar_term(k);
    return rounded<T>(terms.add_zero ? lane + Lane{0} : lane);
  };
  write_row(to, n, stream, block, one);
}

// The same for any number of choices, a tile of columns at a time. weight_of(k) is the weight of choice k.
template <class T, class WeightOf>
HWY_INLINE void write_long_sum(const T* routed, std::int64_t hidden, const std::int64_t* rows,
                               std::int64_t choices, const WeightOf& weight_of, T* to, std::int64_t n) {
  using Lane = typename Block<T>::Lane;
  constexpr std::int64_t kTile = 256;
  for (const Piece tile : pieces(0, n, kTile)) {
    Lane sums[kTile] = {};
    bool is_first = true, add_zero = false;
    for (std::int64_t k = 0; k < choices; ++k) {
      if (rows[k] < 0) {
        add_zero = true;
        continue;
      }
      const T* from = routed + rows[k] * hidden + tile.begin;
      const Lane weight = weight_of(k);
      for (std::int64_t j = 0; j < tile.count; ++j) {
        const Lane term = weight * static_cast<Lane>(to_float(from[j]));
        sums[j] = is_first ? term : sums[j] + term;
      }
      is_first = false;
    }
    for (std::int64_t j = 0; j < tile.count; ++j)
      to[tile.begin + j] = rounded<T>(add_zero ? sums[j] + Lane{0} : sums[j]);
  }
}

// Prefetches these columns of the rows of tokens kBytesAhead later.
class Ahead {
 public:
  Ahead(const void* routed, std::int64_t hidden, std::int64_t element_bytes, Columns columns,
        std::int64_t choices)
      : routed_(static_cast<const std::byte*>(routed)),
        row_bytes_(hidden * element_bytes),
        first_byte_(columns.first * element_bytes),
        bytes_(std::min(columns.count * element_bytes, kBytesAhead)),
        choices_(choices),
        tokens_(std::max<std::int64_t>(
            1, kBytesAhead / std::max<std::int64_t>(1, columns.count * element_bytes * choices))) {}
  HWY_INLINE void fetch_rows(const std::int64_t* rows, std::int64_t tokens_left) const {
    if (tokens_ >= tokens_left || bytes_ == 0) return;
    for (const std::int64_t* row = rows + tokens_ * choices_; row < rows + (tokens_ + 1) * choices_; ++row)
      if (*row >= 0) fetch(routed_ + *row * row_bytes_ + first_byte_, bytes_);
  }

 private:
  const std::byte* routed_;
  std::int64_t row_bytes_, first_byte_, bytes_, choices_, tokens_;
};

// The weighted sum of the rows of one token, for any columns at a time.
template <class T, bool kWeighted>
class TokenSum {
 public:
  // `rows` and the weights of `token` must not change before the last write().
  TokenSum(const GatherTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t choices)
      : task_(task), rows_(rows), choices_(choices), first_weight_(token * task.layout.token) {
    const auto* routed = static_cast<const T*>(task.routed);
    for (std::int64_t k = 0; k < choices; ++k) {
      if (rows[k] < 0) continue;
      fit_ = terms_.count < Terms<T>::kMost;
      if (!fit_) break;
      terms_.from[terms_.count] = routed + rows[k] * task.hidden;
      if constexpr (kWeighted) terms_.weights[terms_.count] = weight(k);
      ++terms_.count;
    }
    terms_.add_zero = terms_.count < choices;
  }

  // Writes the sum of these columns to `to`.
  HWY_INLINE void write(T* to, Columns columns) const {
    const std::int64_t first = columns.first, n = columns.count;
    const std::int64_t bytes = n * std::int64_t{sizeof(T)};
    if (!fit_) {
      write_long_sum(
          static_cast<const T*>(task_.routed) + first, task_.hidden, rows_, choices_,
          [&](std::int64_t k) { return weight(k); }, to, n);
    } else if (terms_.count == 0) {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    } else if (!kWeighted && choices_ == 1) {
      if (task_.stream) {
        stream_bytes(to, terms_.from[0] + first, bytes);
      } else {
        std::memcpy(to, terms_.from[0] + first, static_cast<std::size_t>(bytes));
      }
    } else if (terms_.count == 1) {
      write_sum<T, kWeighted, 1>(terms_, first, to, n, task_.stream);
    } else if (terms_.count == 2) {
      write_sum<T, kWeighted, 2>(terms_, first, to, n, task_.stream);
    } else {
      write_sum<T, kWeighted, 0>(terms_, first, to, n, task_.stream);
    }
  }

 private:
  using Lane = typename Block<T>::Lane;

  // Dispatches on the dtype of the weights here, so that both share one copy of the sums.
  Lane weight(std::int64_t k) const {
    if constexpr (!kWeighted) return Lane{1};
    const std::int64_t at = first_weight_ + k * task_.layout.choice;
    return task_.f32_weights ? static_cast<const float*>(task_.weights)[at]
                             : static_cast<Lane>(to_float(static_cast<const T*>(task_.weights)[at]));
  }

  const GatherTask& task_;
  const std::int64_t* rows_;
  std::int64_t choices_, first_weight_;
  Terms<T> terms_;
  bool fit_ = true;
};

template <class T, bool kWeighted>
void gather(const GatherTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
            std::int64_t choices, Columns columns) {
  if (columns.count == 0) return;  // rows without elements may have no memory
  if (!kWeighted && choices == 1 && task.hidden * task.element_bytes <= kShortRow)
    return gather_copied(task, rows, token, count);
  if (columns.count == task.hidden && !(choices == 1 && !kWeighted) &&
      is_gathered_short<T, kWeighted>(task, rows, token, count, choices))
    return;
  const Ahead ahead(task.routed, task.hidden, task.element_bytes, columns, choices);
  auto* to = static_cast<T*>(task.tokens) + token * task.hidden + columns.first;
  for (std::int64_t i = 0; i < count; ++i, rows += choices, to += task.hidden) {
    ahead.fetch_rows(rows, count - i);
    TokenSum<T, kWeighted>(task, rows, token + i, choices).write(to, columns);
  }
}

GatherKernels::Gather pick_gather(DType dtype, bool weighted) {
  return visit_float(dtype, [&](auto type) -> GatherKernels::Gather {
    using T = typename decltype(type)::type;
    return weighted ? &gather<T, true> : &gather<T, false>;
  });
}

// -- dot products ------------------------------------------------------------------------------------------

// 16-bit floats and f32 are added in f32, kFlush elements at a time, and these sums in f64, so that the error
// does not grow with the length of the row.
constexpr std::int64_t kFlush = 1024;

// The sum of all lanes in f64.
template <class D>
HWY_INLINE double sum_in_f64(D d, hn::Vec<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::GetLane(hn::SumOfLanes(d, v));
  } else {
    const hn::Repartition<double, D> wide;
    const auto low = hn::PromoteTo(wide, hn::LowerHalf(v));
    const auto high = hn::PromoteTo(wide, hn::UpperHalf(hn::Half<D>(), v));
    return hn::GetLane(hn::SumOfLanes(wide, hn::Add(low, high)));
  }
}

// total + the sum over j of a[j] * b[j]. A row may be processed in pieces, each with the total of those
// before. If all pieces but the last have kFlush elements, the bits are those of the whole row.
template <class T>
double dot_row(double total, const T* a, const T* b, std::int64_t n) {
  using D = typename Block<T>::D;
  const D d;
  static_assert(kFlush % (4 * hn::MaxLanes(D())) == 0);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
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
    total += sum_in_f64(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
  }
  if (j + lanes <= n) {
    auto sum = hn::Zero(d);
    for (; j + lanes <= n; j += lanes) sum = hn::MulAdd(lanes_at(a + j), lanes_at(b + j), sum);
    total += sum_in_f64(d, sum);
  }
  if constexpr (!std::is_same_v<T, f16>) {
    constexpr int kFew = 16 / sizeof(typename Block<T>::Lane);
    using Part = Few<T, kFew>;
    if (j + kFew <= n) {
      const typename Part::D few;
      auto sum = hn::Zero(few);
      for (; j + kFew <= n; j += kFew) sum = hn::MulAdd(Part::load(a + j), Part::load(b + j), sum);
      total += sum_in_f64(few, sum);
    }
  }
  for (; j < n; ++j) total += static_cast<double>(to_float(a[j])) * static_cast<double>(to_float(b[j]));
  return total;
}

template <class Product>
Product rounded_product(double product) {
  if constexpr (sizeof(Product) == 8) {
    return product;
  } else {
    return from_float<Product>(static_cast<float>(product));
  }
}

template <class T, class Product>
void dot(const DotTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
         std::int64_t choices) {
  if (choices == 0) return;  // without products they may have no memory
  const auto* routed = static_cast<const T*>(task.routed);
  const Ahead ahead(routed, task.hidden, sizeof(T), {0, task.hidden}, choices);
  for (std::int64_t i = 0; i < count; ++i, rows += choices) {
    ahead.fetch_rows(rows, count - i);
    const T* from = static_cast<const T*>(task.tokens) + (token + i) * task.hidden;
    auto* to = static_cast<Product*>(task.products) + (token + i) * task.layout.token;
    for (std::int64_t k = 0; k < choices; ++k) {
      const double product =
          rows[k] < 0 ? 0.0 : dot_row(0, from, routed + rows[k] * task.hidden, task.hidden);
      to[k * task.layout.choice] = rounded_product<Product>(product);
    }
  }
}

GatherKernels::Dot pick_dot(DType dtype, DType product) {
  return visit_float(dtype, [&](auto type) -> GatherKernels::Dot {
    using T = typename decltype(type)::type;
    return product == DType::f32 ? &dot<T, float> : &dot<T, T>;
  });
}

// -- gather and dot products -------------------------------------------------------------------------------

// Both kernels, token by token and kFlush columns at a time, so that the second one finds the routed rows in
// the L1 cache. Rows of few columns are there anyway. The bits are those of the separate kernels.
template <class T>
void gather_and_dot(const GatherTask& sum, const DotTask& dots, const std::int64_t* rows, std::int64_t token,
                    std::int64_t count, std::int64_t choices) {
  constexpr std::int64_t kMost = Terms<T>::kMost;
  const std::int64_t hidden = sum.hidden;
  const auto separately = [&](std::int64_t first, std::int64_t n) {
    gather<T, true>(sum, rows + first * choices, token + first, n, choices, {0, hidden});
    (sum.f32_weights ? dot<T, float> : dot<T, T>)(dots, rows + first * choices, token + first, n, choices);
  };
  if (hidden <= 2 * std::int64_t{hn::MaxLanes(typename Block<T>::D())}) return separately(0, count);
  if (choices > kMost) {
    for (std::int64_t i = 0; i < count; ++i) separately(i, 1);
    return;
  }
  const auto* routed = static_cast<const T*>(sum.routed);
  const Ahead ahead(routed, hidden, sizeof(T), {0, hidden}, choices);
  for (std::int64_t i = 0; i < count; ++i, rows += choices) {
    ahead.fetch_rows(rows, count - i);
    const TokenSum<T, true> token_sum(sum, rows, token + i, choices);
    const T* from = static_cast<const T*>(dots.tokens) + (token + i) * hidden;
    T* to = static_cast<T*>(sum.tokens) + (token + i) * hidden;
    double products[kMost] = {};
    for (const auto [first, n] : pieces(0, hidden, kFlush)) {
      token_sum.write(to + first, {first, n});
      for (std::int64_t k = 0; k < choices; ++k)
        if (rows[k] >= 0)
          products[k] = dot_row(products[k], from + first, routed + rows[k] * hidden + first, n);
    }
    for (std::int64_t k = 0; k < choices; ++k) {
      const std::int64_t at = (token + i) * dots.layout.token + k * dots.layout.choice;
      if (sum.f32_weights) {
        static_cast<float*>(dots.products)[at] = rounded_product<float>(products[k]);
      } else {
        static_cast<T*>(dots.products)[at] = rounded_product<T>(products[k]);
      }
    }
  }
}

GatherKernels::GatherAndDot pick_gather_and_dot(DType dtype) {
  return visit_float(dtype, [&](auto type) -> GatherKernels::GatherAndDot {
    return &gather_and_dot<typename decltype(type)::type>;
  });
}

constexpr GatherKernels kGatherKernels = {&pick_gather, &pick_dot, &pick_gather_and_dot};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(rows, GatherKernels, gather_kernels, kGatherKernels)
#endif
