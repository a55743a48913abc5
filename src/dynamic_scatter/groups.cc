// Groups points by voxel: by a given map, or by coordinates, in one of two ways depending on their bounding
// box.
#include "dynamic_scatter/groups.h"

#include <algorithm>
#include <utility>

#include "dynamic_scatter/grouping.h"
#include "runtime/parallel.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

Packing make_packing(Context& context, const ConstTensor& coors) {
  const std::int64_t points = coors.shape[0];
  const int dims = static_cast<int>(coors.shape[1]);
  const Chunks chunks(points);
  Extremes part_of[kMaxChunks];
  const auto extremes = coordinate_kernels(context.isa()).extremes(coors.dtype, dims);
  chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    part_of[part] = extremes(coors.data, begin, end);
  });
  Packing packing;
  Extremes all = part_of[0];
  for (std::int64_t part = 0; part < chunks.parts; ++part) {
    for (int d = 0; d < dims; ++d) {
      all.least[d] = std::min(all.least[d], part_of[part].least[d]);
      all.most[d] = std::max(all.most[d], part_of[part].most[d]);
    }
    packing.valid_before[part] = packing.valid;
    packing.valid += part_of[part].valid;
  }
  packing.point_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(points - 1)));
  packing.cells = packing.valid > 0 ? 1 : 0;
  for (int d = dims - 1; d >= 0 && packing.cells > 0; --d) {
    packing.weight[d] = packing.cells;
    packing.least[d] = all.least[d];
    const std::uint64_t extent = static_cast<std::uint64_t>(all.most[d] - all.least[d]) + 1;
    if (__builtin_mul_overflow(packing.cells, extent, &packing.cells)) packing.cells = 0;
  }
  return packing;
}

}  // namespace

std::int64_t VoxelGroups::voxel_from(std::int64_t work) const {
  std::int64_t first = 0, last = voxels;
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (starts[middle] + middle < work) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

void put_in_order(Context& context, const Chunks& chunks, const CountTables& tables, const std::int32_t* map,
                  std::int32_t* starts, std::int32_t* order) {
  std::int32_t sum = 0;
  const auto count_to_offset = [&](std::int64_t voxel) {
    for (std::int64_t part = 0; part < chunks.parts; ++part)
      sum += std::exchange(tables.of(part)[voxel], sum);
  };
  serial_for(0, tables.voxels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v) {
      starts[v] = sum;
      count_to_offset(v);
    }
  });
  starts[tables.voxels] = sum;
  count_to_offset(-1);
  const Stop stop;
  chunks.run(context, [=](std::int64_t part, std::int64_t begin, std::int64_t end) {
    std::int32_t* next = tables.of(part);
    static_cast<void>(stop.blocks(begin, end, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t x = first; x < last; ++x) order[next[map[x]]++] = static_cast<std::int32_t>(x);
    }));
  });
}

std::size_t CoordinateGrouping::kept_bytes() const {
  return 2 * array_bytes<std::int32_t>(points_) + array_bytes<std::int32_t>(points_ + 1);
}

std::size_t CoordinateGrouping::passing_bytes() const {
  return std::max(cells_bytes(points_), sorting_bytes(points_));
}

VoxelGroups CoordinateGrouping::run(Context& context, const ConstTensor& coors, Scratch& kept,
                                    Scratch& passing) const {
  const GroupMemory to(kept, points_);
  const Packing packing = make_packing(context, coors);
  return fits_cells(packing, points_) ? group_by_cells(context, coors, packing, to, passing)
                                      : group_by_sort(context, coors, packing, to, passing);
}

// Limits the parts so that their histograms together are no longer than the map.
MapGrouping::MapGrouping(std::int64_t points, std::int64_t voxels, int threads)
    : points_(points),
      voxels_(voxels),
      parts_(std::clamp<std::int64_t>(
          std::min(points / point_grain(points), points / CountTables::stride(voxels)), 1,
          std::min<std::int64_t>(threads, kMaxParts))) {}

std::size_t MapGrouping::scratch_bytes() const {
  return array_bytes<std::int32_t>(points_) + array_bytes<std::int32_t>(voxels_ + 1) +
         array_bytes<std::int32_t>(CountTables::size(voxels_, parts_));
}

VoxelGroups MapGrouping::run(Context& context, const std::int32_t* map, Scratch& scratch) const {
  const Chunks chunks(points_, parts_);
  auto* order = scratch.take<std::int32_t>(points_);
  auto* starts = scratch.take<std::int32_t>(voxels_ + 1);
  const CountTables tables{voxels_, scratch.take<std::int32_t>(CountTables::size(voxels_, parts_))};
  const Stop stop;
  chunks.run(context, [=](std::int64_t part, std::int64_t begin, std::int64_t end) {
    std::int32_t* counts = tables.clear(part);
    static_cast<void>(stop.blocks(begin, end, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t x = first; x < last; ++x) ++counts[map[x]];
    }));
  });
  put_in_order(context, chunks, tables, map, starts, order);
  return {points_, voxels_, map, order, starts, "counted map"};
}

}  // namespace turnout::families::dynamic_scatter
