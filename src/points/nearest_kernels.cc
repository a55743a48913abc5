// Searches for the nearest points of several positions. Compiled once per instruction set.
#include "points/kernels.h"

#include <bit>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "points/nearest_kernels.cc"
#include "simd/simd.h"
// After simd.h.
#include "points/positions.h"

TURNOUT_ISA_BEGIN(families::points)

// The nearest points of several positions, one in each lane.
template <class Real>
struct NearestSearch {
  using L = Lanes<Real>;
  using D = typename L::D;
  using V = typename L::V;
  using M = typename L::M;
  using DI = hn::RebindToSigned<D>;
  using Int = hn::TFromD<DI>;
  using Boxes = typename PointLeaves<Real>::Boxes;
  static constexpr std::int64_t kLeaf = PointLeaves<Real>::kLeaf, kGroup = PointLeaves<Real>::kGroup;
  static constexpr Real kInfinite = std::numeric_limits<Real>::infinity();

  const PointLeaves<Real>& points;
  const NearestRoom<Real>& room;  // level i, lane j: element i * kCount + j, by ascending distance and row
  const std::int64_t count;       // levels
  V at[3];
  Real low[3], high[3];  // the box around the positions that are finite
  M is_finite;           // the others have no near points

  HWY_INLINE NearestSearch(const PointLeaves<Real>& its_points, const PointLeaves<Real>& positions,
                           std::int64_t first, const NearestRoom<Real>& its_room, std::int64_t its_count,
                           Real limit)
      : points(its_points), room(its_room), count(its_count) {
    const D d;
    const Real* axes[] = {positions.x(), positions.y(), positions.z()};
    const V most = hn::Set(d, std::numeric_limits<Real>::max());
    is_finite = hn::Eq(hn::Zero(d), hn::Zero(d));
    for (int k = 0; k < 3; ++k) {
      at[k] = hn::LoadU(d, axes[k] + first);
      is_finite = hn::And(is_finite, hn::Le(hn::Abs(at[k]), most));
    }
    const V far = hn::Set(d, kInfinite);
    for (int k = 0; k < 3; ++k) {
      low[k] = hn::GetLane(hn::MinOfLanes(d, hn::IfThenElse(is_finite, at[k], far)));
      high[k] = hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElse(is_finite, at[k], hn::Neg(far))));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      hn::StoreU(hn::Set(d, limit), d, room.distances + i * L::kCount);
      hn::StoreU(hn::Set(DI(), Int{-1}), DI(), room.rows + i * L::kCount);
    }
  }

  HWY_INLINE V most() const { return hn::LoadU(D(), room.distances + (count - 1) * L::kCount); }
  // The largest distance that any position needs.
  HWY_INLINE Real bound() const {
    const D d;
    return hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElse(is_finite, most(), hn::Set(d, Real(-1)))));
  }

  HWY_INLINE void insert(V distance, Int row_number) const {
    const D d;
    const DI di;
    auto row = hn::Set(di, row_number);
    for (std::int64_t i = 0; i < count; ++i) {
      Real* const distances = room.distances + i * L::kCount;
      Int* const rows = room.rows + i * L::kCount;
      const V its_distance = hn::LoadU(d, distances);
      const auto its_row = hn::LoadU(di, rows);
      const M is_before =
          hn::Or(hn::Lt(distance, its_distance),
                 hn::And(hn::Eq(distance, its_distance), hn::RebindMask(d, hn::Lt(row, its_row))));
      const auto is_row_before = hn::RebindMask(di, is_before);
      hn::StoreU(hn::IfThenElse(is_before, distance, its_distance), d, distances);
      hn::StoreU(hn::IfThenElse(is_row_before, row, its_row), di, rows);
      distance = hn::IfThenElse(is_before, its_distance, distance);
      row = hn::IfThenElse(is_row_before, its_row, row);
    }
  }
  HWY_INLINE void search_leaf(std::int64_t leaf) const {
    const D d;
    const Boxes& boxes = points.leaf_boxes();
    V out[3];
    for (int k = 0; k < 3; ++k)
      out[k] = hn::Max(hn::Max(hn::Sub(hn::Set(d, boxes.low[k][leaf]), at[k]),
                               hn::Sub(at[k], hn::Set(d, boxes.high[k][leaf]))),
                       hn::Zero(d));
    const M is_far = hn::Gt(Position<Real>::square_sum(out[0], out[1], out[2]), most());
    if (hn::AllFalse(d, hn::AndNot(is_far, is_finite))) return;
    for (std::int64_t j = leaf * kLeaf; j < (leaf + 1) * kLeaf; ++j) {
      const V square = Position<Real>::square_sum(hn::Sub(hn::Set(d, points.x()[j]), at[0]),
                                                  hn::Sub(hn::Set(d, points.y()[j]), at[1]),
                                                  hn::Sub(hn::Set(d, points.z()[j]), at[2]));
      // A point at the largest distance may have a lower row.
      const M is_near = hn::Le(square, most());
      if (hn::AllFalse(d, is_near)) continue;
      insert(hn::IfThenElse(is_near, square, hn::Set(d, kInfinite)), static_cast<Int>(points.rows()[j]));
    }
  }

  // Calls visit(i) for the boxes that may have a nearer point of a position when they are visited, of several
  // boxes the nearest first.
  template <class Visit>
  HWY_INLINE void for_near(const Boxes& boxes, std::int64_t first, std::int64_t last,
                           const Visit& visit) const {
    const D d;
    for (std::int64_t i = first; i < last; i += L::kCount) {
      V out[3];
      for (int k = 0; k < 3; ++k)
        out[k] = hn::Max(hn::Max(hn::Sub(hn::LoadU(d, boxes.low[k] + i), hn::Set(d, high[k])),
                                 hn::Sub(hn::Set(d, low[k]), hn::LoadU(d, boxes.high[k] + i))),
                         hn::Zero(d));
      const V squares = Position<Real>::square_sum(out[0], out[1], out[2]);
      alignas(64) Real distances[L::kCount];
      hn::Store(hn::IfThenElse(hn::Ge(squares, hn::Zero(d)), squares, hn::Zero(d)), d, distances);
      for (;;) {
        const V left = hn::Load(d, distances);
        const Real least = hn::GetLane(hn::MinOfLanes(d, left));
        if (!(least <= bound()) || least == kInfinite) break;
        const std::int64_t lane = std::countr_zero(L::bits(hn::Eq(left, hn::Set(d, least))));
        distances[lane] = kInfinite;
        visit(i + lane);
      }
    }
  }

  HWY_INLINE void run() const {
    if (hn::AllFalse(D(), is_finite)) return;
    for_near(points.group_boxes(), 0, padded_groups(points.groups()), [&](std::int64_t group) HWY_ATTR {
      if (group >= points.groups()) return;
      for_near(points.leaf_boxes(), group * kGroup, (group + 1) * kGroup,
               [&](std::int64_t leaf) HWY_ATTR { search_leaf(leaf); });
    });
  }
};

template <class Real>
void find_nearest(const PointLeaves<Real>& points, const PointLeaves<Real>& positions, std::int64_t first,
                  const NearestRoom<Real>& room, std::int64_t count, Real limit) {
  const NearestSearch<Real> search(points, positions, first, room, count, limit);
  search.run();
}

constexpr Kernels<NearestKernels> kNearestKernels = {{&find_nearest<float>, Lanes<float>::kCount},
                                                     {&find_nearest<double>, Lanes<double>::kCount}};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::points, Kernels<NearestKernels>, nearest_kernels, kNearestKernels)
#endif
