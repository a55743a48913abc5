// How small the pieces of work are that threads share.
#pragma once

#include <cstdint>

namespace turnout::core {

// Divides the sizes from which a second thread is used, and those of ranges. The build for the thread
// sanitizer sets it to 256, so that the small calls of fuzzers and tests run on several threads too.
#if defined(TURNOUT_GRAIN_DIVISOR)
inline constexpr std::int64_t kGrainDivisor = TURNOUT_GRAIN_DIVISOR;
#else
inline constexpr std::int64_t kGrainDivisor = 1;
#endif

}  // namespace turnout::core
