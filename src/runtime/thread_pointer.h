// One pointer per thread.
#pragma once

#include <pthread.h>

namespace turnout::core {

// Not a thread_local: in a library loaded with dlopen(), a thread's first use of one allocates memory, and
// the C library aborts the process if there is none. This class returns false instead.
class ThreadPointer {
 public:
  ThreadPointer() : has_key_(pthread_key_create(&key_, nullptr) == 0) {}
  // When a thread ends whose value is not nullptr, at_exit(value) runs, unless this object was destroyed: its
  // code may have been unloaded.
  explicit ThreadPointer(void (*at_exit)(void*))
      : has_key_(pthread_key_create(&key_, at_exit) == 0), has_function_(true) {}
  ~ThreadPointer() {
    if (has_key_ && has_function_) pthread_key_delete(key_);
  }
  ThreadPointer(const ThreadPointer&) = delete;
  ThreadPointer& operator=(const ThreadPointer&) = delete;

  // The value that this thread has set, or nullptr.
  void* get() const { return has_key_ ? pthread_getspecific(key_) : nullptr; }
  // Returns false, and changes nothing, if there is no memory for it.
  bool set(void* value) const { return has_key_ && pthread_setspecific(key_, value) == 0; }

 private:
  pthread_key_t key_{};
  bool has_key_, has_function_ = false;
};

}  // namespace turnout::core
