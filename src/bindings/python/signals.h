// Work without the GIL that Ctrl-C can end.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "bindings/python/gil.h"
#include "runtime/interrupt.h"

namespace turnout::bindings {

namespace nb = nanobind;

// Whether this thread is the one on which Python runs the handlers of signals.
bool is_main_thread();
void watch_main_thread();  // when the module is loaded

// Runs f() without the GIL. On the main thread, the handlers of signals run every 50 ms meanwhile, with the
// GIL; if one raises an exception, as that of Ctrl-C does, f() ends early and the exception goes on.
template <class F>
void run_without_gil(const F& f) {
  try {
    WithoutGil release;
    std::optional<core::Interruption> interruption;
    const auto ask = [](void* gil) { return static_cast<WithoutGil*>(gil)->run_signal_handlers(); };
    if (is_main_thread()) interruption.emplace(ask, &release);
    f();
  } catch (const core::Interrupted&) {
    throw nb::python_error();  // the exception of the handler
  }
}

}  // namespace turnout::bindings
