"""Other views of an array: the same memory, seen in other places. Nothing is copied.

>>> import tracejit as tj
>>> x = tj.asarray([[1, 2], [3, 4]])
>>> sliced(x, 1, 0, 1), expanded(x, 0).shape
(NDArray([[1],
         [3]], dtype=int64), (1, 2, 2))

Axes are non-negative, and bounds in range: users' ones are checked by `tracejit.frontend.arrays.axes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.ir.view import View


def viewed(x: Any, view: View) -> Any:
    """The array that shows the memory of `x` through `view`."""
    return ArrayCore.new(x._storage, view)


def sliced(x: Any, axis: int, start: int | None, stop: int | None, step: int = 1) -> Any:
    """The elements ``start:stop:step`` along an axis."""
    return viewed(x, x._view.slice_axis(axis, start, stop, step))


def selected(x: Any, axis: int, index: int) -> Any:
    """The elements at one index of an axis, without that axis."""
    return viewed(x, x._view.select(axis, index))


def expanded(x: Any, *axes: int) -> Any:
    """`x` with a new dimension of extent 1 at each of the ascending `axes` of the result."""
    view = x._view
    for axis in axes:
        view = view.expand(axis)
    return viewed(x, view)


def dropped(x: Any, *axes: int) -> Any:
    """`x` without some dimensions of extent 1."""
    return viewed(x, x._view.drop(axes))


def broadcasted(x: Any, shape: Sequence[int]) -> Any:
    """`x` broadcast to a shape that fits."""
    return viewed(x, x._view.broadcast(shape))
