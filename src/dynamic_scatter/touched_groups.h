// The groups that an index names, for an index that names few of very many groups. Memory is proportional to
// the index, and the rows of all other groups are only cleared.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dynamic_scatter/groups.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout::families::dynamic_scatter {

class TouchedGroups {
 public:
  // Whether to use this class: a table of all groups would be large and mostly empty.
  static bool pays(std::int64_t rows, std::int64_t groups) {
    return groups >= kLeastGroups && rows < groups / kGroupsPerRow;
  }
  static std::size_t scratch_bytes(std::int64_t rows) { return CoordinateGrouping(rows).scratch_bytes(); }
  // map [rows]: the group of each row, which must not change.
  TouchedGroups(Context& context, const std::int32_t* map, std::int64_t rows, core::Scratch& scratch);

  // The touched groups in ascending order, numbered from 0.
  const VoxelGroups& numbered() const { return groups_; }
  std::int64_t count() const { return groups_.voxels; }
  std::int64_t group(std::int64_t number) const { return map_[groups_.first_point(number)]; }

  // Calls write(number, group) for each touched group, and clear(first, last), which may stream, for the
  // groups between them.
  template <class Write, class Clear>
  void for_all(Context& context, std::int64_t groups, std::int64_t row_bytes, const Write& write,
               const Clear& clear) const {
    const std::int64_t grain =
        std::max<std::int64_t>(1, core::kRangeBytes / std::max<std::int64_t>(row_bytes, 1));
    core::parallel_for(context, groups, grain, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t next = begin;
      for (std::int64_t number = first_from(begin); number < count() && group(number) < end; ++number) {
        if (next < group(number)) clear(next, group(number));
        next = group(number);
        write(number, next++);
      }
      if (next < end) clear(next, end);
      core::copy_kernels(context.isa()).finish();
    });
  }

 private:
  static constexpr std::int64_t kLeastGroups = (1 << 20) / core::kGrainDivisor, kGroupsPerRow = 16;

  std::int64_t first_from(std::int64_t group) const;  // the number of the first touched group >= `group`

  const std::int32_t* map_;
  VoxelGroups groups_;
};

}  // namespace turnout::families::dynamic_scatter
