"""The machine code of `NDArray`'s operators and indexing (`tracejit.kernels.arrays`) comes into use here.

An operation on a few elements costs a microsecond in Python, more than NumPy takes for it. So the type
`NDArray` gets a base type whose slots are machine code, and gives up the Python methods of the same names:
the slots call these for all that they do not do themselves. What an operation means is said by the methods
only, and whether machine code is used shows in nothing but time.

This happens after `AFTER` operations, so that no short program waits for it: `watch` counts them. Nothing
changes where the layout of objects is not the one that the machine code knows (`objects.knows_layout`).

    watch(NDArray)            # when the class is made
    install(NDArray)          # what happens then
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.codegen.objects.loader import Recipe, load
from tracejit.config import config
from tracejit.forking import make_lock
from tracejit.frontend.python import objects
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
        if not objects.knows_layout():
            for name in METHODS:
                if name in vars(kind):
                    setattr(kind, name, _methods[name])
            return
        if _bases is None:
            kernel = load([RECIPE])[0][0]
            addresses = {name.removeprefix("arrays_"): at for name, at in kernel.addresses.items()}
            _kept.append(kernel)
            _fill(objects.call(addresses["state"]), kind)
            functions = {number: addresses[name] for number, name in SLOTS.items()}
            _bases = (objects.with_slots("tracejit.Slots", kind.__bases__, functions),)
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


# -- the state -----------------------------------------------------------------------------------------------


def _fill(address: int, kind: type) -> None:
    """Write all that the machine code knows of this process."""
    global _products
    words = objects.words(address, layout.STATE_BYTES // 8)
    _products = np.zeros((layout.PLACES, layout.PLACE_BYTES // 8), np.int64)
    small, check = "SMALL", "check"
    known: dict[int, Any] = {
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
    known |= {layout.METHODS + 8 * i: method for i, method in enumerate(_methods.values())}
    copied = [dtype for dtype in DTYPES if dtype not in HALVES][: layout.COPIED_COUNT - 1]
    known |= {layout.COPIED + 16 * i: dtype for i, dtype in enumerate(copied)}
    _kept.append(known)
    for offset, thing in known.items():
        words[offset >> 3] = id(thing)
    for i, dtype in enumerate(copied):
        words[(layout.COPIED >> 3) + 2 * i + 1] = dtype.itemsize
    numbers = {
        layout.STORAGE: objects.offset_of(kind, "_storage"),
        layout.VIEW: objects.offset_of(kind, "_view"),
        layout.MEMORY: objects.offset_of(kind, "_memory"),
        layout.BUFFER: objects.offset_of(ComputedStorage, "buffer"),
        layout.FACTS: objects.offset_of(NumPyView, "_facts"),
        layout.NEW_ARRAY: objects.numpy_function(NEW_FROM_DESCR),
        layout.SUBSCRIPT: objects.slot_of(np.ndarray, MAPPING_SUBSCRIPT),
        layout.SMALL: eager.SMALL,
        layout.PRODUCTS: _products.ctypes.data,
    }
    for offset, number in numbers.items():
        words[offset >> 3] = number


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
