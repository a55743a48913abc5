// Voxelization of points, reduction of the features of a voxel's points to one row, and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// How the features of a voxel's points are reduced to one row.
enum class Reduce : std::uint8_t { sum, mean, max };

// coors[i] = (z, y, x), each floor((points[i, j] - point_cloud_range[j]) / voxel_size[j]) for j = x, y, z;
// (-1, -1, -1) unless each is in 0 .. grid_j - 1, where
// grid_j = round((point_cloud_range[3 + j] - point_cloud_range[j]) / voxel_size[j]), halves away from zero.
//
// points [points, features]: x, y, z, then any further features. coors [points, 3], int32 or int64.
// voxel_size has 3 elements, point_cloud_range 6: the lower limits of x, y, z, then the upper limits. They
// are rounded to float unless points are f64. Each difference and each quotient is rounded as well, to
// double for f64 points and to float for all others. A point with a NaN coordinate is in no voxel.
TURNOUT_API void voxelize(const ConstTensor& points, const Tensor& coors, std::span<const double> voxel_size,
                          std::span<const double> point_cloud_range, const Caller& caller = {});

// Groups the points by voxel: voxels[v, k] is the k-th point of voxel v with all its features. Returns the
// number of voxels. Voxels are numbered in the order of their first points. Voxels after the first max_voxels
// are dropped with all their points; points of a voxel after its first max_points are dropped. Coordinates
// are those of voxelize().
//
// voxels [max_voxels, max_points, features], dtype of points; coors [max_voxels, 3];
// num_points_per_voxel [max_voxels], the number of points stored. Unused elements of the three are set to 0.
// point2voxel_map [points], or nullptr: the voxel of each point, even of one that is dropped because its
// voxel is full; -1 for a point outside the range or of a dropped voxel.
TURNOUT_API std::int64_t voxelize_hard(const ConstTensor& points, const Tensor& voxels, const Tensor& coors,
                                       const Tensor& num_points_per_voxel, const Tensor& point2voxel_map,
                                       std::span<const double> voxel_size,
                                       std::span<const double> point_cloud_range, const Caller& caller = {});

// Points with equal rows of coors form one voxel. Voxels are numbered in ascending order of (coors[0],
// coors[1], ..). A point with a negative coordinate is in no voxel. For voxel v with points x_0 < x_1 < ..:
//   sum   voxel_feats[v, c] = 0 + feats[x_0, c] + feats[x_1, c] + ..
//   mean  that sum, divided by the number of points of v
//   max   the first of the largest feats[x_i, c]; NaN is ignored; -inf if all are NaN
// Returns the number of voxels. Throws Error(bad_param) if it exceeds the extent `voxels`.
//
// feats [points, channels]; coors [points, dims], int32 or int64, dims 1 .. 4; voxel_feats
// [voxels, channels]; voxel_coors [voxels, dims]; point2voxel_map [points]: the voxel's number, or -1;
// voxel_points_count [voxels]. Rows of voxel_feats after the last voxel are set to -inf for max, otherwise to
// 0; those of voxel_coors and voxel_points_count are not written. 16-bit floats are added and divided in
// float and rounded once. Results are bit-identical for any thread count and instruction set.
TURNOUT_API std::int64_t dynamic_scatter_forward(const ConstTensor& feats, const ConstTensor& coors,
                                                 const Tensor& voxel_feats, const Tensor& voxel_coors,
                                                 const Tensor& point2voxel_map,
                                                 const Tensor& voxel_points_count,
                                                 Reduce reduce_type = Reduce::max, const Caller& caller = {});

// For each point x with v = point2voxel_map[x] (zeros if v is -1):
//   sum   grad_feats[x, c] = grad_voxel_feats[v, c]
//   mean  grad_feats[x, c] = grad_voxel_feats[v, c] / voxel_points_count[v]
//   max   grad_feats[x, c] = grad_voxel_feats[v, c] where x is the first point of v with
//         feats[x, c] == voxel_feats[v, c], otherwise 0
// +0 equals -0. NaN equals nothing: if no point is equal, no point gets that gradient. Each row of
// grad_feats is written once.
//
// Shapes are those of dynamic_scatter_forward(). feats and voxel_feats are required for max, and
// voxel_points_count for mean; each may be nullptr otherwise. voxel_num [1] is the number of voxels; without
// it (nullptr) all rows are voxels. Throws if an element of point2voxel_map is neither -1 nor a voxel number.
TURNOUT_API void dynamic_scatter_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                                          const ConstTensor& voxel_feats, const ConstTensor& point2voxel_map,
                                          const ConstTensor& voxel_points_count, const ConstTensor& voxel_num,
                                          const Tensor& grad_feats, Reduce reduce_type = Reduce::max,
                                          const Caller& caller = {});

