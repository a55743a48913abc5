// What the ways to group points by their coordinates share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "runtime/parallel.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

inline constexpr std::int64_t kMaxChunks = 64;

// `count` items in consecutive parts of about the same size, few enough for tables on the stack.
struct Chunks {
  std::int64_t count, parts;

  explicit Chunks(std::int64_t items)
      : Chunks(items, std::clamp<std::int64_t>(items / kPointGrain, 1, kMaxChunks)) {}
  Chunks(std::int64_t items, std::int64_t in_parts) : count(items), parts(in_parts) {}
  std::int64_t begin(std::int64_t part) const { return count / parts * part + count % parts * part / parts; }

  template <class F>
  void run(Context& context, const F& f) const {
    parallel_for(context, parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part) f(part, begin(part), begin(part + 1));
    });
  }
};

// Where the points' coordinates lie, and how they become one number that orders like them: that of a cell.
struct Packing {
  std::int64_t valid = 0;                      // points that are in a voxel
  std::int64_t valid_before[kMaxChunks] = {};  // those of them that are before each chunk of all points
  std::uint64_t weight[kMaxDims] = {};
  std::int64_t least[kMaxDims] = {};
  std::uint64_t cells = 0;  // how many; 0 also when so many do not fit 64 bits
  int point_bits = 0;       // of a point's own number

  int cell_bits() const { return static_cast<int>(std::bit_width(cells - 1)); }
};

// Memory of the results of a grouping.
struct GroupMemory {
  std::int32_t *map, *order, *starts;

  GroupMemory(Scratch& kept, std::int64_t points)
      : map(kept.take<std::int32_t>(points)),
        order(kept.take<std::int32_t>(points)),
        starts(kept.take<std::int32_t>(points + 1)) {}
};

inline constexpr std::int64_t kMaxParts = 4;  // of the points, which have tables of their own

// What each part has counted, by what the map says: voxels, and -1.
struct CountTables {
  std::int64_t voxels;
  std::int32_t* memory;

  static constexpr std::int64_t size(std::int64_t voxels, std::int64_t parts) { return parts * (voxels + 1); }
  std::int32_t* of(std::int64_t part) const { return memory + part * (voxels + 1) + 1; }
  std::int32_t* clear(std::int64_t part) const {
    std::fill_n(of(part) - 1, voxels + 1, 0);
    return of(part);
  }
};
// From full tables, which are used up, to starts and order.
void put_in_order(Context& context, const Chunks& chunks, const CountTables& tables, const std::int32_t* map,
                  std::int32_t* starts, std::int32_t* order);

// Through a bit for each block of 64 cells, and one for each cell of blocks that have points: for spaces that
// are not too empty.
bool fits_cells(const Packing& packing, std::int64_t points);
std::size_t cells_bytes(std::int64_t points);
VoxelGroups group_by_cells(Context& context, const ConstTensor& coors, const Packing& packing,
                           const GroupMemory& to, Scratch& passing);

// By a sort: memory is proportional to the points, however large the space.
std::size_t sorting_bytes(std::int64_t points);
VoxelGroups group_by_sort(Context& context, const ConstTensor& coors, const Packing& packing,
                          const GroupMemory& to, Scratch& passing);

}  // namespace turnout::families::dynamic_scatter
