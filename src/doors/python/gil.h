// The GIL given up, and taken back in a way that survives the end of the interpreter.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

namespace turnout::doors {

// What f gives. A thread that wants the GIL when the interpreter has ended is ended by Python, which unwinds
// its stack; frames that must not throw, and nanobind's are such, would end the process with a message. Such
// a thread stays here instead until the process is gone.
template <class F>
decltype(auto) staying_at_exit(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    staying_at_exit([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace turnout::doors
