// Implements TorchExecutor, an Executor over torch_parallel_for that avoids OpenMP's barriers on a busy
// machine.
#include "runtime/torch_executor.h"

#include <pthread.h>

#include <algorithm>

#include "runtime/parallel.h"

namespace turnout::core {
namespace {

std::atomic<std::int64_t> runs{0};
// A forked child of a process that has used OpenMP hangs in its first parallel region.
std::atomic<bool> forked{false};
std::atomic<Context*> installed{nullptr};

}  // namespace

int TorchExecutor::threads() const {
  std::uint32_t threads = 1;
  if (functions_.get_num_threads(&threads) != 0) return 1;
  return static_cast<int>(std::clamp<std::uint32_t>(threads, 1, kMaxThreads));
}

void TorchExecutor::run(int count, void (*work)(void*), void* argument) {
  if (forked.load(std::memory_order_relaxed)) return run_on_pool(count, work, argument);
  runs.fetch_add(1, std::memory_order_relaxed);
  const Clock::rep start = now();
  if (start < crowded_until_.load(std::memory_order_relaxed)) return run_on_pool(count, work, argument);
  struct Job {
    void (*work)(void*);
    void* argument;
    std::atomic<bool> is_over;           // all ranges have been taken
    std::atomic<Clock::rep> last_range;  // when the last range was finished
  } job{work, argument, false, start};
  // One item per thread. Each item takes ranges until none is left, so torch may run several items on one
  // thread, and a late item has nothing to do.
  const auto each = [](std::int64_t begin, std::int64_t end, void* context) {
    Job& one = *static_cast<Job*>(context);
    for (std::int64_t i = begin; i < end && !one.is_over.load(std::memory_order_relaxed); ++i) {
      one.work(one.argument);
      const Clock::rep finished = now();
      one.is_over.store(true, std::memory_order_relaxed);
      Clock::rep last = one.last_range.load(std::memory_order_relaxed);
      while (last < finished && !one.last_range.compare_exchange_weak(last, finished)) {
      }
    }
  };
  if (functions_.parallel_for(0, count, 1, each, &job) != 0) return work(argument);  // torch could not start
  const Clock::rep last = job.last_range.load();
  judge(last - start, now() - last);
}

void TorchExecutor::judge(Clock::rep worked, Clock::rep waited) {
  const Clock::rep pause = pause_.load(std::memory_order_relaxed);
  const bool is_long = waited > ticks(kLongWait) && waited > worked / 4;
  if (is_long) crowded_until_.store(now() + pause, std::memory_order_relaxed);
  pause_.store(
      is_long ? std::min(2 * pause, ticks(kLongestPause)) : std::max(pause / 2, ticks(kShortestPause)),
      std::memory_order_relaxed);
}

void use_torch_threads(const TorchFunctions& functions) {
  if (installed.load() != nullptr) return;
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  // Neither is destroyed: calls may arrive until the process ends.
  installed = new Context({.executor = new TorchExecutor(functions)});
}

Context& torch_context() {
  Context* context = installed.load(std::memory_order_acquire);
  return context != nullptr ? *context : default_context();
}

std::int64_t torch_runs() { return runs.load(); }

}  // namespace turnout::core
