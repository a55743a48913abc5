// The definitions as functions of tensors in their own dtypes, with the parameters of the operators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "boxes/reference.h"
#include "core/dtypes.h"
#include "simd/half.h"
#include "turnout/boxes.h"

namespace turnout::definition {

// result[i, j] = compare(box i of a, box j of b), or result[i] = compare(box i of a, box i of b).
template <class Compare>
void compare_boxes(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& result,
                   const Compare& compare) {
  core::visit_lane(boxes_a.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto *a = static_cast<const Real*>(boxes_a.data), *b = static_cast<const Real*>(boxes_b.data);
    auto* to = static_cast<Real*>(result.data);
    const std::int64_t width = boxes_a.shape[1];
    for (std::int64_t i = 0; i < boxes_a.shape[0]; ++i) {
      if (result.rank == 1) {
        *to++ = compare(a + i * width, b + i * width);
      } else {
        for (std::int64_t j = 0; j < boxes_b.shape[0]; ++j) *to++ = compare(a + i * width, b + j * width);
      }
    }
  });
}

inline void boxes_overlap_bev(const ConstTensor& a, const ConstTensor& b, const Tensor& overlap) {
  compare_boxes(a, b, overlap, [](auto* p, auto* q) { return reference::boxes_overlap_bev(p, q); });
}
inline void boxes_iou_bev(const ConstTensor& a, const ConstTensor& b, const Tensor& iou) {
  compare_boxes(a, b, iou, [](auto* p, auto* q) { return reference::boxes_iou_bev(p, q); });
}
inline void boxes_iou3d(const ConstTensor& a, const ConstTensor& b, const Tensor& iou) {
  compare_boxes(a, b, iou, [](auto* p, auto* q) { return reference::boxes_iou3d(p, q); });
}
inline void box_iou_rotated(const ConstTensor& a, const ConstTensor& b, const Tensor& iou, IouMode mode) {
  compare_boxes(a, b, iou, [&](auto* p, auto* q) { return reference::box_iou_rotated(p, q, mode); });
}

inline std::vector<std::int64_t> visits_of(const ConstTensor& boxes, const ConstTensor& scores) {
  std::vector<double> values(static_cast<std::size_t>(boxes.shape[0]), 0);
  if (!scores.is_absent())
    core::visit_float(scores.dtype, [&](auto type) {
      const auto* from = static_cast<const typename decltype(type)::type*>(scores.data);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = core::to_float(from[i]);
    });
  return reference::descending(values);
}

template <class Iou>
std::int64_t keep_boxes(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                        double threshold, const Iou& iou) {
  return core::visit_lane(boxes.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto* box = static_cast<const Real*>(boxes.data);
    const std::int64_t width = boxes.shape[1];
    const auto kept = reference::suppressed(
        visits_of(boxes, scores), keep.shape[0], static_cast<float>(threshold),
        [&](std::int64_t j, std::int64_t i) { return iou(box + j * width, box + i * width); });
    std::copy(kept.begin(), kept.end(), static_cast<std::int64_t*>(keep.data));
    return static_cast<std::int64_t>(kept.size());
  });
}

inline std::int64_t nms3d(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                          double threshold) {
  return keep_boxes(boxes, scores, keep, threshold,
                    [](auto* p, auto* q) { return reference::boxes_iou_bev(p, q); });
}
inline std::int64_t nms3d_normal(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                                 double threshold) {
  return keep_boxes(boxes, scores, keep, threshold,
                    [](auto* p, auto* q) { return reference::iou_normal(p, q); });
}
inline std::int64_t nms_rotated(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                                double threshold) {
  return keep_boxes(boxes, scores, keep, threshold,
                    [](auto* p, auto* q) { return reference::box_iou_rotated(p, q, IouMode::iou); });
}
inline std::int64_t nms(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                        double threshold, std::int64_t offset) {
  return keep_boxes(boxes, scores, keep, threshold, [&](auto* p, auto* q) {
    return reference::iou_upright(p, q, static_cast<std::remove_cvref_t<decltype(*p)>>(offset));
  });
}

// Calls found(batch element, point, box) for each pair of a point and a box that has it.
template <class Found>
void find_points(const ConstTensor& points, const ConstTensor& boxes, BoxZ z, double margin,
                 const Found& found) {
  const int batched = points.rank - 2;
  const std::int64_t batch = batched ? points.shape[0] : 1;
  const std::int64_t point_count = points.shape[batched], box_count = boxes.shape[batched];
  core::visit_lane(points.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t m = 0; m < point_count; ++m)
        for (std::int64_t n = 0; n < box_count; ++n) {
          const auto* point = static_cast<const Real*>(points.data) + (b * point_count + m) * 3;
          const auto* box = static_cast<const Real*>(boxes.data) + (b * box_count + n) * 7;
          if (reference::is_in_box(point, box, z, static_cast<float>(margin))) found(b, m, n);
        }
  });
}
inline std::int64_t elements_of(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (int d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  return elements;
}

inline void points_in_boxes(const ConstTensor& points, const ConstTensor& boxes, const Tensor& box_of_point,
                            BoxZ z, double margin) {
  auto* to = static_cast<std::int32_t*>(box_of_point.data);
  std::fill_n(to, elements_of(box_of_point), -1);
  const std::int64_t point_count = box_of_point.shape[box_of_point.rank - 1];
  find_points(points, boxes, z, margin, [&](std::int64_t b, std::int64_t m, std::int64_t n) {
    std::int32_t& first = to[b * point_count + m];
    if (first < 0) first = static_cast<std::int32_t>(n);
  });
}
inline void points_in_boxes_all(const ConstTensor& points, const ConstTensor& boxes, const Tensor& is_inside,
                                BoxZ z, double margin) {
  auto* to = static_cast<std::int32_t*>(is_inside.data);
  std::fill_n(to, elements_of(is_inside), 0);
  const std::int64_t point_count = is_inside.shape[is_inside.rank - 2];
  const std::int64_t box_count = is_inside.shape[is_inside.rank - 1];
  find_points(points, boxes, z, margin, [&](std::int64_t b, std::int64_t m, std::int64_t n) {
    to[(b * point_count + m) * box_count + n] = 1;
  });
}

}  // namespace turnout::definition
