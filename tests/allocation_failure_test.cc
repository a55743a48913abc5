// Makes every allocation of every operator fail in turn. The call throws Error(alloc_failed) or
// std::bad_alloc, or succeeds without the memory. If it throws, it has written nothing; nothing leaks; the
// next call works. The test has no code per operator.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <optional>
#include <thread>

#include "bindings/last_error.h"
#include "c_broken_call.h"
#include "count_allocations.h"
#include "example_call.h"
#include "registry.h"
#include "runtime/context.h"
#include "runtime/parallel.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kMostAllocations = 1000;  // of one call; guards against an endless test

// Whether the call failed because it ran out of memory.
template <class F>
bool is_out_of_memory(const F& f) {
  try {
    f();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::alloc_failed) << error.what();
  } catch (const std::bad_alloc&) {
  }
  return true;
}

class AllocationFailure : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    // With the log on, calls also allocate their log lines.
    if (GetParam())
      set_log(
          1, [](int, const char*, void*) {}, nullptr);
  }
  void TearDown() override { set_log(0); }
};

TEST_P(AllocationFailure, OfAnyOperatorIsClean) {
  std::int64_t failures = 0;
  for (const core::Operator& op : core::operators()) {
    ExampleCall example(*op.signature, op.example);
    if (op.prepare != nullptr) op.prepare(example.tensors.data());
    const auto scalars = example.scalar_values();
    const auto call = [&](Context& context) { op.invoke(context, example.tensors.data(), scalars.data()); };
    const auto restart = [&] {  // restores inputs that are also outputs
      for (int i = 0; i < example.signature.arguments.count; ++i) example.fill(i, 0);
      example.paint_outputs();
      if (op.prepare != nullptr) op.prepare(example.tensors.data());
    };
    restart();
    const std::string before = example.output_bytes();
    std::optional<Context> context;
    context.emplace(Options{.threads = 2});
    call(*context);
    const std::string expected = example.output_bytes();
    context.reset();

    const std::int64_t live = live_allocations();
    for (std::int64_t which = 0;; ++which) {
      ASSERT_LT(which, kMostAllocations) << op.signature->op;
      restart();
      context.emplace(Options{.threads = 2});
      bool has_failed, has_thrown;
      {
        const FailingAllocation failing(which);
        has_thrown = is_out_of_memory([&] { call(*context); });
        has_failed = failing.has_failed();
      }
      EXPECT_EQ(example.output_bytes(), has_thrown ? before : expected)
          << op.signature->op << ", allocation " << which;
      restart();
      call(*context);
      EXPECT_EQ(example.output_bytes(), expected) << op.signature->op << " after allocation " << which;
      context.reset();
      EXPECT_EQ(live_allocations(), live) << op.signature->op << " leaks after allocation " << which;
      if (!has_failed) break;
      ++failures;
    }
  }
  EXPECT_GT(failures, 50);
}

TEST_P(AllocationFailure, OfACOperatorIsAStatus) {
  int failures = 0;
  for (const COperator& op : core::c_operators()) {
    for (std::int64_t which = 0;; ++which) {
      ASSERT_LT(which, kMostAllocations) << op.signature->op;
      mluOpHandle_t handle = nullptr;
      ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
      BrokenCall call(op);
      const std::size_t workspace = call.workspace_size(op, handle);
      call.example.paint_outputs();
      if (op.prepare != nullptr) op.prepare(call.example.tensors.data());
      const std::string before = call.example.output_bytes();
      bool has_failed = false;
      const mluOpStatus_t status = call.invoke(op, handle, workspace, [&](const auto& run) {
        const FailingAllocation failing(which);
        const mluOpStatus_t result = run();
        has_failed = failing.has_failed();
        return result;
      });
      if (status != MLUOP_STATUS_SUCCESS) {
        EXPECT_EQ(status, MLUOP_STATUS_ALLOC_FAILED) << op.signature->op << ": " << turnoutLastError();
        EXPECT_EQ(call.example.output_bytes(), before) << op.signature->op << ", allocation " << which;
      }
      EXPECT_EQ(call.invoke(op, handle, workspace), MLUOP_STATUS_SUCCESS) << op.signature->op;
      mluOpDestroy(handle);
      if (!has_failed) break;
      ++failures;
    }
  }
  EXPECT_GT(failures, 5);
}

