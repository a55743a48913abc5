// New Python arrays for results.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "bindings/python/import.h"

namespace turnout::bindings {

struct NewArray {
  nb::object object;
  Tensor tensor;
};

// An uninitialised array of the given shape: torch's if `like` is, otherwise NumPy's. Large ones use the
// output cache. `before`: bytes of results that the same call has allocated, whose pages may not be in use
// yet. Throws turnout::Error about `what`.
NewArray new_array(nb::handle like, const ArrayType& like_type, DType dtype, const std::int64_t* shape,
                   int rank, const std::string_view (&what)[2], std::size_t before);

// The type that owns the memory of large NumPy results.
void bind_output_memory(nb::module_& module);

}  // namespace turnout::bindings
