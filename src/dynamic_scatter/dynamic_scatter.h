// The operators of this family as the doors call them: the functions of turnout/dynamic_scatter.h with a
// Frame in place of the Context. And their plans; that of dynamic_scatter_forward is CoordinateGrouping.
#pragma once

#include <optional>

#include "dynamic_scatter/groups.h"
#include "runtime/call.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

void voxelize(const Frame& frame, const ConstTensor& points, const ConstTensor& voxel_size,
              const ConstTensor& point_cloud_range, const Tensor& coors);
std::int64_t voxelize_hard(const Frame& frame, const ConstTensor& points, const ConstTensor& voxel_size,
                           const ConstTensor& point_cloud_range, const Tensor& voxels, const Tensor& coors,
                           const Tensor& num_points_per_voxel, const Tensor* point2voxel_map);

std::int64_t dynamic_scatter_forward(const Frame& frame, const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type);
void dynamic_scatter_backward(const Frame& frame, const ConstTensor& grad_voxel_feats,
                              const DynamicScatterResult& result, const Tensor& grad_feats,
                              Reduce reduce_type);

void scatter_sum(const Frame& frame, const ConstTensor& src, const ConstTensor& index, const Tensor& out);
void scatter_mean(const Frame& frame, const ConstTensor& src, const ConstTensor& index, const Tensor& out);
void scatter_max(const Frame& frame, const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                 const Tensor& argmax);
std::int64_t scatter_dim_size(const Frame& frame, const ConstTensor& index);
void scatter_sum_backward(const Frame& frame, const ConstTensor& grad_out, const ConstTensor& index,
                          const Tensor& grad_src);
void scatter_mean_backward(const Frame& frame, const ConstTensor& grad_out, const ConstTensor& index,
                           const Tensor& grad_src);
void scatter_max_backward(const Frame& frame, const ConstTensor& grad_out, const ConstTensor& index,
                          const ConstTensor& argmax, const Tensor& grad_src);

class VoxelizeHardPlan {
 public:
  explicit VoxelizeHardPlan(std::int64_t points) : points_(points), grouping_(points) {}

  std::size_t scratch_bytes() const;
  struct Tensors {
    const ConstTensor &points, &voxel_size, &point_cloud_range;
    const Tensor &voxels, &coors, &num_points_per_voxel;
    const Tensor* point2voxel_map;  // or nullptr
  };
  // Returns the number of voxels. Refuses a grid before anything is written outside of `scratch`.
  std::int64_t run(Context& context, Call& call, const Tensors& tensors, Scratch& scratch) const;

 private:
  const std::int64_t points_;
  const CoordinateGrouping grouping_;
};

class BackwardPlan {
 public:
  BackwardPlan(std::int64_t points, std::int64_t voxels, Reduce reduce_type, int threads);

  std::size_t scratch_bytes() const;  // never more than with `points` voxels, if there are no more
  // Refuses a map or counts before anything is written outside of `scratch`.
  void run(Context& context, Call& call, const ConstTensor& grad_voxel_feats,
           const DynamicScatterResult& result, const Tensor& grad_feats, Scratch& scratch) const;

 private:
  const std::int64_t points_, voxels_;
  const Reduce reduce_type_;
  const MapGrouping grouping_;  // for max
};

// The inside of a VoxelIndex. The context must outlive it.
class PointIndex {
 public:
  PointIndex(const Frame& frame, const ConstTensor& coors);

  std::int64_t points() const { return groups_.points; }
  std::int64_t voxels() const { return groups_.voxels; }
  void write(const Frame& frame, const Tensor& voxel_coors, const Tensor& point2voxel_map,
             const Tensor& voxel_points_count) const;
  // dynamic_scatter_forward, with results that have a row for each voxel.
  void scatter(const Frame& frame, const ConstTensor& feats, const Tensor& voxel_feats,
               const Tensor& voxel_coors, const Tensor& point2voxel_map, const Tensor& voxel_points_count,
               Reduce reduce_type) const;
  void first_points(const Frame& frame, const Tensor& first_point) const;
  void reduce(const Frame& frame, const ConstTensor& feats, const Tensor& voxel_feats,
              Reduce reduce_type) const;
  void reduce_backward(const Frame& frame, const ConstTensor& grad_voxel_feats, const ConstTensor* feats,
                       const ConstTensor* voxel_feats, const Tensor& grad_feats, Reduce reduce_type) const;

 private:
  const ConstTensor coors_;
  std::optional<Scratch> memory_;  // of the groups
  VoxelGroups groups_;
};

}  // namespace turnout::families::dynamic_scatter
