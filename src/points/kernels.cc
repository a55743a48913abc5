// Sampling and searches among points in leaves, several points at a time. Compiled once per instruction set.
#include "points/kernels.h"

#include <bit>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "points/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::points)

using namespace core;

template <class Real>
struct Lanes {
  using D = hn::ScalableTag<Real>;
  using V = hn::Vec<D>;
  using M = hn::Mask<D>;
  static constexpr auto kCount = static_cast<std::int64_t>(HWY_MAX_BYTES / sizeof(Real));
  static_assert(PointLeaves<Real>::kGroup % kCount == 0 && PointLeaves<Real>::kLeaf % kCount == 0);

  static HWY_INLINE std::uint32_t bits(M mask) {
    std::conditional_t<(kCount > 8), std::uint16_t, std::uint8_t> bits;
    static_assert(sizeof(bits) == (kCount + 7) / 8);
    hn::StoreMaskBits(D(), mask, reinterpret_cast<std::uint8_t*>(&bits));
    return bits;
  }
  static HWY_INLINE Real greatest(V v) { return hn::GetLane(hn::MaxOfLanes(D(), v)); }
  static HWY_INLINE V greater(V a, V b) { return hn::IfThenElse(hn::Gt(a, b), a, b); }  // b if a is NaN
};

// A position that points and boxes are compared with.
template <class Real>
struct Position {
  using L = Lanes<Real>;
  using V = typename L::V;
  V at[3];

  explicit HWY_INLINE Position(const Real* p) {
    for (int k = 0; k < 3; ++k) at[k] = hn::Set(typename L::D(), p[k]);
  }
  HWY_INLINE V difference(const Real* axis, std::int64_t i, int k) const {
    return hn::Sub(hn::LoadU(typename L::D(), axis + i), at[k]);
  }
  static HWY_INLINE V square_sum(V x, V y, V z) {
    return hn::Add(hn::Add(hn::Mul(x, x), hn::Mul(y, y)), hn::Mul(z, z));
  }
  HWY_INLINE V distance(const Real* x, const Real* y, const Real* z, std::int64_t i) const {
    return square_sum(difference(x, i, 0), difference(y, i, 1), difference(z, i, 2));
  }
  // How far the position is outside of boxes i .. along an axis. 0 or NaN if that is not known.
  HWY_INLINE V outside(const typename PointLeaves<Real>::Boxes& boxes, std::int64_t i, int k) const {
    const typename L::D d;
    const V below = hn::Sub(hn::LoadU(d, boxes.low[k] + i), at[k]);
    const V above = hn::Sub(at[k], hn::LoadU(d, boxes.high[k] + i));
    return hn::Max(hn::Max(below, above), hn::Zero(d));
  }
  HWY_INLINE V distance(const typename PointLeaves<Real>::Boxes& boxes, std::int64_t i) const {
    return square_sum(outside(boxes, i, 0), outside(boxes, i, 1), outside(boxes, i, 2));
  }
};

// Calls visit(i) for the boxes i of first .. last - 1 that is_near(i) has, a mask for several boxes.
template <class Real, class IsNear, class Visit>
HWY_INLINE void for_boxes(std::int64_t first, std::int64_t last, const IsNear& is_near, const Visit& visit) {
  for (std::int64_t i = first; i < last; i += Lanes<Real>::kCount)
    for (std::uint32_t bits = Lanes<Real>::bits(is_near(i)); bits != 0; bits &= bits - 1)
      visit(i + std::countr_zero(bits));
}

// -- furthest point sampling -------------------------------------------------------------------------------

template <class Real>
struct Sampling {
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr std::int64_t kLeaf = PointLeaves<Real>::kLeaf, kGroup = PointLeaves<Real>::kGroup;
  const SampleTask<Real>& task;

  // The largest of `count` numbers that are above kNoDistance, otherwise kNoDistance.
  HWY_INLINE Real most_of(const Real* from, std::int64_t count) const {
    V most = hn::Set(typename L::D(), Real(kNoDistance));
    for (std::int64_t j = 0; j < count; j += L::kCount)
      most = L::greater(hn::LoadU(typename L::D(), from + j), most);
    return L::greatest(most);
  }

