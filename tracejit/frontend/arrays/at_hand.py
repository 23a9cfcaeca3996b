"""Elements and numbers that small operations can use at once: see `immediate`.

What is *at hand* is in memory now, and nobody writes it. Elements are NumPy views of the arrays' own memory.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable
from typing import Any

import numpy as np

from tracejit.frontend.arrays import direct, promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.storage import ComputedStorage

LITERALS = 1024  # numbers whose arrays are kept
EXACT_FLOAT = 1 << 53  # integers up to this are floats, too

WEAKEST = {bool: "biufV", int: "iufV", float: "fV", np.float64: "fV"}
"""Kinds of dtypes that hold the numbers of a type as they are. "V" is NumPy's for bfloat16."""

with np.errstate(all="ignore"):
    QUIET = contextvars.copy_context()
    """A context in which NumPy warns of nothing. Entering a copy of it takes a tenth of `np.errstate`."""

_literals: dict[tuple[Any, np.dtype], np.ndarray] = {}
_numbers: dict[tuple[Any, np.dtype], direct.Number] = {}


def at_hand(x: Any) -> Any:
    """The elements of a small array that was computed at once, or None; other operands as `elements_of`."""
    if type(x) is ArrayCore.concrete:
        a = x._memory if type(x._storage) is ComputedStorage else None
        return a if a is not None and a.size <= eager.SMALL else None
    return elements_of(x)


def still_computed(operands: Iterable[Any]) -> bool:
    """Whether no launch can have written any of the arrays."""
    concrete = ArrayCore.concrete
    return all(type(x) is not concrete or type(x._storage) is ComputedStorage for x in operands)


def elements_of(x: Any) -> Any:
    """The elements of a small array that are there now; other operands as they are; None otherwise."""
    if type(x) is not ArrayCore.concrete:
        if isinstance(x, np.ndarray):
            return x if type(x) is np.ndarray and x.size <= eager.SMALL and x.dtype.isnative else None
        return x
    seen = x._readable()
    return seen if seen is None or seen.size <= eager.SMALL else None


def writes_of(*operands: Any) -> int:
    """Count the launches that write the operands: if there are more than before, values read may be
    partly old. It is 0 for operands that no launch can use meanwhile."""
    concrete, count = ArrayCore.concrete, 0
    for x in operands:
        if type(x) is concrete and type(x._storage) is not ComputedStorage:
            storage = x._storage
            if not storage.untouched and storage.variable is not None:
                count += 1 + storage.variable.writes
    return count


def exact_literal(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """A number of Python's as a 0-d array of a dtype; None if it is of another kind or does not fit."""
    if type(value) in WEAKEST and dtype.kind in WEAKEST[type(value)]:
        return literal(value, dtype)
    return None


def number(x: bool | int | float, dtype: np.dtype) -> direct.Number | None:
    """A number as an operand of a direct call; None if the dtype does not hold it."""
    key = (x, dtype)
    found = _numbers.get(key) if x else None
    if found is None:
        element = literal(x, dtype)
        if element is None:
            return None
        bits = int.from_bytes(element.tobytes().ljust(8, b"\0"), "little", signed=True)
        found = direct.Number(bits, dtype)
        if x:
            if len(_numbers) >= LITERALS:
                _numbers.clear()
            _numbers[key] = found
    return found


def literal(number: bool | int | float, dtype: np.dtype) -> np.ndarray | None:
    """A number as a 0-d array; None if the dtype does not hold it (the recorder says so)."""
    key = (number, dtype)
    found = _literals.get(key) if number else None  # 0.0 and -0.0 are equal
    if found is None:
        if type(number) is int and not (
            promotion.fits(number, dtype) and (dtype.kind in "iu" or abs(number) <= EXACT_FLOAT)
        ):
            return None
        found = QUIET.copy().run(np.asarray, number, dtype)
        if number:
            if len(_literals) >= LITERALS:
                _literals.clear()
            _literals[key] = found
    return found


def are_integers(extents: tuple[Any, ...]) -> bool:
    return all(type(n) is int for n in extents)
