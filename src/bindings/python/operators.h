// The operators of the registry as functions of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <vector>

#include "bindings/python/function.h"
#include "registry.h"

namespace turnout::bindings {

// Adds a function for every operator that the module does not have yet: to the module for NumPy and DLPack
// arrays, and to its submodule `torch` one that uses torch's threads. They take the parameters of the
// operator's Schema by position, and then `out`; python/turnout names them.
void bind_operators(nanobind::module_& module);

// Marks an operator that has a hand-written function of another name, so that none is added for it.
void bound_by_hand(std::string_view op);
// Marks an operator whose Python function has another name or further scalars: messages and `turnout ops` use
// those of `function`, which must live as long as the process.
void bound_as(const PythonFunction& function);
const PythonFunction* function_of(const core::Signature& signature);  // nullptr: there is none
// The operators for which bind_operators() has added a function.
const std::vector<const core::Operator*>& derived_operators();

// One row per operator for python/turnout/torch: its schema, and the shapes of its results as expressions of
// sizes.
nanobind::list schemas();

}  // namespace turnout::bindings
