// Checks traced calls, of which only the dtypes and shapes of arguments are known.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace turnout::bindings {

namespace nb = nanobind;

// Checks a call against the operator's signature. Arguments and scalars are passed by name. An argument that
// is not named is absent; a scalar that is not named or is None, also as an element of a vector, has the
// least value that is allowed. `sizes` has the known sizes that no shape determines.
void check_metadata(const std::string& op, const nb::dict& arguments, const nb::dict& scalars,
                    const nb::dict& sizes);

}  // namespace turnout::bindings
