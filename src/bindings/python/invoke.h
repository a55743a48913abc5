// Calls an operator by name with recorded arguments, for `turnout replay`.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

// `arguments` and `scalars` are lists in the order of the signature. An argument is None, if absent, or a
// tuple (array, dtype, shape, strides). The dtype is Turnout's name, because NumPy does not have all dtypes.
// The array is memory that begins with the first element, or None for a null pointer; the strides, in
// elements, are None for row-major order. A scalar is an integer, a vector a list of integers.
void invoke(const char* op, const nanobind::list& arguments, const nanobind::list& scalars);

}  // namespace turnout::bindings