// Reduce rows by a given index, with the results of torch_scatter. For group g with the rows i_0 < i_1 < ..
// that have index[i] == g:
//   scatter_sum   out[g, c] = 0 + src[i_0, c] + src[i_1, c] + ..; integers wrap around
//   scatter_mean  that sum, divided by the number of rows of g; 0 without rows
//   scatter_max   out[g, c] is the largest src[i, c], and argmax[g, c] the first i that has it. The maximum
//                 starts at the lowest finite number of the dtype and only larger values replace it: NaN
//                 and -inf are never taken. Where nothing is taken, as in a group without rows, out[g, c]
//                 is 0 and argmax[g, c] is the number of rows of src. argmax may be absent (nullptr).
//   scatter_min   the same with the smallest, starting at the greatest finite number; NaN and inf are never
//                 taken
// The index may be in any order; an ascending one is faster.
//
// src [rows, channels]: a float, or, except for means, int32 or int64; index [rows], int32 or int64, each in
// 0 .. groups - 1; out [groups, channels], dtype of src; argmax and argmin [groups, channels], int32 or
// int64. The channels may have any number of dimensions, including none. At most 2147483647 rows and groups.
// 16-bit floats are added and divided in float and rounded once. Results are bit-identical for any thread
// count and instruction set.
TURNOUT_API void scatter_sum(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                             const Caller& caller = {});
TURNOUT_API void scatter_mean(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                              const Caller& caller = {});
TURNOUT_API void scatter_max(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                             const Tensor& argmax, const Caller& caller = {});
TURNOUT_API void scatter_min(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                             const Tensor& argmin, const Caller& caller = {});

// Returns the number of groups of an index [rows]: its largest value + 1, or 0 without rows. Throws if a
// value is negative or above 2147483646.
TURNOUT_API std::int64_t scatter_dim_size(const ConstTensor& index, const Caller& caller = {});

// The gradients with respect to src. With g = index[i]:
//   scatter_sum_backward   grad_src[i, c] = grad_out[g, c]
//   scatter_mean_backward  grad_src[i, c] = grad_out[g, c] / the number of rows of g
//   scatter_max_backward   grad_src[i, c] = grad_out[g, c] if argmax[g, c] == i, otherwise 0
// grad_out [groups, channels], a float; grad_src [rows, channels]; index and argmax as above.
TURNOUT_API void scatter_sum_backward(const ConstTensor& grad_out, const ConstTensor& index,
                                      const Tensor& grad_src, const Caller& caller = {});
TURNOUT_API void scatter_mean_backward(const ConstTensor& grad_out, const ConstTensor& index,
                                       const Tensor& grad_src, const Caller& caller = {});
TURNOUT_API void scatter_max_backward(const ConstTensor& grad_out, const ConstTensor& index,
                                      const ConstTensor& argmax, const Tensor& grad_src,
                                      const Caller& caller = {});

// The voxels of a set of points, computed once and used for many reductions and gradients:
//
//   VoxelIndex index(coors, context);
//   ... allocate index.voxels() rows ...
//   index.write(voxel_coors, point2voxel_map, voxel_points_count);
//   index.reduce(feats, voxel_feats, Reduce::max);
//   index.reduce_backward(grad_voxel_feats, feats, voxel_feats, grad_feats, Reduce::max);
//
// The definitions are those of dynamic_scatter_forward() and dynamic_scatter_backward(), with exactly
// voxels() rows. Several threads may use one index at the same time.
class TURNOUT_API VoxelIndex {
 public:
  // The context must outlive the object, and coors must stay valid until write(), which reads them again.
  explicit VoxelIndex(const ConstTensor& coors, const Caller& caller = {});
  ~VoxelIndex();
  VoxelIndex(const VoxelIndex&) = delete;
  VoxelIndex& operator=(const VoxelIndex&) = delete;

  std::int64_t points() const;
  std::int64_t voxels() const;

  void write(const Tensor& voxel_coors, const Tensor& point2voxel_map,
             const Tensor& voxel_points_count) const;
  // first_point [voxels], int32 or int64: the smallest point number in each voxel.
  void first_points(const Tensor& first_point) const;
  void reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type = Reduce::max) const;
  // feats and voxel_feats are required for Reduce::max and may be nullptr otherwise.
  void reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                       const ConstTensor& voxel_feats, const Tensor& grad_feats,
                       Reduce reduce_type = Reduce::max) const;

  struct State;

 private:
  const State& state() const;

  // The State is stored in the object, so that constructing one allocates nothing.
  static constexpr std::size_t kAlignment = 8;
  alignas(kAlignment) std::byte memory_[512];
};

}  // namespace turnout
