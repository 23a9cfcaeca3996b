"""Operands of operations that are computed immediately (see `immediate`).

An array is *at hand* if its elements are in memory now and no launch is writing them. The elements are
returned as NumPy views of the array's own memory.
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

MAX_LITERALS = 1024  # size of each cache of numbers
EXACT_FLOAT = 1 << 53  # integers of up to this magnitude have an exact float64

WEAK_KINDS = {bool: "biufV", int: "iufV", float: "fV", np.float64: "fV"}
"""For each number type, the kinds of dtypes that can represent its numbers without changing their category.

"V" is NumPy's kind of bfloat16."""

with np.errstate(all="ignore"):
    QUIET = contextvars.copy_context()
    """A context in which NumPy issues no warnings. Entering a copy costs a tenth of `np.errstate`."""

_literals: dict[tuple[Any, np.dtype], np.ndarray] = {}
_numbers: dict[tuple[Any, np.dtype], direct.Number] = {}


def at_hand(x: Any) -> Any:
    """Return the elements of a small array that was computed immediately, else None.

    For operands that are not arrays see `elements_of`."""
    if type(x) is ArrayCore.concrete:
        a = x._memory if type(x._storage) is ComputedStorage else None
        return a if a is not None and a.size <= eager.SMALL else None
    return elements_of(x)


def still_computed(operands: Iterable[Any]) -> bool:
    """Whether all arrays among the operands are still computed ones, which no launch can have written."""
    concrete = ArrayCore.concrete
    return all(type(x) is not concrete or type(x._storage) is ComputedStorage for x in operands)


def elements_of(x: Any) -> Any:
    """Return the elements of a small array if they are in memory now, else None; return numbers as is."""
    if type(x) is not ArrayCore.concrete:
        if isinstance(x, np.ndarray):
            return x if type(x) is np.ndarray and x.size <= eager.SMALL and x.dtype.isnative else None
        return x
    elements = x._readable()
    return elements if elements is None or elements.size <= eager.SMALL else None


def writes_of(*operands: Any) -> int:
    """Count the launches that write the operands.

    If the count has increased since an earlier call, values read in between may be torn. It is 0 for operands
    that no launch can access in between.
    """
    concrete, total = ArrayCore.concrete, 0
    for x in operands:
        if type(x) is concrete and type(x._storage) is not ComputedStorage:
            storage = x._storage
            if not storage.untouched and storage.variable is not None:
                total += 1 + storage.variable.writes
    return total


def exact_literal(value: Any, dtype: np.dtype) -> np.ndarray | None:
    """Return a Python number as a 0-d array of `dtype`; None if it is of another kind or does not fit."""
    if type(value) in WEAK_KINDS and dtype.kind in WEAK_KINDS[type(value)]:
        return literal(value, dtype)
    return None


def number(x: bool | int | float, dtype: np.dtype) -> direct.Number | None:
    """Return a number as an operand of a direct call; None if it does not fit `dtype`."""
    key = (x, dtype)
    operand = _numbers.get(key) if x else None
    if operand is None:
        element = literal(x, dtype)
        if element is None:
            return None
        bits = int.from_bytes(element.tobytes().ljust(8, b"\0"), "little", signed=True)
        operand = direct.Number(bits, dtype)
        if x:
            if len(_numbers) >= MAX_LITERALS:
                _numbers.clear()
            _numbers[key] = operand
    return operand


def literal(number: bool | int | float, dtype: np.dtype) -> np.ndarray | None:
    """Return a number as a 0-d array; None if it does not fit `dtype` (the recorder raises the error)."""
    key = (number, dtype)
    array = _literals.get(key) if number else None  # zeros are not cached: 0.0 == -0.0
    if array is None:
        if type(number) is int and not (
            promotion.fits(number, dtype) and (dtype.kind in "iu" or abs(number) <= EXACT_FLOAT)
        ):
            return None
        array = QUIET.copy().run(np.asarray, number, dtype)
        if number:
            if len(_literals) >= MAX_LITERALS:
                _literals.clear()
            _literals[key] = array
    return array


def are_integers(extents: tuple[Any, ...]) -> bool:
    return all(type(n) is int for n in extents)
