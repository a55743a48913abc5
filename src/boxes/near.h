// Finds the boxes that may share something with one box, and compares them with it.
#pragma once

#include <bit>
#include <cstdint>

#include "boxes/kernels.h"
#include "boxes/reach.h"

namespace turnout::families::boxes {

inline constexpr std::int64_t kNearBlock = 1024;  // boxes that are looked at before those nearby are compared
inline constexpr std::int64_t kNearRoom = kNearBlock + Clipped::kMost;  // elements of `found` of find_near()

// Lists the boxes first .. last-1 of `all`, at most kNearBlock, that must be compared with box i of `of`.
// Returns how many. with_sides: boxes that are too thin for their distance must be compared, as the rounding
// errors of their nearly parallel edges may make crossings.
template <bool with_sides>
std::int64_t find_near(const Kernels& kernels, const Reaches<float>& of, std::int64_t i,
                       const Reaches<float>& all, std::int64_t first, std::int64_t last,
                       std::int32_t* found) {
  return (with_sides ? kernels.near_with_sides : kernels.near)(of, i, all, first, last, found);
}
template <bool with_sides>
std::int64_t find_near(const Kernels&, const Reaches<double>& of, std::int64_t i, const Reaches<double>& all,
                       std::int64_t first, std::int64_t last, std::int32_t* found) {
  const double x = of.x[i], y = of.y[i], reach = of.reach[i], radius = of.radius[i], side = of.side[i];
  std::int64_t count = 0;
  for (std::int64_t j = first; j < last; ++j) {
    const double dx = all.x[j] - x, dy = all.y[j] - y, sum = all.reach[j] + reach;
    const double square = dx * dx + dy * dy;
    bool is_far = square > sum * sum;
    if constexpr (with_sides) {
      const double least = all.side[j] < side ? all.side[j] : side;
      const double most = all.radius[j] > radius ? all.radius[j] : radius;
      const double thickness = least * least * 5e4;
      is_far &= thickness * thickness > square * (most * most);
    }
    found[count] = static_cast<std::int32_t>(j);
    count += !is_far;
  }
  return count;
}

// overlaps[k] = overlap_of(a, boxes[listed[k]]), for `count` boxes. All corners are finite and not larger
// than some 1e8.
inline void clip_all(const Kernels& kernels, const BevBox<float>& a, const BevBox<float>* boxes,
                     const std::int32_t* listed, std::int64_t count, float* overlaps) {
  constexpr std::int64_t kFewest = 3;  // fewer take less time one by one
  std::int64_t k = 0;
  Clipped clipped;
  for (; k + kFewest <= count; k += kernels.lanes) {
    const auto lanes = static_cast<int>(std::min<std::int64_t>(count - k, kernels.lanes));
    kernels.clip(a, boxes, listed + k, lanes, clipped);
    for (int lane = 0; lane < lanes; ++lane) {
      SharedPoints<float> points;
      float key[Clipped::kPoints];
      for (std::uint32_t bits = clipped.found[lane]; bits != 0; bits &= bits - 1) {
        const int at = std::countr_zero(bits);
        key[points.count] = clipped.key[at][lane];
        points.add(clipped.x[at][lane], clipped.y[at][lane]);
      }
      overlaps[k + lane] = points.count == 0 ? 0.0f : points.area_by(key);
    }
  }
  for (; k < count; ++k) overlaps[k] = overlap_of(a, boxes[listed[k]]);
}

}  // namespace turnout::families::boxes