  HWY_INLINE void update_leaf(const Position<Real>& last, std::int64_t leaf) const {
    const typename L::D d;
    const std::int64_t first = leaf * kLeaf;
    const Real *x = task.leaves.x() + first, *y = task.leaves.y() + first, *z = task.leaves.z() + first;
    Real* distances = task.distances + first;
    V most = hn::Set(d, Real(kNoDistance));
    for (std::int64_t j = 0; j < kLeaf; j += L::kCount) {
      const V is = hn::LoadU(d, distances + j), to_last = last.distance(x, y, z, j);
      const V now = hn::IfThenElse(hn::Lt(to_last, is), to_last, is);  // `is` if the new one is NaN
      hn::StoreU(now, d, distances + j);
      most = L::greater(now, most);
    }
    task.leaf_most[leaf] = L::greatest(most);
    task.leaf_row[leaf] = -1;
  }

  // A box at a distance of its largest one, or farther, does not change.
  HWY_INLINE void update(const Real* last_point) const {
    const typename L::D d;
    const Position<Real> last(last_point);
    const auto is_near = [&](const auto& boxes, const Real* most, std::int64_t i) HWY_ATTR {
      return hn::Not(hn::Ge(last.distance(boxes, i), hn::LoadU(d, most + i)));
    };
    for_boxes<Real>(
        0, padded_groups(task.leaves.groups()),
        [&](std::int64_t i) HWY_ATTR { return is_near(task.leaves.group_boxes(), task.group_most, i); },
        [&](std::int64_t group) HWY_ATTR {
          if (group >= task.leaves.groups()) return;
          const std::int64_t first = group * kGroup;
          for_boxes<Real>(
              first, first + kGroup,
              [&](std::int64_t i) HWY_ATTR { return is_near(task.leaves.leaf_boxes(), task.leaf_most, i); },
              [&](std::int64_t leaf) HWY_ATTR { update_leaf(last, leaf); });
          task.group_most[group] = most_of(task.leaf_most + first, kGroup);
        });
  }

  HWY_INLINE std::int32_t row_of(std::int64_t leaf) const {
    std::int32_t& known = task.leaf_row[leaf];
    if (known >= 0) return known;
    const V most = hn::Set(typename L::D(), task.leaf_most[leaf]);
    std::int32_t lowest = PointLeaves<Real>::kNoRow;
    for_boxes<Real>(
        leaf * kLeaf, (leaf + 1) * kLeaf,
        [&](std::int64_t i) HWY_ATTR { return hn::Eq(hn::LoadU(typename L::D(), task.distances + i), most); },
        [&](std::int64_t i) HWY_ATTR { lowest = std::min(lowest, task.leaves.rows()[i]); });
    return known = lowest;
  }

  HWY_INLINE std::int32_t next() const {
    const typename L::D d;
    const std::int64_t groups = padded_groups(task.leaves.groups());
    const Real most = most_of(task.group_most, groups);
    if (!(most > Real(kNoDistance))) return 0;
    const V sought = hn::Set(d, most);
    std::int32_t lowest = PointLeaves<Real>::kNoRow;
    const auto has_most = [&](const Real* from) HWY_ATTR { return hn::Eq(hn::LoadU(d, from), sought); };
    for_boxes<Real>(
        0, groups, [&](std::int64_t i) HWY_ATTR { return has_most(task.group_most + i); },
        [&](std::int64_t group) HWY_ATTR {
          for_boxes<Real>(
              group * kGroup, (group + 1) * kGroup,
              [&](std::int64_t i) HWY_ATTR { return has_most(task.leaf_most + i); },
              [&](std::int64_t leaf) HWY_ATTR { lowest = std::min(lowest, row_of(leaf)); });
        });
    return lowest;
  }

  // After the distances are set.
  HWY_INLINE void begin() const {
    for (std::int64_t leaf = 0; leaf < task.leaves.leaves(); ++leaf) {
      task.leaf_most[leaf] = most_of(task.distances + leaf * kLeaf, kLeaf);
      task.leaf_row[leaf] = -1;
    }
    for (std::int64_t group = 0; group < padded_groups(task.leaves.groups()); ++group)
      task.group_most[group] =
          group < task.leaves.groups() ? most_of(task.leaf_most + group * kGroup, kGroup) : Real(kNoDistance);
  }
};

