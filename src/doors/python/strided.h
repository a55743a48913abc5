// Copies of arrays whose elements do not lie row by row.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::doors {

// Elements of `size` bytes (1, 2, 4 or 8) that lie `stride` bytes apart in each dimension, wherever they
// begin, to row-major memory. No extent is 0.
void copy_strided(Context& context, const void* from, const std::int64_t* shape, const std::int64_t* stride,
                  int rank, std::int64_t size, void* to);

}  // namespace turnout::doors
