// Large result buffers: mapped once, used many times.
#include "runtime/output_cache.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace turnout::core {
namespace {

constexpr std::size_t kMostIdleBytes = std::size_t{512} << 20;
constexpr std::size_t kMemoryShare = 16;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kGranularity = std::size_t{64} << 10;
// A buffer may serve a request that is smaller by up to a quarter; more would hoard memory.
constexpr std::size_t kSlackShare = 4;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Starts at a huge page, so that every whole huge page inside can be one.
void* map_pages(std::size_t bytes) {
  void* reserved =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(reserved);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  const std::size_t head = offset == 0 ? 0 : kHugePage - offset;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, kHugePage - head);
  madvise(begin + head, bytes, MADV_HUGEPAGE);  // advice: without it the pages are just small
  return begin + head;
}

void unmap(const OutputBuffer& buffer) { munmap(buffer.data, buffer.capacity); }

}  // namespace

OutputCache::OutputCache() {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  limit_ = std::min(kMostIdleBytes, pages * page / kMemoryShare);
}

OutputBuffer OutputCache::take(std::size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto buffer = idle_.begin(); buffer != idle_.end(); ++buffer) {
      if (buffer->capacity < bytes || buffer->capacity - bytes > bytes / kSlackShare + kGranularity) continue;
      // Of equals the most recently used one: its pages may still be in a cache.
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
  const std::size_t capacity = rounded_up(bytes, kGranularity);
  void* data = map_pages(capacity);
  return {data, data == nullptr ? 0 : capacity};
}

void OutputCache::give_back(OutputBuffer buffer) noexcept {
  if (buffer.capacity > limit()) return unmap(buffer);  // it would only drive out the others
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
    unmap(oldest);  // milliseconds for a large one, so not under the lock
  }
}

OutputCache& output_cache() {
  // Never destroyed: arrays may die after the module.
  static OutputCache& cache = []() -> OutputCache& {
    static OutputCache& the_cache = *new OutputCache;
    // The lock is held across fork(), so that the child finds a whole list. It gives its idle buffers back: a
    // page that parent and child both write to would be copied.
    pthread_atfork([] { the_cache.mutex_.lock(); }, [] { the_cache.mutex_.unlock(); },
                   [] {
                     for (const OutputBuffer& buffer : the_cache.idle_) unmap(buffer);
                     the_cache.idle_.clear();
                     the_cache.idle_bytes_ = 0;
                     the_cache.mutex_.unlock();
                   });
    return the_cache;
  }();
  return cache;
}

}  // namespace turnout::core