template <class Real>
std::int64_t sample(const SampleTask<Real>& task, std::int64_t count, std::int32_t* samples) {
  const Sampling<Real> sampling{task};
  sampling.begin();
  const std::int64_t asks = std::max<std::int64_t>(Stop::kGrain / (task.leaves.count() + 1), 1);
  for (std::int64_t i = 1; i < count; ++i) {
    if (i % asks == 0 && task.stop.is_asked()) return i;
    const std::int32_t last = samples[i - 1];
    sampling.update(task.points + 3 * std::int64_t{last});
    samples[i] = sampling.next();
    if (samples[i] == last) return i + 1;
  }
  return count;
}

template <class Real>
std::int64_t step(const Real* to_last, Real* distances, std::int64_t count) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const typename L::D d;
  using DI = hn::RebindToSigned<typename L::D>;
  using Int = hn::TFromD<DI>;
  const DI di;
  V most = hn::Set(d, Real(kNoDistance));
  auto block = hn::Zero(di), of_most = hn::Zero(di);
  const auto one = hn::Set(di, Int{1});
  std::int64_t j = 0;
  for (; j + L::kCount <= count; j += L::kCount) {
    const V is = hn::LoadU(d, distances + j), to = hn::LoadU(d, to_last + j);
    const V now = hn::IfThenElse(hn::Lt(to, is), to, is);
    hn::StoreU(now, d, distances + j);
    const auto is_greater = hn::Gt(now, most);
    most = hn::IfThenElse(is_greater, now, most);
    of_most = hn::IfThenElse(hn::RebindMask(di, is_greater), block, of_most);
    block = hn::Add(block, one);
  }
  const Real greatest = L::greatest(most);
  Real best = greatest;
  std::int64_t next = 0;
  if (greatest > Real(kNoDistance)) {
    alignas(64) Real values[L::kCount];
    alignas(64) Int blocks[L::kCount];
    hn::Store(most, d, values);
    hn::Store(of_most, di, blocks);
    next = count;
    for (std::int64_t lane = 0; lane < L::kCount; ++lane)
      if (values[lane] == greatest) next = std::min(next, std::int64_t{blocks[lane]} * L::kCount + lane);
  }
  for (; j < count; ++j) {
    if (to_last[j] < distances[j]) distances[j] = to_last[j];
    if (distances[j] > best) {
      best = distances[j];
      next = j;
    }
  }
  return next;
}

// -- searches ----------------------------------------------------------------------------------------------

// Appends the rows that `is_found` marks.
template <class Real>
HWY_INLINE void append(typename Lanes<Real>::M is_found, const std::int32_t* rows, Found& found) {
  using L = Lanes<Real>;
  if constexpr (sizeof(Real) == 4) {
    const U32 du;
    const auto mask = hn::RebindMask(du, is_found);
    const auto from = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(rows));
    hn::StoreU(compress(from, mask), du, reinterpret_cast<std::uint32_t*>(found.rows + found.count));
    found.count += static_cast<std::int64_t>(hn::CountTrue(du, mask));
  } else {
    for (std::uint32_t bits = L::bits(is_found); bits != 0; bits &= bits - 1)
      found.rows[found.count++] = rows[std::countr_zero(bits)];
  }
}

// Whether points at differences x, y, z are in the region.
template <class Real, Region region>
struct Within {
  using L = Lanes<Real>;
  using V = typename L::V;
  V least, most;

  explicit HWY_INLINE Within(const Search<Real>& search)
      : least(hn::Set(typename L::D(), search.least)), most(hn::Set(typename L::D(), search.most)) {}

  HWY_INLINE typename L::M has(V x, V y, V z) const {
    if constexpr (region == Region::cube) {
      return hn::And(hn::Le(hn::Abs(x), most), hn::And(hn::Le(hn::Abs(y), most), hn::Le(hn::Abs(z), most)));
    } else {
      const V square = Position<Real>::square_sum(x, y, z);
      if constexpr (region == Region::closed_ball) return hn::Le(square, most);
      const auto is_far = hn::Or(hn::Ge(square, least), hn::Eq(square, hn::Zero(typename L::D())));
      return hn::And(hn::Lt(square, most), is_far);
    }
  }
  // Whether boxes that are so far outside may have such points: also if that is not known.
  HWY_INLINE typename L::M reaches(V x, V y, V z) const {
    if constexpr (region == Region::cube) {
      return hn::Not(hn::Gt(hn::Max(x, hn::Max(y, z)), most));
    } else {
      const V square = Position<Real>::square_sum(x, y, z);
      if constexpr (region == Region::closed_ball) return hn::Not(hn::Gt(square, most));
      return hn::Not(hn::Ge(square, most));
    }
  }
};

