// Tests the library's locks across fork(): a child finds them unlocked, whatever other threads did.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "core/sanitizer.h"
#include "runtime/fork_mutex.h"
#include "turnout/aclnn/aclnn_moe_re_routing.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::test {
namespace {

#if !defined(TURNOUT_THREAD_SANITIZER)  // it reports the threads that a forked child has lost as leaks
// Whether a forked child runs f() to its end. An alarm ends a child that waits forever.
bool child_runs(const std::function<void()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    f();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

core::ForkMutex first, second;

TEST(ForkMutex, IsFreeInTheChildOfAProcessThatHeldIt) {
  for (core::ForkMutex* mutex : {&first, &second}) {
    std::atomic<bool> is_held{false};
    int steps = 0;  // guarded by *mutex; even while no thread holds it
    std::thread holder([&] {
      const std::lock_guard lock(*mutex);
      ++steps;
      is_held = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // fork() begins in the meantime
      ++steps;
    });
    while (!is_held) std::this_thread::yield();
    EXPECT_TRUE(child_runs([&] {
      const std::lock_guard lock(*mutex);
      if (steps != 2) _exit(1);
    }));
    holder.join();
    const std::lock_guard lock(*mutex);  // the parent's is unlocked too
  }
}

// Each function takes a lock of the library. A thread calls it continuously while this one forks.
void expect_works_in_children(const std::function<void()>& f) {
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop) f();
  });
  bool all_ran = true;
  for (int i = 0; i < 200 && all_ran; ++i) all_ran = child_runs(f);
  stop = true;
  caller.join();
  EXPECT_TRUE(all_ran);
}

TEST(AfterFork, RecordsAndDirectoriesOfTheCInterface) {
  expect_works_in_children([] { mluOpSetGenCaseDirectory("somewhere"); });
}

TEST(AfterFork, ExecutorsOfTheAclnnInterface) {
  expect_works_in_children([] {
    static int not_an_executor;
    aclDestroyAclOpExecutor(reinterpret_cast<aclOpExecutor*>(&not_an_executor));
  });
}
#endif

}  // namespace
}  // namespace turnout::test
