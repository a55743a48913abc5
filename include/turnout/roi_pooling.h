// Pooling of the points in boxes, the regions of interest (RoIs) of two-stage detectors.
//
// A box is x, y, z, dx, dy, dz, heading. A point is in a box by the rule of points_in_boxes(): |z| in the
// closed interval, |x| and |y| in its own directions below the half extents plus `margin`. OpenPCDet's rule
// is z = center, margin = 1e-5; mmcv's is z = bottom, margin = 0. A point or box with NaN is in nothing.
// Points and boxes are f32 or f64. Results have the same bits for any thread count and instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "turnout/boxes.h"
#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

enum class PoolMethod : std::uint8_t { max, avg };

// Divides each box into cells and pools the features of the points of each cell.
//
//   i_x = floor((l_x + dx / 2) / (dx / X)), i_y likewise, l: the point's position in the box's directions
//   i_z = floor((z - bottom) / (dz / Z)), bottom: z - dz / 2 if z is the centre; each clamped to the cells
//   max: the largest number of a cell's points, above -inf; avg: their sum in ascending order / their number
//
// A cell has the first `max_points` of its points. Without points, or if no number is above -inf, the result
// is 0. NaN never is the largest.
//
// rois [rois, 7], points [points, 3], features [points, channels], pooled [rois, X * Y * Z, channels];
// out_size is X, Y, Z.
TURNOUT_API void roiaware_pool3d(const ConstTensor& rois, const ConstTensor& points,
                                 const ConstTensor& features, const Tensor& pooled,
                                 std::span<const std::int64_t> out_size, std::int64_t max_points = 127,
                                 PoolMethod pool_method = PoolMethod::max, BoxZ z = BoxZ::center,
                                 double margin = 1e-5, const Caller& caller = {});
// max: the gradient of a result goes to the first point that has the maximum. avg: each point of a cell gets
// the gradient * (1 / number of points). Sums are in the order of RoIs and cells, in f64 for f64 and in f32
// otherwise. features, which avg does not need, may be absent there.
TURNOUT_API void roiaware_pool3d_backward(const ConstTensor& grad_pooled, const ConstTensor& rois,
                                          const ConstTensor& points, const ConstTensor& features,
                                          const Tensor& grad_features, std::span<const std::int64_t> out_size,
                                          std::int64_t max_points = 127,
                                          PoolMethod pool_method = PoolMethod::max, BoxZ z = BoxZ::center,
                                          double margin = 1e-5, const Caller& caller = {});

// The points that roiaware_pool3d() pools: pairs of a cell, roi * X * Y * Z + (i_x * Y + i_y) * Z + i_z, and
// a point, in ascending order. Returns how many they are. cell_of [pairs] and point_of [pairs] need room for
// all of them; elements after the last pair are not written. Without room for any, the call returns 0.
TURNOUT_API std::int64_t roiaware_points(const ConstTensor& rois, const ConstTensor& points,
                                         const Tensor& cell_of, const Tensor& point_of,
                                         std::span<const std::int64_t> out_size,
                                         std::int64_t max_points = 127, BoxZ z = BoxZ::center,
                                         double margin = 1e-5, const Caller& caller = {});

// The first points of each box: pooled[b, m, s] = points[b, k], features[b, k], where k is the s-th point in
// box m. If there are n < samples of them, row s is row s mod n; if there are none, rows are 0, empty is 1.
//
// points [batch, points, 3], features [batch, points, channels], boxes [batch, boxes, 7], pooled [batch,
// boxes, samples, 3 + channels], all of one dtype; empty [batch, boxes], i32.
TURNOUT_API void roipoint_pool3d(const ConstTensor& points, const ConstTensor& features,
                                 const ConstTensor& boxes, const Tensor& pooled, const Tensor& empty,
                                 BoxZ z = BoxZ::center, double margin = 1e-5, const Caller& caller = {});

}  // namespace turnout
