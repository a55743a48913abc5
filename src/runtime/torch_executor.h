// Work on PyTorch's threads. The library's pool would compete with torch's threads, which spin for
// milliseconds after each torch operator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

// Functions of libtorch_cpu's stable C interface; they return 0 for success.
struct TorchFunctions {
  using Range = void (*)(std::int64_t begin, std::int64_t end, void* context);
  int (*parallel_for)(std::int64_t begin, std::int64_t end, std::int64_t grain, Range range, void* context);
  int (*get_num_threads)(std::uint32_t* threads);
};

// Runs work on torch's threads. OpenMP ends a parallel region at a barrier that also waits for threads that
// had nothing to do; on a busy machine such a thread may wait milliseconds for a core. The library's pool
// does not wait for threads that have not started. After a region that waited long, work goes to that pool
// for a while.
class TorchExecutor : public Executor {
 public:
  // A wait is long if it exceeds kLongWait and a quarter of the time in which the region worked. Each long
  // wait doubles the next pause, and each short one halves it.
  static constexpr std::chrono::microseconds kLongWait{250};
  static constexpr std::chrono::milliseconds kShortestPause{100}, kLongestPause{5000};

  explicit TorchExecutor(const TorchFunctions& functions) : functions_(functions) {}

  int threads() const override;
  void run(int count, void (*work)(void*), void* argument) override;

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }
  static constexpr Clock::rep ticks(Clock::duration duration) { return duration.count(); }
  void judge(Clock::rep worked, Clock::rep waited);

  const TorchFunctions functions_;
  std::atomic<Clock::rep> crowded_until_{0};
  std::atomic<Clock::rep> pause_{ticks(kShortestPause)};
};

// From now on torch_context() works on torch's threads. Called once, with the GIL held.
void use_torch_threads(const TorchFunctions& functions);

// The context of calls from turnout.torch and of those with torch tensors; the default one when torch's
// functions were not found.
Context& torch_context();

std::int64_t torch_runs();  // how many parallel regions followed torch's number of threads, for the tests

}  // namespace turnout::core
