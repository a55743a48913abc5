// The plans of this family's operators. The plan of dynamic_scatter_forward is CoordinateGrouping.
#pragma once

#include <optional>
#include <span>

#include "dynamic_scatter/groups.h"
#include "runtime/call.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

class VoxelizeHardPlan {
 public:
  explicit VoxelizeHardPlan(std::int64_t points) : points_(points), grouping_(points) {}

  std::size_t scratch_bytes() const;
  // Returns the number of voxels. Throws for a bad grid before it writes a result.
  std::int64_t run(core::Call& call, const ConstTensor& points, const Tensor& voxels, const Tensor& coors,
                   const Tensor& num_points_per_voxel, const Tensor& point2voxel_map,
                   std::span<const double> voxel_size, std::span<const double> point_cloud_range) const;

 private:
  const std::int64_t points_;
  const CoordinateGrouping grouping_;
};

class BackwardPlan {
 public:
  BackwardPlan(std::int64_t points, std::int64_t voxels, Reduce reduce_type, int threads);

  std::size_t scratch_bytes() const;  // for up to `points` voxels at most as much as for `points` voxels
  // Throws for a bad map or bad counts before it writes a result.
  void run(core::Call& call, const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
           const ConstTensor& voxel_feats, const ConstTensor& point2voxel_map,
           const ConstTensor& voxel_points_count, const Tensor& grad_feats) const;

 private:
  const std::int64_t points_, voxels_;
  const Reduce reduce_type_;
  const MapGrouping grouping_;  // for max
};

// The implementation of VoxelIndex. The context must outlive it.
class PointIndex {
 public:
  PointIndex(const ConstTensor& coors, const Caller& caller);

  std::int64_t points() const { return groups_.points; }
  std::int64_t voxels() const { return groups_.voxels; }
  void write(const Tensor& voxel_coors, const Tensor& point2voxel_map, const Tensor& voxel_points_count,
             const Caller& caller) const;
  // dynamic_scatter_forward, with results that have a row for each voxel.
  void scatter(const ConstTensor& feats, const Tensor& voxel_feats, const Tensor& voxel_coors,
               const Tensor& point2voxel_map, const Tensor& voxel_points_count, Reduce reduce_type,
               const Caller& caller) const;
  void first_points(const Tensor& first_point, const Caller& caller) const;
  void reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type,
              const Caller& caller) const;
  void reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                       const ConstTensor& voxel_feats, const Tensor& grad_feats, Reduce reduce_type,
                       const Caller& caller) const;

 private:
  const ConstTensor coors_;
  std::optional<core::Scratch> memory_;  // of the groups
  VoxelGroups groups_;
};

}  // namespace turnout::families::dynamic_scatter
