"""Whole numbers that differ from round to round of a loop: extents, offsets and what is computed from them.

The body of a loop is one graph for all of its rounds. Where ``A[i, :i]`` is read, offset and extent of the
view are `Moving`: they hold the number of each round. Passes and code generation compute with them as
with integers, for all rounds at once, and a comparison answers only if its answer is the same in all rounds.
So what they decide is what they would decide for each round alone; where rounds decide differently, `Differs`
says from which on, and the loop is cut there.

>>> i = whole([2, 3, 4])
>>> i * 10 + 1, i > 1, i - i
(21..41, True, 0)
>>> i > 2
Traceback (most recent call last):
tracejit.ir.moving.Differs: rounds differ from round 1 on

A nested loop runs once in each round of the loop around it; its numbers are those of all its rounds, one run
behind the other. `runs` says how many each has: an integer if all have as many.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Differs(Exception):
    """Rounds of a loop need different decisions; `rounds` are those that differ from the round before."""

    def __init__(self, rounds: Sequence[int]):
        super().__init__(f"rounds differ from round {rounds[0]} on")
        self.rounds = rounds


class Moving:
    """A number for each round; see the module's docstring. `each`: int64, never all the same. Immutable."""

    __slots__ = ("_hash", "each")
    __array_ufunc__ = None  # numbers of NumPy leave the arithmetic to this class

    def __init__(self, each: np.ndarray):
        self.each = each
        self._hash = hash(each.tobytes())

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.each[0]}..{self.each[-1]}"

    def __neg__(self) -> Any:
        return whole(-self.each)

    def __abs__(self) -> Any:
        return whole(abs(self.each))

    def __bool__(self) -> bool:
        return _decided(self.each != 0)

    def __index__(self) -> int:
        raise Differs(_change(self.each))


def _arithmetic(function: Callable[[Any, Any], Any], *, turned: bool = False) -> Callable[[Any, Any], Any]:
    """An operator of `Moving`; `turned`: with its operands exchanged."""

    def apply(self: Moving, other: Any) -> Any:
        if not isinstance(other, int | np.integer | Moving):
            return NotImplemented
        theirs = other.each if isinstance(other, Moving) else other
        return whole(function(theirs, self.each) if turned else function(self.each, theirs))

    return apply


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Moving, other: Any) -> Any:
        if not isinstance(other, int | np.integer | Moving):
            return NotImplemented
        return _decided(function(self.each, other.each if isinstance(other, Moving) else other))

    return compare


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Moving, f"__{_name}__", _arithmetic(getattr(operator, _name)))
    setattr(Moving, f"__r{_name}__", _arithmetic(getattr(operator, _name), turned=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Moving, f"__{_name}__", _comparison(getattr(operator, _name)))


def whole(each: Sequence[int] | np.ndarray) -> Any:
    """The number that is `each` in the rounds: an integer if it is the same in all of them."""
    numbers = np.asarray(each, np.int64)
    first = numbers[0]
    return int(first) if (numbers == first).all() else Moving(numbers)


def most(number: Any) -> int:
    """The largest number of all rounds."""
    return int(number.each.max()) if type(number) is Moving else number


def _decided(answers: np.ndarray) -> bool:
    first = bool(answers[0])
    if (answers != first).any():
        raise Differs(_change(answers))
    return first


def _change(each: np.ndarray) -> list[int]:
    changes: list[int] = (np.flatnonzero(each[1:] != each[:-1]) + 1).tolist()
    return changes


# ------------------------------------------------------------------------------------------- loops in loops


def total(runs: Any, outer: int) -> int:
    """The rounds of a nested loop in `outer` rounds of the loop around it."""
    return int(runs.each.sum()) if type(runs) is Moving else runs * outer


def before(runs: Any, outer: int) -> int:
    """The rounds of a nested loop before round `outer` of the loop around it."""
    return int(runs.each[:outer].sum()) if type(runs) is Moving else runs * outer


def rounds_around(rounds: Sequence[int], runs: Any) -> list[int]:
    """The rounds of the loop around in which `rounds` of a nested loop are."""
    if type(runs) is Moving:
        around: list[int] = np.searchsorted(np.cumsum(runs.each), rounds, side="right").tolist()
        return list(dict.fromkeys(around))
    return list(dict.fromkeys(round // runs for round in rounds))


def spread(number: Any, runs: Any) -> Any:
    """A number of the loop around as one of the nested loop."""
    if type(number) is not Moving:
        return number
    return Moving(np.repeat(number.each, runs.each if type(runs) is Moving else runs))


def slope(number: Any, runs: Any) -> tuple[Any, Any]:
    """First number and increment of a nested loop, as numbers of the loop around; for an outermost loop both
    are integers. Raises `Differs` where it does not grow evenly.
    """
    if type(number) is not Moving:
        return number, 0
    each = number.each
    counts = runs.each if type(runs) is Moving else np.full(len(each) // runs, runs)
    starts = np.cumsum(counts) - counts
    steps = np.where(counts > 1, each[np.minimum(starts + 1, len(each) - 1)] - each[starts], 0)
    if (counts == 1).any() and (counts > 1).any():
        steps[counts == 1] = steps[counts > 1][0]  # it is added behind the only round
    inside = np.arange(len(each)) - np.repeat(starts, counts)
    wrong = each != np.repeat(each[starts], counts) + inside * np.repeat(steps, counts)
    if wrong.any():
        changes = np.diff(each, prepend=each[0])
        uneven = (inside > 1) & (changes != np.roll(changes, 1))
        raise Differs(np.flatnonzero(uneven | wrong & (inside == 0)).tolist())
    return whole(each[starts]), whole(steps)
