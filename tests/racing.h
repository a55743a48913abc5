// Modifies index arrays while a call runs: results are then unspecified, but nothing outside the outputs may
// be written.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "turnout/context.h"
#include "turnout/error.h"

namespace turnout::test {

// Invalid values for an element of an index array.
template <class Index>
std::vector<Index> hostile_values() {
  using Limits = std::numeric_limits<Index>;
  return {-1, -2, 0, 1, 1000, 100'000, 1 << 28, -(1 << 28), Limits::max(), Limits::min(), Limits::max() / 32};
}

// A thread that writes hostile values to random elements and then restores them, until it is destroyed.
template <class Index>
class Flipper {
 public:
  Flipper(Index* values, std::int64_t count) : thread_([this, values, count] { run(values, count); }) {}
  ~Flipper() {
    stop_ = true;
    thread_.join();
  }
  Flipper(const Flipper&) = delete;
  Flipper& operator=(const Flipper&) = delete;

 private:
  void run(Index* values, std::int64_t count) {
    const std::vector<Index> hostile = hostile_values<Index>();
    std::mt19937 random(1);
    while (!stop_) {
      Index* one = values + random() % static_cast<std::uint64_t>(count);
      const Index right = *one;
      __atomic_store_n(one, hostile[random() % hostile.size()], __ATOMIC_RELAXED);
      for (unsigned wait = random() % 512; wait > 0; --wait) __asm__ volatile("" ::: "memory");
      __atomic_store_n(one, right, __ATOMIC_RELAXED);
    }
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// An executor of one thread that reports several. It changes memory before parallel loop number `when` of a
// call, so that in every run of the test an element changes between its check and its use.
class FlippingExecutor : public Executor {
 public:
  std::function<void()> flip;
  int when = 0;
  int loops = 0;

  int threads() const override { return 4; }
  void run(int /*count*/, void (*work)(void* argument), void* argument) override {
    if (loops++ == when) flip();
    work(argument);
  }
};

// Runs f() in a separate process, which must exit normally. Failed expectations there fail here.
inline void expect_survives(const std::function<void()>& f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    f();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Repeats call() for the given time. An Error is as acceptable as a result.
inline void call_for(std::chrono::milliseconds time, const std::function<void()>& call) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    try {
      call();
    } catch (const Error&) {
    }
  }
}

// Runs call(context) once for each hostile value, each of `places` and each of the first `most` parallel
// loops: the value is written to that place before that loop.
template <class Index>
void flip_in_each_loop(Index* values, const std::vector<std::int64_t>& places,
                       const std::function<void(Context& context)>& call, int most = 100) {
  FlippingExecutor executor;
  Context context({.executor = &executor});
  for (const std::int64_t place : places) {
    const Index right = values[place];
    for (const Index hostile : hostile_values<Index>()) {
      executor.flip = [&] { values[place] = hostile; };
      for (executor.when = 0; executor.when < most; ++executor.when) {
        executor.loops = 0;
        try {
          call(context);
        } catch (const Error&) {
        }
        values[place] = right;
        if (executor.loops <= executor.when) break;
      }
    }
  }
}

}  // namespace turnout::test
