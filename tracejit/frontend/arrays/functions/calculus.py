"""Differences and integrals along axes: composed of other functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.dtypes import result_type
from tracejit.frontend.arrays.functions.manipulation import broadcast_to
from tracejit.frontend.arrays.functions.movement import concat
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def diff(x: Any, /, *, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> NDArray:
    """Differences of neighbours along an axis, `n` times: the extent falls by `n`.

    prepend, append: what is joined before and behind first; arrays, or numbers for one element each. The
    dtype stays; booleans are compared (``!=``), as in NumPy.
    Raises AxisError for an axis out of range, ArgumentError for a negative `n` or an array without
    dimensions, ShapeError for joined arrays whose other extents differ.

    >>> import tracejit as tj
    >>> tj.diff(tj.asarray([1, 4, 9, 16]), n=2)
    NDArray([2, 2], dtype=int64)
    """
    array = dispatch.as_array("diff", x)
    times = integer("diff", n)
    if times < 0:
        raise locate(ArgumentError(f"diff: n is {times}; it counts differences, 0 or more"), user_location())
    if not array.ndim:
        what = "diff: an array without dimensions has no neighbours; give at least one dimension"
        raise locate(ArgumentError(what), user_location())
    if not times:
        return array
    position = normalize_axis("diff", axis, array.ndim)
    ends = [_end(end, array, position) for end in (prepend, append)]
    if ends != [None, None]:
        whole = [part for part in (ends[0], array, ends[1]) if part is not None]
        array = concat(whole, axis=position)
    for _ in range(times):
        later, earlier = (array[_along(array, position, s)] for s in (slice(1, None), slice(None, -1)))
        array = later != earlier if array.dtype.kind == "b" else later - earlier
    return array


def _along(x: Any, axis: int, part: slice) -> tuple[slice, ...]:
    """The index that takes a slice along one axis."""
    return (*[slice(None)] * axis, part, *[slice(None)] * (x.ndim - axis - 1))


def _end(end: Any, x: Any, axis: int) -> Any:
    """What is joined to `x`: one element along the axis for a number, else the array; None stays."""
    if end is None:
        return None
    given = dispatch.as_operand("diff", end)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if not isinstance(given, ArrayCore):
        return dispatch.full(given, shape, result_type(x, given), x.device, "diff")
    array: Any = given
    return array if array.ndim else broadcast_to(array, shape)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> NDArray:
    """The integral along an axis by the trapezoidal rule, over points `x` or at distances `dx`.

    y: numbers of any shape; x: points, 1-dimensional or of a shape that broadcasts; dx: a number or an array.
    The axis falls away.
    Raises AxisError for an axis out of range, ShapeError where `x` does not fit.

    >>> import tracejit as tj
    >>> tj.trapezoid(tj.asarray([1.0, 2.0, 3.0]), dx=2.0)
    NDArray(8., dtype=float32)
    """
    values = dispatch.as_array("trapezoid", y)
    position = normalize_axis("trapezoid", axis, values.ndim)
    width = dx
    if x is not None:
        points = dispatch.as_array("trapezoid", x)
        if points.ndim == 1:
            if points.shape[0] != values.shape[position]:
                what = f"trapezoid: {points.shape[0]} points for {values.shape[position]} values"
                raise locate(ShapeError(what), user_location())
            width = diff(points).reshape(-1, *[1] * (values.ndim - position - 1))
        else:
            width = diff(points, axis=position)
    later, earlier = (values[_along(values, position, s)] for s in (slice(1, None), slice(None, -1)))
    return (width * (later + earlier) / 2.0).sum(axis=position)


__all__ = ["diff", "trapezoid"]
