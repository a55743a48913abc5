// Implements ForkMutex: all mutexes are in a list, locked before a fork() and unlocked after it.
#include "runtime/fork_mutex.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace turnout::core {
namespace {

constinit std::atomic<ForkMutex*> newest{nullptr};

}  // namespace

// Runs when the library is loaded. A function-local static would not work: if a thread forks while another
// one initializes it, the child waits for it forever.
const bool ForkMutex::are_handlers_registered = register_handlers();

bool ForkMutex::register_handlers() { return pthread_atfork(lock_all, unlock_all, unlock_all) == 0; }

ForkMutex::ForkMutex() : next_(newest.load(std::memory_order_relaxed)) {
  while (!newest.compare_exchange_weak(next_, this, std::memory_order_acq_rel)) {
  }
}

void ForkMutex::lock_all() {
  for (ForkMutex* one = newest.load(std::memory_order_acquire); one != nullptr; one = one->next_) {
    one->mutex_.lock();
    one->is_held_by_fork_ = true;
  }
}

// Skips mutexes that were constructed after lock_all().
void ForkMutex::unlock_all() {
  for (ForkMutex* one = newest.load(std::memory_order_acquire); one != nullptr; one = one->next_)
    if (std::exchange(one->is_held_by_fork_, false)) one->mutex_.unlock();
}

}  // namespace turnout::core
