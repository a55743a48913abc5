// Runs work on PyTorch's threads. The library's pool would compete with them, because they spin for
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

// An Executor over torch's threads. OpenMP ends a parallel region at a barrier that also waits for threads
// without work; on a busy machine such a thread may wait milliseconds for a core. The library's pool
// does not wait for threads that have not started. After a region with a long wait, work goes to that pool
// for a while.
class TorchExecutor : public Executor {
 public:
  // A wait is long if it exceeds kLongWait and a quarter of the region's working time. Each long wait doubles
  // the next pause, and each short one halves it.
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

// Makes torch_context() use torch's threads from now on. Called once, with the GIL held.
void use_torch_threads(const TorchFunctions& functions);

// The context of calls from turnout.torch and of calls with torch tensors; the default context if torch's
// functions were not found.
Context& torch_context();

std::int64_t torch_runs();  // how many parallel regions used torch's number of threads, for tests

}  // namespace turnout::core
