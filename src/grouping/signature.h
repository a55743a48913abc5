// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::grouping {

using namespace core::grammar;

// The plans check indices and counts and keep the values that they have read, because the caller's memory may
// change during a call. They keep rows as int32.
inline constexpr RuleSpec kMostRows = at_most("rows", "2147483647");

// -- features [batch, channels, rows] ----------------------------------------------------------------------

inline constexpr ArgumentSpec kFeatures = in("features", kFloats, "batch, channels, rows");
inline constexpr ArgumentSpec kGradFeatures = out("grad_features", like("grad_out"), "batch, channels, rows");

inline constexpr const Signature& kGroupPoints = signature([] {
  return Draft{"group_points",
               "batch channels rows centers samples",
               {},
               {kFeatures, in("indices", kIndices, "batch, centers, samples"),
                out("out", like("features"), "batch, channels, centers, samples")},
               {kMostRows}};
});
inline constexpr const Signature& kGroupPointsBackward = signature([] {
  return Draft{"group_points_backward",
               "batch channels centers samples rows",
               {},
               {in("grad_out", kFloats, "batch, channels, centers, samples"),
                in("indices", kIndices, "batch, centers, samples"), kGradFeatures},
               {kMostRows}};
});

inline constexpr const Signature& kGatherPoints = signature([] {
  return Draft{"gather_points",
               "batch channels rows centers",
               {},
               {kFeatures, in("indices", kIndices, "batch, centers"),
                out("out", like("features"), "batch, channels, centers")},
               {kMostRows}};
});
inline constexpr const Signature& kGatherPointsBackward = signature([] {
  return Draft{"gather_points_backward",
               "batch channels centers rows",
               {},
               {in("grad_out", kFloats, "batch, channels, centers"),
                in("indices", kIndices, "batch, centers"), kGradFeatures},
               {kMostRows}};
});

inline constexpr const Signature& kThreeInterpolate = signature([] {
  return Draft{"three_interpolate",
               "batch channels rows centers",
               {},
               {kFeatures, in("indices", kIndices, "batch, centers, 3"),
                in("weights", lane_of("features"), "batch, centers, 3"),
                out("out", like("features"), "batch, channels, centers")},
               {kMostRows}};
});
inline constexpr const Signature& kThreeInterpolateBackward = signature([] {
  return Draft{
      "three_interpolate_backward",
      "batch channels centers rows",
      {},
      {in("grad_out", kFloats, "batch, channels, centers"), in("indices", kIndices, "batch, centers, 3"),
       in("weights", lane_of("grad_out"), "batch, centers, 3"), kGradFeatures},
      {kMostRows}};
});

// -- stacked samples: features [rows, channels] ------------------------------------------------------------

inline constexpr ArgumentSpec kStackedFeatures = in("features", kFloats, "rows, channels");
inline constexpr ArgumentSpec kStackedGradFeatures = out("grad_features", like("grad_out"), "rows, channels");
inline constexpr ArgumentSpec kCounts = in("counts", kIndices, "batch");
inline constexpr ArgumentSpec kIndexCounts = in("index_counts", kIndices, "batch");

inline constexpr const Signature& kGroupPointsStacked = signature([] {
  return Draft{"group_points_stacked",
               "rows channels batch centers samples",
               {},
               {kStackedFeatures, kCounts, in("indices", kIndices, "centers, samples"), kIndexCounts,
                out("out", like("features"), "centers, channels, samples")},
               {kMostRows}};
});
inline constexpr const Signature& kGroupPointsStackedBackward = signature([] {
  return Draft{"group_points_stacked_backward",
               "centers channels samples batch rows",
               {},
               {in("grad_out", kFloats, "centers, channels, samples"), kCounts,
                in("indices", kIndices, "centers, samples"), kIndexCounts, kStackedGradFeatures},
               {kMostRows}};
});

inline constexpr const Signature& kThreeInterpolateStacked = signature([] {
  return Draft{
      "three_interpolate_stacked",
      "rows channels centers",
      {},
      {kStackedFeatures, in("indices", kIndices, "centers, 3"),
       in("weights", lane_of("features"), "centers, 3"), out("out", like("features"), "centers, channels")},
      {kMostRows}};
});
inline constexpr const Signature& kThreeInterpolateStackedBackward = signature([] {
  return Draft{"three_interpolate_stacked_backward",
               "centers channels rows",
               {},
               {in("grad_out", kFloats, "centers, channels"), in("indices", kIndices, "centers, 3"),
                in("weights", lane_of("grad_out"), "centers, 3"), kStackedGradFeatures},
               {kMostRows}};
});

}  // namespace turnout::families::grouping
