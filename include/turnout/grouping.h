// Features of points by index: grouping, gathering, and interpolation from three neighbours.
//
// There are two layouts. In the first, samples have the same number of points and features are [batch,
// channels, rows]. In the second, the points of all samples are stacked: features are [rows, channels], and
// `counts` says how many rows each sample has. Features are f32, f64, f16 or bf16, indices i32 or i64. An
// index that is out of range is rejected before the first write.
//
// A gradient is a sum, per channel, in the order of the indices' flat positions, in f64 for f64 and in f32
// otherwise, rounded once. Results have the same bits for any thread count and instruction set.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// out[b, c, p, s] = features[b, c, indices[b, p, s]]
//
// features [batch, channels, rows], indices [batch, centers, samples], out [batch, channels, centers,
// samples]. If rows is 0, out is 0 whatever the indices are: a ball query without points has the index 0.
TURNOUT_API void group_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out,
                              const Caller& caller = {});
// grad_features[b, c, i] = the sum of grad_out[b, c, p, s] over all p, s with indices[b, p, s] == i
TURNOUT_API void group_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                       const Tensor& grad_features, const Caller& caller = {});

// out[b, c, p] = features[b, c, indices[b, p]]
//
// features [batch, channels, rows], indices [batch, centers], out [batch, channels, centers].
TURNOUT_API void gather_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out,
                               const Caller& caller = {});
// grad_features[b, c, i] = the sum of grad_out[b, c, p] over all p with indices[b, p] == i
TURNOUT_API void gather_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                        const Tensor& grad_features, const Caller& caller = {});

// out[p, c, s] = features[start + indices[p, s], c], where start is the first row of the sample of p
//
// features [rows, channels], counts [batch], indices [centers, samples], index_counts [batch], out [centers,
// channels, samples]. Sample b has counts[b] rows of features and index_counts[b] rows of indices. Where a
// sample has no features, out is 0 whatever the indices are.
TURNOUT_API void group_points_stacked(const ConstTensor& features, const ConstTensor& counts,
                                      const ConstTensor& indices, const ConstTensor& index_counts,
                                      const Tensor& out, const Caller& caller = {});
// grad_features[i, c] = the sum of grad_out[p, c, s] over all p, s whose row is i
TURNOUT_API void group_points_stacked_backward(const ConstTensor& grad_out, const ConstTensor& counts,
                                               const ConstTensor& indices, const ConstTensor& index_counts,
                                               const Tensor& grad_features, const Caller& caller = {});

// out[b, c, p] = (w[0] * f[i[0]] + w[1] * f[i[1]]) + w[2] * f[i[2]], where f is features[b, c], i is
// indices[b, p] and w is weights[b, p]; each product and sum is rounded.
//
// features [batch, channels, rows], indices [batch, centers, 3], weights [batch, centers, 3], f64 for f64 and
// f32 otherwise, out [batch, channels, centers].
TURNOUT_API void three_interpolate(const ConstTensor& features, const ConstTensor& indices,
                                   const ConstTensor& weights, const Tensor& out, const Caller& caller = {});
// grad_features[b, c, i] = the sum of grad_out[b, c, p] * weights[b, p, k] over all p, k with
// indices[b, p, k] == i; each product is rounded.
TURNOUT_API void three_interpolate_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                            const ConstTensor& weights, const Tensor& grad_features,
                                            const Caller& caller = {});

// The same for stacked samples: features [rows, channels], indices [centers, 3] of rows of all samples,
// weights [centers, 3], out [centers, channels].
TURNOUT_API void three_interpolate_stacked(const ConstTensor& features, const ConstTensor& indices,
                                           const ConstTensor& weights, const Tensor& out,
                                           const Caller& caller = {});
TURNOUT_API void three_interpolate_stacked_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                                    const ConstTensor& weights, const Tensor& grad_features,
                                                    const Caller& caller = {});

}  // namespace turnout
