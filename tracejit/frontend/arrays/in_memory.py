"""Immediate views of small arrays and writes to them, by NumPy on the arrays' own memory.

`immediate` documents the conditions, and the rules for concurrent threads. Functions return None (functions
that write: False) if the recorder has to perform the operation or to raise its error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays.at_hand import are_integers, elements_of, exact_literal, writes_of
from tracejit.frontend.arrays.core import ArrayCore, computed
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.recording import lock, thread
from tracejit.frontend.recording.storage import ComputedStorage, memory_lock

INDICES = frozenset({int, slice, type(None), type(...)})
"""Types of the components of an index that have the same meaning as in NumPy."""

NUMBERS = frozenset({int, bool})


# -- writing -------------------------------------------------------------------------------------------------


def write(target: Any, value: Any) -> bool:
    """Store a number, or an array of the same dtype, into the elements of `target`."""
    if thread.busy:
        return False
    with memory_lock:
        a = target._writable()
        if a is None or a.size > eager.SMALL:
            return False
        if type(value) is ArrayCore.concrete:
            before = writes_of(value)
            b = elements_of(value)
            if b is None or b.dtype != a.dtype or (b.shape != a.shape and not _fits(b.shape, a.shape)):
                return False
            if before:
                b = b.copy()
                if writes_of(value) != before:
                    return False
        else:
            b = exact_literal(value, a.dtype)
            if b is None:
                return False
        a[...] = b
        return True


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `into`."""
    return len(shape) <= len(into) and all(
        n in (1, m) for n, m in zip(reversed(shape), reversed(into), strict=False)
    )


# -- indexing ------------------------------------------------------------------------------------------------


def basic(x: Any, index: Any) -> Any:
    """Return ``x[index]`` for integers, slices, None and Ellipsis: a view, or one element as a new array.

    Return None for other indices.
    """
    if type(x._storage) is not ComputedStorage or thread.busy or x._memory is None or not _is_basic(index):
        return None
    try:
        result = x._memory[index]
    except (IndexError, TypeError, ValueError):
        return None  # the recorder raises the error
    return x._view_from(result) if type(result) is np.ndarray else computed(np.asarray(result))


def _is_basic(index: Any) -> bool:
    return all(type(i) in INDICES for i in index) if type(index) is tuple else type(index) in INDICES


def view(x: Any, see: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the view of `x` that `see` creates from its elements; None if they are not in memory."""
    a = x._memory if type(x._storage) is ComputedStorage and not thread.busy else None
    return None if a is None else x._view_from(see(a))


def reshape(x: Any, shape: Any) -> Any:
    """Return a view of a contiguous array with another shape."""
    a = x._memory if type(x._storage) is ComputedStorage and not thread.busy else None
    if (
        a is None
        or not a.flags.c_contiguous
        or not (type(shape) is int or (type(shape) is tuple and are_integers(shape)))
    ):
        return None
    try:
        return x._view_from(a.reshape(shape))
    except ValueError:
        return None  # the recorder raises the error


def set_basic(x: Any, index: Any, value: Any) -> bool:
    """Perform ``x[index] = value`` for the indices of `basic` and the values of `write`."""
    if thread.busy or type(x._storage) is not ComputedStorage or not _is_basic(index):
        return False
    a = x._memory
    if a is None or a.size > eager.SMALL:
        return False
    if type(value) is ArrayCore.concrete:
        b = value._memory if type(value._storage) is ComputedStorage else None
        if b is None or b.dtype != a.dtype:
            return False
    else:
        b = exact_literal(value, a.dtype)
        if b is None:
            return False
    with memory_lock:
        if type(x._storage) is not ComputedStorage or (
            b is not a and type(value) is ArrayCore.concrete and type(value._storage) is not ComputedStorage
        ):
            return False
        try:
            a[index] = b
        except (IndexError, TypeError, ValueError):
            return False
        return True


def getitem(x: Any, index: Any) -> Any:
    """Return ``x[index]`` with arrays as indices; None if the recorder has to raise an error."""
    if thread.busy:
        return None
    with lock, memory_lock:
        before, a, components = writes_of(x, *_components(index)), elements_of(x), _index(index)
        if a is None or components is None:
            return None
        try:
            out = np.asarray(a[components], order="C")  # NumPy may choose the layout of its iteration
        except IndexError:
            return None
        return (
            computed(out) if out.size <= eager.SMALL and writes_of(x, *_components(index)) == before else None
        )


def setitem(x: Any, index: Any, value: Any) -> bool:
    """Perform ``x[index] = value`` with arrays as indices; False if the recorder has to raise an error."""
    if thread.busy:
        return False
    with lock, memory_lock:
        a, components, operands = x._writable(), _index(index), (*_components(index), value)
        if a is None or components is None or a.size > eager.SMALL:
            return False
        before = writes_of(*operands)
        b = elements_of(value) if type(value) is ArrayCore.concrete else exact_literal(value, a.dtype)
        if b is None or b.dtype != a.dtype:
            return False
        if before:
            b, components = b.copy(), tuple([p.copy() if type(p) is np.ndarray else p for p in components])
            if writes_of(*operands) != before:
                return False
        try:
            a[components] = b
        except (IndexError, TypeError, ValueError):
            return False
        return True


def _components(index: Any) -> tuple[Any, ...]:
    """The components of an index, as a tuple."""
    return index if type(index) is tuple else (index,)


def _index(index: Any) -> tuple[Any, ...] | None:
    """Return the components of an index with arrays as NumPy arrays.

    Return None if an array is not in memory or not small, and for an index without arrays.
    """
    converted: list[Any] = []
    for part in _components(index):
        elements = part
        if type(part) is ArrayCore.concrete:
            elements = elements_of(part)
            if elements is None:
                return None
        elif type(part) is list:
            if not NUMBERS.issuperset(map(type, part)):
                return None  # reading arrays in it would wait for them while the caller owns the locks
            elements = np.asarray(part)
        if type(elements) is np.ndarray:
            if elements.dtype.kind not in "biu" or not elements.ndim:
                return None
        elif type(part) not in INDICES:
            return None
        converted.append(elements)
    return tuple(converted) if any(type(part) is np.ndarray for part in converted) else None
