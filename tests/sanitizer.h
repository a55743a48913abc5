// What tests skip under a sanitizer.
#pragma once

#include "core/sanitizer.h"

namespace turnout::test {

// Tests skip their largest shapes under a sanitizer, because it makes them 5 to 20 times slower.
#if defined(TURNOUT_ADDRESS_SANITIZER) || defined(TURNOUT_THREAD_SANITIZER)
inline constexpr bool kReducedShapes = true;
#else
inline constexpr bool kReducedShapes = false;
#endif

#if defined(TURNOUT_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace turnout::test
