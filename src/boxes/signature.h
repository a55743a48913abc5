// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::boxes {

using namespace core::grammar;

inline constexpr core::DTypes kGeometry = dtypes(DType::f32, DType::f64);
inline constexpr RuleSpec kMostA = at_most("count_a", "2147483647");
inline constexpr RuleSpec kMostB = at_most("count_b", "2147483647");

// -- overlaps of pairs: every box of a with every box of b, or box i of a with box i of b ------------------

inline constexpr ArgumentSpec kBevA = in("boxes_a", kGeometry, "count_a, 7");
inline constexpr ArgumentSpec kBevB = in("boxes_b", like("boxes_a"), "count_b, 7");
inline constexpr ArgumentSpec kBevAligned = in("boxes_b", like("boxes_a"), "count_a, 7");
inline constexpr ArgumentSpec kOverlap = out("overlap", like("boxes_a"), "count_a, count_b");
inline constexpr ArgumentSpec kOverlapAligned = out("overlap", like("boxes_a"), "count_a");
inline constexpr ArgumentSpec kIou = out("iou", like("boxes_a"), "count_a, count_b");
inline constexpr ArgumentSpec kIouAligned = out("iou", like("boxes_a"), "count_a");

inline constexpr const Signature& kBoxesOverlapBev = signature([] {
  return Draft{"boxes_overlap_bev", "count_a count_b", {}, {kBevA, kBevB, kOverlap}, {kMostA, kMostB}};
});
inline constexpr const Signature& kBoxesOverlapBevAligned = signature([] {
  return Draft{"boxes_overlap_bev_aligned", "count_a", {}, {kBevA, kBevAligned, kOverlapAligned}, {kMostA}};
});
inline constexpr const Signature& kBoxesIouBev = signature([] {
  return Draft{"boxes_iou_bev", "count_a count_b", {}, {kBevA, kBevB, kIou}, {kMostA, kMostB}};
});
inline constexpr const Signature& kBoxesIouBevAligned = signature([] {
  return Draft{"boxes_iou_bev_aligned", "count_a", {}, {kBevA, kBevAligned, kIouAligned}, {kMostA}};
});
inline constexpr const Signature& kBoxesIou3d = signature([] {
  return Draft{"boxes_iou3d", "count_a count_b", {}, {kBevA, kBevB, kIou}, {kMostA, kMostB}};
});
inline constexpr const Signature& kBoxesIou3dAligned = signature([] {
  return Draft{"boxes_iou3d_aligned", "count_a", {}, {kBevA, kBevAligned, kIouAligned}, {kMostA}};
});

inline constexpr ScalarSpec kMode = by_default("iou", choice("mode", "iou iof"));
inline constexpr ArgumentSpec kRotatedA = in("boxes_a", kGeometry, "count_a, 5");

inline constexpr const Signature& kBoxIouRotated = signature([] {
  return Draft{"box_iou_rotated",
               "count_a count_b",
               {kMode},
               {kRotatedA, in("boxes_b", like("boxes_a"), "count_b, 5"), kIou},
               {kMostA, kMostB}};
});
inline constexpr const Signature& kBoxIouRotatedAligned = signature([] {
  return Draft{"box_iou_rotated_aligned",
               "count_a",
               {kMode},
               {kRotatedA, in("boxes_b", like("boxes_a"), "count_a, 5"), kIouAligned},
               {kMostA}};
});

// -- non-maximum suppression -------------------------------------------------------------------------------

inline constexpr ScalarSpec kThreshold = real("threshold");
inline constexpr ArgumentSpec kBoxes7 = in("boxes", kGeometry, "count, 7");
inline constexpr ArgumentSpec kScores = or_none(in("scores", kFloats, "count"));
inline constexpr ArgumentSpec kKeep = shortened(out("keep", dtypes(DType::i64), "max_keep"));
inline constexpr RuleSpec kMostBoxes = at_most("count", "2147483647");

inline constexpr const Signature& kNms3d = signature([] {
  return Draft{"nms3d", "count adjusted(max_keep?)", {kThreshold}, {kBoxes7, kScores, kKeep}, {kMostBoxes}};
});
inline constexpr const Signature& kNms3dNormal = signature([] {
  return Draft{
      "nms3d_normal", "count adjusted(max_keep?)", {kThreshold}, {kBoxes7, kScores, kKeep}, {kMostBoxes}};
});
inline constexpr const Signature& kNmsRotated = signature([] {
  return Draft{"nms_rotated",
               "count adjusted(max_keep?)",
               {kThreshold},
               {in("boxes", kGeometry, "count, 5"), kScores, kKeep},
               {kMostBoxes}};
});
inline constexpr const Signature& kNms = signature([] {
  return Draft{"nms",
               "count adjusted(max_keep?)",
               {kThreshold, by_default(0, scalar("offset", 0, 1))},
               {in("boxes", kGeometry, "count, 4"), kScores, kKeep},
               {kMostBoxes}};
});

// -- points in boxes ---------------------------------------------------------------------------------------

inline constexpr ScalarSpec kZ = by_default("center", choice("z", "center bottom"));
inline constexpr ScalarSpec kMargin = by_default(1e-5, real("margin"));
inline constexpr ArgumentSpec kPoints = in("points", kGeometry, "batch?, point_count, 3");
inline constexpr ArgumentSpec kBoxesOfPoints = in("boxes", like("points"), "batch?, box_count, 7");
inline constexpr RuleSpec kMostOfPoints = at_most("box_count", "2147483647");

inline constexpr const Signature& kPointsInBoxes = signature([] {
  return Draft{"points_in_boxes",
               "batch point_count box_count",
               {kZ, kMargin},
               {kPoints, kBoxesOfPoints, out("box_of_point", dtypes(DType::i32), "batch?, point_count")},
               {kMostOfPoints}};
});
inline constexpr const Signature& kPointsInBoxesAll = signature([] {
  return Draft{
      "points_in_boxes_all",
      "batch point_count box_count",
      {kZ, kMargin},
      {kPoints, kBoxesOfPoints, out("is_inside", dtypes(DType::i32), "batch?, point_count, box_count")},
      {kMostOfPoints}};
});

}  // namespace turnout::families::boxes
