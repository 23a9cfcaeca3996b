"""The inner loops of NumPy's generalized ufuncs, as addresses: for transforms, which no library with a C
interface that is installed with NumPy computes. Needs no Numba.

A generalized ufunc has a table of C functions, one for each combination of dtypes:
``void loop(char **arguments, npy_intp *dimensions, npy_intp *steps, void *data)``. NumPy documents them, and
the head of the structure (``PyUFuncObject``), in its C API; they run without Python's lock. What is read here
is compared with what the ufunc says of itself in Python, so another layout is noticed, and NumPy's function
is called instead.

>>> loop = inner_loop("fft", "Dd->D")
>>> loop is None or loop.function != 0
True
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import ctypes
import functools
from typing import Any, NamedTuple

TRANSFORM_HEAD = 128
"""Bytes at the start of the scratch memory of a transform; lines widened to double precision follow."""


class InnerLoop(NamedTuple):
    """The addresses of an inner loop and of the data that is its last argument."""

    function: int
    data: int


class _Ufunc(ctypes.Structure):
    """The members of ``PyUFuncObject`` that follow those of every object."""

    _fields_ = [
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_char)),
    ]


@functools.cache
def inner_loop(name: str, types: str) -> InnerLoop | None:
    """Return the inner loop of a ufunc of NumPy's transforms for dtypes as in its attribute `types`, or None
    if this NumPy has another layout.
    """
    try:
        from numpy.fft import _pocketfft_umath as transforms

        ufunc: Any = getattr(transforms, name)
        position = ufunc.types.index(types)
    except (ImportError, AttributeError, ValueError):
        return None
    record = _Ufunc.from_address(id(ufunc) + object.__basicsize__)
    told = (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes, ufunc.__name__.encode())
    if (record.nin, record.nout, record.nargs, record.ntypes, record.name) != told:
        return None
    start = position * ufunc.nargs
    if record.types[start : start + ufunc.nargs] != _numbers_of(types):
        return None
    function, data = record.functions[position], record.data[position] if record.data else None
    return InnerLoop(function, data or 0) if function else None


def _numbers_of(types: str) -> bytes:
    """NumPy's numbers of the dtypes in a text like ``Dd->D``."""
    import numpy as np

    return bytes(np.dtype(letter).num for letter in types.replace("->", ""))
