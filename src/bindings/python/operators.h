// The operators of the registry as functions of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <vector>

#include "bindings/python/function.h"
#include "registry.h"

namespace turnout::bindings {

// Adds a function for every operator that the module does not have yet: to the module for NumPy and whatever
// speaks DLPack, and to its attribute `torch` the same on torch's threads. They take their parameters by
// position, in the order of the operator's Schema, and then `out`; python/turnout gives them names.
void bind_operators(nanobind::module_& module);

// An operator whose function has another name in Python: none is added for it.
void bound_by_hand(std::string_view op);
// An operator that Python's users call by another name, or with further scalars: messages and `turnout ops`
// have those of `function`, which lives as long as the process.
void bound_as(const PythonFunction& function);
const PythonFunction* function_of(const core::Signature& signature);  // nullptr: by its own name
// Operators for which a function was added.
const std::vector<const core::Operator*>& derived_operators();

// One row per operator of the registry, for python/turnout/torch: its schema, and the shapes of its results
// as expressions over sizes.
nanobind::list schemas();

}  // namespace turnout::bindings
