// One thread in the worker processes that data is loaded by.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

namespace nb = nanobind;

// A DataLoader of torch starts several workers, each of which would use all cores. They are daemonic
// processes of multiprocessing, as are those of its Pool: such a process starts with one thread, unless
// TURNOUT_NUM_THREADS is set. A process learns that it is daemonic after its fork, or after its first
// imports, so it is asked at its first call. With the GIL.
void choose_threads_of_process();
// The caller has chosen.
void threads_are_chosen();

void watch_forks();

}  // namespace turnout::bindings
