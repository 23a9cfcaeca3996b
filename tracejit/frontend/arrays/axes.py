"""Normalisation of the axes and shapes that users pass, to non-negative integers and tuples of them.

>>> normalize_axis("sum", -1, 3)
2
>>> normalize_axes("sum", (2, 0), 3)
(0, 2)
"""

from __future__ import annotations

import operator
from typing import Any

from tracejit.errors import ArgumentError, AxisError, ShapeError, locate
from tracejit.frontend.recording.location import user_location


def integer(name: str, value: Any) -> int:
    """Return `value` as a Python integer, which is a look if `value` is traced."""
    try:
        return operator.index(value)
    except TypeError:
        raise locate(
            ArgumentError(f"{name}: expected an integer, got {type(value).__name__} {value!r}"),
            user_location(),
        ) from None


def normalize_axis(name: str, axis: Any, ndim: int) -> int:
    """Return `axis` as a non-negative integer. Raises AxisError if there is no such dimension."""
    position = integer(f"{name}: axis", axis)
    if not -ndim <= position < ndim:
        allowed = f"-{ndim} to {ndim - 1}" if ndim else "there is none"
        raise locate(
            AxisError(f"{name}: axis {position} is out of range for {ndim} dimensions ({allowed})"),
            user_location(),
        )
    return position % ndim


def axis_list(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return one axis or several as distinct non-negative integers, in their order."""
    sequence = axes if isinstance(axes, tuple | list) else (axes,)
    normalized = tuple(normalize_axis(name, a, ndim) for a in sequence)
    if len(set(normalized)) != len(normalized):
        raise locate(AxisError(f"{name}: axes {tuple(sequence)} repeat a dimension"), user_location())
    return normalized


def normalize_axes(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return one axis, several, or None (all) as sorted non-negative integers."""
    return tuple(range(ndim)) if axes is None else tuple(sorted(axis_list(name, axes, ndim)))


DIMENSIONS = 64
"""Maximum number of dimensions of an array, as in NumPy."""


def normalize_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return a shape, an integer or a sequence of integers, as a tuple."""
    if isinstance(shape, tuple | list):
        if len(shape) > DIMENSIONS:
            message = f"{name}: a shape of {len(shape)} dimensions; an array has at most {DIMENSIONS}"
            raise locate(ShapeError(message), user_location())
        return tuple(integer(f"{name}: extent", n) for n in shape)
    return (integer(f"{name}: shape", shape),)


def new_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of a new array, as `normalize_shape` does. Raises ShapeError for negative extents."""
    extents = normalize_shape(name, shape)
    if any(n < 0 for n in extents):
        raise locate(ShapeError(f"{name}: the shape {extents} has a negative extent"), user_location())
    return extents
