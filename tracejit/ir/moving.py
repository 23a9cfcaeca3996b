"""Integers that vary over the iterations of a loop: extents, offsets and values computed from them.

The body of a loop is one graph for all iterations. For a read of ``A[i, :i]``, offset and extent of the view
are `Moving`: they store the value in each iteration. Passes and code generation compute with them like with
integers, elementwise over the iterations, and a comparison returns a result only if it is the same in all
iterations. So every decision is the one that they would make for each single iteration. If iterations require
different decisions, `IterationsDiffer` reports where they change, and the loop is split there.

>>> i = from_values([2, 3, 4])
>>> i * 10 + 1, i > 1, i - i
(21..41, True, 0)
>>> i > 2
Traceback (most recent call last):
tracejit.ir.moving.IterationsDiffer: iterations differ from iteration 1 on

A nested loop runs once in each iteration of the enclosing loop. Its numbers are those of all its iterations,
the runs concatenated. `runs` is the trip count of each run: an integer if all are equal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class IterationsDiffer(Exception):
    """Raised if iterations of a loop require different decisions.

    iterations: the iterations that differ from the preceding one.
    """

    def __init__(self, iterations: Sequence[int]):
        super().__init__(f"iterations differ from iteration {iterations[0]} on")
        self.iterations = iterations


class Moving:
    """An integer for each iteration; see the module's docstring. Immutable.

    values: int64; not all elements are equal.
    """

    __slots__ = ("_hash", "values")
    __array_ufunc__ = None  # NumPy scalars defer arithmetic to this class

    def __init__(self, values: np.ndarray):
        self.values = values
        self._hash = hash(values.tobytes())

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.values[0]}..{self.values[-1]}"

    def __neg__(self) -> Any:
        return from_values(-self.values)

    def __abs__(self) -> Any:
        return from_values(abs(self.values))

    def __bool__(self) -> bool:
        return _decided(self.values != 0)

    def __index__(self) -> int:
        raise IterationsDiffer(_change(self.values))


def _arithmetic(function: Callable[[Any, Any], Any], *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    """Return an arithmetic method of `Moving`. swapped: for the reflected operator."""

    def apply(self: Moving, other: Any) -> Any:
        if not isinstance(other, int | np.integer | Moving):
            return NotImplemented
        theirs = other.values if isinstance(other, Moving) else other
        return from_values(function(theirs, self.values) if swapped else function(self.values, theirs))

    return apply


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Moving, other: Any) -> Any:
        if not isinstance(other, int | np.integer | Moving):
            return NotImplemented
        return _decided(function(self.values, other.values if isinstance(other, Moving) else other))

    return compare


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Moving, f"__{_name}__", _arithmetic(getattr(operator, _name)))
    setattr(Moving, f"__r{_name}__", _arithmetic(getattr(operator, _name), swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Moving, f"__{_name}__", _comparison(getattr(operator, _name)))


def from_values(values: Sequence[int] | np.ndarray) -> Any:
    """Return the number with these values in the iterations: an integer if all are equal, else a `Moving`."""
    numbers = np.asarray(values, np.int64)
    first = numbers[0]
    return int(first) if (numbers == first).all() else Moving(numbers)


def most(number: Any) -> int:
    """The maximum over all iterations."""
    return int(number.values.max()) if type(number) is Moving else number


def _decided(answers: np.ndarray) -> bool:
    first = bool(answers[0])
    if (answers != first).any():
        raise IterationsDiffer(_change(answers))
    return first


def _change(values: np.ndarray) -> list[int]:
    changes: list[int] = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    return changes


# ------------------------------------------------------------------------------------------- loops in loops


def total(runs: Any, outer: int) -> int:
    """The total trip count of a nested loop over `outer` iterations of the enclosing loop."""
    return int(runs.values.sum()) if type(runs) is Moving else runs * outer


def before(runs: Any, outer: int) -> int:
    """The number of iterations of a nested loop before iteration `outer` of the enclosing loop."""
    return int(runs.values[:outer].sum()) if type(runs) is Moving else runs * outer


def enclosing_iterations(iterations: Sequence[int], runs: Any) -> list[int]:
    """The iterations of the enclosing loop that contain the given iterations of a nested loop."""
    if type(runs) is Moving:
        enclosing: list[int] = np.searchsorted(np.cumsum(runs.values), iterations, side="right").tolist()
        return list(dict.fromkeys(enclosing))
    return list(dict.fromkeys(iteration // runs for iteration in iterations))


def spread(number: Any, runs: Any) -> Any:
    """Convert a number of the enclosing loop to one of the nested loop."""
    if type(number) is not Moving:
        return number
    return Moving(np.repeat(number.values, runs.values if type(runs) is Moving else runs))


def slope(number: Any, runs: Any) -> tuple[Any, Any]:
    """Decompose a number of a nested loop into start and increment, which are numbers of the enclosing loop.

    For an outermost loop both are integers. Raises `IterationsDiffer` if the increments within a run differ.
    """
    if type(number) is not Moving:
        return number, 0
    values = number.values
    lengths = runs.values if type(runs) is Moving else np.full(len(values) // runs, runs)
    starts = np.cumsum(lengths) - lengths
    steps = np.where(lengths > 1, values[np.minimum(starts + 1, len(values) - 1)] - values[starts], 0)
    if (lengths == 1).any() and (lengths > 1).any():
        steps[lengths == 1] = steps[lengths > 1][0]  # the increment of a single iteration is arbitrary
    iteration = np.arange(len(values)) - np.repeat(starts, lengths)
    irregular = values != np.repeat(values[starts], lengths) + iteration * np.repeat(steps, lengths)
    if irregular.any():
        changes = np.diff(values, prepend=values[0])
        uneven = (iteration > 1) & (changes != np.roll(changes, 1))
        raise IterationsDiffer(np.flatnonzero(uneven | irregular & (iteration == 0)).tolist())
    return from_values(values[starts]), from_values(steps)
