// Finds out at the first call whether this process is a worker.
#include "doors/python/workers.h"

#include <atomic>
#include <cstdlib>

#include "turnout/context.h"

namespace turnout::doors {
namespace {

std::atomic<bool> is_chosen{false};

bool is_daemonic() {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object process = modules.attr("get")("multiprocessing.process");
  return !process.is_none() && nb::cast<bool>(process.attr("current_process")().attr("daemon"));
}

}  // namespace

void choose_threads_of_process() {
  if (is_chosen.load(std::memory_order_relaxed) || is_chosen.exchange(true)) return;
  if (std::getenv("TURNOUT_NUM_THREADS") != nullptr) return;
  try {
    if (is_daemonic()) default_context().set_threads(1);
  } catch (const std::exception&) {  // a module of that name that is another: nothing is known
  }
}

void threads_are_chosen() { is_chosen.store(true); }

void watch_forks() {
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          nb::cpp_function([] { is_chosen.store(false); }));
}

}  // namespace turnout::doors
