// Reads and checks maps from rows to groups that a caller gives, and turns them into groups.
#pragma once

#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "runtime/context.h"
#include "turnout/tensor.h"

namespace turnout::families::dynamic_scatter {

struct MapRead {
  std::int64_t bad = -1;   // the first position whose value is out of range, or -1
  bool is_sorted = false;  // ascending
};

// Copies a map [points] of int32 or int64 whose values must be least .. voxels - 1, where least is -1 or 0.
// Each value is read once, so the copy has the values that were checked even if the caller's memory changes.
// find_order: whether to set is_sorted.
MapRead read_map(Context& context, const ConstTensor& given, std::int64_t least, std::int64_t voxels,
                 std::int32_t* map, bool find_order = true);
// The value at a bad position, for the error message.
std::int64_t map_value(const ConstTensor& given, std::int64_t position);

// Groups by an ascending map without -1; needs as much scratch memory as MapGrouping. The result refers to
// the map.
VoxelGroups group_by_sorted_map(Context& context, const std::int32_t* map, std::int64_t points,
                                std::int64_t voxels, core::Scratch& scratch);

}  // namespace turnout::families::dynamic_scatter
