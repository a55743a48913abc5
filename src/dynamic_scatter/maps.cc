// Reads and checks maps, and groups ascending ones without counting.
#include "dynamic_scatter/maps.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "core/dtypes.h"
#include "dynamic_scatter/grouping.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

MapRead read_map(Context& context, const ConstTensor& given, std::int64_t least, std::int64_t voxels,
                 std::int32_t* map, bool find_order) {
  const Chunks chunks(given.shape[0]);
  MapRead part_of[kMaxChunks];
  visit_index(given.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* values = static_cast<const Index*>(given.data);
    const auto first = static_cast<Index>(least), limit = static_cast<Index>(voxels);
    chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      // The sign of (value - first) | (limit - 1 - value) is set if the value is out of range. Unsigned, so
      // that no subtraction overflows.
      using Bits = std::make_unsigned_t<Index>;
      const auto outside = [=](Index value) {
        return (static_cast<Bits>(value) - static_cast<Bits>(first)) |
               (static_cast<Bits>(limit) - Bits{1} - static_cast<Bits>(value));
      };
      Bits any = 0;
      for (std::int64_t x = begin; x < end; ++x) {
        const Index value = values[x];
        any |= outside(value);
        map[x] = static_cast<std::int32_t>(value);
      }
      if (static_cast<Index>(any) < 0) {
        const Index* bad = std::find_if(values + begin, values + end,
                                        [&](Index v) { return static_cast<Index>(outside(v)) < 0; });
        // The value may have changed since; the call is refused anyway.
        part_of[part].bad = std::min(bad - values, end - 1);
      }
      part_of[part].is_sorted = find_order && std::is_sorted(map + begin, map + end);
    });
  });
  MapRead all{.is_sorted = true};
  for (std::int64_t part = 0; part < chunks.parts; ++part) {
    if (all.bad < 0) all.bad = part_of[part].bad;
    const std::int64_t begin = chunks.begin(part);
    all.is_sorted &= part_of[part].is_sorted && (part == 0 || map[begin - 1] <= map[begin]);
  }
  return all;
}

std::int64_t map_value(const ConstTensor& given, std::int64_t position) {
  return visit_index(given.dtype, [&](auto type) -> std::int64_t {
    return static_cast<const typename decltype(type)::type*>(given.data)[position];
  });
}

VoxelGroups group_by_sorted_map(Context& context, const std::int32_t* map, std::int64_t points,
                                std::int64_t voxels, Scratch& scratch) {
  auto* order = scratch.take<std::int32_t>(points);
  auto* starts = scratch.take<std::int32_t>(voxels + 1);
  const Chunks chunks(points);
  chunks.run(context, [=](std::int64_t, std::int64_t begin, std::int64_t end) {
    std::iota(order + begin, order + end, static_cast<std::int32_t>(begin));
    // Where the value changes, the voxels up to the new value begin; those in between have no points.
    std::int32_t before = begin == 0 ? -1 : map[begin - 1];
    for (std::int64_t x = begin; x < end; ++x)
      for (; before < map[x]; ++before) starts[before + 1] = static_cast<std::int32_t>(x);
  });
  const std::int64_t last = points == 0 ? -1 : map[points - 1];
  std::fill(starts + last + 1, starts + voxels + 1, static_cast<std::int32_t>(points));
  return {points, voxels, map, order, starts, "sorted map"};
}

}  // namespace turnout::families::dynamic_scatter
