// Text of Python objects for messages, whatever the objects do when they are asked for it.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace turnout::bindings {

namespace nb = nanobind;

// str() and repr(), cut to a length that a message can have. What has no UTF-8 is escaped, and an object
// whose text cannot be had is "?".
std::string str_of(nb::handle object);
std::string repr_of(nb::handle object);
std::string type_text(nb::handle object);  // of the object's type
// "-7"; "an integer of 16610 bits" for a number that is too long to print.
std::string integer_text(nb::handle integer);

// With a Python exception pending: one that is none of `type` passes through to the caller; of those that
// are, the exception is cleared. Interrupts and exits are no Exception.
void expect_pending(PyObject* type);
// Likewise for Exception: the first line of what it says.
std::string take_message();

}  // namespace turnout::bindings
