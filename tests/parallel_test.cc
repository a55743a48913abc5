// Tests parallel_for and its pool: coverage, nesting, several callers, fork(), idle workers.
#include "runtime/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "control_register.h"
#include "runtime/interrupt.h"
#include "sanitizer.h"
#include "turnout/error.h"

namespace turnout::core {
namespace {

TEST(ParallelFor, CoversEachItemOnceInFixedRanges) {
  for (int threads : {1, 2, 5}) {
    Context context({.threads = threads});
    for (std::int64_t n : {0, 1, 7, 1000}) {
      for (std::int64_t grain : {0, 1, 3, 1000, 5000}) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
        std::mutex mutex;
        std::set<std::pair<std::int64_t, std::int64_t>> ranges;
        parallel_for(context, n, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
          std::lock_guard lock(mutex);
          ranges.emplace(begin, end);
        });
        for (auto& hit : hits) EXPECT_EQ(hit, 1);
        const std::int64_t step = std::max<std::int64_t>(grain, 1);
        for (auto [begin, end] : ranges) {
          EXPECT_EQ(begin % step, 0);
          EXPECT_EQ(end, std::min(begin + step, n));
        }
      }
    }
  }
}

TEST(ParallelFor, UsesSeveralThreads) {
  Context context({.threads = 2});
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(context, 50, 1, [&](std::int64_t, std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 2u);
}

// Bodies that run at the same time have different worker numbers, all below threads().
TEST(ParallelFor, WorkersAreNumbered) {
  for (int threads : {1, 2, 5}) {
    Context context({.threads = threads});
    std::vector<std::atomic<bool>> busy(static_cast<std::size_t>(threads));
    std::atomic<int> shared{0}, beyond{0};
    parallel_for(context, 40, 1, [&](std::int64_t, std::int64_t, int worker) {
      if (worker < 0 || worker >= threads) {
        ++beyond;
        return;
      }
      shared += busy[static_cast<std::size_t>(worker)].exchange(true);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      busy[static_cast<std::size_t>(worker)] = false;
    });
    EXPECT_EQ(shared, 0);
    EXPECT_EQ(beyond, 0);
    // The caller can limit the workers to fewer than the context has.
    std::atomic<int> most{0};
    parallel_for(
        context, 40, 1,
        [&](std::int64_t, std::int64_t, int worker) {
          if (worker > most) most = worker;
        },
        2);
    EXPECT_LT(most, 2);
    // A nested call has one worker.
    parallel_for(context, 4, 1, [&](std::int64_t, std::int64_t) {
      parallel_for(context, 4, 1, [&](std::int64_t, std::int64_t, int worker) { beyond += worker; });
    });
    EXPECT_EQ(beyond, 0);
  }
}

TEST(ParallelFor, OneRangeStaysOnTheCallersThread) {
  Context context({.threads = 5});
  const auto self = std::this_thread::get_id();
  parallel_for(context, 10, 10,
               [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
}

TEST(ParallelFor, NestedCallsRunInline) {
  Context context({.threads = 2});
  std::atomic<int> count{0};
  parallel_for(context, 4, 1, [&](std::int64_t, std::int64_t) {
    const auto self = std::this_thread::get_id();
    parallel_for(context, 8, 1, [&](std::int64_t, std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++count;
    });
  });
  EXPECT_EQ(count, 32);
}

TEST(ParallelFor, ServesSeveralCallersAndContextsAtOnce) {
  Context shared({.threads = 3});
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      Context own({.threads = 2 + c});
      for (int repeat = 0; repeat < 50; ++repeat) {
        Context& context = repeat % 2 ? shared : own;
        parallel_for(context, 64, 1, [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 64);
}

#if !defined(TURNOUT_THREAD_SANITIZER)  // it does not allow threads in a forked child
TEST(ParallelFor, WorksInAForkedChild) {
  Context context({.threads = 2});
  const auto sum = [&] {
    std::atomic<std::int64_t> total{0};
    parallel_for(context, 100, 1, [&](std::int64_t begin, std::int64_t) { total += begin; });
    return total.load();
  };
  EXPECT_EQ(sum(), 4950);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const pid_t child = fork();
    if (child == 0) _exit(sum() == 4950 && sum() == 4950 ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(sum(), 4950);
}
#endif

TEST(ParallelFor, AnIdlePoolBurnsNoCpu) {
  Context context({.threads = 5});
  parallel_for(context, 100, 1, [](std::int64_t, std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the workers sleep
  const auto cpu_seconds = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.02);  // four spinning workers would use 0.4 or more
}

TEST(ParallelFor, SetsTheFloatingPointEnvironmentAndRestoresIt) {
  const unsigned before = test::control_register(), odd = test::kDefaultControl | test::kFlush;
  test::set_control_register(odd);
  Context context({.threads = 2});
  std::atomic<int> wrong{0};
  parallel_for(context, 64, 1, [&](std::int64_t, std::int64_t) {
    wrong += test::control_register() != test::kDefaultControl;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(test::control_register(), odd);
  test::set_control_register(before);
}

// An Ask that returns true from the second time on. It must be called at most every 50 ms, by the caller.
struct SecondTime {
  std::thread::id caller = std::this_thread::get_id();
  int asked = 0, elsewhere = 0;
  static bool ask(void* user) {
    auto& self = *static_cast<SecondTime*>(user);
    self.elsewhere += std::this_thread::get_id() != self.caller;
    return ++self.asked >= 2;
  }
};

void sleep_a_millisecond() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST(Interruption, EndsACallBetweenItsRanges) {
  for (int threads : {1, 2, 5}) {
    Context context({.threads = threads});
    std::atomic<int> ranges{0};
    const auto call = [&](int count) {
      parallel_for(context, count, 1, [&](std::int64_t, std::int64_t) {
        sleep_a_millisecond();
        ++ranges;
      });
    };
    SecondTime user;
    {
      const Interruption interruption(&SecondTime::ask, &user);
      EXPECT_THROW(call(1'000'000), Interrupted);
    }
    EXPECT_EQ(user.asked, 2);
    EXPECT_EQ(user.elsewhere, 0);
    EXPECT_GT(ranges, 0);
    EXPECT_LT(ranges, 100'000);
    ranges = 0;
    call(20);  // the pool still works
    EXPECT_EQ(ranges, 20);
  }
}

// A worker has one long range, and the calling thread waits for it.
TEST(Interruption, EndsLoopsWithinARange) {
  Context context({.threads = 2});
  SecondTime user;
  const Interruption interruption(&SecondTime::ask, &user);
  const Stop stop;
  std::atomic<bool> has_started{false};
  std::atomic<int> ended{0};
  const auto wait_until_asked = [&](std::int64_t, std::int64_t) {
    if (std::this_thread::get_id() == user.caller) {
      while (!has_started) sleep_a_millisecond();
    } else {
      has_started = true;
      while (!stop.is_asked()) sleep_a_millisecond();
    }
    ++ended;
  };
  EXPECT_THROW(parallel_for(context, 2, 1, wait_until_asked), Interrupted);
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(user.elsewhere, 0);
}

TEST(Interruption, EndsSerialLoopsAndSortsOutsideOfRangesOnly) {
  SecondTime user;
  const Interruption interruption(&SecondTime::ask, &user);
  std::int64_t steps = 0;
  const auto loop = [&] {
    serial_for(0, 1'000'000 * Stop::kGrain, [&](std::int64_t begin, std::int64_t end) {
      sleep_a_millisecond();
      steps += end - begin;
    });
  };
  EXPECT_THROW(loop(), Interrupted);
  EXPECT_GT(steps, 0);
  EXPECT_LT(steps, 100'000 * Stop::kGrain);
  EXPECT_THROW(throw_if_interrupted(), Interrupted);
  // Within a range nothing is thrown and nothing is skipped: the range may rely on it.
  Context context({.threads = 1});
  steps = 0;
  const auto nested = [&](std::int64_t, std::int64_t) {
    serial_for(0, 3 * Stop::kGrain, [&](std::int64_t begin, std::int64_t end) { steps += end - begin; });
    parallel_for(context, 1, 1, [&](std::int64_t, std::int64_t) { ++steps; });
  };
  EXPECT_THROW(parallel_for(context, 1, 1, nested), Interrupted);
  EXPECT_EQ(steps, 3 * Stop::kGrain + 1);
}

// A signal handler may itself make calls.
TEST(Interruption, OfACallWithinAnAsk) {
  struct Nested {
    Context context{{.threads = 2}};
    std::atomic<int> ranges{0};
    static bool ask(void* user) {
      auto& self = *static_cast<Nested*>(user);
      const Interruption inner([](void*) { return false; }, nullptr);
      parallel_for(self.context, 100, 1, [&](std::int64_t, std::int64_t) { ++self.ranges; });
      return true;
    }
  } user;
  const Interruption interruption(&Nested::ask, &user);
  const auto call = [&] {
    parallel_for(user.context, 1'000'000, 1, [](std::int64_t, std::int64_t) { sleep_a_millisecond(); });
  };
  EXPECT_THROW(call(), Interrupted);
  EXPECT_EQ(user.ranges, 100);
}

class Serial : public Executor {
 public:
  int threads() const override { return 7; }
  void run(int count, void (*work)(void*), void* argument) override {
    ++runs;
    last_count = count;
    work(argument);
  }
  int runs = 0, last_count = 0;
};

TEST(ParallelFor, RunsOnAGivenExecutor) {
  Serial executor;
  Context context({.executor = &executor});
  EXPECT_EQ(context.threads(), 7);
  std::int64_t sum = 0;
  parallel_for(context, 10, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
  EXPECT_EQ(sum, 45);
  EXPECT_EQ(executor.runs, 1);
  EXPECT_EQ(executor.last_count, 7);
}

TEST(ParallelFor, AnExecutorIsAskedForAsManyThreadsAsThereAreRanges) {
  Serial executor;
  Context context({.executor = &executor});
  parallel_for(context, 2, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(executor.last_count, 2);
  parallel_for(
      context, 20, 1, [](std::int64_t, std::int64_t) {}, /*limit=*/3);
  EXPECT_EQ(executor.last_count, 3);
  parallel_for(context, 1, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(executor.runs, 2);
}

TEST(ParallelFor, SetThreadsCapsTheThreadsOfAnExecutor) {
  Serial executor;
  Context context({.threads = 4, .executor = &executor});
  EXPECT_EQ(context.threads(), 4);
  parallel_for(context, 20, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(executor.last_count, 4);
  context.set_threads(1);
  EXPECT_EQ(context.threads(), 1);
  parallel_for(context, 20, 1, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(executor.runs, 1);
  context.set_threads(100);  // more than the executor has
  EXPECT_EQ(context.threads(), 7);
  context.set_threads(0);
  EXPECT_EQ(context.threads(), 7);
  EXPECT_THROW(context.set_threads(-1), Error);
  ASSERT_EQ(setenv("TURNOUT_NUM_THREADS", "3", 1), 0);  // applies only to the library's own pool
  context.set_threads(0);
  EXPECT_EQ(context.threads(), 7);
  unsetenv("TURNOUT_NUM_THREADS");
}

TEST(Threads, AreCheckedAndReadFromTheEnvironment) {
  EXPECT_THROW(Context({.threads = -1}), Error);
  EXPECT_THROW(Context({.threads = kMaxThreads + 1}), Error);
  ASSERT_EQ(setenv("TURNOUT_NUM_THREADS", "3", 1), 0);
  EXPECT_EQ(Context().threads(), 3);
  ASSERT_EQ(setenv("TURNOUT_NUM_THREADS", "3x", 1), 0);
  try {
    Context context;
    FAIL() << "a bad TURNOUT_NUM_THREADS was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "TURNOUT_NUM_THREADS is '3x', expected 1 .. 1024");
  }
  unsetenv("TURNOUT_NUM_THREADS");
}

}  // namespace
}  // namespace turnout::core
