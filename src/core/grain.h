// How finely work is divided among threads.
#pragma once

#include <cstdint>

namespace turnout::core {

// Divides the sizes of ranges and the sizes from which a second thread is used. The build for the thread
// sanitizer sets it to 256, so that the small calls of fuzzers and tests also run on several threads.
#if defined(TURNOUT_GRAIN_DIVISOR)
inline constexpr std::int64_t kGrainDivisor = TURNOUT_GRAIN_DIVISOR;
#else
inline constexpr std::int64_t kGrainDivisor = 1;
#endif

}  // namespace turnout::core
