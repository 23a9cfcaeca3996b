"""Normalisation of the window arguments of operations on lines, images and volumes.

A stride, dilation or window is an integer for all dimensions, or a tuple with one for each dimension. A
padding has the same form, where each integer may also be a pair: the numbers of elements before the first and
after the last.

>>> per_dimension("conv2d: stride", 2, 2)
(2, 2)
>>> padding_pairs("conv2d: padding", (1, (0, 2)), 2)
((1, 1), (0, 2))
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import full
from tracejit.frontend.recording.location import user_location

PaddingPairs = tuple[tuple[int, int], ...]

EXPECTED = {1: "an integer", 2: "an integer or a pair", 3: "an integer or three"}


def _each(name: str, value: Any, count: int) -> tuple[Any, ...]:
    """Return a tuple with `value`, or the items of `value`, for each of `count` dimensions."""
    items = value if isinstance(value, tuple | list) else (value,) * count
    if len(items) != count:
        raise locate(ArgumentError(f"{name}: expected {EXPECTED[count]}, got {value}"), user_location())
    return tuple(items)


def per_dimension(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Return an integer for each of `count` dimensions."""
    return tuple(integer(name, n) for n in _each(name, value, count))


def padding_pairs(name: str, value: Any, count: int) -> PaddingPairs:
    """Return the numbers of elements before the first and after the last, for each of `count` dimensions."""
    pairs = []
    for side in _each(name, value, count):
        first, last = _each(name, side, 2)
        pairs.append((integer(name, first), integer(name, last)))
    return tuple(pairs)


def check_batch(name: str, x: Any, count: int) -> None:
    """Raise ShapeError unless `x` is (batch, channels) and `count` more dimensions."""
    if x.ndim != count + 2:
        extents = ("length", "height, width", "depth, height, width")[count - 1]
        raise locate(
            ShapeError(f"{name}: x needs {count + 2} dimensions (batch, channels, {extents}), got {x.shape}"),
            user_location(),
        )


def padded(x: Any, padding: PaddingPairs, value: Any = 0) -> Any:
    """Pad the last dimensions of `x` with `value`, one pair of widths for each dimension."""
    if not any(n for pair in padding for n in pair):
        return x
    lead = x.ndim - len(padding)
    shape = tuple(n + sum(pair) for n, pair in zip(x.shape[lead:], padding, strict=True))
    result = full((*x.shape[:lead], *shape), value, dtype=x.dtype, device=x.device)
    inside = result._view
    for axis, (first, _) in enumerate(padding, lead):
        inside = inside.slice_axis(axis, first, first + x.shape[axis])
    dispatch.write(ArrayCore.new(result._storage, inside), x, "pad")
    return result


def gathered(x: Any, positions: Any, axis: int) -> Any:
    """Return the elements at positions along an axis; the positions must be in range."""
    index = dispatch.as_array("take", positions)
    return dispatch.emit(ops.gather, x, index, axis=axis)
