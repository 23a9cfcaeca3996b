"""Installation of machine code for the operators and indexing of `NDArray` (`tracejit.kernels.arrays`).

An operation on a few elements costs a microsecond in Python, more than NumPy takes for it. Therefore the type
`NDArray` is given a base type whose slots are machine code, and its Python methods of the same names are
removed. The slots call these methods for all cases that they do not handle. Only the methods define the
meaning of an operation; machine code affects only the time.

The installation happens after `AFTER` operations, which `watch` counts, so that short programs do not wait
for it. Nothing is changed if objects do not have the layout that the machine code assumes
(`objects.knows_layout`).

    watch(NDArray)            # when the class is created
    install(NDArray)          # after AFTER operations
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
"""Number of operations of a process before machine code is loaded: they take about as long as loading it."""

ASSUMED_SMALL = eager.SMALL
"""The limit for small arrays that the machine code assumes. If it is changed, the Python methods decide."""

SLOTS = {
    5: "arrays_subscript",
    3: "arrays_assign_subscript",
    7: "arrays_add",
    36: "arrays_subtract",
    29: "arrays_multiply",
    37: "arrays_divide",
    14: "arrays_add_in_place",
    23: "arrays_subtract_in_place",
    18: "arrays_multiply_in_place",
    24: "arrays_divide_in_place",
    75: "arrays_matrix_multiply",
    11: "arrays_float",
}
"""Numbers of CPython's slots (of its stable ABI), and the functions for these slots."""

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
_methods: dict[str, Callable[..., Any]] = {}  # the Python methods by name
_kept: list[Any] = []  # keeps objects alive to which the machine code refers
_calls: dict[int, Any] = {}  # keeps the direct calls in the table of products alive, by entry
_products: np.ndarray | None = None
_bases: tuple[type, ...] | None = None
_count: Callable[[], int] = itertools.count(1).__next__


def watch(kind: type) -> None:
    """Count the operations of `kind`, the class `NDArray`, and call `install` after `AFTER` of them."""
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
    """Install the machine code for the operators of `kind`; without it, restore the uncounted methods.

    An interrupt may end the function at any point; the next call resumes the installation.
    """
    global _bases
    if not _lock.acquire(blocking=False):
        return  # another thread is installing, or this one, interrupted by a garbage collection
    try:
        if not objects.knows_layout():
            for name in METHODS:
                if name in vars(kind):
                    setattr(kind, name, _methods[name])
            return
        if _bases is None:
            kernel = load([RECIPE])[0][0]
            _kept.append(kernel)
            _fill(objects.call(kernel.addresses["arrays_state"]), kind)
            functions = {number: kernel.addresses[name] for number, name in SLOTS.items()}
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
    """Write the objects and numbers of this process to which the machine code refers into its state."""
    global _products
    words = objects.words(address, layout.STATE_BYTES // 8)
    _products = np.zeros((layout.ENTRIES, layout.ENTRY_BYTES // 8), np.int64)
    small, check = "SMALL", "check"
    objects_by_offset: dict[int, Any] = {
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
        layout.EAGER_VALUE: ASSUMED_SMALL,
        layout.CHECK: vars(config),
        layout.CHECK_KEY: check,
        layout.CHECK_VALUE: False,
        layout.FLOAT32: np.dtype("float32"),
        layout.FLOAT64: np.dtype("float64"),
        layout.POINT: View.of_shape(()),
    }
    objects_by_offset |= {layout.METHODS + 8 * i: method for i, method in enumerate(_methods.values())}
    copied = [dtype for dtype in DTYPES if dtype not in HALVES][: layout.COPIED_COUNT - 1]
    objects_by_offset |= {layout.COPIED + 16 * i: dtype for i, dtype in enumerate(copied)}
    _kept.append(objects_by_offset)
    for offset, referenced in objects_by_offset.items():
        words[offset >> 3] = id(referenced)
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
    """Store the direct call for products of arrays of these forms in the table of the machine code."""
    if _products is None or call.direct is None:
        return
    key = [a.itemsize + 16 * a.ndim + 64 * b.ndim]
    for x in (a, b):
        pad = (0,) * (2 - x.ndim)
        key += [*x.shape, *pad, *x.strides, *pad]
    hash_value = 0
    for element in key:
        hash_value = hash_value * layout.MIX + element & (1 << 64) - 1
    hash_value ^= (hash_value - (hash_value >> 63 << 64)) >> 20
    entry = hash_value & layout.ENTRIES - 1
    view = View.of_shape(call.shape)
    _products[entry] = [*key, call.direct.address, id(view), 0]
    _calls[entry] = call, view
