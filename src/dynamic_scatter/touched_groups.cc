// Finds the groups that an index names by treating its values as coordinates of one dimension.
#include "dynamic_scatter/touched_groups.h"

namespace turnout::families::dynamic_scatter {

using namespace core;

TouchedGroups::TouchedGroups(Context& context, const std::int32_t* map, std::int64_t rows, Scratch& scratch)
    : map_(map) {
  if (rows > 0)
    groups_ =
        CoordinateGrouping(rows).run(context, ConstTensor(map, DType::i32, {rows, 1}), scratch, scratch);
}

std::int64_t TouchedGroups::first_from(std::int64_t wanted) const {
  std::int64_t first = 0, last = count();
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (group(middle) < wanted) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

}  // namespace turnout::families::dynamic_scatter
