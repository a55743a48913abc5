// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::roi_pooling {

using namespace core::grammar;

inline constexpr DTypes kGeometry = dtypes(DType::f32, DType::f64);

inline constexpr ScalarSpec kZ = by_default("center", choice("z", "center bottom"));
inline constexpr ScalarSpec kMargin = by_default(1e-5, real("margin"));
inline constexpr ScalarSpec kOutSize = vector("out_size", "3", 1, 2147483647);
inline constexpr ScalarSpec kMaxPoints = by_default(127, scalar("max_points", 0, 2147483647));
inline constexpr ScalarSpec kPoolMethod = by_default("max", choice("pool_method", "max avg"));

inline constexpr ArgumentSpec kRois = in("rois", kGeometry, "roi_count, 7");
inline constexpr ArgumentSpec kPoints = in("points", like("rois"), "point_count, 3");
// Numbers of points, boxes and cells of a box are int32 inside.
inline constexpr RuleSpec kMostRois = at_most("roi_count", "2147483647");
inline constexpr RuleSpec kMostPoints = at_most("point_count", "2147483647");
inline constexpr RuleSpec kMostCells = at_most("volume(out_size)", "2147483647");

inline constexpr const Signature& kRoiawarePool3d = signature([] {
  return Draft{"roiaware_pool3d",
               "roi_count point_count channels",
               {kOutSize, kMaxPoints, kPoolMethod, kZ, kMargin},
               {kRois, kPoints, in("features", kFloats, "point_count, channels"),
                out("pooled", like("features"), "roi_count, volume(out_size), channels")},
               {kMostRois, kMostPoints, kMostCells}};
});
inline constexpr const Signature& kRoiawarePool3dBackward = signature([] {
  return Draft{"roiaware_pool3d_backward",
               "roi_count channels point_count",
               {kOutSize, kMaxPoints, kPoolMethod, kZ, kMargin},
               {in("grad_pooled", kFloats, "roi_count, volume(out_size), channels"), kRois, kPoints,
                or_none(required_when("pool_method", "max",
                                      in("features", like("grad_pooled"), "point_count, channels"))),
                out("grad_features", like("grad_pooled"), "point_count, channels")},
               {kMostRois, kMostPoints, kMostCells}};
});
inline constexpr const Signature& kRoiawarePoints = signature([] {
  return Draft{"roiaware_points",
               "roi_count point_count computed(pairs)",
               {kOutSize, kMaxPoints, kZ, kMargin},
               {kRois, kPoints, shortened(out("cell_of", dtypes(DType::i64), "pairs")),
                shortened(out("point_of", dtypes(DType::i64), "pairs"))},
               {kMostRois, kMostPoints, kMostCells}};
});

// The gradient from what a C function has written: lists of the points of each cell, or the point of each
// maximum.
inline constexpr const Signature& kRoiawareListsBackward = signature([] {
  return Draft{"roiaware_lists_backward",
               "roi_count size_x size_y size_z entries channels point_count",
               {kPoolMethod},
               {in("lists", dtypes(DType::i32), "roi_count, size_x, size_y, size_z, entries"),
                in("argmax", dtypes(DType::i32), "roi_count, size_x, size_y, size_z, channels"),
                in("grad_pooled", kFloats, "roi_count, size_x, size_y, size_z, channels"),
                out("grad_features", like("grad_pooled"), "point_count, channels")},
               {at_most("1", "entries"), kMostPoints}};
});

inline constexpr const Signature& kRoipointPool3d = signature([] {
  return Draft{"roipoint_pool3d",
               "batch point_count channels box_count samples",
               {kZ, kMargin},
               {in("points", kGeometry, "batch, point_count, 3"),
                in("features", like("points"), "batch, point_count, channels"),
                in("boxes", like("points"), "batch, box_count, 7"),
                out("pooled", like("points"), "batch, box_count, samples, channels + 3"),
                out("empty", dtypes(DType::i32), "batch, box_count")},
               {at_most("box_count", "2147483647"), kMostPoints}};
});

}  // namespace turnout::families::roi_pooling
