// Releases the GIL, and acquires it again in a way that survives the end of the interpreter.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace turnout::bindings {

// Returns f(). If f requests the GIL after the interpreter has ended, Python ends the thread by unwinding its
// stack. Destructors would then drop references without the GIL during finalisation, and noexcept functions,
// of which nanobind has some, would abort the process. So the thread waits here until the process has ended.
// Where the user's Python code may run, f is a single call of Python's C interface.
template <class F>
decltype(auto) staying_at_exit(F&& f) {
  try {
    return std::forward<F>(f)();
#if defined(_LIBCPP_VERSION)  // has no type for the unwinding, the only exception that is not a C++ one
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

  // Runs pending signal handlers with the GIL. Returns true if one has raised an exception, which stays
  // pending.
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
