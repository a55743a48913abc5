// Counts the allocations of a test program, and makes them fail.
#pragma once

#include <cstdint>

namespace turnout::test {

// Since the program started: operator new, C allocations, and mapped pages.
std::int64_t allocations();
std::int64_t live_allocations();  // those of them that are not freed, without those of malloc()

// While this object exists, allocation number `which` fails, and no other; 0 is the next one.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t which);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  bool has_failed() const;  // false if there were fewer allocations
};

// While this object exists, no thread can be started.
class FailingThreads {
 public:
  FailingThreads();
  ~FailingThreads();
  FailingThreads(const FailingThreads&) = delete;
  FailingThreads& operator=(const FailingThreads&) = delete;
  int refused() const;  // how many were attempted
};

}  // namespace turnout::test
