// The GIL given up, and taken back in a way that survives the end of the interpreter.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace turnout::bindings {

// Returns f(). If f asks for the GIL after the interpreter has ended, Python ends the thread by unwinding its
// stack. Destructors on the way would drop references without the GIL, while the interpreter is taken apart,
// and functions that are noexcept, as some of nanobind's are, would end the process with a message. So the
// thread waits here until the process has ended. Where Python code of the user may run, f is a call of
// Python's C interface and nothing else.
template <class F>
decltype(auto) staying_at_exit(F&& f) {
  try {
    return std::forward<F>(f)();
#if defined(_LIBCPP_VERSION)  // has no type for the unwinding, which is the only exception that is not of C++
  } catch (...) {
    if (std::current_exception() != nullptr) throw;
    for (;;) pause();
  }
#else
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
#endif
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    staying_at_exit([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Takes the GIL for a moment. true: a handler has raised an exception, which stays pending.
  bool run_signal_handlers() {
    staying_at_exit([this] { PyEval_RestoreThread(state_); });
    const bool has_raised = PyErr_CheckSignals() != 0;
    state_ = PyEval_SaveThread();
    return has_raised;
  }

 private:
  PyThreadState* state_;
};

}  // namespace turnout::bindings
