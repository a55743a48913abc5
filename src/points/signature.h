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

// -- points within a radius --------------------------------------------------------------------------------

inline constexpr ScalarSpec kRadius = real("radius", 0),
                            kNoLeastRadius = by_default(0, real("min_radius", 0));
inline constexpr RuleSpec kMostOfQuery = at_most("nsample", "2147483647");
inline constexpr ArgumentSpec kQueries = in("new_xyz", like("xyz"), "batch?, queries, 3");
inline constexpr ArgumentSpec kStackedCloud = in("xyz", kGeometry, "points, 3");
inline constexpr ArgumentSpec kCounts = in("counts", kIndices, "batch");
inline constexpr ArgumentSpec kStackedQueries = in("new_xyz", like("xyz"), "queries, 3");
inline constexpr ArgumentSpec kQueryCounts = in("new_counts", kIndices, "batch");
inline constexpr ArgumentSpec kStackedRows = out("idx", kIndices, "queries, nsample");
inline constexpr ArgumentSpec kStackedFound = out("found", dtypes(DType::i32), "queries");

inline constexpr const Signature& kBallQuery = signature([] {
  return Draft{"ball_query",
               "batch points queries nsample",
               {kRadius, kNoLeastRadius},
               {kCloud, kQueries, out("idx", kIndices, "batch?, queries, nsample"),
                out("found", dtypes(DType::i32), "batch?, queries")},
               {kMostPoints, kMostOfQuery}};
});
inline constexpr const Signature& kBallQueryStacked = signature([] {
  return Draft{"ball_query_stacked",
               "points batch queries nsample",
               {kRadius, kNoLeastRadius},
               {kStackedCloud, kCounts, kStackedQueries, kQueryCounts, kStackedRows, kStackedFound},
               {kMostPoints, kMostOfQuery}};
});
inline constexpr ScalarSpec kZRange = scalar("z_range", 0, 2147483647);
inline constexpr ScalarSpec kYRange = scalar("y_range", 0, 2147483647);
inline constexpr ScalarSpec kXRange = scalar("x_range", 0, 2147483647);

inline constexpr const Signature& kVoxelQuery = signature([] {
  return Draft{"voxel_query",
               "points queries batch depth height width nsample",
               {kRadius, kZRange, kYRange, kXRange},
               {kStackedCloud, kStackedQueries, in("new_coords", kIndices, "queries, 4"),
                in("point_indices", kIndices, "batch, depth, height, width"), kStackedRows, kStackedFound},
               {kMostPoints, kMostOfQuery}};
});

// -- nearest points ----------------------------------------------------------------------------------------

inline constexpr const Signature& kThreeNn = signature([] {
  return Draft{
      "three_nn",
      "batch queries points",
      {},
      {in("unknown", kGeometry, "batch?, queries, 3"), in("known", like("unknown"), "batch?, points, 3"),
       out("dist2", like("unknown"), "batch?, queries, 3"), out("idx", kIndices, "batch?, queries, 3")},
      {kMostPoints}};
});
inline constexpr const Signature& kThreeNnStacked = signature([] {
  return Draft{"three_nn_stacked",
               "queries batch points",
               {},
               {in("unknown", kGeometry, "queries, 3"), in("unknown_counts", kIndices, "batch"),
                in("known", like("unknown"), "points, 3"), in("known_counts", kIndices, "batch"),
                out("dist2", like("unknown"), "queries, 3"), out("idx", kIndices, "queries, 3")},
               {kMostPoints}};
});
inline constexpr const Signature& kKnn = signature([] {
  return Draft{"knn",
               "batch points queries k",
               {},
               {kCloud, kQueries, out("idx", kIndices, "batch?, queries, k"),
                out("dist2", like("xyz"), "batch?, queries, k")},
               {kMostPoints, at_most("k", "2147483647")}};
});

// -- lists of neighbours, vector pooling -------------------------------------------------------------------

inline constexpr ScalarSpec kAllNeighbors = by_default(2147483647, scalar("nsample", 0, 2147483647));
inline constexpr ScalarSpec kPoolMode = by_default("mean", choice("mode", "mean sum first"));
inline constexpr RuleSpec kMostQueries = at_most("queries", "2147483647");
inline constexpr ArgumentSpec kListRows = in("rows", kIndices, "entries");
inline constexpr ArgumentSpec kListStarts = in("starts", kIndices, "queries + 1");

inline constexpr const Signature& kNeighborLists = signature([] {
  return Draft{
      "neighbor_lists",
      "points batch queries computed(entries)",
      {kRadius, kAllNeighbors, by_default("cube", choice("region", "cube ball"))},
      {kStackedCloud, kCounts, kStackedQueries, kQueryCounts, shortened(out("rows", kIndices, "entries")),
       out("starts", dtypes(DType::i64), "queries + 1")},
      {kMostPoints}};
});
inline constexpr const Signature& kThreeNnOfLists = signature([] {
  return Draft{"three_nn_of_lists",
               "points queries cells entries",
               {},
               {kStackedCloud, in("centers", like("xyz"), "queries, cells, 3"), kListRows, kListStarts,
                out("dist2", like("xyz"), "queries, cells, 3"), out("idx", kIndices, "queries, cells, 3")},
               {kMostPoints}};
});
inline constexpr const Signature& kVectorPool = signature([] {
  return Draft{"vector_pool",
               "points channels queries entries slots",
               {kRadius, vector("grid", "3", 1, 1024), kPoolMode, kAllNeighbors},
               {kStackedCloud, in("features", like("xyz"), "points, channels"), kStackedQueries, kListRows,
                kListStarts, out("pooled", like("xyz"), "queries, volume(grid), slots"),
                out("local_xyz", like("xyz"), "queries, volume(grid), 3"),
                out("cell_counts", dtypes(DType::i32), "queries, volume(grid)"),
                out("grouped", dtypes(DType::i32), "entries, 3")},
               {kMostPoints, kMostQueries}};
});
inline constexpr const Signature& kVectorPoolBackward = signature([] {
  return Draft{
      "vector_pool_backward",
      "queries cells slots entries points channels",
      {kPoolMode},
      {in("grad_pooled", kGeometry, "queries, cells, slots"), in("cell_counts", kIndices, "queries, cells"),
       in("grouped", kIndices, "entries, 3"), out("grad_features", like("grad_pooled"), "points, channels")},
      {kMostPoints, kMostQueries, at_most("cells", "2147483647")}};
});

}  // namespace turnout::families::points
