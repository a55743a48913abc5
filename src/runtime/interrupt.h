// Interrupts running calls, as Ctrl-C does in Python.
//
// A binding that can find out whether the caller wants the call to end creates an Interruption on the calling
// thread before the operator runs. parallel_for and serial_for check it between ranges; long loops within a
// range check it through a Stop. Only the calling thread asks the binding, at most every kInterval, because
// Python runs signal handlers on its main thread. The other threads read a flag. When no thread works on a
// range any more, the calling thread throws Interrupted. The contents of the outputs are then unspecified.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>

namespace turnout::core {

// Its functions are not inline: kernel files, which older CPUs cannot run, would contain copies of them.
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
  using Ask = bool (*)(void* user);  // returns true if the call must end
  static constexpr std::chrono::milliseconds kInterval{50};

  // Applies to the calls of this thread until the destructor.
  Interruption(Ask ask, void* user);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static Interruption* of_this_thread();  // the newest one, or nullptr
  bool in_ranges() const { return in_ranges_; }

  bool is_stopped() const { return is_stopped_.load(std::memory_order_relaxed); }
  // Whether the call must end. On the calling thread, asks the binding when kInterval has passed.
  bool look() { return is_stopped() || (pthread_equal(pthread_self(), thread_) != 0 && ask_if_due()); }

  // Marks the calling thread while it runs ranges: a nested parallel_for does not throw.
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

    // Throws Interrupted if the call must end, unless these ranges are nested in others.
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
  Interruption* const outer_;  // of the call that a signal handler has interrupted to make this one
  std::int64_t due_ = 0;       // when to ask next; 0 if no range has ended yet
  bool in_ranges_ = false;
  std::atomic<bool> is_stopped_{false};
};

// The check for loops within a range. Created on the calling thread, used on all threads of the call.
class Stop {
 public:
  Stop() : call_(Interruption::of_this_thread()) {}
  // To be called every few milliseconds. If true, the range must return at once and may be incomplete.
  bool is_asked() const { return call_ != nullptr && call_->look(); }

  static constexpr std::int64_t kGrain = 1 << 20;  // steps: a millisecond, or ten if each misses the cache
  // Calls body(begin, end) for consecutive blocks of first .. last-1. Returns false if it skips some because
  // the call must end.
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

// On the calling thread, throws Interrupted if the call must end. Does nothing within ranges.
void throw_if_interrupted();

// Calls body(begin, end) for consecutive blocks of first .. last-1 on this thread: for loops over all indices
// that are too short for several threads, or whose steps depend on each other. Throws Interrupted like
// parallel_for.
template <class Body>
void serial_for(std::int64_t first, std::int64_t last, const Body& body) {
  for (std::int64_t begin = first; begin < last; begin += Stop::kGrain) {
    if (begin > first) throw_if_interrupted();
    body(begin, std::min(begin + Stop::kGrain, last));
  }
}

}  // namespace turnout::core
