// Declarations that are in the limited API of Python 3.12 but not of 3.11, for TURNOUT_LIMITED_API.
#pragma once

#include <Python.h>

extern "C" {
PyObject* PyObject_Vectorcall(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* names);
PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* arguments, size_t count,
                                    PyObject* names);
}
