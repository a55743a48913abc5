// Declarations that the limited API of Python 3.12 has and that of 3.11 lacks, for TURNOUT_LIMITED_API.
#pragma once

#include <Python.h>

extern "C" {
PyObject* PyObject_Vectorcall(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* names);
PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* arguments, size_t count,
                                    PyObject* names);
}
