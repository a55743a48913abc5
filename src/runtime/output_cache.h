// Memory for large results of the Python bindings, reused by later calls: a page fault costs about 1.65 us
// per 4 KB, which is more than any operator needs to fill the page.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/fork_mutex.h"

namespace turnout::core {

inline constexpr std::size_t kCachedOutputBytes = std::size_t{1} << 20;  // smaller results are not cached

struct OutputBuffer {
  void* data = nullptr;
  std::size_t capacity = 0;
};

// Idle buffers, at most limit() bytes of them; the least recently used are freed first. Thread-safe, and safe
// in a forked child, which starts with an empty cache.
class OutputCache {
 public:
  OutputCache();  // the limit is default_idle_bytes()

  OutputBuffer take(std::size_t bytes);  // uninitialized; data is nullptr if out of memory
  void give_back(OutputBuffer buffer) noexcept;

  std::size_t limit();
  void set_limit(std::size_t bytes);  // 0 keeps nothing
  std::size_t idle_bytes();
  void trim();  // frees all idle buffers

 private:
  void evict_over_limit() noexcept;

  ForkMutex mutex_;
  std::vector<OutputBuffer> idle_;  // least recently used first
  std::size_t idle_bytes_ = 0;
  std::size_t limit_;
};

OutputCache& output_cache();

}  // namespace turnout::core
