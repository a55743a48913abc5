// The operators of this family as the doors call them: the functions of turnout/dynamic_scatter.h with a
// Frame in place of the Context.
#pragma once

#include <optional>

#include "dynamic_scatter/groups.h"
#include "runtime/frame.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

void voxelize(const Frame& frame, const ConstTensor& points, const ConstTensor& voxel_size,
              const ConstTensor& point_cloud_range, const Tensor& coors);
std::int64_t voxelize_hard(const Frame& frame, const ConstTensor& points, const ConstTensor& voxel_size,
                           const ConstTensor& point_cloud_range, const Tensor& voxels, const Tensor& coors,
                           const Tensor& num_points_per_voxel);

std::int64_t dynamic_scatter_forward(const Frame& frame, const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type);
void dynamic_scatter_backward(const Frame& frame, const ConstTensor& grad_voxel_feats,
                              const DynamicScatterResult& result, const Tensor& grad_feats,
                              Reduce reduce_type);

// The inside of a VoxelIndex. The context must outlive it.
class PointIndex {
 public:
  PointIndex(const Frame& frame, const ConstTensor& coors);

  std::int64_t points() const { return groups_.points; }
  std::int64_t voxels() const { return groups_.voxels; }
  void write(const Frame& frame, const Tensor& voxel_coors, const Tensor& point2voxel_map,
             const Tensor& voxel_points_count) const;
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
