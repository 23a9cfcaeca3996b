"""Builtin functions of CPython, written as kernels.

CPython calls such a function (METH_FASTCALL) with the address of an array of objects and their number. A
launch takes a quarter of the time of a call through ctypes. The CPython functions used here are part of its
stable ABI. A function that returns RAISED has set an exception.

    def twice(module, arguments, count):              # twice(21) == 42 in Python
        if count != 1:
            return bad_arguments()
        x = integer(arguments, 0)
        return RAISED if error_occurred() else object_of(2 * x)
"""

from __future__ import annotations

from numba.types import int32, int64, void

from tracejit.kernels.compiler.memory import external
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get

RAISED = 0

bytes_of = external("PyBytes_AsString", int64(int64))
integer_of = external("PyLong_AsLongLong", int64(int64))
object_of = external("PyLong_FromLongLong", int64(int64))
append = external("PyList_Append", int32(int64, int64))
bad_argument = external("PyErr_BadArgument", int32())
error_occurred = external("PyErr_Occurred", int64())
pointer_of = external("PyCapsule_GetPointer", int64(int64, int64))
release_gil = external("PyEval_SaveThread", int64())
take_gil = external("PyEval_RestoreThread", void(int64))


@native
def integer(arguments, index):
    """The value of the argument at `index`, an integer. May set an exception."""
    return integer_of(get(arguments, 8 * index))


@native
def argument(arguments, index):
    """The argument at `index`, any object."""
    return get(arguments, 8 * index)


@native
def content(arguments, index):
    """The address of the bytes of the argument at `index`, a bytes object. May set an exception."""
    return bytes_of(get(arguments, 8 * index))


@native
def append_result(result, results):
    """Return `result` and also append it to the list `results`.

    The caller reads it there if an interrupt arrives as the function returns.
    """
    append(results, result)
    return result if error_occurred() == 0 else RAISED


@native
def bad_arguments():
    """Raise a `TypeError`: the number of arguments is wrong."""
    bad_argument()
    return RAISED
