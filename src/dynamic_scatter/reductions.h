// What reductions and gradients write, once the points are grouped by voxel.
#pragma once

#include <cstddef>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "runtime/call.h"
#include "simd/fp_environment.h"

namespace turnout::families::dynamic_scatter {

// The rows of all voxels; those after the last voxel are filled as the header says.
void reduce_rows(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& feats,
                 const Tensor& voxel_feats, Reduce reduce_type);

void write_map(Context& context, const VoxelGroups& groups, const Tensor& map);
void write_counts(Context& context, const VoxelGroups& groups, const Tensor& counts);
void write_coors(Context& context, const VoxelGroups& groups, const ConstTensor& coors,
                 const Tensor& voxel_coors);

// The gradients of all points. task.groups is given, and task.counts for mean; the rest of the task is filled
// in here.
void spread_rows(Context& context, Call& call, BackwardTask task, const ConstTensor& grad_voxel_feats,
                 const ConstTensor* feats, const ConstTensor* voxel_feats, const Tensor& grad_feats,
                 Reduce reduce_type);

// count_of(v) for each voxel, in the type that means are computed in.
template <class CountOf>
const void* lane_counts(DType feats, std::int64_t voxels, Scratch& scratch, const CountOf& count_of) {
  const FpEnvironment environment;  // the caller's rounding mode may be another
  const auto fill = [&](auto* to) -> const void* {
    for (std::int64_t v = 0; v < voxels; ++v)
      to[v] = static_cast<std::remove_reference_t<decltype(*to)>>(count_of(v));
    return to;
  };
  return feats == DType::f64 ? fill(scratch.take<double>(voxels)) : fill(scratch.take<float>(voxels));
}
inline std::size_t lane_counts_bytes(std::int64_t voxels) { return array_bytes<double>(voxels); }

}  // namespace turnout::families::dynamic_scatter
