// Rows reduced by voxel, and gradients spread over the points of a voxel, compiled once per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "core/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/kernels.cc"
#include "core/simd.h"

TURNOUT_ISA_BEGIN

// Rows of features lie wherever the points are: they are fetched this many points ahead, and no more of each
// than the memory system can have under way.
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kAhead = 8;
constexpr std::int64_t kMostFetched = 1024;
constexpr std::int64_t kAheadVoxels = 4;

constexpr std::int64_t kPiece = 1024;  // channels whose state is on the stack

HWY_INLINE void fetch(const void* row, std::int64_t bytes) {
  const auto* from = static_cast<const char*>(row);
  const auto* const end = from + std::min(bytes, kMostFetched);
  for (; from < end; from += kLine) hwy::Prefetch(from);
  if (reinterpret_cast<std::uintptr_t>(row) % kLine != 0) hwy::Prefetch(end - 1);
}

// -- reductions --------------------------------------------------------------------------------------------

HWY_INLINE hn::Vec<F32> widen(const float* from) { return hn::LoadU(F32(), from); }
HWY_INLINE hn::Vec<hn::ScalableTag<double>> widen(const double* from) {
  return hn::LoadU(hn::ScalableTag<double>(), from);
}
template <class T, class V>
HWY_INLINE void store_rounded(V v, T* to) {
  if constexpr (sizeof(T) == 2) {
    hn::StoreU(narrow(T{}, v), U16(), &to->bits);
  } else {
    hn::StoreU(v, hn::ScalableTag<T>(), to);
  }
}

template <class T, class Lane>
T rounded(Lane v) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(v);
  } else {
    return v;
  }
}

// Vectors and single lanes take the same steps.
template <Reduce kReduce>
struct Step {
  template <class V>
  static HWY_INLINE V add(V sum, V v) {
    if constexpr (kReduce == Reduce::max) {
      return hn::IfThenElse(hn::Gt(v, sum), v, sum);  // not hn::Max: NaN is passed over, the first zero stays
    } else {
      return hn::Add(sum, v);
    }
  }
  template <class V>
  static HWY_INLINE V end(V sum, V count) {
    return kReduce == Reduce::mean ? hn::Div(sum, count) : sum;
  }
  static HWY_INLINE float add(float sum, float v) {
    return kReduce == Reduce::max ? (v > sum ? v : sum) : sum + v;
  }
  static HWY_INLINE double add(double sum, double v) {
    return kReduce == Reduce::max ? (v > sum ? v : sum) : sum + v;
  }
  template <class Lane>
  static HWY_INLINE Lane end_lane(Lane sum, Lane count) {
    return kReduce == Reduce::mean ? sum / count : sum;
  }
};

// kVectors vectors of channels from j on, of one voxel.
template <class T, Reduce kReduce, int kVectors>
HWY_INLINE void reduce_columns(const T* feats, std::int64_t channels, const std::int32_t* order,
                               std::int64_t count, T* to) {
  using Lane = typename Block<T>::Lane;
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto start =
      kReduce == Reduce::max ? hn::Set(d, -std::numeric_limits<Lane>::infinity()) : hn::Zero(d);
  auto a = start, b = start, c = start, e = start;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = feats + order[i] * channels;
    a = Step<kReduce>::add(a, widen(row));
    if constexpr (kVectors > 1) {
      b = Step<kReduce>::add(b, widen(row + lanes));
      c = Step<kReduce>::add(c, widen(row + 2 * lanes));
      e = Step<kReduce>::add(e, widen(row + 3 * lanes));
    }
  }
  const auto n = hn::Set(d, static_cast<Lane>(count));
  store_rounded(Step<kReduce>::end(a, n), to);
  if constexpr (kVectors > 1) {
    store_rounded(Step<kReduce>::end(b, n), to + lanes);
    store_rounded(Step<kReduce>::end(c, n), to + 2 * lanes);
    store_rounded(Step<kReduce>::end(e, n), to + 3 * lanes);
  }
}

