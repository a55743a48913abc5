// Boxes whose edges are parallel to the axes, in the order of their visits.
#pragma once

#include <cstdint>

#include "core/padding.h"
#include "runtime/context.h"

namespace turnout::families::boxes {

// One array for each number, so that kernels load those of several boxes at once.
template <class Real>
struct UprightBoxes {
  Real *x1, *y1, *x2, *y2, *area;
  std::int32_t* visit;
  std::uint32_t* is_suppressed;  // 0, or all bits

  static constexpr std::int64_t kPadding = 16;  // kernels load and store whole vectors
  static std::size_t bytes(std::int64_t count) {
    return 5 * core::array_bytes<Real>(count + kPadding) + core::array_bytes<std::int32_t>(count) +
           core::array_bytes<std::uint32_t>(count + kPadding);
  }
  UprightBoxes(core::Scratch& scratch, std::int64_t count) {
    for (Real** one : {&x1, &y1, &x2, &y2, &area}) *one = scratch.take<Real>(count + kPadding);
    visit = scratch.take<std::int32_t>(count);
    is_suppressed = scratch.take<std::uint32_t>(count + kPadding);
  }
  void move(std::int64_t from, std::int64_t to) const {
    for (Real* one : {x1, y1, x2, y2, area}) one[to] = one[from];
    visit[to] = visit[from];
  }
};

// What is added to widths and heights, the least that an overlap is divided by, if that is positive, and the
// IoU that suppresses if it is exceeded.
template <class Real>
struct UprightRule {
  Real offset, least, threshold;
};

}  // namespace turnout::families::boxes
