// Checks of calls that are traced, where only the dtypes and shapes of arguments are known.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace turnout::bindings {

namespace nb = nanobind;

// Checks a call of which only dtypes and shapes are known, against the operator's signature. Arguments and
// scalars come by name. What is not named is absent, or has the least value that is allowed; so has a scalar
// that is None, and an element of a vector. `sizes` has those that no shape determines, where they are known.
void check_metadata(const std::string& op, const nb::dict& arguments, const nb::dict& scalars,
                    const nb::dict& sizes);

}  // namespace turnout::bindings