// A voxel of so many points that their rows would not stay in the cache from one group of channels to the
// next: each row is read at once, and the sums are in memory.
constexpr std::int64_t kMany = 32;
template <class T, Reduce kReduce, class Lane>
void reduce_many(const T* feats, std::int64_t channels, const std::int32_t* order, std::int64_t count, T* to,
                 Lane start) {
  const hn::ScalableTag<Lane> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  alignas(64) Lane sums[kPiece];
  for (std::int64_t column = 0; column < channels; column += kPiece) {
    const std::int64_t width = std::min(kPiece, channels - column);
    std::fill_n(sums, width, start);
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count)
        fetch(feats + order[i + kAhead] * channels + column, width * std::int64_t{sizeof(T)});
      const T* row = feats + order[i] * channels + column;
      std::int64_t j = 0;
      for (; j + lanes <= width; j += lanes)
        hn::Store(Step<kReduce>::add(hn::Load(d, sums + j), widen(row + j)), d, sums + j);
      for (; j < width; ++j) sums[j] = Step<kReduce>::add(sums[j], static_cast<Lane>(to_float(row[j])));
    }
    for (std::int64_t j = 0; j < width; ++j)
      to[column + j] = rounded<T>(Step<kReduce>::end_lane(sums[j], static_cast<Lane>(count)));
  }
}

template <class T, Reduce kReduce>
void reduce(const ReduceTask& task, std::int64_t first, std::int64_t last, void* to) {
  using Lane = typename Block<T>::Lane;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<Lane>()));
  constexpr Lane kStart = kReduce == Reduce::max ? -std::numeric_limits<Lane>::infinity() : Lane{0};
  const std::int64_t channels = task.channels, grouped = task.groups.grouped();
  const auto* feats = static_cast<const T*>(task.feats);
  auto* row = static_cast<T*>(to);
  for (std::int64_t v = first; v < last; ++v, row += channels) {
    const std::int64_t begin = task.groups.starts[v], count = task.groups.count(v);
    const std::int32_t* order = task.groups.order + begin;
    if (count > kMany) {
      reduce_many<T, kReduce>(feats, channels, order, count, row, kStart);
      continue;
    }
    for (std::int64_t i = begin + kAhead; i < std::min(begin + kAhead + count, grouped); ++i)
      fetch(feats + task.groups.order[i] * channels, channels * std::int64_t{sizeof(T)});
    std::int64_t j = 0;
    for (; j + 4 * lanes <= channels; j += 4 * lanes)
      reduce_columns<T, kReduce, 4>(feats + j, channels, order, count, row + j);
    for (; j + lanes <= channels; j += lanes)
      reduce_columns<T, kReduce, 1>(feats + j, channels, order, count, row + j);
    for (; j < channels; ++j) {
      Lane sum = kStart;
      for (std::int64_t i = 0; i < count; ++i)
        sum = Step<kReduce>::add(sum, static_cast<Lane>(to_float(feats[order[i] * channels + j])));
      row[j] = rounded<T>(Step<kReduce>::end_lane(sum, static_cast<Lane>(count)));
    }
  }
}

ScatterKernels::ReduceRange pick_reduce(DType dtype, Reduce reduce_type) {
  return visit_float(dtype, [&](auto type) -> ScatterKernels::ReduceRange {
    using T = typename decltype(type)::type;
    if (reduce_type == Reduce::max) return &reduce<T, Reduce::max>;
    return reduce_type == Reduce::mean ? &reduce<T, Reduce::mean> : &reduce<T, Reduce::sum>;
  });
}

// -- gradients ---------------------------------------------------------------------------------------------

