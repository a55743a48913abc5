// The inner loops of this family, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "simd/isa.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

struct ReduceTask {
  VoxelGroups groups;
  std::int64_t channels;
  const void* feats;  // [points, channels]
};

struct BackwardTask {
  VoxelGroups groups;
  std::int64_t channels;
  const void* grad_voxel_feats;  // [voxels, channels]
  const void* feats;             // [points, channels]; only for max
  const void* voxel_feats;       // [voxels, channels]; only for max
  const void* counts;            // [voxels] in the type that features are computed in; only for mean
  void* grad_feats;              // [points, channels]; only for max
  bool stream;                   // stores bypass the cache; only for max
};

struct ReduceKernels {
  // Reduces voxels first .. last-1 into consecutive rows that begin at `to`.
  using Range = void (*)(const ReduceTask& task, std::int64_t first, std::int64_t last, void* to);
  Range (*reduce)(DType dtype, Reduce reduce_type);  // i32 and i64: only sum
};
const ReduceKernels& reduce_kernels(Isa isa);

// Sums of rows, added in the order of the rows.
struct DirectTask {
  const std::int32_t* map;  // [rows] the group of each
  std::int64_t channels;
  const void* src;  // [rows, channels]
  void* sums;       // [groups, channels] in the type that sums are computed in
};
struct DirectKernels {
  // Adds rows first .. last-1.
  using Add = void (*)(const DirectTask& task, std::int64_t first, std::int64_t last);
  Add (*add)(DType dtype);
  // to[g] = sums[g], divided by counts[g] for a mean. `to` may be `sums`.
  using Finish = void (*)(const void* sums, const std::int32_t* counts, std::int64_t groups,
                          std::int64_t channels, void* to);
  Finish (*finish)(DType dtype, Reduce reduce_type);  // only floats
};
const DirectKernels& direct_kernels(Isa isa);

struct GradientKernels {
  // Max: writes the rows of all points of voxels first .. last-1.
  using MaxRange = void (*)(const BackwardTask& task, std::int64_t first, std::int64_t last);
  MaxRange (*max)(DType dtype);

  // Sum and mean: writes the rows of points first .. last-1 to consecutive rows that begin at `to`.
  using EachRange = void (*)(const BackwardTask& task, std::int64_t first, std::int64_t last, void* to);
  EachRange (*each)(DType dtype, Reduce reduce_type);
};
const GradientKernels& gradient_kernels(Isa isa);

enum class Extreme : std::uint8_t { minimum, maximum };

// Maxima or minima of groups of rows, and the row that each comes from.
struct ExtremeTask {
  VoxelGroups groups;
  std::int64_t channels;
  const void* src;         // [points, channels]
  std::int64_t arg_bytes;  // of the number of a row: 4, 8, or 0 for values only
};
struct ExtremeBackwardTask {
  const std::int32_t* map;  // [points]
  std::int64_t channels;
  const void* grad_out;  // [voxels, channels]
  const void* argmax;    // [voxels, channels]: the row of each maximum or minimum
};

// Maxima or minima that are updated in the order of the rows.
struct DirectExtremeTask {
  const std::int32_t* map;  // [rows] the group of each
  std::int64_t channels;
  const void* src;     // [rows, channels]
  void* best;          // [groups, channels] in the type that values are compared in
  std::int32_t* from;  // [groups, channels] the row of each; or nullptr
};

struct ExtremeKernels {
  // Reduces voxels first .. last-1 into consecutive rows that begin at `out` and, with rows, at `arg`.
  using Range = void (*)(const ExtremeTask& task, std::int64_t first, std::int64_t last, void* out,
                         void* arg);
  Range (*reduce)(Extreme which, DType src, bool has_rows);

  // Sets `elements` values to the one that they start from.
  using Start = void (*)(std::int64_t elements, void* best);
  Start (*start)(Extreme which, DType src);
  // Compares rows first .. last-1 with those of their groups.
  using Add = void (*)(const DirectExtremeTask& task, std::int64_t first, std::int64_t last);
  Add (*add)(Extreme which, DType src, bool has_rows);
  // Writes the values; those that are still at the start are 0. `out` may be `best`.
  using Finish = void (*)(std::int64_t elements, const void* best, void* out);
  Finish (*finish)(Extreme which, DType src);

  // Writes the gradients of points first .. last-1 to consecutive rows that begin at `to`.
  using BackwardRange = void (*)(const ExtremeBackwardTask& task, std::int64_t first, std::int64_t last,
                                 void* to);
  BackwardRange (*backward)(DType grad, DType argmax);
};
const ExtremeKernels& extreme_kernels(Isa isa);

// The grid in the type that coordinates are computed in: double for f64 points, otherwise float.
template <class Real>
struct GridOf {
  Real voxel_size[3], least[3], extent[3];
};

// The bounding box of the points without a negative coordinate.
inline constexpr int kMaxDims = 4;
struct Extremes {
  std::int64_t least[kMaxDims], most[kMaxDims];
  std::int64_t valid;  // the number of such points
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
