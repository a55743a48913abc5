// Decides which pairs of boxes need not be clipped, because they are so far apart that their overlap is
// exactly 0: the rounding errors of the clipping are covered, too.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/padding.h"
#include "runtime/context.h"

namespace turnout::families::boxes {

// One array for each number, so that kernels load those of several boxes at once.
template <class Real>
struct Reaches {
  Real *x = nullptr, *y = nullptr;
  Real* reach = nullptr;  // boxes farther apart than the sum of their reaches share nothing; NaN: always clip
  Real* radius = nullptr;  // half the diagonal
  Real* side = nullptr;    // the shorter one

  static constexpr std::int64_t kPadding = 16;  // kernels load whole vectors
  static std::size_t bytes(std::int64_t count) { return 5 * core::array_bytes<Real>(count + kPadding); }
  Reaches() = default;
  Reaches(core::Scratch& scratch, std::int64_t count) {
    for (Real** one : {&x, &y, &reach, &radius, &side}) *one = scratch.take<Real>(count + kPadding);
  }

  // margin: how far outside of a box a point still counts as inside.
  void set(std::int64_t i, Real box_x, Real box_y, Real width, Real height, Real angle, Real margin) const {
    // Beyond this size squares of areas overflow.
    constexpr auto is_small = [](Real v) { return std::abs(v) <= Real(1e8); };
    x[i] = box_x;
    y[i] = box_y;
    radius[i] = std::sqrt(width * width + height * height) / 2;
    side[i] = std::fmin(std::abs(width), std::abs(height));
    const bool is_plain = is_small(box_x) && is_small(box_y) && is_small(width) && is_small(height) &&
                          std::abs(angle) <= std::numeric_limits<Real>::max();
    // Corners and distances have errors of some 1e-7 of the coordinates.
    const Real error = Real(1e-5) * radius[i] + Real(4e-6) * (std::abs(box_x) + std::abs(box_y) + radius[i]);
    reach[i] = is_plain ? radius[i] + margin + error : std::numeric_limits<Real>::quiet_NaN();
  }
  bool is_plain(std::int64_t i) const { return !std::isnan(reach[i]); }
  void always_clip(std::int64_t i) const { reach[i] = std::numeric_limits<Real>::quiet_NaN(); }
  // Far from every box that is not always clipped.
  void remove(std::int64_t i) const {
    x[i] = Real(1e30);
    reach[i] = 0;
  }
  void move(std::int64_t from, std::int64_t to) const {
    for (Real* one : {x, y, reach, radius, side}) one[to] = one[from];
  }
};

}  // namespace turnout::families::boxes
