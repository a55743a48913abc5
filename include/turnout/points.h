// Points of clouds: samples that cover them, and neighbours of positions.
//
// Coordinates are f32 or f64 and are computed in their own type; the square of a distance is
//   d2 = (dx * dx + dy * dy) + dz * dz
// without fused multiply-adds. Results have the same bits for any thread count and instruction set. NaN and
// infinities are data: no coordinate is refused. Indices are i32 or i64; the caller chooses by the tensor.
//
// A batch has equally many points in each element. Stacked clouds follow each other in the rows of one
// tensor; `counts` [batch], i32 or i64, has the rows of each. A call is refused unless counts are 0 or more
// and sum to the rows.
#pragma once

#include <cstdint>
#include <span>

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

// The points within a radius of each query: the first `nsample` of them by ascending row, where
//   d2 < radius^2 and (d2 >= min_radius^2 or d2 == 0)
// Radii are rounded to the type of the coordinates before they are squared. A point or query with NaN is in
// no ball. If fewer are found, the first one fills the rest of idx; if none, 0 does.
//
// xyz [batch, points, 3], new_xyz [batch, queries, 3], idx [batch, queries, nsample], found [batch, queries],
// i32: how many of idx are found; or all without `batch`.
TURNOUT_API void ball_query(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx,
                            const Tensor& found, double radius, double min_radius = 0,
                            const Caller& caller = {});

// The same for stacked clouds: xyz [points, 3], counts [batch], new_xyz [queries, 3], new_counts [batch], idx
// [queries, nsample], found [queries]. Rows of idx begin with 0 in each cloud.
TURNOUT_API void ball_query_stacked(const ConstTensor& xyz, const ConstTensor& counts,
                                    const ConstTensor& new_xyz, const ConstTensor& new_counts,
                                    const Tensor& idx, const Tensor& found, double radius,
                                    double min_radius = 0, const Caller& caller = {});

// The points within a radius of each query, d2 <= radius^2, that are in voxels around it: the first `nsample`
// of them in ascending order of z, y, x. The voxels of a query are those whose coordinates differ from
// new_coords by at most z_range, y_range and x_range, as far as they are in the grid.
//
// xyz [points, 3], new_xyz [queries, 3], new_coords [queries, 4]: batch element, z, y, x; point_indices
// [batch, depth, height, width]: the row of a voxel's point, negative if it has none. idx [queries, nsample]
// has rows of xyz; otherwise as ball_query(). A batch element or row that does not exist is refused;
// coordinates outside of the grid are not.
TURNOUT_API void voxel_query(const ConstTensor& xyz, const ConstTensor& new_xyz,
                             const ConstTensor& new_coords, const ConstTensor& point_indices,
                             const Tensor& idx, const Tensor& found, double radius, std::int64_t z_range,
                             std::int64_t y_range, std::int64_t x_range, const Caller& caller = {});

// The three points of `known` that are nearest to each point of `unknown`, by d2, of equals by row. Points
// whose d2 is infinite or NaN are not found: dist2 is infinity and idx is 0 for each that is missing.
//
// unknown [batch, queries, 3], known [batch, points, 3], dist2 and idx [batch, queries, 3]; or all without
// `batch`. `known` without points is refused if there are queries.
TURNOUT_API void three_nn(const ConstTensor& unknown, const ConstTensor& known, const Tensor& dist2,
                          const Tensor& idx, const Caller& caller = {});

// The same for stacked clouds: unknown [queries, 3], unknown_counts [batch], known [points, 3], known_counts
// [batch]. idx has rows of `known`; the first row of the cloud for each that is missing.
TURNOUT_API void three_nn_stacked(const ConstTensor& unknown, const ConstTensor& unknown_counts,
                                  const ConstTensor& known, const ConstTensor& known_counts,
                                  const Tensor& dist2, const Tensor& idx, const Caller& caller = {});

// The k points of xyz that are nearest to each query, by d2, of equals by row. Only points with d2 < 1e10 are
// found: dist2 is 1e10 and idx is 0 for each that is missing.
//
// xyz [batch, points, 3], new_xyz [batch, queries, 3], idx and dist2 [batch, queries, k]; or all without
// `batch`.
TURNOUT_API void knn(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx,
                     const Tensor& dist2, const Caller& caller = {});

// -- lists of neighbours, and vector pooling (PV-RCNN++) ---------------------------------------------------

