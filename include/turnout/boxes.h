// Boxes of detectors: overlaps of rotated boxes, non-maximum suppression, and points in boxes.
//
// Tensors are f32 or f64 and are computed in their own type, in the order of the formulas, without fused
// multiply-adds. Sines, cosines and arc tangents are computed in double and rounded once. Results have the
// same bits for any thread count and instruction set. NaN and infinities are data: no value is refused.
//
// A box of 7 numbers is x, y, z, dx, dy, dz, heading: its centre, its extents, and the angle of dx against
// the x axis, counter-clockwise. A box of 5 numbers is x, y, w, h, angle. README.md of the family defines the
// two overlaps: that of 7 numbers takes corners up to 1 cm outside as inside, so that an IoU may exceed 1.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// overlap[i, j]: the area that boxes_a[i] and boxes_b[j] share in bird's-eye view; z and dz are not read.
//
// boxes_a [count_a, 7], boxes_b [count_b, 7], overlap [count_a, count_b]. The functions .._aligned compare
// boxes_a[i] with boxes_b[i]; boxes_b has as many rows as boxes_a, and the result is [count_a].
TURNOUT_API void boxes_overlap_bev(const ConstTensor& boxes_a, const ConstTensor& boxes_b,
                                   const Tensor& overlap, const Caller& caller = {});
TURNOUT_API void boxes_overlap_bev_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b,
                                           const Tensor& overlap, const Caller& caller = {});

// iou = overlap / max(dx_a * dy_a + dx_b * dy_b - overlap, 1e-8)
TURNOUT_API void boxes_iou_bev(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                               const Caller& caller = {});
TURNOUT_API void boxes_iou_bev_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b,
                                       const Tensor& iou, const Caller& caller = {});

// iou = shared / max(volume_a + volume_b - shared, 1e-6), where shared is the overlap in bird's-eye view
// times the height that the boxes share; z is the centre. A box with NaN in z or dz shares nothing.
TURNOUT_API void boxes_iou3d(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                             const Caller& caller = {});
TURNOUT_API void boxes_iou3d_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b,
                                     const Tensor& iou, const Caller& caller = {});

// What the overlap of two boxes of 5 numbers is divided by: the area of both, or that of boxes_a[i].
enum class IouMode : std::uint8_t { iou, iof };

// iou[i, j]: the overlap of boxes_a[i] and boxes_b[j], without a margin, divided by what `mode` says.
//
// boxes_a [count_a, 5], boxes_b [count_b, 5] or, aligned, [count_a, 5].
TURNOUT_API void box_iou_rotated(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                                 IouMode mode = IouMode::iou, const Caller& caller = {});
TURNOUT_API void box_iou_rotated_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b,
                                         const Tensor& iou, IouMode mode = IouMode::iou,
                                         const Caller& caller = {});

// Non-maximum suppression. Boxes are visited by descending score, those of equal scores by ascending number,
// NaN first; without scores (nullptr) in the order of their numbers. A box is kept unless the IoU of a box
// that was kept before and this box, in that order, exceeds the threshold. Writes the numbers of the kept
// boxes in the order of the visits, and returns how many they are. It stops when `keep` is full. Elements of
// keep after the last one are not written.
//
// boxes [count, 7], scores [count] of any float type, keep [max_keep], i64. threshold is rounded to float.
// nms3d has the IoU of boxes_iou_bev(). nms3d_normal ignores the heading:
//   iou = inter / max(dx_j * dy_j + dx_i * dy_i - inter, 1e-8), 0 for a box with NaN
// nms_rotated has boxes [count, 5] and the IoU of box_iou_rotated(). nms has boxes [count, 4] = x1, y1, x2,
// y2, and adds `offset` to widths and heights:
//   iou = inter / (area_j + area_i - inter), where NaN, as of 0 / 0, exceeds no threshold
TURNOUT_API std::int64_t nms3d(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                               double threshold, const Caller& caller = {});
TURNOUT_API std::int64_t nms3d_normal(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                                      double threshold, const Caller& caller = {});
TURNOUT_API std::int64_t nms_rotated(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                                     double threshold, const Caller& caller = {});
TURNOUT_API std::int64_t nms(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                             double threshold, std::int64_t offset = 0, const Caller& caller = {});

// What the z of a box is: the middle of its height, or its bottom.
enum class BoxZ : std::uint8_t { center, bottom };

// box_of_point[b, m]: the first box of batch element b that has the point, or -1. A point is in a box if
//   |l_x| < dx/2 + margin, |l_y| < dy/2 + margin, |z - z of the middle| <= dz/2
// where l is its position in the frame of the box. The bounds are sums in double. A point with NaN is in no
// box, and a box with NaN has no points.
//
// points [batch, point_count, 3], boxes [batch, box_count, 7], box_of_point [batch, point_count], i32; or all
// three without `batch`. margin is rounded to float.
TURNOUT_API void points_in_boxes(const ConstTensor& points, const ConstTensor& boxes,
                                 const Tensor& box_of_point, BoxZ z = BoxZ::center, double margin = 1e-5,
                                 const Caller& caller = {});

// is_inside[b, m, n]: 1 if box n has the point, otherwise 0. is_inside [batch, point_count, box_count], i32.
TURNOUT_API void points_in_boxes_all(const ConstTensor& points, const ConstTensor& boxes,
                                     const Tensor& is_inside, BoxZ z = BoxZ::center, double margin = 1e-5,
                                     const Caller& caller = {});

}  // namespace turnout
