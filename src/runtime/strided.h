// Contiguous copies of strided arrays.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

// Copies elements of `size` bytes (1, 2, 4 or 8) to row-major memory. Strides are in bytes and may be 0; no
// extent is 0. `from` may have any alignment.
void copy_strided(Context& context, const void* from, const std::int64_t* shape, const std::int64_t* stride,
                  int rank, std::int64_t size, void* to);

}  // namespace turnout::core
