// A mutex for data that a forked child also uses.
#pragma once

#include <mutex>

namespace turnout::core {

// fork() waits until no other thread holds one of these, so the child finds them unlocked and their data
// consistent. Never destroyed: define them at namespace scope, or in an object that lives until the process
// ends. A thread that holds one must not lock another and must not fork.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static void lock_all();
  static void unlock_all();
  static bool register_handlers();

  std::mutex mutex_;
  bool is_held_by_fork_ = false;  // guarded by mutex_
  ForkMutex* next_;

  static const bool are_handlers_registered;
};

}  // namespace turnout::core
