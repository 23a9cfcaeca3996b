"""The machine code of `NDArray`'s operators and indexing (`tracejit.kernels.arrays`) comes into use here.

An operation on a few elements costs a microsecond in Python, more than NumPy takes for it. So the type
`NDArray` gets a base type whose slots are machine code, and gives up the Python methods of the same names:
the slots call these for all that they do not do themselves. What an operation means is said by the methods
only, and whether machine code is used shows in nothing but time.

This happens after `AFTER` operations, so that no short program waits for it: `watch` counts them. Nothing
changes where the layout of objects is not the one that the machine code knows (`_knows_layout`).

    watch(NDArray)            # when the class is made
    install(NDArray)          # what happens then
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.codegen.objects.loader import Recipe, load
from tracejit.config import config
from tracejit.forking import make_lock
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.recording import recorders, thread
from tracejit.frontend.recording.storage import ComputedStorage
from tracejit.ir.types import DTYPES, HALVES
from tracejit.ir.view import NumPyView, View
from tracejit.kernels.arrays import layout

AFTER = 10_000
"""Operations of a process before machine code is loaded: by then they have taken as long as loading it."""

USUAL = eager.SMALL
"""The size of small arrays that the machine code knows. Where it is changed, Python decides."""

SLOTS = {
    5: "subscript",
    3: "assign_subscript",
    7: "add",
    36: "subtract",
    29: "multiply",
    37: "divide",
    14: "add_in_place",
    23: "subtract_in_place",
    18: "multiply_in_place",
    24: "divide_in_place",
    75: "matrix_multiply",
    11: "float",
}
"""Numbers of CPython's slots (its stable ABI), and the functions for them."""

METHODS = [
    *(f"__{kind}{name}__" for name in layout.OPERATORS for kind in ("", "r", "i")),
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__matmul__",
    "__rmatmul__",
    "__float__",
]

MAPPING_SUBSCRIPT, NEW_FROM_DESCR = 5, 94  # numbers of CPython's slot and of NumPy's function
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


_lock = make_lock()
_methods: dict[str, Callable[..., Any]] = {}  # Python's, by their names
_kept: list[Any] = []  # objects that the machine code refers to
_calls: dict[int, Any] = {}  # direct calls in the table of products, by their places
_products: np.ndarray | None = None
_bases: tuple[type, ...] | None = None
_count: Callable[[], int] = itertools.count(1).__next__


def watch(kind: type) -> None:
    """Count the operations of `kind`, the class `NDArray`, until it is time for machine code."""
    _methods.update({name: getattr(kind, name, _refuse_deletion) for name in METHODS})
    for name in METHODS:
        if name in vars(kind):
            setattr(kind, name, _counted(kind, _methods[name]))


def _counted(kind: type, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(*operands: Any) -> Any:
        if not thread.busy and _count() >= AFTER:
            install(kind)
        return method(*operands)

    return counted


def install(kind: type) -> None:
    """Let machine code compute the operators of `kind`, or Python, if that is all there can be.

    An interrupt may end this anywhere: the next call goes on.
    """
    global _bases
    if not _lock.acquire(blocking=False):
        return  # another thread is at it, or this one, which collects garbage
    try:
        if not _knows_layout():
            for name in METHODS:
                if name in vars(kind):
                    setattr(kind, name, _methods[name])
            return
        if _bases is None:
            kernel = load([RECIPE])[0][0]
            addresses = {name.removeprefix("arrays_"): at for name, at in kernel.addresses.items()}
            _kept.append(kernel)
            _fill(ctypes.PYFUNCTYPE(ctypes.c_int64)(addresses["state"])(), kind)
            _bases = (_base(kind, addresses),)
        if kind.__bases__ != _bases:
            kind.__bases__ = _bases
        for name in METHODS:
            if name in vars(kind):
                delattr(kind, name)
    finally:
        _lock.release()


RECIPE = Recipe(
    "arrays",
    ("arrays", "SLOTS"),
    lambda: "from tracejit.kernels.arrays.slots import SLOTS\n",
    entries=("tracejit.kernels.arrays.slots", "SLOTS"),
)


def _refuse_deletion(x: Any, index: Any) -> None:
    raise AttributeError("__delitem__")


def _base(kind: type, addresses: dict[str, int]) -> type:
    """A type with machine code in its slots, between `kind` and its base."""
    rows = [_TypeSlot(number, addresses[name]) for number, name in SLOTS.items()]
    slots = (_TypeSlot * (len(rows) + 1))(*rows, _TypeSlot(0, None))
    spec = _Spec(b"tracejit.Slots", 0, 0, HEAP_TYPE, slots)
    _kept.append((slots, spec))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Spec), ctypes.py_object)
    made: type = make(("PyType_FromSpecWithBases", ctypes.pythonapi))(ctypes.byref(spec), kind.__bases__)
    return made


# -- the state -----------------------------------------------------------------------------------------------


