// Declarations shared by the two ways to group points by their coordinates.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "runtime/parallel.h"

namespace turnout::families::dynamic_scatter {

inline constexpr std::int64_t kMaxChunks = 64;

// Splits `count` items into consecutive parts of about the same size, at most kMaxChunks, so that one value
// per part fits an array on the stack.
struct Chunks {
  std::int64_t count, parts;

  explicit Chunks(std::int64_t items)
      : Chunks(items, std::clamp<std::int64_t>(items / point_grain(items), 1, kMaxChunks)) {}
  Chunks(std::int64_t items, std::int64_t in_parts) : count(items), parts(in_parts) {}
  std::int64_t begin(std::int64_t part) const { return count / parts * part + count % parts * part / parts; }

  template <class F>
  void run(Context& context, const F& f) const {
    core::parallel_for(context, parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part) f(part, begin(part), begin(part + 1));
    });
  }
};

// The bounding box of the coordinates, and the weights that turn a point's coordinates into the number of its
// cell in that box. Cell numbers are ordered like rows of coordinates.
struct Packing {
  std::int64_t valid = 0;                      // points that are in a voxel
  std::int64_t valid_before[kMaxChunks] = {};  // the number of them before each chunk of the points
  std::uint64_t weight[kMaxDims] = {};
  std::int64_t least[kMaxDims] = {};
  std::uint64_t cells = 0;  // cells of the box; 0: no valid points, or more cells than 64 bits can count
  int point_bits = 0;       // bits of a point's number

  int cell_bits() const { return static_cast<int>(std::bit_width(cells - 1)); }
};

// Memory for the results of a grouping.
struct GroupMemory {
  std::int32_t *map, *order, *starts;

  GroupMemory(core::Scratch& kept, std::int64_t points)
      : map(kept.take<std::int32_t>(points)),
        order(kept.take<std::int32_t>(points)),
        starts(kept.take<std::int32_t>(points + 1)) {}
};

inline constexpr std::int64_t kMaxParts = 4;  // parts of the points with separate histograms

// Histograms of the map, one for each part of the points, in cache lines of their own: threads that share a
// line take several times as long. Index -1 counts the points in no voxel.
struct CountTables {
  std::int64_t voxels;
  std::int32_t* memory;

  static constexpr std::int64_t stride(std::int64_t voxels) { return (voxels + 1 + 15) / 16 * 16; }
  static constexpr std::int64_t size(std::int64_t voxels, std::int64_t parts) {
    return parts * stride(voxels);
  }
  std::int32_t* of(std::int64_t part) const { return memory + part * stride(voxels) + 1; }
  std::int32_t* clear(std::int64_t part) const {
    std::fill_n(of(part) - 1, voxels + 1, 0);
    return of(part);
  }
};
// Turns the histograms into offsets, in place, and writes `starts` and `order`.
void put_in_order(Context& context, const Chunks& chunks, const CountTables& tables, const std::int32_t* map,
                  std::int32_t* starts, std::int32_t* order);

// Groups by ranks of bits, for boxes that are not too empty; see cell_groups.cc.
bool fits_cells(const Packing& packing, std::int64_t points);
std::size_t cells_bytes(std::int64_t points);
VoxelGroups group_by_cells(Context& context, const ConstTensor& coors, const Packing& packing,
                           const GroupMemory& to, core::Scratch& passing);

// Groups by a sort, with memory proportional to the points for any box.
std::size_t sorting_bytes(std::int64_t points);
VoxelGroups group_by_sort(Context& context, const ConstTensor& coors, const Packing& packing,
                          const GroupMemory& to, core::Scratch& passing);

}  // namespace turnout::families::dynamic_scatter
