"""DLPack and NumPy capsules with arbitrary contents; needs neither NumPy nor torch."""

import ctypes

_F = ctypes.pythonapi
_F.PyCapsule_New.restype = ctypes.py_object
_F.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

FLOAT, INT = 2, 0
_alive = []  # keeps the memory and names of capsules alive


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ArrayInterface(ctypes.Structure):
    _fields_ = [
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("kind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
    ]


def _numbers(values):
    if values is None:
        return None
    array = (ctypes.c_int64 * max(len(values), 1))(*values)
    _alive.append(array)
    return ctypes.addressof(array)


def _capsule(structure, name):
    _alive.extend((structure, name))
    return _F.PyCapsule_New(ctypes.addressof(structure), name, None)


def memory(values, ctype=ctypes.c_float):
    array = (ctype * len(values))(*values)
    _alive.append(array)
    return ctypes.addressof(array)


def dlpack(data, shape, *, strides=None, ndim=None, code=FLOAT, bits=32, lanes=1, device=1, offset=0):
    """Returns a capsule. `ndim` may differ from the length of the shape, which may be None."""
    ndim = len(shape) if ndim is None else ndim
    tensor = DLTensor(data, device, 0, ndim, code, bits, lanes, _numbers(shape), _numbers(strides), offset)
    return _capsule(Managed(tensor, None, None), b"dltensor")


def array_struct(data, shape, strides, *, nd=None, kind=b"f", itemsize=4, flags=0x701, two=2):
    nd = len(shape) if nd is None else nd
    fields = (two, nd, kind, itemsize, flags, _numbers(shape), _numbers(strides), data, None)
    return _capsule(ArrayInterface(*fields), None)


class Producer:
    """An array that exports the given capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **options):
        return self.capsule


class Imitation:
    """The same with NumPy's protocol."""

    def __init__(self, capsule):
        self.capsule = capsule

    @property
    def __array_struct__(self):
        return self.capsule
