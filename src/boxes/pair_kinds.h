// What differs between the two kinds of rotated boxes, for code that compares pairs of them.
#pragma once

#include <algorithm>

#include "boxes/bev.h"
#include "boxes/near.h"
#include "boxes/reach.h"
#include "boxes/rotated.h"

namespace turnout::families::boxes {

// Half of the margin of 1 cm in both directions, rounded up: it counts for the corners of one of two boxes.
template <class Real>
inline constexpr Real kBevMargin = Real(0.0072);

// Boxes of 7 numbers in bird's-eye view.
template <class Number>
struct BevKind {
  using Real = Number;
  using Box = BevBox<Real>;
  static constexpr int kNumbers = 7;
  static constexpr bool kWithSides = false;
  static constexpr bool kHasOverlap = true;  // for what is computed from it
  static void set_reach(const Reaches<Real>& reaches, std::int64_t i, const Real* box) {
    reaches.set(i, box[0], box[1], box[3], box[4], box[6], kBevMargin<Real>);
  }

  // results[k] = compare(a, boxes[listed[k]], their overlap), for `count` boxes. is_plain: the corners of a
  // are finite; is_plain_box(k): likewise.
  template <class IsPlain, class Compare>
  static void compare(const Kernels& kernels, const Box& a, bool is_plain, const Box* boxes,
                      const std::int32_t* listed, std::int64_t count, const IsPlain& is_plain_box,
                      const Compare& compare, Real* results) {
    if constexpr (std::is_same_v<Real, float>) {
      bool are_plain = is_plain;
      for (std::int64_t k = 0; k < count; ++k) are_plain &= is_plain_box(k);
      if (are_plain) {
        clip_all(kernels, a, boxes, listed, count, results);
        for (std::int64_t k = 0; k < count; ++k) results[k] = compare(a, boxes[listed[k]], results[k]);
        return;
      }
    }
    for (std::int64_t k = 0; k < count; ++k)
      results[k] = compare(a, boxes[listed[k]], overlap_of(a, boxes[listed[k]]));
  }
};

// Boxes of 5 numbers.
template <class Number>
struct RotatedKind {
  using Real = Number;
  using Box = RotatedBox<Real>;
  static constexpr int kNumbers = 5;
  static constexpr bool kWithSides = true;
  static constexpr bool kHasOverlap = false;
  static void set_reach(const Reaches<Real>& reaches, std::int64_t i, const Real* box) {
    reaches.set(i, box[0], box[1], box[2], box[3], box[4], 0);
  }

  // results[k] = compare(a, boxes[listed[k]]), for `count` boxes.
  template <class IsPlain, class Compare>
  static void compare(const Kernels&, const Box& a, bool, const Box* boxes, const std::int32_t* listed,
                      std::int64_t count, const IsPlain&, const Compare& compare, Real* results) {
    for (std::int64_t k = 0; k < count; ++k) results[k] = compare(a, boxes[listed[k]]);
  }
};

}  // namespace turnout::families::boxes
