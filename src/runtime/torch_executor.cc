// An Executor over torch_parallel_for.
#include "runtime/torch_executor.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "runtime/parallel.h"

namespace turnout::core {
namespace {

std::atomic<std::int64_t> runs{0};
// A forked child of a process that has used OpenMP hangs in its first parallel region.
std::atomic<bool> forked{false};
std::atomic<Context*> installed{nullptr};

class TorchExecutor : public Executor {
 public:
  explicit TorchExecutor(const TorchFunctions& functions) : functions_(functions) {}

  int threads() const override {
    std::uint32_t threads = 1;
    if (functions_.get_num_threads(&threads) != 0) return 1;
    return static_cast<int>(std::clamp<std::uint32_t>(threads, 1, kMaxThreads));
  }

  void run(int count, void (*work)(void*), void* argument) override {
    if (forked.load(std::memory_order_relaxed)) return run_on_pool(count, work, argument);
    struct Job {
      void (*work)(void*);
      void* argument;
    } job{work, argument};
    // One item per thread. Each item takes ranges until none is left, so it does not matter if torch runs
    // several items on one thread.
    const auto each = [](std::int64_t begin, std::int64_t end, void* context) {
      const Job& one = *static_cast<const Job*>(context);
      for (std::int64_t i = begin; i < end; ++i) one.work(one.argument);
    };
    runs.fetch_add(1, std::memory_order_relaxed);
    if (functions_.parallel_for(0, count, 1, each, &job) != 0) work(argument);  // torch could not start
  }

 private:
  const TorchFunctions functions_;
};

}  // namespace

void use_torch_threads(const TorchFunctions& functions) {
  if (installed.load() != nullptr) return;
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  // Neither is destroyed: calls may come until the process ends.
  installed = new Context({.executor = new TorchExecutor(functions)});
}

Context& torch_context() {
  Context* context = installed.load(std::memory_order_acquire);
  return context != nullptr ? *context : default_context();
}

std::int64_t torch_runs() { return runs.load(); }

}  // namespace turnout::core
