// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::points {

using namespace core::grammar;

inline constexpr core::DTypes kGeometry = dtypes(DType::f32, DType::f64);
inline constexpr RuleSpec kMostPoints = at_most("points", "2147483647");
inline constexpr RuleSpec kMostSamples = at_most("samples", "2147483647");

// -- furthest point sampling -------------------------------------------------------------------------------

inline constexpr ArgumentSpec kCloud = in("xyz", kGeometry, "batch?, points, 3");
inline constexpr ArgumentSpec kSampled = out("idx", kIndices, "batch?, samples");

inline constexpr const Signature& kFurthestPointSample = signature([] {
  return Draft{"furthest_point_sample",
               "batch points samples",
               {},
               {kCloud, optional(in("initial", like("xyz"), "batch?, points")), kSampled,
                on_request("with_distances", out("distances", like("xyz"), "batch?, points"))},
               {kMostPoints, kMostSamples}};
});
inline constexpr const Signature& kFurthestPointSampleByDistances = signature([] {
  return Draft{"furthest_point_sample_by_distances",
               "batch points samples",
               {},
               {in("matrix", kGeometry, "batch?, points, points"),
                optional(in("initial", like("matrix"), "batch?, points")), kSampled,
                on_request("with_distances", out("distances", like("matrix"), "batch?, points"))},
               {kMostPoints, kMostSamples}};
});
inline constexpr const Signature& kFurthestPointSampleStacked = signature([] {
  return Draft{"furthest_point_sample_stacked",
               "points batch computed(samples)",
               {},
               {in("xyz", kGeometry, "points, 3"), in("counts", kIndices, "batch"),
                in("sample_counts", kIndices, "batch"), optional(in("initial", like("xyz"), "points")),
                out("idx", kIndices, "samples"),
                on_request("with_distances", out("distances", like("xyz"), "points"))},
               {kMostPoints, kMostSamples}};
});

}  // namespace turnout::families::points
