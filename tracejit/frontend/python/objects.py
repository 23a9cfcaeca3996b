"""Objects of CPython and NumPy as machine code accesses them: int64 words, slots of types, memory layouts.

This module relies on the layouts described in `tracejit.kernels.arrays.layout`; `knows_layout` verifies that
this interpreter and this NumPy have them.

>>> offset_of(type("Point", (), {"__slots__": ("x", "y")}), "y") > 0
True
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.kernels.arrays import layout

HEAP_TYPE = 1 << 9 | 1 << 10  # Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_BASETYPE


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


_specs: list[Any] = []  # kept alive: the types created from them refer to them


# -- words ---------------------------------------------------------------------------------------------------


def word(address: int, kind: Any = ctypes.c_int64) -> int:
    """Return the int64 word, or the value of another C type, at an address."""
    value: int = kind.from_address(address).value
    return value


def words(address: int, count: int) -> Any:
    """Return a writable array of `count` int64 words at an address."""
    return (ctypes.c_int64 * count).from_address(address)


def call(address: int) -> int:
    """Call the C function at an address without arguments, with the GIL held, and return its int64 result."""
    result: int = ctypes.PYFUNCTYPE(ctypes.c_int64)(address)()
    return result


def offset_of(kind: type, name: str) -> int:
    """Return the offset of an attribute in the instances of a class with ``__slots__``."""
    instance: Any = object.__new__(kind)
    marker = object()
    setattr(instance, name, marker)
    offsets = [
        offset for offset in range(0, kind.__basicsize__, 8) if word(id(instance) + offset) == id(marker)
    ]
    delattr(instance, name)
    (offset,) = offsets
    return offset


# -- types and functions -------------------------------------------------------------------------------------


def with_slots(name: str, bases: tuple[type, ...], functions: Mapping[int, int]) -> type:
    """Create a type with machine code in its slots.

    functions: addresses of C functions by the numbers of CPython's slots, which are part of its stable ABI.
    """
    rows = [_TypeSlot(number, address) for number, address in functions.items()]
    slots = (_TypeSlot * (len(rows) + 1))(*rows, _TypeSlot(0, None))
    spec = _Spec(name.encode(), 0, 0, HEAP_TYPE, slots)
    _specs.append((slots, spec))
    create = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec), ctypes.py_object)
    created: type = create(("PyType_FromSpecWithBases", ctypes.pythonapi))(ctypes.byref(spec), bases)
    return created


def slot_of(kind: type, number: int) -> int:
    """Return the address of the function in a slot of a type."""
    get_slot = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)
    address: int = get_slot(("PyType_GetSlot", ctypes.pythonapi))(kind, number)
    return address


def numpy_function(number: int) -> int:
    """Return the address of a function of NumPy's C API by its index in the API table."""
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    table = pointer_of(("PyCapsule_GetPointer", ctypes.pythonapi))(
        importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API, None
    )
    return word(table + 8 * number)


# -- layouts -------------------------------------------------------------------------------------------------


def knows_layout() -> bool:
    """Return whether the objects of this interpreter and this NumPy have the layout described in
    `tracejit.kernels.arrays.layout`.
    """
    if (
        sys.implementation.name != "cpython"
        or hasattr(sys, "getobjects")  # a debug build, whose objects have additional links
        or sys.maxsize != (1 << 63) - 1
        or sys.byteorder != "little"
    ):
        return False
    pair, array = (object(), object()), np.zeros((3, 4), np.float32)[1:, ::2]
    address, shape = id(array), word(id(array) + layout.ARRAY_SHAPE)
    strides = word(address + layout.ARRAY_STRIDES)
    checks = [
        (word(id(pair) + layout.OBJECT_TYPE), id(tuple)),
        (word(id(pair) + layout.TUPLE_SIZE), 2),
        (word(id(pair) + layout.TUPLE_ITEMS + 8), id(pair[1])),
        (word(address + layout.ARRAY_DATA), array.ctypes.data),
        (word(address + layout.ARRAY_NDIM, ctypes.c_int32), 2),
        (word(address + layout.ARRAY_DTYPE), id(array.dtype)),
        (word(address + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.WRITEABLE, layout.WRITEABLE),
        (word(address + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.C_CONTIGUOUS, 0),
        (word(shape + 8), 2),
        (word(strides), 16),
    ]
    return all(actual == expected for actual, expected in checks)
