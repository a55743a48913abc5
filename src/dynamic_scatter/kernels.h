// The loops of this family over a range, once per instruction set.
#pragma once

#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "simd/isa.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

struct ReduceTask {
  VoxelGroups groups;
  std::int64_t channels;
  const void* feats;  // [points, channels]
};

struct BackwardTask {
  VoxelGroups groups;
  std::int64_t channels;
  const void* grad_voxel_feats;  // [voxels, channels]
  const void* feats;             // [points, channels], of max
  const void* voxel_feats;       // [voxels, channels], of max
  const void* counts;            // [voxels] in the type that features are computed in, of mean
  void* grad_feats;              // [points, channels], of max
  bool stream;                   // stores bypass the cache, of max
};

struct ReduceKernels {
  // Voxels first .. last-1, to rows that begin at `to`.
  using Range = void (*)(const ReduceTask& task, std::int64_t first, std::int64_t last, void* to);
  Range (*reduce)(DType dtype, Reduce reduce_type);
};
const ReduceKernels& reduce_kernels(Isa isa);

struct GradientKernels {
  // The points of voxels first .. last-1, wherever their rows are.
  using MaxRange = void (*)(const BackwardTask& task, std::int64_t first, std::int64_t last);
  MaxRange (*max)(DType dtype);

  // Sum and mean: points first .. last-1, to rows that begin at `to`.
  using EachRange = void (*)(const BackwardTask& task, std::int64_t first, std::int64_t last, void* to);
  EachRange (*each)(DType dtype, Reduce reduce_type);
};
const GradientKernels& gradient_kernels(Isa isa);

// What coordinates are computed from, in the type that this is done in: double for f64, else float.
template <class Real>
struct GridOf {
  Real voxel_size[3], least[3], extent[3];
};

// Of the coordinates of points that have no negative one.
inline constexpr int kMaxDims = 4;
struct Extremes {
  std::int64_t least[kMaxDims], most[kMaxDims];
  std::int64_t valid;  // how many points those are
};

struct CoordinateKernels {
  // Points first .. last-1 of [points, features]; `grid` is a GridOf<float> or GridOf<double>.
  using VoxelizeRange = void (*)(const void* grid, const void* points, std::int64_t features, void* coors,
                                 std::int64_t first, std::int64_t last);
  VoxelizeRange (*voxelize)(DType points, DType coors);

  // Points first .. last-1 of [points, dims].
  using ExtremesRange = Extremes (*)(const void* coors, std::int64_t first, std::int64_t last);
  ExtremesRange (*extremes)(DType coors, int dims);
};
const CoordinateKernels& coordinate_kernels(Isa isa);

}  // namespace turnout::families::dynamic_scatter
