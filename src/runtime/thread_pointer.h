// One pointer per thread.
#pragma once

#include <pthread.h>

namespace turnout::core {

// Not a thread_local: in a library that is loaded late, a thread's first use of one allocates memory, and
// when there is none the C library ends the process. This says so instead.
class ThreadPointer {
 public:
  ThreadPointer() : has_key_(pthread_key_create(&key_, nullptr) == 0) {}
  // at_exit(value) runs when a thread ends whose value is not nullptr, until this object is destroyed: its
  // code may be unloaded then.
  explicit ThreadPointer(void (*at_exit)(void*))
      : has_key_(pthread_key_create(&key_, at_exit) == 0), has_function_(true) {}
  ~ThreadPointer() {
    if (has_key_ && has_function_) pthread_key_delete(key_);
  }
  ThreadPointer(const ThreadPointer&) = delete;
  ThreadPointer& operator=(const ThreadPointer&) = delete;

  // What this thread has set; nullptr: nothing.
  void* get() const { return has_key_ ? pthread_getspecific(key_) : nullptr; }
  // false: there is no memory for it, and get() stays as it was.
  bool set(void* value) const { return has_key_ && pthread_setspecific(key_, value) == 0; }

 private:
  pthread_key_t key_{};
  bool has_key_, has_function_ = false;
};

}  // namespace turnout::core
