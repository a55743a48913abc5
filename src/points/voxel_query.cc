// The first points within a radius of each query among those of the voxels around it.
#include <algorithm>
#include <atomic>
#include <limits>
#include <string>

#include "points/clouds.h"
#include "points/signature.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

void keep_least(std::atomic<std::int64_t>& least, std::int64_t value) {
  std::int64_t is = least.load(std::memory_order_relaxed);
  while (value < is && !least.compare_exchange_weak(is, value, std::memory_order_relaxed)) continue;
}

// The coordinates from `at` - range to `at` + range that are in 0 .. extent - 1.
struct Interval {
  std::int64_t first, last;
  Interval(std::int64_t at, std::int64_t range, std::int64_t extent) {
    at = std::clamp(at, -range - 1, extent + range);
    first = std::max<std::int64_t>(at - range, 0);
    last = std::min(at + range, extent - 1);
  }
};

template <class Real, class Coordinate, class Row>
class VoxelSearch {
 public:
  const Real *points, *queries;
  std::int64_t point_count;
  const Coordinate* coordinates;
  const Row* grid;
  const std::int64_t* extents;  // of the grid: batch, depth, height, width
  std::int64_t ranges[3];
  Real most;
  std::int64_t nsample;
  // The first query with a batch element that does not exist, and the first voxel with such a row.
  std::atomic<std::int64_t> bad_query{kNone}, bad_voxel{kNone};

  // Writes up to nsample rows; returns how many.
  std::int32_t find(std::int64_t query, std::int32_t* rows) {
    std::int64_t at[4];
    for (int k = 0; k < 4; ++k) at[k] = load_once(coordinates + 4 * query + k);
    if (!in_range(at[0], extents[0])) {
      keep_least(bad_query, query);
      return 0;
    }
    const Interval z(at[1], ranges[0], extents[1]), y(at[2], ranges[1], extents[2]);
    const Interval x(at[3], ranges[2], extents[3]);
    const Real* q = queries + 3 * query;
    std::int32_t found = 0;
    for (std::int64_t i = z.first; i <= z.last; ++i)
      for (std::int64_t j = y.first; j <= y.last; ++j) {
        const std::int64_t line = ((at[0] * extents[1] + i) * extents[2] + j) * extents[3];
        for (std::int64_t voxel = line + x.first; voxel <= line + x.last; ++voxel) {
          const std::int64_t row = load_once(grid + voxel);
          if (row < 0) continue;
          if (row >= point_count) {
            keep_least(bad_voxel, voxel);
            continue;
          }
          const Real* p = points + 3 * row;
          const Real dx = p[0] - q[0], dy = p[1] - q[1], dz = p[2] - q[2];
          if (!((dx * dx + dy * dy) + dz * dz <= most)) continue;
          rows[found++] = static_cast<std::int32_t>(row);
          if (found == nsample) return found;
        }
      }
    return found;
  }
};

}  // namespace
}  // namespace families::points

using namespace families::points;

void voxel_query(const ConstTensor& xyz, const ConstTensor& new_xyz, const ConstTensor& new_coords,
                 const ConstTensor& point_indices, const Tensor& idx, const Tensor& found, double radius,
                 std::int64_t z_range, std::int64_t y_range, std::int64_t x_range, const Caller& caller) {
  Call call(caller, kVoxelQuery, {xyz, new_xyz, new_coords, point_indices, idx, found},
            {radius, z_range, y_range, x_range});
  if (call.nothing_to_do()) return;
  call.chose("voxels", call.context().threads());
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t queries = new_xyz.shape[0], nsample = idx.shape[1];
  // A row that does not exist is found after others have been: results are written when all are known.
  Scratch& scratch =
      call.scratch(array_bytes<std::int32_t>(queries * nsample) + array_bytes<std::int32_t>(queries));
  std::int32_t* const rows = scratch.take<std::int32_t>(queries * nsample);
  std::int32_t* const counts = scratch.take<std::int32_t>(queries);
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto most = static_cast<Real>(radius);
    visit_index(new_coords.dtype, [&](auto coordinate) {
      visit_index(point_indices.dtype, [&](auto row) {
        using Coordinate = typename decltype(coordinate)::type;
        using Row = typename decltype(row)::type;
        VoxelSearch<Real, Coordinate, Row> search{
            .points = static_cast<const Real*>(xyz.data),
            .queries = static_cast<const Real*>(new_xyz.data),
            .point_count = xyz.shape[0],
            .coordinates = static_cast<const Coordinate*>(new_coords.data),
            .grid = static_cast<const Row*>(point_indices.data),
            .extents = point_indices.shape,
            .ranges = {z_range, y_range, x_range},
            .most = most * most,
            .nsample = nsample,
        };
        parallel_for(call.context(), queries, kQueryGrain, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t q = first; q < last; ++q)
            counts[q] = nsample == 0 ? 0 : search.find(q, rows + q * nsample);
        });
        const std::int64_t query = search.bad_query, voxel = search.bad_voxel;
        if (query != kNone)
          call.refuse(concat(
              call.name("new_coords"), "[", query, ", 0] is ", std::int64_t{search.coordinates[4 * query]},
              point_indices.shape[0] == 0 ? std::string(", but none is valid since batch is 0")
                                          : concat(", expected 0 .. ", point_indices.shape[0] - 1)));
        if (voxel != kNone) {
          const std::int64_t x = voxel % search.extents[3], line = voxel / search.extents[3];
          const std::int64_t y = line % search.extents[2], plane = line / search.extents[2];
          call.refuse(concat(call.name("point_indices"), "[", plane / search.extents[1], ", ",
                             plane % search.extents[1], ", ", y, ", ", x, "] is ",
                             std::int64_t{search.grid[voxel]}, ", expected at most ", xyz.shape[0] - 1));
        }
      });
    });
  });
  visit_index(idx.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    auto* to = static_cast<Index*>(idx.data);
    auto* to_count = static_cast<std::int32_t*>(found.data);
    const std::int64_t grain = kParallelBytes / (static_cast<std::int64_t>(sizeof(Index)) * nsample + 4) + 1;
    parallel_for(call.context(), queries, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t q = first; q < last; ++q) {
        const std::int32_t* row = rows + q * nsample;
        for (std::int64_t i = 0; i < nsample; ++i)
          to[q * nsample + i] = static_cast<Index>(counts[q] == 0 ? 0 : row[i < counts[q] ? i : 0]);
        to_count[q] = counts[q];
      }
    });
  });
}

}  // namespace turnout