enum class NeighborRegion : std::uint8_t { cube, ball };
enum class VectorPoolMode : std::uint8_t { mean, sum, first };

// The first `nsample` points of each query's cloud, by ascending row, that are in a region around the query:
//   cube: |dx| <= radius and |dy| <= radius and |dz| <= radius;  ball: d2 <= radius^2
// The neighbours of query q are rows[starts[q]] .. rows[starts[q + 1] - 1]. A point or query with NaN is in
// no region. Returns how many there are.
//
// xyz [points, 3], counts [batch], new_xyz [queries, 3], new_counts [batch]; rows [entries], which are those
// of xyz, needs room for all neighbours, and elements after the last one are not written; starts
// [queries + 1], i64.
TURNOUT_API std::int64_t neighbor_lists(const ConstTensor& xyz, const ConstTensor& counts,
                                        const ConstTensor& new_xyz, const ConstTensor& new_counts,
                                        const Tensor& rows, const Tensor& starts, double radius,
                                        std::int64_t nsample = 2147483647,
                                        NeighborRegion region = NeighborRegion::cube,
                                        const Caller& caller = {});

// The three neighbours of each query that are nearest to each of its centers, by d2, of equals by position in
// the list. Points whose d2 is infinite or NaN are not found. If fewer than three are found, copies of the
// first one replace the others; if none is found, dist2 is infinity and idx is -1.
//
// xyz [points, 3], centers [queries, cells, 3], rows [entries] and starts [queries + 1] as from
// neighbor_lists(); dist2 and idx [queries, cells, 3]. Throws unless starts ascend from 0 to entries and rows
// exist.
TURNOUT_API void three_nn_of_lists(const ConstTensor& xyz, const ConstTensor& centers,
                                   const ConstTensor& rows, const ConstTensor& starts, const Tensor& dist2,
                                   const Tensor& idx, const Caller& caller = {});

// Pools the features of the neighbours of each query in the cells of a cube around it. With local = point -
// query and grid = {X, Y, Z}, a neighbour with |local| <= radius in each axis is in the cell
//   k = floor((local + radius) / (2 * radius / grid)) in each axis, 0 if that is NaN
//   cell = (k_x * Y + k_y) * Z + k_z, at most X * Y * Z - 1
// Only the cell is limited: a point at +radius in y is in the next row of cells along x. Other neighbours
// have no cell. Channel i belongs to the slot i mod slots. Neighbours are taken in order until `nsample` are:
//   sum: adds features and local of each neighbour;  mean: divides both by the number of neighbours
//   first: assigns those of the first neighbour of each cell, and takes no other; of channels of the same
//   slot, the last one stays
//
// xyz [points, 3], features [points, channels], new_xyz [queries, 3], rows [entries] and starts [queries + 1]
// as from neighbor_lists(); pooled [queries, X * Y * Z, slots], local_xyz [queries, X * Y * Z, 3],
// cell_counts [queries, X * Y * Z], i32: the neighbours that are taken; grouped [entries, 3], i32: the row,
// query and cell of each entry, -1 if it is not taken. Elements without neighbours are 0.
TURNOUT_API void vector_pool(const ConstTensor& xyz, const ConstTensor& features, const ConstTensor& new_xyz,
                             const ConstTensor& rows, const ConstTensor& starts, const Tensor& pooled,
                             const Tensor& local_xyz, const Tensor& cell_counts, const Tensor& grouped,
                             double radius, std::span<const std::int64_t> grid,
                             VectorPoolMode mode = VectorPoolMode::mean, std::int64_t nsample = 2147483647,
                             const Caller& caller = {});

// The gradient of vector_pool() with respect to features: each entry of `grouped` with a cell adds
// grad_pooled[query, cell, i mod slots] * share to grad_features[row, i], in the order of the entries. share
// is 1 / max(cell_counts[query, cell], 1) for mean, otherwise 1. With first, only the last channel of each
// slot has a gradient.
//
// grad_pooled [queries, cells, slots], cell_counts [queries, cells], grouped [entries, 3], grad_features
// [points, channels]. Throws unless the rows, queries and cells exist; a negative cell is skipped.
TURNOUT_API void vector_pool_backward(const ConstTensor& grad_pooled, const ConstTensor& cell_counts,
                                      const ConstTensor& grouped, const Tensor& grad_features,
                                      VectorPoolMode mode = VectorPoolMode::mean, const Caller& caller = {});

}  // namespace turnout
