// Tests TorchExecutor with an imitation of torch's functions, whose barrier can be made slow.
#include "runtime/torch_executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/parallel.h"

namespace turnout::core {
namespace {

std::chrono::milliseconds barrier{0};  // how long a region waits after its last item
int regions = 0;

int run_region(std::int64_t begin, std::int64_t end, std::int64_t, TorchFunctions::Range range,
               void* context) {
  ++regions;
  range(begin, end, context);
  std::this_thread::sleep_for(barrier);
  return 0;
}

int two_threads(std::uint32_t* threads) {
  *threads = 2;
  return 0;
}

class TorchExecutorTest : public testing::Test {
 protected:
  TorchExecutorTest() {
    barrier = {};
    regions = 0;
  }

  // Runs one region and returns whether it ran on the imitation of torch's threads.
  bool runs_on_torch() {
    const int before = regions;
    std::atomic<std::int64_t> sum{0};
    parallel_for(context_, 100, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 99 * 100 / 2);
    return regions > before;
  }

  TorchExecutor executor_{{&run_region, &two_threads}};
  Context context_{{.executor = &executor_}};
};

TEST_F(TorchExecutorTest, LeavesTorchAfterALongWaitForPausesThatDouble) {
  using Clock = std::chrono::steady_clock;
  barrier = std::chrono::milliseconds(5);
  auto start = Clock::now();
  EXPECT_TRUE(runs_on_torch());
  for (const auto pause : {TorchExecutor::kShortestPause, 2 * TorchExecutor::kShortestPause}) {
    auto attempt = Clock::now();
    for (; !runs_on_torch(); attempt = Clock::now())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GE(Clock::now() - start, pause);
    start = attempt;
  }
}

TEST_F(TorchExecutorTest, RunsInlineIfTorchCannotStart) {
  TorchExecutor broken{
      {[](std::int64_t, std::int64_t, std::int64_t, TorchFunctions::Range, void*) { return 1; },
       &two_threads}};
  Context context{{.executor = &broken}};
  std::atomic<int> items{0};
  parallel_for(context, 10, 1,
               [&](std::int64_t begin, std::int64_t end) { items += static_cast<int>(end - begin); });
  EXPECT_EQ(items, 10);
}

}  // namespace
}  // namespace turnout::core
