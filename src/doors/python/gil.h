// The GIL given up, and taken back in a way that survives the end of the interpreter.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace turnout::doors {

// Returns f(). If f asks for the GIL after the interpreter has ended, Python ends the thread by unwinding its
// stack. In functions that are noexcept, as some of nanobind's are, that would end the process with a
// message, so the thread waits here until the process has ended.
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

 private:
  PyThreadState* state_;
};

}  // namespace turnout::doors
