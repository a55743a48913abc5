// Gives worker processes that load data one thread.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

namespace nb = nanobind;

// torch's DataLoader starts several workers, each of which would use all cores. They are daemonic processes
// of multiprocessing, like those of its Pool. Such a process starts with one thread, unless
// TURNOUT_NUM_THREADS is set. A process is marked as daemonic only after its fork or its first imports, so
// the first call checks it. Requires the GIL.
void choose_threads_of_process();
// The caller has chosen a number of threads.
void threads_are_chosen();

void watch_forks();

}  // namespace turnout::bindings
