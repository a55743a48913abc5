// Maps and unmaps whole pages.
#include "runtime/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "runtime/available_memory.h"

namespace turnout::core {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMostIdleBytes = std::size_t{512} << 20;
constexpr std::size_t kMemoryShare = 16;

}  // namespace

void* map_pages(std::size_t bytes) {
  if (!can_provide(bytes)) return nullptr;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void* map_huge_pages(std::size_t bytes) {
  void* reserved = map_pages(bytes + kHugePage);
  if (reserved == nullptr) return nullptr;
  auto* begin = static_cast<std::byte*>(reserved);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  const std::size_t head = offset == 0 ? 0 : kHugePage - offset;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, kHugePage - head);
  madvise(begin + head, bytes, MADV_HUGEPAGE);  // a failure leaves small pages
  return begin + head;
}

void unmap_pages(void* data, std::size_t bytes) { munmap(data, bytes); }

std::size_t default_idle_bytes() {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  return std::min(kMostIdleBytes, pages * page / kMemoryShare);
}

}  // namespace turnout::core
