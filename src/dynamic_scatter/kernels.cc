// Rows reduced by voxel, gradients spread over the points of a voxel, coordinates of points; compiled once
// per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <cmath>
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
constexpr std::int64_t kAhead = 8;
constexpr std::int64_t kMostFetched = 1024;

HWY_INLINE void fetch(const void* row, std::int64_t bytes) {
  const auto* from = static_cast<const char*>(row);
  for (std::int64_t b = 0; b < std::min(bytes, kMostFetched); b += 64) hwy::Prefetch(from + b);
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

template <class T, Reduce kReduce>
void reduce(const ReduceTask& task, std::int64_t first, std::int64_t last, void* to) {
  using Lane = typename Block<T>::Lane;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<Lane>()));
  const std::int64_t channels = task.channels, grouped = task.groups.grouped();
  const auto* feats = static_cast<const T*>(task.feats);
  auto* row = static_cast<T*>(to);
  for (std::int64_t v = first; v < last; ++v, row += channels) {
    const std::int64_t begin = task.groups.starts[v], count = task.groups.count(v);
    const std::int32_t* order = task.groups.order + begin;
    for (std::int64_t i = begin + kAhead; i < std::min(begin + kAhead + count, grouped); ++i)
      fetch(feats + task.groups.order[i] * channels, channels * std::int64_t{sizeof(T)});
    std::int64_t j = 0;
    for (; j + 4 * lanes <= channels; j += 4 * lanes)
      reduce_columns<T, kReduce, 4>(feats + j, channels, order, count, row + j);
    for (; j + lanes <= channels; j += lanes)
      reduce_columns<T, kReduce, 1>(feats + j, channels, order, count, row + j);
    for (; j < channels; ++j) {
      Lane sum = kReduce == Reduce::max ? -std::numeric_limits<Lane>::infinity() : Lane{0};
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
  using Lane = T;
  static const Lane* of(const T* from) { return from; }
  template <class D, class V>
  static HWY_INLINE auto equal(D, V a, V b) {
    const hn::RebindToUnsigned<D> du;
    return hn::VecFromMask(du, hn::RebindMask(du, hn::Eq(a, b)));
  }
};
template <class T, std::uint16_t kInfinity>
struct HalfBits {
  using Lane = std::uint16_t;
  static const Lane* of(const T* from) { return &from->bits; }
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

constexpr std::int64_t kPiece = 1024;  // channels whose state is on the stack

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
  using D = hn::ScalableTag<typename B::Lane>;
  using DU = hn::RebindToUnsigned<D>;
  alignas(64) hn::TFromD<DU> bits[kPiece];  // all of them, or none
  alignas(64) T row[kPiece];

  // row = grad where the point is equal and nobody before it was, else 0. Whether all channels are taken now.
  template <bool kFirst>
  HWY_INLINE bool take(const T* feats, const T* wanted, const T* grad, std::int64_t count) {
    const D d;
    const DU du;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    auto all = hn::Set(du, static_cast<hn::TFromD<DU>>(~hn::TFromD<DU>{0}));
    std::int64_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      const auto equal = B::equal(d, hn::LoadU(d, B::of(feats + j)), hn::LoadU(d, B::of(wanted + j)));
      const auto g = hn::BitCast(du, hn::LoadU(d, B::of(grad + j)));
      auto* to = reinterpret_cast<hn::TFromD<DU>*>(row + j);
      if constexpr (kFirst) {
        hn::Store(equal, du, bits + j);
        hn::Store(hn::And(equal, g), du, to);
        all = hn::And(all, equal);
      } else {
        const auto before = hn::Load(du, bits + j);
        const auto after = hn::Or(before, equal);
        hn::Store(after, du, bits + j);
        hn::Store(hn::And(hn::AndNot(before, equal), g), du, to);
        all = hn::And(all, after);
      }
    }
    bool is_all = hn::AllTrue(du, hn::Eq(all, hn::Set(du, static_cast<hn::TFromD<DU>>(~hn::TFromD<DU>{0}))));
    for (; j < count; ++j) {
      const bool equal = to_float(feats[j]) == to_float(wanted[j]), before = !kFirst && bits[j] != 0;
      row[j] = equal && !before ? grad[j] : T{};
      bits[j] = equal || before;
      is_all &= equal || before;
    }
    return is_all;
  }
};

