// What Python's functions of this family have beside their operators: one function for pairs of all boxes and
// for aligned ones, and one for the first box of a point and for all.
#include "bindings/python/call.h"
#include "bindings/python/operators.h"
#include "boxes/signature.h"

namespace turnout::families::boxes {

using namespace core;
using namespace bindings;

namespace {

constexpr ScalarSpec kAligned = flag("aligned"), kAll = flag("all");
constexpr PythonFunction kOverlapPairs{"boxes_overlap_bev", kBoxesOverlapBev, "", {kAligned}};
constexpr PythonFunction kAlignedOverlap{"boxes_overlap_bev", kBoxesOverlapBevAligned, "", {kAligned}};
constexpr PythonFunction kIouPairs{"boxes_iou_bev", kBoxesIouBev, "", {kAligned}};
constexpr PythonFunction kAlignedIou{"boxes_iou_bev", kBoxesIouBevAligned, "", {kAligned}};
constexpr PythonFunction kIou3dPairs{"boxes_iou3d", kBoxesIou3d, "", {kAligned}};
constexpr PythonFunction kAlignedIou3d{"boxes_iou3d", kBoxesIou3dAligned, "", {kAligned}};
constexpr PythonFunction kRotatedPairs{"box_iou_rotated", kBoxIouRotated, "", {kAligned}};
constexpr PythonFunction kAlignedRotated{"box_iou_rotated", kBoxIouRotatedAligned, "", {kAligned}};
constexpr PythonFunction kFirstBox{"points_in_boxes", kPointsInBoxes, "", {kAll}};
constexpr PythonFunction kAllBoxes{"points_in_boxes", kPointsInBoxesAll, "", {kAll}};

}  // namespace

void bind(nb::module_&) {
  for (const PythonFunction* function :
       {&kOverlapPairs, &kAlignedOverlap, &kIouPairs, &kAlignedIou, &kIou3dPairs, &kAlignedIou3d,
        &kRotatedPairs, &kAlignedRotated, &kFirstBox, &kAllBoxes})
    bound_as(*function);
}

}  // namespace turnout::families::boxes
