// Spreads gradients over the points of a voxel. Compiled once per instruction set.
#include "dynamic_scatter/kernels.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/gradient_kernels.cc"
#include "simd/simd.h"
//
#include "dynamic_scatter/rows.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// The type in which features are compared and gradients are copied. 16-bit floats are compared by their bits,
// which needs no conversion and copies gradients exactly.
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

// The code handles up to kTogether points of a voxel at a time, and kPieceBytes of their rows.
constexpr std::int64_t kTogether = 8;
constexpr std::int64_t kPieceBytes = 2 << 10;

template <class T>
struct Taking {
  using B = Bits<T>;
  using D = hn::ScalableTag<typename B::Type>;
  using DU = hn::RebindToUnsigned<D>;
  using Unsigned = hn::TFromD<DU>;
  static constexpr std::int64_t kPiece = kPieceBytes / sizeof(T);
  static constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(T);
  static constexpr int kLineVectors = std::max<int>(1, kLine / HWY_MAX_BYTES);

  std::int64_t points;
  bool is_last;              // whether these are the last points of the voxel
  const T* from[kTogether];  // their features
  T* to[kTogether];
  const T* maxima;  // the voxel's features
  // The gradient that is not yet assigned to a point (0 where assigned), before and after these points.
  const T* before;
  alignas(64) T left[kPiece];

  static Unsigned* bits(T* p) { return reinterpret_cast<Unsigned*>(p); }
  static const Unsigned* bits(const T* p) { return reinterpret_cast<const Unsigned*>(p); }

  // Handles kVectors vectors of channels from j on.
  template <int kVectors, bool kStream>
  HWY_INLINE void take_vectors(std::int64_t j) {
    const D d;
    const DU du;
    hn::Vec<D> w[kVectors];
    hn::Vec<DU> l[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      w[k] = hn::LoadU(d, B::of(maxima + j + k * kLanes));
      l[k] = hn::LoadU(du, bits(before + j + k * kLanes));
    }
    for (std::int64_t i = 0; i < points; ++i) {
      const auto* const in = B::of(from[i] + j);
      Unsigned* const out = bits(to[i] + j);
      for (int k = 0; k < kVectors; ++k) {
        const auto equal = B::equal(d, hn::LoadU(d, in + k * kLanes), w[k]);
        if constexpr (kStream) {
          hn::Stream(hn::And(equal, l[k]), du, out + k * kLanes);
        } else {
          hn::StoreU(hn::And(equal, l[k]), du, out + k * kLanes);
        }
        l[k] = hn::AndNot(equal, l[k]);
      }
    }
    if (is_last) return;
    for (int k = 0; k < kVectors; ++k) hn::StoreU(l[k], du, bits(left + j + k * kLanes));
  }

  // Handles `count` channels. kStream: they fill whole cache lines.
  template <bool kStream>
  void take(std::int64_t count) {
    std::int64_t j = 0;
    for (; j + 4 * kLanes <= count; j += 4 * kLanes) take_vectors<4, kStream>(j);
    for (; j + kLineVectors * kLanes <= count; j += kLineVectors * kLanes)
      take_vectors<kLineVectors, kStream>(j);
    if constexpr (!kStream) {
      for (; j + kLanes <= count; j += kLanes) take_vectors<1, false>(j);
      for (; j < count; ++j) {
        left[j] = before[j];
        for (std::int64_t i = 0; i < points; ++i) {
          const bool equal = to_float(from[i][j]) == to_float(maxima[j]);
          to[i][j] = equal ? left[j] : T{};
          if (equal) left[j] = T{};
        }
      }
    }
    before = left;
  }

  bool is_all_taken(std::int64_t count) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(left);
    unsigned char any = 0;
    for (std::int64_t i = 0; i < count * std::int64_t{sizeof(T)}; ++i) any |= bytes[i];
    return any == 0;
  }
};

