// Replaces the program's allocation functions by counting ones. In a separate file, because a compiler that
// sees both functions of a replaced pair warns of a mismatch.
#include "count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> count{0};
}  // namespace

std::int64_t turnout::test::allocations() { return count; }

void* operator new(std::size_t size) {
  ++count;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++count;
  void* p = nullptr;
  return posix_memalign(&p, alignment, size) == 0 ? p : nullptr;
}
