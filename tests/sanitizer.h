// Which sanitizer this build uses; g++ and clang define different macros for it.
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TURNOUT_THREAD_SANITIZER 1
#endif
#if __has_feature(address_sanitizer)
#define TURNOUT_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TURNOUT_THREAD_SANITIZER 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TURNOUT_ADDRESS_SANITIZER 1
#endif

namespace turnout::test {

// Tests skip their largest shapes under a sanitizer, which makes them 5 to 20 times slower.
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
