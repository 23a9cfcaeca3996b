"""Views of small arrays, and writing to them, at once: NumPy does both on the arrays' own memory.

When this may be, and what another thread may do meanwhile, is said in `immediate`. Functions return None, or
False where they write, for what the recorder has to do, or to say something about.
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
"""Types of the parts of an index that mean here what they mean in NumPy."""

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
    """``x[index]`` for integers, slices, None and Ellipsis as indices: a view, or one element as a new array.

    None for other indices.
    """
    if type(x._storage) is not ComputedStorage or thread.busy or x._memory is None or not _is_basic(index):
        return None
    try:
        seen = x._memory[index]
    except (IndexError, TypeError, ValueError):
        return None  # the recorder says what is wrong
    return x._seen_as(seen) if type(seen) is np.ndarray else computed(np.asarray(seen))


def _is_basic(index: Any) -> bool:
    return all(type(i) in INDICES for i in index) if type(index) is tuple else type(index) in INDICES


def view(x: Any, see: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The view of `x` that `see` gives for its elements; None where they are not there."""
    a = x._memory if type(x._storage) is ComputedStorage and not thread.busy else None
    return None if a is None else x._seen_as(see(a))


def reshape(x: Any, shape: Any) -> Any:
    """The elements of a contiguous array under another shape, a view."""
    a = x._memory if type(x._storage) is ComputedStorage and not thread.busy else None
    if (
        a is None
        or not a.flags.c_contiguous
        or not (type(shape) is int or (type(shape) is tuple and are_integers(shape)))
    ):
        return None
    try:
        return x._seen_as(a.reshape(shape))
    except ValueError:
        return None  # the recorder says what is wrong


def set_basic(x: Any, index: Any, value: Any) -> bool:
    """``x[index] = value`` for the same indices, and what `write` stores."""
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
    """``x[index]`` with arrays as indices; None for what the recorder has to say something about."""
    if thread.busy:
        return None
    with lock, memory_lock:
        before, a, parts = writes_of(x, *_parts(index)), elements_of(x), _index(index)
        if a is None or parts is None:
            return None
        try:
            out = np.asarray(a[parts], order="C")  # NumPy may order it as it iterated
        except IndexError:
            return None
        return computed(out) if out.size <= eager.SMALL and writes_of(x, *_parts(index)) == before else None


def setitem(x: Any, index: Any, value: Any) -> bool:
    """``x[index] = value`` with arrays as indices; False for what the recorder has to say something about."""
    if thread.busy:
        return False
    with lock, memory_lock:
        a, parts, given = x._writable(), _index(index), (*_parts(index), value)
        if a is None or parts is None or a.size > eager.SMALL:
            return False
        before = writes_of(*given)
        b = elements_of(value) if type(value) is ArrayCore.concrete else exact_literal(value, a.dtype)
        if b is None or b.dtype != a.dtype:
            return False
        if before:
            b, parts = b.copy(), tuple([p.copy() if type(p) is np.ndarray else p for p in parts])
            if writes_of(*given) != before:
                return False
        try:
            a[parts] = b
        except (IndexError, TypeError, ValueError):
            return False
        return True


def _parts(index: Any) -> tuple[Any, ...]:
    return index if type(index) is tuple else (index,)


def _index(index: Any) -> tuple[Any, ...] | None:
    """An index whose arrays NumPy can read now; None if there are none, or others than small ones."""
    found: list[Any] = []
    for part in _parts(index):
        seen = part
        if type(part) is ArrayCore.concrete:
            seen = elements_of(part)
            if seen is None:
                return None
        elif type(part) is list:
            if not NUMBERS.issuperset(map(type, part)):
                return None  # arrays in it would be looked at, and waited for, under the locks held here
            seen = np.asarray(part)
        if type(seen) is np.ndarray:
            if seen.dtype.kind not in "biu" or not seen.ndim:
                return None
        elif type(part) not in INDICES:
            return None
        found.append(seen)
    return tuple(found) if any(type(part) is np.ndarray for part in found) else None
