// Counts the allocations of a test program, and makes them fail.
#pragma once

#include <cstdint>

namespace turnout::test {

// Since the start: operator new, C allocations, and mapped pages.
std::int64_t allocations();
std::int64_t live_allocations();  // of these, but for malloc(), those that are not freed

// While it lives, allocation number `which` from now on fails, and no other; 0 is the next one.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t which);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  bool has_failed() const;  // false: there were fewer allocations
};

// While it lives, no thread can be started.
class FailingThreads {
 public:
  FailingThreads();
  ~FailingThreads();
  FailingThreads(const FailingThreads&) = delete;
  FailingThreads& operator=(const FailingThreads&) = delete;
  int refused() const;  // how many have been tried
};

}  // namespace turnout::test
