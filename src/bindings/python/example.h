// Valid calls of the registry's operators, and comparisons with their definitions.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace turnout::bindings {

// The arguments of a valid call by name, in the order of the operator's Schema. Arrays are NumPy's.
nanobind::dict example(const std::string& op);

// Compares an operator with its definition on `draws` random calls. Throws Error if a result differs or if
// most calls are refused. Returns how many calls ran.
std::int64_t check_definition(const std::string& op, std::int64_t draws, std::uint64_t seed);

// The operators that have a definition.
nanobind::list defined_operators();

}  // namespace turnout::bindings
