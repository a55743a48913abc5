// Makes calls with torch tensors use torch's threads.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

namespace nb = nanobind;

// Makes torch_context() use the threads of the imported module `torch`, if this release of torch has the
// functions for it. Requires the GIL; a second call does nothing.
void find_torch_threads(nb::handle torch);

}  // namespace turnout::bindings