// What features are compared and gradients moved as. 16-bit floats are compared by their bits: no conversion
// is needed, and a gradient keeps all of its own.
template <class T>
struct Bits {
  using Type = T;
  static const Type* of(const T* from) { return from; }
  template <class D, class V>
  static HWY_INLINE auto equal(D, V a, V b) {
    const hn::RebindToUnsigned<D> du;
    return hn::VecFromMask(du, hn::RebindMask(du, hn::Eq(a, b)));
  }
};
template <class T, std::uint16_t kInfinity>
struct HalfBits {
  using Type = std::uint16_t;
  static const Type* of(const T* from) { return &from->bits; }
  template <class D, class V>
  static HWY_INLINE auto equal(D d, V a, V b) {
    const hn::RebindToSigned<D> di;
    const auto magnitude = hn::Set(d, std::uint16_t{0x7FFF});
    const auto is_nan =
        hn::Gt(hn::BitCast(di, hn::And(a, magnitude)), hn::Set(di, static_cast<std::int16_t>(kInfinity)));
    const auto same =
        hn::AndNot(hn::BitCast(d, hn::VecFromMask(di, is_nan)), hn::VecFromMask(d, hn::Eq(a, b)));
    const auto zeros = hn::VecFromMask(d, hn::Eq(hn::And(hn::Or(a, b), magnitude), hn::Zero(d)));
    return hn::Or(same, zeros);
  }
};
template <>
struct Bits<f16> : HalfBits<f16, 0x7C00> {};
template <>
struct Bits<bf16> : HalfBits<bf16, 0x7F80> {};

template <class T>
HWY_INLINE void put_row(T* to, const T* row, std::int64_t count, bool stream) {
  const auto bytes = count * std::int64_t{sizeof(T)};
  if (stream) {
    stream_bytes(to, row, bytes);
  } else {
    std::memcpy(to, row, static_cast<std::size_t>(bytes));
  }
}

// Channels of one voxel, up to kPiece: which of them a point has taken already.
template <class T>
struct Taken {
  using B = Bits<T>;
  using D = hn::ScalableTag<typename B::Type>;
  using DU = hn::RebindToUnsigned<D>;
  using Mask = hn::TFromD<DU>;
  static constexpr auto kAll = static_cast<Mask>(~Mask{0});
  alignas(64) Mask bits[kPiece];  // 0: not taken
  alignas(64) T row[kPiece];

  // to = grad where the point is equal and nobody before it was, else 0. Whether all channels are taken now.
  template <bool kFirst>
  HWY_INLINE bool take(const T* feats, const T* wanted, const T* grad, std::int64_t count, T* to,
                       bool stream) {
    const D d;
    const DU du;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    // Whole lines go past the cache at once, others are put together first.
    const bool direct = stream && reinterpret_cast<std::uintptr_t>(to) % kLine == 0 &&
                        count * std::int64_t{sizeof(T)} % kLine == 0;
    T* const made = direct ? to : row;
    auto all = hn::Set(du, kAll);
    std::int64_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      const auto equal = B::equal(d, hn::LoadU(d, B::of(feats + j)), hn::LoadU(d, B::of(wanted + j)));
      const auto before = kFirst ? hn::Zero(du) : hn::Load(du, bits + j);
      const auto after = hn::Or(before, equal);
      hn::Store(after, du, bits + j);
      all = hn::And(all, after);
      const auto g = hn::BitCast(du, hn::LoadU(d, B::of(grad + j)));
      const auto value = hn::And(hn::AndNot(before, equal), g);
      if (direct) {
        hn::Stream(value, du, reinterpret_cast<Mask*>(made + j));
      } else {
        hn::Store(value, du, reinterpret_cast<Mask*>(made + j));
      }
    }
    bool is_all = hn::AllTrue(du, hn::Eq(all, hn::Set(du, kAll)));
    for (; j < count; ++j) {
      const bool equal = to_float(feats[j]) == to_float(wanted[j]), before = !kFirst && bits[j] != 0;
      made[j] = equal && !before ? grad[j] : T{};
      bits[j] = equal || before ? kAll : Mask{0};
      is_all &= equal || before;
    }
    if (!direct) put_row(to, row, count, stream);
    return is_all;
  }
};