def _fill(address: int, kind: type) -> None:
    """Write all that the machine code knows of this process."""
    global _products
    words = (ctypes.c_int64 * (layout.STATE_BYTES // 8)).from_address(address)
    _products = np.zeros((layout.PLACES, layout.PLACE_BYTES // 8), np.int64)
    small, check = "SMALL", "check"
    objects: dict[int, Any] = {
        layout.NDARRAY: kind,
        layout.COMPUTED: ComputedStorage,
        layout.NUMPY_VIEW: NumPyView,
        layout.NUMPY_ARRAY: np.ndarray,
        layout.INTEGER: int,
        layout.FLOAT: float,
        layout.SLICE: slice,
        layout.NONE: type(None),
        layout.ELLIPSIS: type(...),
        layout.TUPLE: tuple,
        layout.BUSY: recorders,
        layout.EAGER: vars(eager),
        layout.EAGER_KEY: small,
        layout.EAGER_VALUE: USUAL,
        layout.CHECK: vars(config),
        layout.CHECK_KEY: check,
        layout.CHECK_VALUE: False,
        layout.FLOAT32: np.dtype("float32"),
        layout.FLOAT64: np.dtype("float64"),
        layout.POINT: View.of_shape(()),
    }
    objects |= {layout.METHODS + 8 * i: method for i, method in enumerate(_methods.values())}
    copied = [dtype for dtype in DTYPES if dtype not in HALVES][: layout.COPIED_COUNT - 1]
    objects |= {layout.COPIED + 16 * i: dtype for i, dtype in enumerate(copied)}
    _kept.append(objects)
    for offset, thing in objects.items():
        words[offset >> 3] = id(thing)
    for i, dtype in enumerate(copied):
        words[(layout.COPIED >> 3) + 2 * i + 1] = dtype.itemsize
    numbers = {
        layout.STORAGE: _offset(kind, "_storage"),
        layout.VIEW: _offset(kind, "_view"),
        layout.MEMORY: _offset(kind, "_memory"),
        layout.BUFFER: _offset(ComputedStorage, "buffer"),
        layout.FACTS: _offset(NumPyView, "_facts"),
        layout.NEW_ARRAY: _numpy_function(NEW_FROM_DESCR),
        layout.SUBSCRIPT: _slot_of(np.ndarray, MAPPING_SUBSCRIPT),
        layout.SMALL: eager.SMALL,
        layout.PRODUCTS: _products.ctypes.data,
    }
    for offset, number in numbers.items():
        words[offset >> 3] = number


def _offset(kind: type, name: str) -> int:
    """The offset of an attribute in objects of a class with slots."""
    thing: Any = object.__new__(kind)
    mark = object()
    setattr(thing, name, mark)
    found = [at for at in range(0, kind.__basicsize__, 8) if _word(id(thing) + at) == id(mark)]
    delattr(thing, name)
    (offset,) = found
    return offset


def _numpy_function(number: int) -> int:
    """The address of a function of NumPy's C interface."""
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    table = pointer_of(("PyCapsule_GetPointer", ctypes.pythonapi))(
        importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API, None
    )
    return _word(table + 8 * number)


def _slot_of(kind: type, number: int) -> int:
    slot_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)
    found: int = slot_of(("PyType_GetSlot", ctypes.pythonapi))(kind, number)
    return found


# -- layouts -------------------------------------------------------------------------------------------------


def _word(address: int, kind: Any = ctypes.c_int64) -> int:
    found: int = kind.from_address(address).value
    return found


def _knows_layout() -> bool:
    """Whether objects of this interpreter and this NumPy are as `tracejit.kernels.arrays.layout` says."""
    if (
        sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
        or hasattr(sys, "getobjects")  # objects begin with links
        or sys.maxsize != (1 << 63) - 1
        or sys.byteorder != "little"
    ):
        return False
    pair, array = (object(), object()), np.zeros((3, 4), np.float32)[1:, ::2]
    at, shape = id(array), _word(id(array) + layout.ARRAY_SHAPE)
    strides = _word(at + layout.ARRAY_STRIDES)
    known = [
        (_word(id(pair) + layout.OBJECT_TYPE), id(tuple)),
        (_word(id(pair) + layout.TUPLE_SIZE), 2),
        (_word(id(pair) + layout.TUPLE_ITEMS + 8), id(pair[1])),
        (_word(at + layout.ARRAY_DATA), array.ctypes.data),
        (_word(at + layout.ARRAY_NDIM, ctypes.c_int32), 2),
        (_word(at + layout.ARRAY_DTYPE), id(array.dtype)),
        (_word(at + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.WRITEABLE, layout.WRITEABLE),
        (_word(at + layout.ARRAY_FLAGS, ctypes.c_int32) & layout.C_CONTIGUOUS, 0),
        (_word(shape + 8), 2),
        (_word(strides), 16),
    ]
    return all(found == wanted for found, wanted in known)


# -- products ------------------------------------------------------------------------------------------------


def keep_product(a: np.ndarray, b: Any, call: Any) -> None:
    """Let machine code find the direct call for products of arrays of these forms."""
    if _products is None or call.direct is None:
        return
    key = [a.itemsize + 16 * a.ndim + 64 * b.ndim]
    for x in (a, b):
        pad = (0,) * (2 - x.ndim)
        key += [*x.shape, *pad, *x.strides, *pad]
    mix = 0
    for word in key:
        mix = mix * layout.MIX + word & (1 << 64) - 1
    mix ^= (mix - (mix >> 63 << 64)) >> 20
    place = mix & layout.PLACES - 1
    view = View.of_shape(call.shape)
    _products[place] = [*key, call.direct.address, id(view), 0]
    _calls[place] = call, view