INSTANTIATE_TEST_SUITE_P(Log, AllocationFailure, testing::Bool(),
                         [](const auto& one) { return one.param ? "On" : "Off"; });

// A file that cannot be read because memory runs out is treated as missing.
TEST(AllocationFailures, OfAContextAreClean) {
  bool has_failed = true;
  std::int64_t thrown = 0;
  for (std::int64_t which = 0; has_failed; ++which) {
    ASSERT_LT(which, kMostAllocations);
    const std::int64_t live = live_allocations();
    {
      const FailingAllocation failing(which);
      thrown += is_out_of_memory([] { const Context context; });
      has_failed = failing.has_failed();
    }
    EXPECT_EQ(live_allocations(), live) << "allocation " << which;
  }
  EXPECT_GT(thrown, 0);
}

// The message of a thread's first failing call needs memory. If there is none, a fixed message says so, and
// the next failing call has its own message again.
TEST(AllocationFailures, OfAMessageAreReported) {
  const bindings::LastError error;
  std::thread([&] {
    {
      const FailingAllocation failing(0);
      error.set("first");
      EXPECT_TRUE(failing.has_failed());
    }
    EXPECT_STREQ(error.text(), "turnout: a call failed, and there was no memory for its message");
    error.clear();
    EXPECT_STREQ(error.text(), "");
    error.set("second");
    EXPECT_STREQ(error.text(), "second");
  }).join();
}

// Large scratch memory is mapped; a larger piece replaces a smaller one, which is freed.
TEST(AllocationFailures, OfMappedScratchMemoryAreErrors) {
  Context context({.threads = 1});
  constexpr std::size_t kBytes = 8 << 20;
  const std::int64_t live = live_allocations();
  const auto lease = [&](std::size_t bytes) { core::Scratch(context, bytes).take<char>(1)[0] = 1; };
  for (const std::size_t bytes : {kBytes, 2 * kBytes}) {
    bool has_failed = true;
    for (std::int64_t which = 0; has_failed; ++which) {
      bool has_thrown;
      {
        const FailingAllocation failing(which);
        has_thrown = is_out_of_memory([&] { lease(bytes); });
        has_failed = failing.has_failed();
      }
      EXPECT_EQ(has_thrown, has_failed);
      if (has_thrown) {
        EXPECT_EQ(live_allocations(), live);
      }
    }
    lease(bytes);
  }
  context.trim();
  EXPECT_EQ(live_allocations(), live);
}

std::int64_t sum_of_ranges(int threads) {
  Context context({.threads = threads});
  std::atomic<std::int64_t> sum{0};
  core::parallel_for(context, 100, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
  return sum;
}

TEST(ThreadFailures, LeaveFewerThreads) {
  constexpr int kThreads = 9;  // more than any other test in this program starts
  {
    const FailingThreads failing;
    EXPECT_EQ(sum_of_ranges(kThreads), 4950);
    EXPECT_GT(failing.refused(), 0);
  }
  EXPECT_EQ(sum_of_ranges(kThreads), 4950);
}

// A forked child starts without a pool.
TEST(ThreadFailures, OfThePoolItselfLeaveTheCallingThread) {
  const pid_t child = fork();
  if (child == 0) {
    Context context({.threads = 4});
    std::atomic<std::int64_t> sum{0};
    const FailingAllocation failing(0);
    core::parallel_for(context, 100, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
    _exit(failing.has_failed() && sum == 4950 && sum_of_ranges(4) == 4950 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace turnout::test
