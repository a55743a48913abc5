// The points of each voxel: the index that every reduction and its gradient use.
#pragma once

#include <cstdint>

#include "core/grain.h"
#include "runtime/context.h"
#include "turnout/tensor.h"

namespace turnout::families::dynamic_scatter {

// The number of points in one range of a thread, where only indices are read.
inline constexpr std::int64_t kPointGrain = 16384 / core::kGrainDivisor;
// Loops over fewer points stay on one thread: grouping has several loops, and each wakes the others.
inline constexpr std::int64_t kSharedPoints = 5 * kPointGrain;
constexpr std::int64_t point_grain(std::int64_t points) {
  return points < kSharedPoints ? kSharedPoints : kPointGrain;
}

struct VoxelGroups {
  std::int64_t points = 0;
  std::int64_t voxels = 0;
  const std::int32_t* map = nullptr;  // [points] the voxel, or -1
  // [points] voxel by voxel, ascending within a voxel; then the points in no voxel
  const std::int32_t* order = nullptr;
  const std::int32_t* starts = nullptr;  // [voxels + 1] where a voxel's points begin in `order`
  const char* found_by = "";             // for the log

  std::int64_t grouped() const { return starts[voxels]; }  // points that are in a voxel
  std::int64_t count(std::int64_t voxel) const { return starts[voxel + 1] - starts[voxel]; }
  std::int64_t first_point(std::int64_t voxel) const { return order[starts[voxel]]; }
  // The work of a voxel is its number of points plus one for its row, since a voxel may have no points.
  std::int64_t work() const { return grouped() + voxels; }
  // The first voxel that begins at or after this much work.
  std::int64_t voxel_from(std::int64_t work) const;
};

// Groups by coordinates [points, dims], with voxels in ascending order of their coordinates. If coordinates
// change during the call, the groups may be wrong, but no access leaves the arrays.
class CoordinateGrouping {
 public:
  explicit CoordinateGrouping(std::int64_t points) : points_(points) {}

  std::size_t kept_bytes() const;     // for the result
  std::size_t passing_bytes() const;  // temporary
  std::size_t scratch_bytes() const { return kept_bytes() + passing_bytes(); }
  // `kept` and `passing` may be the same Scratch.
  VoxelGroups run(Context& context, const ConstTensor& coors, core::Scratch& kept,
                  core::Scratch& passing) const;

 private:
  std::int64_t points_;
};

// Groups by a map whose values are -1 .. voxels - 1. The result refers to the map, which must not change.
class MapGrouping {
 public:
  MapGrouping(std::int64_t points, std::int64_t voxels, int threads);

  std::size_t scratch_bytes() const;
  VoxelGroups run(Context& context, const std::int32_t* map, core::Scratch& scratch) const;

 private:
  std::int64_t points_, voxels_;
  std::int64_t parts_;  // parts of the points, with one histogram each
};

}  // namespace turnout::families::dynamic_scatter
