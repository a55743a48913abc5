// Calls that can be stopped while they are under way, as Ctrl-C does in Python.
//
// A binding that can be asked whether the caller wants the call to end makes an Interruption on the calling
// thread before the operator runs. Ranges of parallel_for and serial_for look at it between each other, long
// loops within a range look at it through a Stop. Only the calling thread asks the binding, at most every
// kInterval: Python, for one, runs signal handlers on its main thread. The other threads read a flag. When no
// thread works on a range any more, the calling thread throws Interrupted. The contents of the outputs are
// then unspecified.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>

namespace turnout::core {

// Its functions are not inline: kernel files, which older CPUs cannot run, would have copies of them.
class Interrupted : public std::exception {
 public:
  Interrupted() = default;
  Interrupted(const Interrupted&) = default;
  Interrupted& operator=(const Interrupted&) = default;
  ~Interrupted() override;
  const char* what() const noexcept override;
};

class Interruption {
 public:
  using Ask = bool (*)(void* user);  // true: the call is to end
  static constexpr std::chrono::milliseconds kInterval{50};

  // Holds for the calls that this thread makes until the destructor.
  Interruption(Ask ask, void* user);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static Interruption* of_this_thread();  // the newest one; nullptr: there is none
  bool in_ranges() const { return in_ranges_; }

  bool is_stopped() const { return is_stopped_.load(std::memory_order_relaxed); }
  // Whether the call is to end. On the calling thread it asks, if the time has come.
  bool look() { return is_stopped() || (pthread_equal(pthread_self(), thread_) != 0 && ask_if_due()); }

  // Marks the calling thread while it runs ranges: a parallel_for within them does not throw.
  class Ranges {
   public:
    explicit Ranges(Interruption* of) : of_(of != nullptr && !of->in_ranges_ ? of : nullptr) {
      if (of_ != nullptr) of_->in_ranges_ = true;
    }
    ~Ranges() {
      if (of_ != nullptr) of_->in_ranges_ = false;
    }
    Ranges(const Ranges&) = delete;
    Ranges& operator=(const Ranges&) = delete;

    // Throws Interrupted if the call is to end, unless these ranges are within others.
    void finish() const {
      if (of_ != nullptr && of_->is_stopped()) throw Interrupted();
    }

   private:
    Interruption* const of_;
  };

 private:
  bool ask_if_due();

  const Ask ask_;
  void* const user_;
  const pthread_t thread_ = pthread_self();
  Interruption* const outer_;  // of a call during which a signal handler makes this one
  std::int64_t due_ = 0;       // when to ask next; 0: no range has ended yet
  bool in_ranges_ = false;
  std::atomic<bool> is_stopped_{false};
};

// What loops within a range look at. Made on the calling thread, and used on all threads of the call.
class Stop {
 public:
  Stop() : call_(Interruption::of_this_thread()) {}
  // For every few milliseconds of work. true: the range returns at once, and need not be complete.
  bool is_asked() const { return call_ != nullptr && call_->look(); }

  static constexpr std::int64_t kGrain = 1 << 20;  // steps: a millisecond, or ten if each misses the cache
  // Calls body(begin, end) for consecutive blocks of first .. last-1. Returns false if it leaves some out
  // because the call is to end.
  template <class Body>
  [[nodiscard]] bool blocks(std::int64_t first, std::int64_t last, const Body& body) const {
    for (std::int64_t begin = first; begin < last; begin += kGrain) {
      if (begin > first && is_asked()) return false;
      body(begin, std::min(begin + kGrain, last));
    }
    return true;
  }

 private:
  Interruption* call_;
};

// On the calling thread: throws Interrupted if the call is to end. Within ranges it does nothing.
void throw_if_interrupted();

// Calls body(begin, end) for consecutive blocks of first .. last-1 on this thread: for loops over all indices
// that are not worth several threads, or whose steps depend on each other. Throws Interrupted like
// parallel_for.
template <class Body>
void serial_for(std::int64_t first, std::int64_t last, const Body& body) {
  for (std::int64_t begin = first; begin < last; begin += Stop::kGrain) {
    if (begin > first) throw_if_interrupted();
    body(begin, std::min(begin + Stop::kGrain, last));
  }
}

}  // namespace turnout::core
