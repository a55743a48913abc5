// Keeps the lowest rows that a search has found.
#include <algorithm>

#include "points/kernels.h"

namespace turnout::families::points {

void reduce(Found& found, std::int64_t room) {
  if (found.count <= room) return;
  std::nth_element(found.rows, found.rows + room, found.rows + found.count);
  found.count = room;
}

}  // namespace turnout::families::points