// Goes voxel by voxel: reads the rows of voxels once and in order, and each row of points once.
template <class T>
void backward_max(const BackwardTask& task, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kPiece = Taking<T>::kPiece;
  const VoxelGroups& groups = task.groups;
  const std::int64_t channels = task.channels, row_bytes = channels * std::int64_t{sizeof(T)};
  const auto* const feats = static_cast<const T*>(task.feats);
  const auto* const maxima = static_cast<const T*>(task.voxel_feats);
  const auto* const grad = static_cast<const T*>(task.grad_voxel_feats);
  auto* const grads = static_cast<T*>(task.grad_feats);
  // Rows that do not begin on a cache line share lines with other rows. They are computed into a copy. Its
  // whole lines are then streamed, and the shared lines are stored through the cache.
  const bool shares_lines =
      task.stream && (reinterpret_cast<std::uintptr_t>(grads) % kLine != 0 || row_bytes % kLine != 0);
  const Ahead ahead(row_bytes);
  Taking<T> taking;
  alignas(64) T copies[kTogether][kPiece];
  for (std::int64_t v = first; v < last; ++v) {
    const std::int64_t begin = groups.starts[v], end = groups.starts[v + 1];
    if (const std::int64_t next = v + ahead.rows / 2; next < groups.voxels) {
      fetch(maxima + next * channels, ahead.bytes);
      fetch(grad + next * channels, ahead.bytes);
    }
    for (const auto [column, count] : pieces(0, channels, kPiece)) {
      taking.maxima = maxima + v * channels + column;
      taking.before = grad + v * channels + column;
      for (const auto [x, points] : pieces(begin, end, kTogether)) {
        taking.is_last = x + points == end;
        taking.points = points;
        if (column == 0) {
          fetch_rows(feats, groups, channels, ahead, x, taking.points, fetch);
          if (shares_lines) fetch_rows(grads, groups, channels, ahead, x, taking.points, fetch_ends);
        }
        for (std::int64_t i = 0; i < taking.points; ++i) {
          const std::int64_t place = groups.order[x + i] * channels + column;
          taking.from[i] = feats + place;
          taking.to[i] = shares_lines ? copies[i] : grads + place;
        }
        // If the whole gradient is assigned, the features of the other points need not be read.
        if (x > begin && taking.is_all_taken(count)) std::fill_n(taking.from, taking.points, taking.maxima);
        if (task.stream && !shares_lines) {
          taking.template take<true>(count);
        } else {
          taking.template take<false>(count);
        }
        if (!shares_lines) continue;
        for (std::int64_t i = 0; i < taking.points; ++i)
          stream_bytes(grads + groups.order[x + i] * channels + column, copies[i],
                       count * std::int64_t{sizeof(T)});
      }
    }
  }
}

// Copies the row of each point's voxel. Bytes of the table that fit the cache are not prefetched.
void copy_each(const BackwardTask& task, std::int64_t first, std::int64_t last, std::int64_t row_bytes,
               void* to) {
  constexpr std::int64_t kCached = 1 << 20;
  const auto* const grads = static_cast<const std::byte*>(task.grad_voxel_feats);
  const std::int32_t* const map = task.groups.map;
  auto* row = static_cast<std::byte*>(to);
  const Ahead ahead(row_bytes);
  const std::int64_t fetched = task.groups.voxels * row_bytes > kCached ? last - ahead.rows : first;
  with_row_copy(row_bytes, [&](const auto& copy) {
    for (std::int64_t x = first; x < last; ++x, row += row_bytes) {
      if (x < fetched) fetch(grads + std::max<std::int64_t>(map[x + ahead.rows], 0) * row_bytes, ahead.bytes);
      if (map[x] >= 0) {
        copy(row, grads + map[x] * row_bytes);
      } else {
        std::fill_n(row, row_bytes, std::byte{0});
      }
    }
  });
}

// Goes point by point, for sum and mean.
template <class T, Reduce kReduce>
void backward_each(const BackwardTask& task, std::int64_t first, std::int64_t last, void* to) {
  using Lane = typename Block<T>::Lane;
  using B = Block<T>;
  constexpr std::int64_t kBlock = block_size<T>();
  const std::int64_t channels = task.channels;
  if (kReduce == Reduce::sum) return copy_each(task, first, last, channels * std::int64_t{sizeof(T)}, to);
  const auto* grads = static_cast<const T*>(task.grad_voxel_feats);
  const Ahead ahead(channels * std::int64_t{sizeof(T)});
  const std::int32_t* const map = task.groups.map;
  auto* row = static_cast<T*>(to);
  for (std::int64_t x = first; x < last; ++x, row += channels) {
    const std::int32_t v = map[x], next = x + ahead.rows < last ? map[x + ahead.rows] : -1;
    if (next >= 0) fetch(grads + next * channels, ahead.bytes);
    const T* const from = grads + std::max(v, 0) * channels;
    if (v < 0) {
      std::fill_n(row, channels, T{});
    } else if (x > first && v == map[x - 1]) {  // common in the order of a scan
      std::copy_n(row - channels, channels, row);
    } else {
      const Lane n = static_cast<const Lane*>(task.counts)[v];
      const auto divisor = hn::Set(typename B::D(), n);
      std::int64_t j = 0;
      for (; j + kBlock <= channels; j += kBlock)
        B::store(B::map([&](auto g) HWY_ATTR { return hn::Div(g, divisor); }, from + j), row + j);
      for (; j < channels; ++j) row[j] = rounded<T>(static_cast<Lane>(to_float(from[j])) / n);
    }
  }
}

GradientKernels::MaxRange pick_max(DType dtype) {
  return visit_float(dtype, [&](auto type) -> GradientKernels::MaxRange {
    return &backward_max<typename decltype(type)::type>;
  });
}

GradientKernels::EachRange pick_each(DType dtype, Reduce reduce_type) {
  return visit_float(dtype, [&](auto type) -> GradientKernels::EachRange {
    using T = typename decltype(type)::type;
    return reduce_type == Reduce::mean ? &backward_each<T, Reduce::mean> : &backward_each<T, Reduce::sum>;
  });
}

constexpr GradientKernels kGradientKernels = {&pick_max, &pick_each};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, GradientKernels, gradient_kernels, kGradientKernels)
#endif
