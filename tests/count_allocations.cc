// Replaces the program's allocation functions by counting ones. They are in a separate file, because a
// compiler that sees both functions of a replaced pair warns of a mismatch. The linker's option --wrap
// redirects the program's calls of malloc(), free(), mmap(), munmap() and pthread_create() here.
#include "count_allocations.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>

extern "C" {
void* __real_malloc(std::size_t size);
void __real_free(void* p);
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void* at, std::size_t bytes);
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                          void* user);
}

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
std::atomic<std::int64_t> count{0}, live{0}, until_failure{kNever};
std::atomic<int> refused_threads{-1};  // -1 if threads can be started

bool fails() {
  ++count;
  return until_failure.load() != kNever && until_failure.fetch_sub(1) == 0;
}
template <class T>
T* counted(T* memory) {
  live += memory != nullptr;
  return memory;
}

// Blocks of aligned_alloc(), so that free() can distinguish them from those of malloc().
constexpr int kMostAligned = 4096;
std::atomic<void*> aligned[kMostAligned];

bool replace(void* from, void* to) {
  for (auto& slot : aligned) {
    void* expected = from;
    if (slot.load() == from && slot.compare_exchange_strong(expected, to)) return true;
  }
  return false;
}

}  // namespace

namespace turnout::test {

std::int64_t allocations() { return count; }
std::int64_t live_allocations() { return live; }

FailingAllocation::FailingAllocation(std::int64_t which) { until_failure = which; }
FailingAllocation::~FailingAllocation() { until_failure = kNever; }
bool FailingAllocation::has_failed() const { return until_failure.load() < 0; }

FailingThreads::FailingThreads() { refused_threads = 0; }
FailingThreads::~FailingThreads() { refused_threads = -1; }
int FailingThreads::refused() const { return refused_threads; }

}  // namespace turnout::test

void* operator new(std::size_t size) {
  void* p = fails() ? nullptr : __real_malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  return counted(p);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(fails() ? nullptr : __real_malloc(size));
}
void operator delete(void* p) noexcept {
  live -= p != nullptr;
  __real_free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

extern "C" {

void* __wrap_malloc(std::size_t size) { return fails() ? nullptr : __real_malloc(size); }
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  void* p = nullptr;
  if (fails() || posix_memalign(&p, alignment, size) != 0) return nullptr;
  if (!replace(nullptr, p)) std::abort();
  return counted(p);
}
void __wrap_free(void* p) {
  live -= p != nullptr && replace(p, nullptr);
  __real_free(p);
}
void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* p = __real_mmap(at, bytes, protection, flags, file, offset);
  live += p != MAP_FAILED;
  return p;
}
int __wrap_munmap(void* at, std::size_t bytes) {
  --live;
  return __real_munmap(at, bytes);
}
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                          void* user) {
  if (refused_threads.load() < 0) return __real_pthread_create(thread, attributes, start, user);
  ++refused_threads;
  return EAGAIN;
}

}  // extern "C"
