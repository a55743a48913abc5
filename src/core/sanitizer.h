// Detects the sanitizer of this build, and poisons memory for the address sanitizer.
#pragma once

#include <cstddef>

// g++ and clang define different macros.
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

#if defined(TURNOUT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace turnout::core {

#if defined(TURNOUT_ADDRESS_SANITIZER)
inline void forbid(const void* data, std::size_t bytes) { __asan_poison_memory_region(data, bytes); }
inline void allow(const void* data, std::size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
#else
inline void forbid(const void*, std::size_t) {}
inline void allow(const void*, std::size_t) {}
#endif

}  // namespace turnout::core
