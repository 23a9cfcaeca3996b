"""Normalisation of users' steps of windows over lines, images and volumes.

A step (stride, dilation, window) is an integer for all dimensions, or a tuple with one for each. A padding is
the same, of which each may also be a pair: elements before the first and after the last.

>>> steps("conv2d: stride", 2, 2)
(2, 2)
>>> around("conv2d: padding", (1, (0, 2)), 2)
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

Pairs = tuple[tuple[int, int], ...]

EXPECTED = {1: "an integer", 2: "an integer or a pair", 3: "an integer or three"}


def _each(name: str, value: Any, count: int) -> tuple[Any, ...]:
    """`value` for each of `count` dimensions."""
    given = value if isinstance(value, tuple | list) else (value,) * count
    if len(given) != count:
        raise locate(ArgumentError(f"{name}: expected {EXPECTED[count]}, got {value}"), user_location())
    return tuple(given)


def steps(name: str, value: Any, count: int) -> tuple[int, ...]:
    """An integer for each of `count` dimensions."""
    return tuple(integer(name, n) for n in _each(name, value, count))


def around(name: str, value: Any, count: int) -> Pairs:
    """Elements before the first and after the last, for each of `count` dimensions."""
    found = []
    for side in _each(name, value, count):
        first, last = _each(name, side, 2)
        found.append((integer(name, first), integer(name, last)))
    return tuple(found)


def check_batch(name: str, x: Any, count: int) -> None:
    """Raise ShapeError unless `x` is (batch, channels) and `count` more dimensions."""
    if x.ndim != count + 2:
        extents = ("length", "height, width", "depth, height, width")[count - 1]
        raise locate(
            ShapeError(f"{name}: x needs {count + 2} dimensions (batch, channels, {extents}), got {x.shape}"),
            user_location(),
        )


def padded(x: Any, padding: Pairs, value: Any = 0) -> Any:
    """`x` with elements of `value` around its last dimensions, one pair for each."""
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


def taken(x: Any, positions: Any, axis: int) -> Any:
    """The elements at positions that are in range along an axis."""
    index = dispatch.as_array("take", positions)
    return dispatch.emit(ops.gather, x, index, axis=axis)
