"""Functions that create views of an array on the same memory, without copies.

>>> import tracejit as tj
>>> x = tj.asarray([[1, 2], [3, 4]])
>>> sliced(x, 1, 0, 1), expanded(x, 0).shape
(NDArray([[1],
         [3]], dtype=int64), (1, 2, 2))

Axes must be non-negative and bounds in range; `tracejit.frontend.arrays.axes` checks those that users pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.ir.view import View


def viewed(x: Any, view: View) -> Any:
    """Return an array that accesses the memory of `x` through `view`."""
    return ArrayCore.new(x._storage, view)


def sliced(x: Any, axis: int, start: int | None, stop: int | None, step: int = 1) -> Any:
    """Return the elements ``start:stop:step`` along an axis."""
    return viewed(x, x._view.slice_axis(axis, start, stop, step))


def selected(x: Any, axis: int, index: int) -> Any:
    """Return the elements at one index of an axis, without the axis."""
    return viewed(x, x._view.select(axis, index))


def expanded(x: Any, *axes: int) -> Any:
    """Insert a dimension of extent 1 at each of the ascending `axes` of the result."""
    view = x._view
    for axis in axes:
        view = view.expand(axis)
    return viewed(x, view)


def dropped(x: Any, *axes: int) -> Any:
    """Remove the dimensions `axes`, of extent 1."""
    return viewed(x, x._view.drop(axes))


def broadcasted(x: Any, shape: Sequence[int]) -> Any:
    """Broadcast `x` to a compatible shape."""
    return viewed(x, x._view.broadcast(shape))
