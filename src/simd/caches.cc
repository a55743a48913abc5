// The size from which outputs are streamed, from the caches of the machine.
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "simd/copy.h"

namespace turnout::core {
namespace {

// Streaming pays if input and output together do not fit the part of the last-level cache that a thread can
// count on. Others share that cache, so count on half of it, and on kMost if it is that of a large server.
// If the size is unknown, assume a cache of 8 MB.
constexpr std::int64_t kLeast = 2 << 20, kMost = 16 << 20;

std::int64_t measured() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  return std::clamp<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE) / 4, kLeast, kMost);
#else
  return kLeast;
#endif
}

std::atomic<std::int64_t> limit_of_test{0};

}  // namespace

void set_stream_limit(std::int64_t bytes) { limit_of_test.store(bytes, std::memory_order_relaxed); }

std::int64_t stream_limit() {
  static const std::int64_t limit = measured();
  const std::int64_t of_test = limit_of_test.load(std::memory_order_relaxed);
  return of_test == 0 ? limit : of_test;
}

}  // namespace turnout::core
