// Points of clouds: samples that cover them, and neighbours of positions.
//
// Coordinates are f32 or f64 and are computed in their own type; the square of a distance is
//   d2 = (dx * dx + dy * dy) + dz * dz
// without fused multiply-adds. Results have the same bits for any thread count and instruction set. NaN and
// infinities are data: no coordinate is refused. Indices are i32 or i64; the caller chooses by the tensor.
//
// A batch has equally many points in each element. Stacked clouds follow each other in the rows of one tensor;
// `counts` [batch], i32 or i64, has the rows of each. A call is refused unless counts are 0 or more and sum to
// the rows.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// Furthest point sampling. The first sample is point 0; each next one is the point whose distance from the
// samples so far is largest, of equals the one with the lowest row:
//   distances[k] = min(distances[k], d2(k, last sample)), where NaN does not count
//   next = the first k with the largest distances[k], or 0 if none exceeds -1
//
// xyz [batch, points, 3], initial [batch, points] or nullptr for 1e10 each, idx [batch, samples], distances
// [batch, points] or nullptr: those before the last sample; or all without `batch`. A point whose initial
// distance is NaN is never a sample, except the first one. More samples than points repeat a point at the
// distance 0. Samples of a cloud without points are refused.
TURNOUT_API void furthest_point_sample(const ConstTensor& xyz, const ConstTensor& initial, const Tensor& idx,
                                       const Tensor& distances = nullptr, const Caller& caller = {});

// The same for stacked clouds: xyz [points, 3], counts [batch], sample_counts [batch], initial [points], idx
// [samples], the sum of sample_counts; distances [points]. Samples are rows of xyz.
TURNOUT_API void furthest_point_sample_stacked(const ConstTensor& xyz, const ConstTensor& counts,
                                               const ConstTensor& sample_counts, const ConstTensor& initial,
                                               const Tensor& idx, const Tensor& distances = nullptr,
                                               const Caller& caller = {});

// The same by a matrix of distances: the square of a distance is matrix[last sample, k]. matrix [batch,
// points, points].
TURNOUT_API void furthest_point_sample_by_distances(const ConstTensor& matrix, const ConstTensor& initial,
                                                    const Tensor& idx, const Tensor& distances = nullptr,
                                                    const Caller& caller = {});

}  // namespace turnout
