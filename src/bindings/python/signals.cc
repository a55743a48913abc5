// Finds Python's main thread, which after a fork() is the thread that forked.
#include "bindings/python/signals.h"

#include <atomic>

namespace turnout::bindings {
namespace {

std::atomic<unsigned long> main_thread{0};

void find_main_thread() {
  const nb::object ident = nb::module_::import_("threading").attr("main_thread")().attr("ident");
  main_thread.store(nb::cast<unsigned long>(ident), std::memory_order_relaxed);
}

}  // namespace

bool is_main_thread() { return PyThread_get_thread_ident() == main_thread.load(std::memory_order_relaxed); }

void watch_main_thread() {
  find_main_thread();
  const auto forked = [] { main_thread.store(PyThread_get_thread_ident(), std::memory_order_relaxed); };
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") = nb::cpp_function(forked));
}

}  // namespace turnout::bindings
