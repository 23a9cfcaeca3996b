"""Objects that create arrays by indexing: ``mgrid[0:3, 0:1:5j]``, ``r_[1:4, 0, x]``, and ``s_`` for indices.

A slice means `arange`, or `linspace` if its step is imaginary: then the step is the number of points.

>>> import tracejit as tj
>>> tj.r_[1:4, 0, tj.asarray([7])]
NDArray([1, 2, 3, 0, 7], dtype=int64)
>>> tj.mgrid[0:2, 0:2]
NDArray([[[0, 0],
          [1, 1]],
<BLANKLINE>
         [[0, 1],
          [0, 1]]], dtype=int64)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.manipulation import broadcast_to
from tracejit.frontend.arrays.functions.movement import concat, stack
from tracejit.frontend.arrays.functions.ranges import arange, linspace
from tracejit.frontend.arrays.public import declare
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import is_number


def _spaced(part: slice) -> Any:
    """Return the numbers that a slice represents; an imaginary step is the number of points, with the end."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if part.stop is None:
        raise locate(ArgumentError("a slice in a grid needs an end, as in 0:5"), user_location())
    if isinstance(step, complex):
        return linspace(start, part.stop, int(abs(step)))
    return arange(start, part.stop, step)


class _IndexGrid:
    """The class of `mgrid` and `ogrid`: slices as coordinates, full or open (`sparse`) grids."""

    def __init__(self, name: str, text: str, *, sparse: bool):
        self.__name__, self.__doc__ = name, text
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return _spaced(key)
        lines = _alike([_spaced(part) for part in key], [True] * len(key))
        extents = tuple(line.size for line in lines)
        shaped = [
            line.reshape(tuple(n if b == a else 1 for b, n in enumerate(extents)))
            for a, line in enumerate(lines)
        ]
        if self.sparse:
            return tuple(shaped)
        return stack([broadcast_to(line, extents) for line in shaped])


mgrid = _IndexGrid(
    "mgrid",
    """The coordinates of the points of a grid, given by slices: ``mgrid[0:3, 0:1:5j]``.

    An imaginary step is the number of points, including the end. The arrays, one for each slice, are stacked
    along a new first axis; a single slice without a comma creates one array. Integers are int64, floats and
    slices with imaginary steps float32.

    Raises ArgumentError for a slice without an end.

    >>> import tracejit as tj
    >>> tj.mgrid[0:2, 0:3].shape
    (2, 2, 3)
    >>> tj.mgrid[0:1:3j]
    NDArray([0. , 0.5, 1. ], dtype=float32)
    """,
    sparse=False,
)
ogrid = _IndexGrid(
    "ogrid",
    """The coordinates of the points of a grid as arrays that broadcast together: ``ogrid[0:3, 0:5]``.

    The result is a tuple with one array for each slice, of extent 1 in the dimensions of the other slices.
    Slices are those of `mgrid`.

    Raises ArgumentError for a slice without an end.

    >>> import tracejit as tj
    >>> [x.shape for x in tj.ogrid[0:2, 0:3]]
    [(2, 1), (1, 3)]
    """,
    sparse=True,
)


class _Joined:
    """The class of `r_` and `c_`: arrays, numbers and slices joined to one array."""

    def __init__(self, name: str, text: str, *, axis: int, ndim: int, first: int):
        self.__name__, self.__doc__ = name, text
        self.axis, self.ndim, self.first = axis, ndim, first

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, ndim, first = self.axis, self.ndim, self.first
        if parts and isinstance(parts[0], str):
            axis, ndim, first = _directive(parts.pop(0), axis, ndim, first)
        weak = [isinstance(part, slice) or is_number(part) for part in parts]
        arrays = _alike([_spaced(p) if isinstance(p, slice) else asarray(p) for p in parts], weak)
        return concat([_at_least(array, ndim, first) for array in arrays], axis)


def _directive(text: str, axis: int, ndim: int, first: int) -> tuple[int, int, int]:
    """Parse a text: the axis, the minimum number of dimensions, and the first dimension of arrays with fewer.

    The other parameters are the defaults.
    """
    try:
        numbers = [int(number) for number in text.split(",")]
        if len(numbers) > 3:
            raise ValueError
    except ValueError:
        raise locate(
            ArgumentError(f'r_: expected integers as in "0,2,1", got {text!r}; matrices do not exist here'),
            user_location(),
        ) from None
    defaults = [axis, ndim, first]
    values = numbers + defaults[len(numbers) :]
    return values[0], values[1], values[2]


def _alike(arrays: list[Any], weak: list[bool]) -> list[Any]:
    """Cast integer arrays from literals (`weak`) to the common dtype of the other arrays."""
    integers = [w and x.dtype.kind == "i" for x, w in zip(arrays, weak, strict=True)]
    others = [x.dtype for x, is_integer in zip(arrays, integers, strict=True) if not is_integer]
    if not others:
        return arrays
    common = np.result_type(*others, 0)
    return [dispatch.cast(x, common) if i else x for x, i in zip(arrays, integers, strict=True)]


def _at_least(array: Any, ndim: int, first: int) -> Any:
    """Expand an array to at least `ndim` dimensions, with its own ones from `first` on (-1: at the end)."""
    missing = ndim - array.ndim
    if missing <= 0:
        return array
    front = first if first >= 0 else missing + 1 + first
    front = min(front, missing) if array.ndim else missing
    return array.reshape((1,) * front + array.shape + (1,) * (missing - front))


r_ = _Joined(
    "r_",
    """Arrays, numbers and slices, joined along the first axis: ``r_[1:4, 0, x]``.

    A slice means `arange`; an imaginary step is the number of points, including the end. A text as the first
    item specifies the axis, the minimum number of dimensions, and the first dimension of arrays with fewer,
    as in NumPy.

    Raises ArgumentError for another text or a slice without an end, ShapeError for arrays that do not join.

    >>> import tracejit as tj
    >>> tj.r_[1:4, 0, tj.asarray([7])]
    NDArray([1, 2, 3, 0, 7], dtype=int64)
    >>> tj.r_["0,2", [1, 2], [3, 4]]
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """,
    axis=0,
    ndim=1,
    first=-1,
)
c_ = _Joined(
    "c_",
    """Arrays, numbers and slices as columns, joined along the last axis: ``c_[x, y]``.

    1-dimensional arrays become columns. Slices and a text as the first item have the same meaning as for
    `r_`.

    Raises ArgumentError for another text or a slice without an end, ShapeError for arrays that do not join.

    >>> import tracejit as tj
    >>> tj.c_[[1, 2, 3], 4:7]
    NDArray([[1, 4],
             [2, 5],
             [3, 6]], dtype=int64)
    """,
    axis=-1,
    ndim=2,
    first=0,
)


class _Index:
    """An object that returns its index: ``x[s_[1:, ::2]]`` is ``x[1:, ::2]``.

    >>> import tracejit as tj
    >>> tj.s_[1:, ::2]
    (slice(1, None, None), slice(None, None, 2))
    """

    __name__ = "s_"

    def __getitem__(self, key: Any) -> Any:
        return key


s_ = _Index()

__test__ = {"mgrid": mgrid.__doc__, "ogrid": ogrid.__doc__, "r_": r_.__doc__, "c_": c_.__doc__}  # examples

declare(__name__, c_=c_, index_exp=s_, mgrid=mgrid, ogrid=ogrid, r_=r_, s_=s_)
