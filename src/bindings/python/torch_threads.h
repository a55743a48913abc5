// Work of calls with torch tensors on torch's threads.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

namespace nb = nanobind;

// From now on torch_context() works on the threads of the imported module `torch`. Releases of torch without
// the functions for it leave calls the library's own threads. With the GIL; a second call does nothing.
void find_torch_threads(nb::handle torch);

}  // namespace turnout::bindings
