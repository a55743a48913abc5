// Text of Python objects for messages, even if their methods fail.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace turnout::bindings {

namespace nb = nanobind;

// str() and repr(), truncated to a length that fits a message. What UTF-8 cannot encode is escaped; an object
// whose str() or repr() fails is "?".
std::string str_of(nb::handle object);
std::string repr_of(nb::handle object);
std::string type_text(nb::handle object);  // of the object's type
// "-7"; "an integer of 16610 bits" for a number that is too long to print.
std::string integer_text(nb::handle integer);

// Requires a pending Python exception: clears it if it is of `type`, and otherwise throws it. Interrupts and
// exits are not of type Exception.
void expect_pending(PyObject* type);
// The same for Exception. Returns the first line of its message.
std::string take_message();

}  // namespace turnout::bindings
