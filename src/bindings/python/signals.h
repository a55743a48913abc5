// Runs work without the GIL that Ctrl-C can interrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "bindings/python/gil.h"
#include "runtime/interrupt.h"

namespace turnout::bindings {

namespace nb = nanobind;

// Whether this is the thread on which Python runs signal handlers.
bool is_main_thread();
void watch_main_thread();  // called when the module is loaded

// Runs f() without the GIL. On the main thread, signal handlers run every 50 ms with the GIL; if one raises
// an exception, as that of Ctrl-C does, f() ends early and the exception propagates.
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