template <class Real, Region region>
HWY_INLINE void search_in(const PointLeaves<Real>& leaves, const Real* position, const Search<Real>& search,
                          Found& found) {
  using L = Lanes<Real>;
  constexpr std::int64_t kLeaf = PointLeaves<Real>::kLeaf, kGroup = PointLeaves<Real>::kGroup;
  const Position<Real> at(position);
  const Within<Real, region> within(search);
  const auto is_near = [&](const auto& boxes, std::int64_t i) HWY_ATTR {
    return within.reaches(at.outside(boxes, i, 0), at.outside(boxes, i, 1), at.outside(boxes, i, 2));
  };
  const auto search_leaf = [&](std::int64_t leaf) HWY_ATTR {
    if (found.count + kLeaf + L::kCount > found.capacity) reduce(found, search.room);
    for (std::int64_t j = leaf * kLeaf; j < (leaf + 1) * kLeaf; j += L::kCount) {
      const auto has = within.has(at.difference(leaves.x(), j, 0), at.difference(leaves.y(), j, 1),
                                  at.difference(leaves.z(), j, 2));
      if (!hn::AllFalse(typename L::D(), has)) append<Real>(has, leaves.rows() + j, found);
    }
  };
  for_boxes<Real>(
      0, padded_groups(leaves.groups()),
      [&](std::int64_t i) HWY_ATTR { return is_near(leaves.group_boxes(), i); },
      [&](std::int64_t group) HWY_ATTR {
        if (group >= leaves.groups()) return;
        for_boxes<Real>(
            group * kGroup, (group + 1) * kGroup,
            [&](std::int64_t i) HWY_ATTR { return is_near(leaves.leaf_boxes(), i); }, search_leaf);
      });
}

template <class Real, Region region>
HWY_INLINE std::int64_t scan_for(const Real* const* axes, std::int64_t first, std::int64_t last,
                                 const Real* position, const Search<Real>& search, Found& found) {
  using L = Lanes<Real>;
  const Position<Real> at(position);
  const Within<Real, region> within(search);
  std::int64_t j = first;
  for (; j < last && found.count < search.room; j += L::kCount) {
    auto has =
        within.has(at.difference(axes[0], j, 0), at.difference(axes[1], j, 1), at.difference(axes[2], j, 2));
    if (j + L::kCount > last)
      has = hn::And(has, hn::FirstN(typename L::D(), static_cast<std::size_t>(last - j)));
    for (std::uint32_t bits = L::bits(has); bits != 0; bits &= bits - 1)
      found.rows[found.count++] = static_cast<std::int32_t>(j + std::countr_zero(bits));
  }
  return std::min(j, last);
}

// Calls run with the region as a constant.
template <class Run>
HWY_INLINE auto with_region(Region region, const Run& run) {
  using Ball = std::integral_constant<Region, Region::ball>;
  using Closed = std::integral_constant<Region, Region::closed_ball>;
  using Cube = std::integral_constant<Region, Region::cube>;
  if (region == Region::ball) return run(Ball{});
  return region == Region::cube ? run(Cube{}) : run(Closed{});
}
template <class Real>
void search(const PointLeaves<Real>& leaves, const Real* position, const Search<Real>& for_what,
            Found& found) {
  with_region(for_what.region, [&](auto region) HWY_ATTR {
    search_in<Real, decltype(region)::value>(leaves, position, for_what, found);
  });
}
template <class Real>
std::int64_t scan(const Real* const* axes, std::int64_t first, std::int64_t last, const Real* position,
                  const Search<Real>& for_what, Found& found) {
  return with_region(for_what.region, [&](auto region) HWY_ATTR {
    return scan_for<Real, decltype(region)::value>(axes, first, last, position, for_what, found);
  });
}

// -- nearest points ----------------------------------------------------------------------------------------

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

constexpr Kernels kPointKernels = {
    {&sample<float>, &step<float>, &search<float>, &scan<float>, &find_nearest<float>, Lanes<float>::kCount},
    {&sample<double>, &step<double>, &search<double>, &scan<double>, &find_nearest<double>,
     Lanes<double>::kCount}};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::points, Kernels, kernels, kPointKernels)
#endif
