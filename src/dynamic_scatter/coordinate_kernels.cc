// Computes the voxel of each point, and bounding boxes of coordinates. Compiled once per instruction set.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/dtypes.h"
#include "dynamic_scatter/kernels.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dynamic_scatter/coordinate_kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

using namespace core;

// One point in four lanes: x, y, z, and the next element in memory, which is ignored.
struct PointLanes {
  using D = hn::CappedTag<float, 4>;
  static_assert(HWY_MAX_BYTES >= 16);
  hn::Vec<D> voxel_size, least, extent;

  explicit PointLanes(const GridOf<float>& grid)
      : voxel_size(lanes(grid.voxel_size)), least(lanes(grid.least)), extent(lanes(grid.extent)) {}
  static HWY_INLINE hn::Vec<D> lanes(const float (&values)[3]) {
    const float four[4] = {values[0], values[1], values[2], 1};
    return hn::LoadU(D(), four);
  }
  // Writes four elements: z, y, x and an unspecified one.
  HWY_INLINE void voxelize(const float* point, std::int32_t* to) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto cell = hn::Floor(hn::Div(hn::Sub(hn::LoadU(d, point), least), voxel_size));
    const auto inside = hn::And(hn::Ge(cell, hn::Zero(d)), hn::Lt(cell, extent));  // false for NaN
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, inside, bits);
    // Converting a number outside the range of the integer is undefined.
    const auto kept = hn::ConvertTo(di, hn::IfThenElse(inside, cell, hn::Set(d, -1.0f)));
    const auto all = (bits[0] & 7) == 7 ? kept : hn::Set(di, -1);
    const std::int32_t order[4] = {2, 1, 0, 3};
    hn::StoreU(hn::TableLookupLanes(all, hn::SetTableIndices(di, order)), di, to);
  }
};

template <class T, class Index>
void voxelize(const void* grid_of, const void* points, std::int64_t features, void* coors, std::int64_t first,
              std::int64_t last) {
  using Real = typename Block<T>::Lane;
  const GridOf<Real> grid = *static_cast<const GridOf<Real>*>(grid_of);
  const auto* point = static_cast<const T*>(points) + first * features;
  auto* to = static_cast<Index*>(coors) + first * 3;
  std::int64_t i = first;
  if constexpr (std::is_same_v<T, float> && sizeof(Index) == 4) {
    // All points but the last: the element after it may be outside the memory, or in another thread's range.
    const PointLanes lanes(grid);
    for (; i + 1 < last; ++i, point += features, to += 3) lanes.voxelize(point, to);
  }
  for (; i < last; ++i, point += features, to += 3) {
    Real cell[3];
    bool is_inside = true;
    for (int j = 0; j < 3; ++j) {
      cell[j] = std::floor((static_cast<Real>(to_float(point[j])) - grid.least[j]) / grid.voxel_size[j]);
      is_inside &= cell[j] >= 0 && cell[j] < grid.extent[j];  // false for NaN
    }
    // Converting a number outside the range of the integer is undefined.
    for (int j = 0; j < 3; ++j) to[2 - j] = static_cast<Index>(is_inside ? cell[j] : Real{-1});
  }
}

CoordinateKernels::VoxelizeRange pick_voxelize(DType points, DType coors) {
  return visit_float(points, [&](auto type) -> CoordinateKernels::VoxelizeRange {
    using T = typename decltype(type)::type;
    return coors == DType::i64 ? &voxelize<T, std::int64_t> : &voxelize<T, std::int32_t>;
  });
}

// Reads kLanes rows at a time, as kDims vectors; a lane of a vector always has the same column. If a row of a
// group has a negative coordinate, the group is read again row by row.
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
CoordinateKernels::ExtremesRange pick_extremes_of(int dims) {
  constexpr CoordinateKernels::ExtremesRange kOf[] = {&extremes<Index, 1>, &extremes<Index, 2>,
                                                      &extremes<Index, 3>, &extremes<Index, 4>};
  return kOf[dims - 1];
}
CoordinateKernels::ExtremesRange pick_extremes(DType coors, int dims) {
  return coors == DType::i64 ? pick_extremes_of<std::int64_t>(dims) : pick_extremes_of<std::int32_t>(dims);
}

constexpr CoordinateKernels kCoordinateKernels = {&pick_voxelize, &pick_extremes};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::dynamic_scatter, CoordinateKernels, coordinate_kernels, kCoordinateKernels)
#endif
