// Memory for large results of the Python bindings, kept for the next call: a page fault costs about 1.65
// us per 4 KB, which is more than any of the operators needs to fill the page.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/fork_mutex.h"

namespace turnout::core {

inline constexpr std::size_t kCachedOutputBytes = std::size_t{1} << 20;  // smaller results are not worth it

struct OutputBuffer {
  void* data = nullptr;
  std::size_t capacity = 0;
};

// Idle buffers, at most limit() bytes of them; the least recently used go first. Safe from any thread, and in
// a forked child, which starts with an empty cache.
class OutputCache {
 public:
  OutputCache();  // the limit is default_idle_bytes()

  OutputBuffer take(std::size_t bytes);  // data is nullptr when memory is out; the content is arbitrary
  void give_back(OutputBuffer buffer) noexcept;

  std::size_t limit();
  void set_limit(std::size_t bytes);  // 0: nothing is kept
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