template <class T>
void backward_max(const BackwardTask& task, std::int64_t first, std::int64_t last) {
  const std::int64_t channels = task.channels;
  const std::int32_t* const no_more =
      task.groups.order + std::max<std::int64_t>(task.groups.grouped() - kAhead, 0);
  Taken<T> taken;
  for (std::int64_t v = first; v < last; ++v) {
    const std::int32_t* const begin = task.groups.order + task.groups.starts[v];
    const std::int32_t* const end = task.groups.order + task.groups.starts[v + 1];
    for (std::int64_t column = 0; column < channels; column += kPiece) {
      const std::int64_t count = std::min(kPiece, channels - column);
      const T* wanted = static_cast<const T*>(task.voxel_feats) + v * channels + column;
      const T* grad = static_cast<const T*>(task.grad_voxel_feats) + v * channels + column;
      const T* feats = static_cast<const T*>(task.feats) + column;
      T* to = static_cast<T*>(task.grad_feats) + column;
      bool is_all_taken = false;
      for (const std::int32_t* x = begin; x < end; ++x) {
        if (x < no_more) fetch(feats + x[kAhead] * channels, count * std::int64_t{sizeof(T)});
        if (x == begin) {
          is_all_taken = taken.template take<true>(feats + *x * channels, wanted, grad, count);
        } else if (!is_all_taken) {
          is_all_taken = taken.template take<false>(feats + *x * channels, wanted, grad, count);
        } else {  // the rest of the points has nothing: what they have need not be read
          std::memset(taken.row, 0, static_cast<std::size_t>(count) * sizeof(T));
        }
        put_row(to + *x * channels, taken.row, count, task.stream);
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

// -- coordinates -------------------------------------------------------------------------------------------

template <class T, class Index>
void voxelize(const void* grid_of, const void* points, std::int64_t features, void* coors, std::int64_t first,
              std::int64_t last) {
  using Real = typename Block<T>::Lane;
  const GridOf<Real> grid = *static_cast<const GridOf<Real>*>(grid_of);
  const auto* point = static_cast<const T*>(points) + first * features;
  auto* to = static_cast<Index*>(coors) + first * 3;
  for (std::int64_t i = first; i < last; ++i, point += features, to += 3) {
    Real cell[3];
    bool is_inside = true;
    for (int j = 0; j < 3; ++j) {
      cell[j] = std::floor((static_cast<Real>(to_float(point[j])) - grid.least[j]) / grid.voxel_size[j]);
      is_inside &= cell[j] >= 0 && cell[j] < grid.extent[j];  // not so of NaN
    }
    // The conversion of what is not inside would be undefined.
    for (int j = 0; j < 3; ++j) to[2 - j] = static_cast<Index>(is_inside ? cell[j] : Real{-1});
  }
}

ScatterKernels::VoxelizeRange pick_voxelize(DType points, DType coors) {
  return visit_float(points, [&](auto type) -> ScatterKernels::VoxelizeRange {
    using T = typename decltype(type)::type;
    return coors == DType::i64 ? &voxelize<T, std::int64_t> : &voxelize<T, std::int32_t>;
  });
}

// As many rows at once as a vector has lanes: kDims vectors, in which every lane has a column of its own.
// Only rows beside a negative coordinate are looked at one by one.
template <class Index, int kDims>
Extremes extremes(const void* coors, std::int64_t first, std::int64_t last) {
  const hn::ScalableTag<Index> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_MAX_BYTES / sizeof(Index));
  constexpr Index kLargest = std::numeric_limits<Index>::max();
  Extremes all{};
  for (int c = 0; c < kDims; ++c) all.least[c] = kLargest;
  const auto look_at = [&](const Index* row) {
    for (int c = 0; c < kDims; ++c)
      if (row[c] < 0) return;
    for (int c = 0; c < kDims; ++c) {
      all.least[c] = std::min<std::int64_t>(all.least[c], row[c]);
      all.most[c] = std::max<std::int64_t>(all.most[c], row[c]);
    }
    ++all.valid;
  };

  auto least0 = hn::Set(d, kLargest), least1 = least0, least2 = least0, least3 = least0;
  auto most0 = hn::Zero(d), most1 = most0, most2 = most0, most3 = most0;
  const auto* row = static_cast<const Index*>(coors) + first * kDims;
  std::int64_t x = first;
  for (; x + kLanes <= last; x += kLanes, row += kLanes * kDims) {
    const auto v0 = hn::LoadU(d, row);
    const auto v1 = kDims > 1 ? hn::LoadU(d, row + kLanes) : v0;
    const auto v2 = kDims > 2 ? hn::LoadU(d, row + 2 * kLanes) : v0;
    const auto v3 = kDims > 3 ? hn::LoadU(d, row + 3 * kLanes) : v0;
    if (!hn::AllFalse(d, hn::Lt(hn::Or(hn::Or(v0, v1), hn::Or(v2, v3)), hn::Zero(d)))) {
      for (std::int64_t r = 0; r < kLanes; ++r) look_at(row + r * kDims);
      continue;
    }
    least0 = hn::Min(least0, v0), most0 = hn::Max(most0, v0);
    least1 = hn::Min(least1, v1), most1 = hn::Max(most1, v1);
    least2 = hn::Min(least2, v2), most2 = hn::Max(most2, v2);
    least3 = hn::Min(least3, v3), most3 = hn::Max(most3, v3);
    all.valid += kLanes;
  }
  for (; x < last; ++x, row += kDims) look_at(row);

  Index least[4 * kLanes], most[4 * kLanes];
  hn::StoreU(least0, d, least), hn::StoreU(most0, d, most);
  hn::StoreU(least1, d, least + kLanes), hn::StoreU(most1, d, most + kLanes);
  hn::StoreU(least2, d, least + 2 * kLanes), hn::StoreU(most2, d, most + 2 * kLanes);
  hn::StoreU(least3, d, least + 3 * kLanes), hn::StoreU(most3, d, most + 3 * kLanes);
  for (std::int64_t i = 0; i < kDims * kLanes; ++i) {
    all.least[i % kDims] = std::min<std::int64_t>(all.least[i % kDims], least[i]);
    all.most[i % kDims] = std::max<std::int64_t>(all.most[i % kDims], most[i]);
  }
  return all;
}

template <class Index>
ScatterKernels::ExtremesRange pick_extremes_of(int dims) {
  constexpr ScatterKernels::ExtremesRange kOf[] = {&extremes<Index, 1>, &extremes<Index, 2>,
                                                   &extremes<Index, 3>, &extremes<Index, 4>};
  return kOf[dims - 1];
}
ScatterKernels::ExtremesRange pick_extremes(DType coors, int dims) {
  return coors == DType::i64 ? pick_extremes_of<std::int64_t>(dims) : pick_extremes_of<std::int32_t>(dims);
}

constexpr ScatterKernels kScatterKernels = {&pick_reduce, &pick_backward, &pick_voxelize, &pick_extremes};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::core {

const ScatterKernels& scatter_kernels(Isa isa) {
  static constexpr KernelTable<ScatterKernels> kTable = TURNOUT_KERNEL_TABLE(kScatterKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}

}  // namespace turnout::core
#endif
