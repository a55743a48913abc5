// Implements OutputCache: large result buffers are mapped once and used many times.
#include "runtime/output_cache.h"

#include <pthread.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/pages.h"

namespace turnout::core {
namespace {

// A buffer may serve a request that is up to a quarter smaller; more would waste memory.
constexpr std::size_t kSlackShare = 4;

void unmap(const OutputBuffer& buffer) { unmap_pages(buffer.data, buffer.capacity); }

}  // namespace

OutputCache::OutputCache() : limit_(default_idle_bytes()) {}

OutputBuffer OutputCache::take(std::size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto buffer = idle_.begin(); buffer != idle_.end(); ++buffer) {
      if (buffer->capacity < bytes || buffer->capacity - bytes > bytes / kSlackShare + kPageGranularity)
        continue;
      // Among equals, prefer the most recently used one: its pages may still be in the CPU's caches.
      if (best == idle_.end() || buffer->capacity <= best->capacity) best = buffer;
    }
    if (best != idle_.end()) {
      const OutputBuffer found = *best;
      idle_.erase(best);
      idle_bytes_ -= found.capacity;
      return found;
    }
  }
  if (bytes > SIZE_MAX / 2) return {};
  const std::size_t capacity = in_whole_pages(bytes);
  void* data = map_huge_pages(capacity);
  return {data, data == nullptr ? 0 : capacity};
}

void OutputCache::give_back(OutputBuffer buffer) noexcept {
  if (buffer.capacity > limit()) return unmap(buffer);  // keeping it would free all others
  try {
    std::lock_guard lock(mutex_);
    idle_.push_back(buffer);
    idle_bytes_ += buffer.capacity;
  } catch (const std::bad_alloc&) {
    unmap(buffer);
  }
  evict_over_limit();
}

std::size_t OutputCache::limit() {
  std::lock_guard lock(mutex_);
  return limit_;
}

void OutputCache::set_limit(std::size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  evict_over_limit();
}

std::size_t OutputCache::idle_bytes() {
  std::lock_guard lock(mutex_);
  return idle_bytes_;
}

void OutputCache::trim() {
  std::vector<OutputBuffer> freed;
  {
    std::lock_guard lock(mutex_);
    freed = std::exchange(idle_, {});
    idle_bytes_ = 0;
  }
  for (const OutputBuffer& buffer : freed) unmap(buffer);  // outside the lock, as below
}

void OutputCache::evict_over_limit() noexcept {
  for (;;) {
    OutputBuffer oldest;
    {
      std::lock_guard lock(mutex_);
      if (idle_bytes_ <= limit_) return;
      oldest = idle_.front();
      idle_.erase(idle_.begin());
      idle_bytes_ -= oldest.capacity;
    }
    unmap(oldest);  // outside the lock: a large one takes milliseconds
  }
}

OutputCache& output_cache() {
  // Never destroyed: arrays may outlive the module.
  static OutputCache& cache = []() -> OutputCache& {
    static OutputCache& the_cache = *new OutputCache;
    // The child unmaps its idle buffers: writing to a page shared with its parent would copy the page.
    pthread_atfork(nullptr, nullptr, [] { the_cache.trim(); });
    return the_cache;
  }();
  return cache;
}

}  // namespace turnout::core
