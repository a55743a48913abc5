// parallel_for: all multithreading goes through it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <type_traits>

#include "core/grain.h"
#include "runtime/context.h"
#include "runtime/interrupt.h"
#include "simd/fp_environment.h"

namespace turnout::core {

inline constexpr int kMaxThreads = 1024;

// Below this many moved bytes a second thread does not pay: waking it takes 35 to 45 us, in which one core
// moves about a megabyte.
inline constexpr std::int64_t kParallelBytes = (std::int64_t{3} << 19) / kGrainDivisor;

// TURNOUT_NUM_THREADS, or the CPUs that the affinity mask and the container's CPU quota allow.
int automatic_threads();

// Runs work(argument) on the calling thread and on up to threads - 1 workers of the process-wide pool. Uses
// fewer workers if threads cannot be started.
void run_on_pool(int threads, void (*work)(void*), void* argument);

// Marks this thread while it runs ranges: nested calls run inline.
class InsideParallel {
 public:
  InsideParallel();
  ~InsideParallel();
  InsideParallel(const InsideParallel&) = delete;
  InsideParallel& operator=(const InsideParallel&) = delete;

  // False if the thread was marked before, or if there is no memory for the mark.
  bool is_marked() const { return is_marked_; }

 private:
  bool is_marked_;
};

// Measures, for the log, how long a call of this thread is in loops that several threads can share. Objects
// may be nested: only the newest one measures.
class SharedLoops {
 public:
  SharedLoops();
  ~SharedLoops();
  SharedLoops(const SharedLoops&) = delete;
  SharedLoops& operator=(const SharedLoops&) = delete;

  double microseconds() const { return microseconds_; }

  // Lasts as long as a loop. A loop within another is part of that one.
  class Loop {
   public:
    explicit Loop(bool is_shared);
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

   private:
    SharedLoops* of_ = nullptr;
    std::chrono::steady_clock::time_point start_;
  };

 private:
  SharedLoops* const outer_;
  bool is_inside_ = false;
  double microseconds_ = 0;
};

// Calls body(begin, end) for consecutive ranges of `grain` items that cover 0 .. n-1; the last range may be
// shorter. The ranges depend only on n and grain, not on the threads. Threads take one range at a time, so a
// thread that loses its core delays one range. A nested parallel_for runs inline. body must not throw. It may
// also be body(begin, end, worker), where workers that run at the same time have different numbers below
// `limit`. A caller that has memory for `limit` workers must pass it: the context's number of threads may
// change at any time. If the call must end early, throws Interrupted once no range is running.
template <class Body>
void parallel_for(Context& context, std::int64_t n, std::int64_t grain, const Body& body,
                  int limit = kMaxThreads) {
  struct Job {
    std::atomic<std::int64_t> next{0};
    std::atomic<int> workers{0};
    std::int64_t n, grain;
    int limit;
    const Body* body;
    Interruption* stop;

    static void work(void* argument) noexcept {
      auto& job = *static_cast<Job*>(argument);
      const FpEnvironment environment;
      const int worker = job.workers.fetch_add(1, std::memory_order_relaxed);
      if (worker >= job.limit) return;
      for (;;) {
        const std::int64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
        if (begin >= job.n || (begin > 0 && job.stop != nullptr && job.stop->look())) return;
        const std::int64_t end = std::min(begin + job.grain, job.n);
        if constexpr (std::is_invocable_v<const Body&, std::int64_t, std::int64_t, int>) {
          (*job.body)(begin, end, worker);
        } else {
          (*job.body)(begin, end);
        }
      }
    }
  };
  if (n <= 0) return;
  Job job;
  job.n = n;
  job.grain = std::max<std::int64_t>(grain, 1);
  job.limit = limit;
  job.body = &body;
  job.stop = Interruption::of_this_thread();
  const Interruption::Ranges interruptible(job.stop);

  const std::int64_t ranges = (n - 1) / job.grain + 1;
  const auto threads =
      static_cast<int>(std::min({std::int64_t{context.threads()}, std::int64_t{limit}, ranges}));
  const auto run = [&] {
    if (threads <= 1) return Job::work(&job);
    const InsideParallel mark;
    if (!mark.is_marked()) {
      Job::work(&job);
    } else if (Executor* executor = context.state().executor) {
      executor->run(threads, &Job::work, &job);
    } else {
      run_on_pool(threads, &Job::work, &job);
    }
  };
  {
    const SharedLoops::Loop loop(ranges > 1);
    run();
  }
  interruptible.finish();
}

}  // namespace turnout::core
