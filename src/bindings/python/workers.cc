// Finds out in the first call whether this process is a worker.
#include "bindings/python/workers.h"

#include <atomic>
#include <cstdlib>

#include "bindings/python/gil.h"
#include "turnout/context.h"

namespace turnout::bindings {
namespace {

std::atomic<bool> is_chosen{false};

bool is_daemonic() {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object process = modules.attr("get")("multiprocessing.process");
  if (process.is_none()) return false;
  const auto attribute = [](nb::handle of, const char* name) {
    return nb::steal(staying_at_exit([&] { return PyObject_GetAttrString(of.ptr(), name); }));
  };
  const nb::object current = attribute(process, "current_process");
  if (!current.is_valid()) nb::raise_python_error();
  const nb::object own = nb::steal(staying_at_exit([&] { return PyObject_CallNoArgs(current.ptr()); }));
  if (!own.is_valid()) nb::raise_python_error();
  const nb::object is_daemon = attribute(own, "daemon");
  if (!is_daemon.is_valid()) nb::raise_python_error();
  return nb::cast<bool>(is_daemon);
}

}  // namespace

void choose_threads_of_process() {
  if (is_chosen.load(std::memory_order_relaxed) || is_chosen.exchange(true)) return;
  if (std::getenv("TURNOUT_NUM_THREADS") != nullptr) return;
  try {
    if (is_daemonic()) default_context().set_threads(1);
  } catch (const std::exception&) {  // another module of that name
  }
}

void threads_are_chosen() { is_chosen.store(true); }

void watch_forks() {
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function([] { is_chosen.store(false); }));
}

}  // namespace turnout::bindings
