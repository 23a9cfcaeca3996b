"""Objects of CPython and NumPy as machine code sees them: words in memory, slots of types, their layout.

Everything here relies on the layout that `tracejit.kernels.arrays.layout` describes; `knows_layout` says
whether this interpreter and this NumPy have it.

>>> offset_of(type("Point", (), {"__slots__": ("x", "y")}), "y") > 0
True
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.kernels.arrays import layout

HEAP_TYPE = 1 << 9 | 1 << 10  # flags: made at run time; may have subclasses


class _TypeSlot(ctypes.Structure):
    """CPython's `PyType_Slot`."""

    _fields_ = (("number", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    """CPython's `PyType_Spec`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_int),
        ("item_size", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_TypeSlot)),
    )


_specs: list[Any] = []  # types that were made refer to them


# -- words ---------------------------------------------------------------------------------------------------


def word(address: int, kind: Any = ctypes.c_int64) -> int:
    """The word at an address."""
    found: int = kind.from_address(address).value
    return found


def words(address: int, count: int) -> Any:
    """`count` words at an address, to be read and written."""
    return (ctypes.c_int64 * count).from_address(address)


def call(address: int) -> int:
    """Call the C function at an address without arguments, holding the GIL; its result is a word."""
    found: int = ctypes.PYFUNCTYPE(ctypes.c_int64)(address)()
    return found


def offset_of(kind: type, name: str) -> int:
    """The offset of an attribute in objects of a class with ``__slots__``."""
    thing: Any = object.__new__(kind)
    mark = object()
    setattr(thing, name, mark)
    found = [at for at in range(0, kind.__basicsize__, 8) if word(id(thing) + at) == id(mark)]
    delattr(thing, name)
    (offset,) = found
    return offset


# -- types and functions -------------------------------------------------------------------------------------


def with_slots(name: str, bases: tuple[type, ...], functions: Mapping[int, int]) -> type:
    """A type with machine code in its slots.

    functions: the addresses of C functions by the numbers of CPython's slots, which its stable ABI fixes.
    """
    rows = [_TypeSlot(number, address) for number, address in functions.items()]
    slots = (_TypeSlot * (len(rows) + 1))(*rows, _TypeSlot(0, None))
    spec = _Spec(name.encode(), 0, 0, HEAP_TYPE, slots)
    _specs.append((slots, spec))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec), ctypes.py_object)
    made: type = make(("PyType_FromSpecWithBases", ctypes.pythonapi))(ctypes.byref(spec), bases)
    return made


def slot_of(kind: type, number: int) -> int:
    """The address of the function in a slot of a type."""
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)
    found: int = get_slot(("PyType_GetSlot", ctypes.pythonapi))(kind, number)
    return found


def numpy_function(number: int) -> int:
    """The address of a function of NumPy's C interface."""
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    table = pointer_of(("PyCapsule_GetPointer", ctypes.pythonapi))(
        importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API, None
    )
    return word(table + 8 * number)


# -- layouts -------------------------------------------------------------------------------------------------


def knows_layout() -> bool:
    """Whether objects of this interpreter and this NumPy are as `tracejit.kernels.arrays.layout` says."""
    if (
        sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
        or hasattr(sys, "getobjects")  # a debug build, with links before each object
        or sys.maxsize != (1 << 63) - 1
        or sys.byteorder != "little"
    ):
        return False
    pair, array = (object(), object()), np.zeros((3, 4), np.float32)[1:, ::2]
    at, shape = id(array), word(id(array) + layout.ARRAY_SHAPE)
    strides = word(at + layout.ARRAY_STRIDES)
    known = [
        (word(id(pair) + layout.OBJECT_TYPE), id(tuple)),
        (word(id(pair) + layout.TUPLE_SIZE), 2),
        (word(id(pair) + layout.TUPLE_ITEMS + 8), id(pair[1])),
        (word(at + layout.ARRAY_DATA), array.ctypes.data),
        (word(at + layout.ARRAY_NDIM, ctypes.c_int32), 2),
        (word(at + layout.ARRAY_DTYPE), id(array.dtype)),
        (word(at + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.WRITEABLE, layout.WRITEABLE),
        (word(at + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.C_CONTIGUOUS, 0),
        (word(shape + 8), 2),
        (word(strides), 16),
    ]
    return all(found == wanted for found, wanted in known)
