// The inner loops of this family for f32, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "boxes/bev.h"
#include "boxes/reach.h"
#include "boxes/upright.h"
#include "simd/isa.h"

namespace turnout::families::boxes {

// The points in which one box and up to kMost others meet: 16 crossings of edges, then the corners, in the
// order of the definition. Each row has one number for each of the other boxes.
struct Clipped {
  static constexpr int kMost = 16, kPoints = 24;
  alignas(64) float x[kPoints][kMost], y[kPoints][kMost];
  alignas(64) float key[kPoints][kMost];   // grows with the angle around the middle of the points
  alignas(64) std::uint32_t found[kMost];  // bit k: point k counts
};

struct Kernels {
  // find_near() of near.h. Writes up to Clipped::kMost elements after the last one of `found`.
  using Near = std::int64_t (*)(const Reaches<float>& of, std::int64_t i, const Reaches<float>& all,
                                std::int64_t first, std::int64_t last, std::int32_t* found);
  Near near, near_with_sides;
  // Clips a against the boxes listed[0 .. count-1] of `boxes`, at most `lanes`. All corners are finite.
  void (*clip)(const BevBox<float>& a, const BevBox<float>* boxes, const std::int32_t* listed, int count,
               Clipped& to);
  int lanes;  // of clip
  // Suppresses the boxes first .. last-1 that overlap box i.
  void (*suppress)(const UprightBoxes<float>& boxes, const UprightRule<float>& rule, std::int64_t i,
                   std::int64_t first, std::int64_t last);
};
const Kernels& kernels(Isa isa);

}  // namespace turnout::families::boxes
