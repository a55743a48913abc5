// The Signatures of operators and of Python functions, as lists of dictionaries.
#pragma once

#include <nanobind/nanobind.h>

namespace turnout::bindings {

nanobind::list signatures();  // of the C++ operators, for the tables of the docs
nanobind::list functions();   // the same with Python's names and arguments, for `turnout ops`

}  // namespace turnout::bindings
