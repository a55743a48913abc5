// Searches for the points of a region. Compiled once per instruction set.
#include "points/kernels.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "points/search_kernels.cc"
#include "simd/simd.h"
// After simd.h.
#include "points/positions.h"

TURNOUT_ISA_BEGIN(families::points)

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

constexpr Kernels<SearchKernels> kSearchKernels = {{&search<float>, &scan<float>},
                                                   {&search<double>, &scan<double>}};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::points, Kernels<SearchKernels>, search_kernels, kSearchKernels)
#endif