// By voxel: its own rows are read once and in order, its points' rows once from wherever they are. In the
// order of points, with a bit per voxel and channel, it took 1.0 to 1.4 times as long.
template <class T>
void backward_max(const BackwardTask& task, std::int64_t first, std::int64_t last) {
  const VoxelGroups& groups = task.groups;
  const std::int64_t channels = task.channels;
  const std::int32_t* const no_more = groups.order + std::max<std::int64_t>(groups.grouped() - kAhead, 0);
  // Rows that do not begin on a line share lines with others, and these are stored through the cache.
  const bool shares_lines = task.stream && (reinterpret_cast<std::uintptr_t>(task.grad_feats) % kLine != 0 ||
                                            channels * std::int64_t{sizeof(T)} % kLine != 0);
  Taken<T> taken;
  for (std::int64_t v = first; v < last; ++v) {
    const std::int32_t* const begin = groups.order + groups.starts[v];
    const std::int32_t* const end = groups.order + groups.starts[v + 1];
    for (std::int64_t column = 0; column < channels; column += kPiece) {
      const std::int64_t count = std::min(kPiece, channels - column);
      const std::int64_t bytes = count * std::int64_t{sizeof(T)};
      const T* wanted = static_cast<const T*>(task.voxel_feats) + v * channels + column;
      const T* grad = static_cast<const T*>(task.grad_voxel_feats) + v * channels + column;
      const T* feats = static_cast<const T*>(task.feats) + column;
      T* to = static_cast<T*>(task.grad_feats) + column;
      if (v + kAheadVoxels < groups.voxels) {
        fetch(wanted + kAheadVoxels * channels, bytes);
        fetch(grad + kAheadVoxels * channels, bytes);
      }
      bool is_all_taken = false;
      for (const std::int32_t* x = begin; x < end; ++x) {
        if (x < no_more) {
          fetch(feats + x[kAhead] * channels, bytes);
          if (shares_lines) {
            hwy::Prefetch(to + x[kAhead] * channels);
            hwy::Prefetch(to + x[kAhead] * channels + count - 1);
          }
        }
        const T* from = feats + *x * channels;
        T* grads = to + *x * channels;
        if (x == begin) {
          is_all_taken = taken.template take<true>(from, wanted, grad, count, grads, task.stream);
        } else if (!is_all_taken) {
          is_all_taken = taken.template take<false>(from, wanted, grad, count, grads, task.stream);
        } else {  // nothing is left for the other points: what they have need not be read
          std::memset(taken.row, 0, static_cast<std::size_t>(bytes));
          put_row(grads, taken.row, count, task.stream);
        }
      }
    }
  }
}

template <class T, Reduce kReduce>
void backward_each(const BackwardTask& task, std::int64_t first, std::int64_t last) {
  using Lane = typename Block<T>::Lane;
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  const std::int64_t channels = task.channels;
  const auto* grads = static_cast<const T*>(task.grad_voxel_feats);
  alignas(64) T row[kPiece];
  for (std::int64_t x = first; x < last; ++x) {
    const std::int32_t v = task.groups.map[x];
    const std::int32_t next = x + kAhead < last ? task.groups.map[x + kAhead] : -1;
    if (next >= 0) fetch(grads + next * channels, channels * std::int64_t{sizeof(T)});
    for (std::int64_t column = 0; column < channels; column += kPiece) {
      const std::int64_t count = std::min(kPiece, channels - column);
      T* to = static_cast<T*>(task.grad_feats) + x * channels + column;
      const T* from = grads + std::max(v, 0) * channels + column;
      if (v < 0) {
        std::memset(row, 0, static_cast<std::size_t>(count) * sizeof(T));
        from = row;
      } else if (kReduce == Reduce::mean) {
        const Lane n = static_cast<const Lane*>(task.counts)[v];
        const auto divisor = hn::Set(typename B::D(), n);
        std::int64_t j = 0;
        for (; j + kBlock <= count; j += kBlock)
          B::store(B::map([&](auto g) HWY_ATTR { return hn::Div(g, divisor); }, from + j), row + j);
        for (; j < count; ++j) row[j] = rounded<T>(static_cast<Lane>(to_float(from[j])) / n);
        from = row;
      }
      put_row(to, from, count, task.stream);
    }
  }
}

ScatterKernels::BackwardRange pick_backward(DType dtype, Reduce reduce_type) {
  return visit_float(dtype, [&](auto type) -> ScatterKernels::BackwardRange {
    using T = typename decltype(type)::type;
    if (reduce_type == Reduce::max) return &backward_max<T>;
    return reduce_type == Reduce::mean ? &backward_each<T, Reduce::mean> : &backward_each<T, Reduce::sum>;
  });
}

constexpr ScatterKernels kScatterKernels = {&pick_reduce, &pick_backward};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(ScatterKernels, scatter_kernels, kScatterKernels)
#endif
