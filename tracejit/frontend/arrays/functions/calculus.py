"""Differences, gradients and integrals of samples along axes, and interpolation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import axis_list, integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.checks import on_host
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.dtypes import result_type
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, clip, where
from tracejit.frontend.arrays.functions.manipulation import broadcast_to, ravel
from tracejit.frontend.arrays.functions.movement import concat, take
from tracejit.frontend.arrays.functions.scans import cumsum
from tracejit.frontend.arrays.functions.sorting import argsort, searchsorted
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import is_number
from tracejit.ir.types import is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

FLOAT64, COMPLEX128 = np.dtype("float64"), np.dtype("complex128")
absolute, isnan = FUNCTIONS["abs"], FUNCTIONS["isnan"]


@public
def diff(x: Any, /, *, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> NDArray:
    """Differences of adjacent elements along an axis, `n` times: the extent decreases by `n`.

    prepend, append: arrays that are first joined to the front and the back, or numbers for one element each.
    The dtype is unchanged; bools are compared (``!=``), as in NumPy.
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
        joined = [part for part in (ends[0], array, ends[1]) if part is not None]
        array = concat(joined, axis=position)
    for _ in range(times):
        later, earlier = (array[_along(array, position, s)] for s in (slice(1, None), slice(None, -1)))
        array = later != earlier if array.dtype.kind == "b" else later - earlier
    return array


def _along(x: Any, axis: int, part: slice) -> tuple[slice, ...]:
    """Return the index for a slice along one axis."""
    return (*[slice(None)] * axis, part, *[slice(None)] * (x.ndim - axis - 1))


def _end(end: Any, x: Any, axis: int) -> Any:
    """Return the array to join to `x`, or None: a number becomes one element along the axis."""
    if end is None:
        return None
    operand = dispatch.as_operand("diff", end)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if not isinstance(operand, ArrayCore):
        return dispatch.full(operand, shape, result_type(x, operand), x.device, "diff")
    array: Any = operand
    return array if array.ndim else broadcast_to(array, shape)


@public
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> NDArray:
    """The integral along an axis by the trapezoidal rule, over points `x` or with spacing `dx`.

    y: numbers of any shape; x: points, 1-dimensional or of a shape that broadcasts; dx: a number or an array.
    The axis is removed.
    Raises AxisError for an axis out of range, ShapeError if `x` does not match.

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


@public
def ediff1d(x: Any, /, to_end: Any = None, to_begin: Any = None) -> NDArray:
    """Differences of adjacent elements in the flattened array, with optional elements before and after them.

    The dtype is unchanged. Raises DTypeError for elements that do not fit it, and for bool.

    >>> import tracejit as tj
    >>> tj.ediff1d(tj.asarray([1, 2, 4]), to_begin=-99)
    NDArray([-99,   1,   2], dtype=int64)
    """
    line = ravel(asarray(x))
    if line.dtype.kind == "b":
        raise locate(DTypeError("ediff1d: not defined for bool; cast it with astype"), user_location())
    differences = diff(line) if line.size else line
    ends = [None if end is None else ravel(asarray(end)) for end in (to_begin, to_end)]
    for name, end in zip(("to_begin", "to_end"), ends, strict=True):
        if end is not None and not np.can_cast(end.dtype, line.dtype, "same_kind"):
            what = f"ediff1d: {name} of {end.dtype} does not fit the array's {line.dtype}; cast it first"
            raise locate(DTypeError(what), user_location())
    parts = [part for part in (ends[0], differences, ends[1]) if part is not None]
    return concat([dispatch.cast(part, line.dtype) for part in parts])


# -- gradients of samples ------------------------------------------------------------------------------------


@public
def gradient(x: Any, /, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Gradients along axes, by central differences inside and one-sided ones (order 1 or 2) at the ends.

    spacing: nothing (a spacing of 1), one spacing for all axes, or for each axis a spacing or an array of the
    coordinates of its points, which may be uneven. The result, for several axes a tuple of results, has the
    shape of `x` and is floating.
    Raises ShapeError for an axis that is too short or coordinates of another number, ArgumentError for
    another `edge_order` or number of spacings, AxisError for an axis out of range.
    Method: Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids", 1988.

    >>> import tracejit as tj
    >>> tj.gradient(tj.asarray([1.0, 4.0, 9.0, 16.0]))
    NDArray([3., 4., 6., 7.], dtype=float32)
    """
    array: Any = asarray(x)
    array = array if is_inexact(array.dtype) else dispatch.cast(array, FLOAT64)
    axes = tuple(range(array.ndim)) if axis is None else axis_list("gradient", axis, array.ndim)
    if edge_order not in (1, 2):
        raise locate(ArgumentError(f"gradient: edge_order is 1 or 2, not {edge_order}"), user_location())
    if len(spacing) not in (0, 1, len(axes)) or (len(spacing) == 1 != len(axes) and np.ndim(spacing[0])):
        what = (
            f"gradient: {len(spacing)} spacings for {len(axes)} axes; give none, one number, or one for each"
        )
        raise locate(ArgumentError(what), user_location())
    steps = spacing * len(axes) if len(spacing) == 1 else spacing or (1.0,) * len(axes)
    slopes = tuple(_slope(array, a, step, edge_order) for a, step in zip(axes, steps, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    """Return the gradient along one axis, for a spacing or for coordinates."""
    extent = x.shape[axis]
    if extent < edge_order + 1:
        what = f"gradient: axis {axis} has {extent} points; slopes need at least {edge_order + 1}"
        raise locate(ShapeError(what), user_location())
    h = spacing
    if not is_number(spacing):
        h = asarray(spacing)
        if h.ndim:
            if h.shape != (extent,):
                what = f"gradient: coordinates of shape {h.shape} for {extent} points along axis {axis}"
                raise locate(ShapeError(what), user_location())
            h = diff(h).reshape((-1, *[1] * (x.ndim - axis - 1)))
    first, last = slice(None, 1), slice(-1, None)

    def at(part: slice) -> Any:
        return x[_along(x, axis, part)]

    def distance(part: slice) -> Any:
        return h[part] if hasattr(h, "ndim") and h.ndim else h

    inner = []
    if extent > 2:
        left, right = distance(slice(None, -1)), distance(slice(1, None))
        inner = [_combined([at(slice(k, extent - 2 + k)) for k in range(3)], _middle_weights(left, right))]
    if edge_order == 1:
        front = (at(slice(1, 2)) - at(first)) / distance(first)
        back = (at(last) - at(slice(-2, -1))) / distance(last)
    else:
        begin, end = (distance(first), distance(slice(1, 2))), (distance(slice(-2, -1)), distance(last))
        front = _combined([at(slice(k, k + 1)) for k in range(3)], _end_weights(*begin))
        mirrored = [-weight for weight in _end_weights(*end[::-1])]
        back = _combined([at(slice(extent - 1 - k, extent - k)) for k in range(3)], mirrored)
    return dispatch.cast(concat([front, *inner, back], axis), x.dtype)


def _combined(values: list[Any], weights: list[Any]) -> Any:
    """The linear combination of three values."""
    return values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]


def _middle_weights(left: Any, right: Any) -> list[Any]:
    """Return the weights of three points for the slope at the middle one, from their distances."""
    total = left + right
    return [-right / (left * total), (right - left) / (left * right), left / (right * total)]


def _end_weights(near: Any, far: Any) -> list[Any]:
    """Return the weights of three points for the slope at the first one, from their distances."""
    total = near + far
    return [-(2 * near + far) / (near * total), total / (near * far), -near / (far * total)]


# -- angles, interpolation -----------------------------------------------------------------------------------


@public
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> NDArray:
    """Angles without jumps of more than half a `period` between neighbours: multiples of it are added.

    discont: the minimum size of a jump that is removed, if it exceeds half a period. Integers with an integer
    period remain integers.
    Raises AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.unwrap(tj.asarray([0, 3, 6, 1, 4]), period=8)
    NDArray([ 0,  3,  6,  9, 12], dtype=int64)
    """
    angles: Any = asarray(p)
    position = normalize_axis("unwrap", axis, angles.ndim)
    dtype = result_type(angles, period)
    steps = dispatch.cast(diff(angles, axis=position), dtype)
    half = period // 2 if dtype.kind in "iu" else period / 2
    wrapped = (steps + half) % period - half
    if dtype.kind not in "iu" or period % 2 == 0:  # keep the sign of a step of half a period
        wrapped = where((wrapped == -half) & (steps > 0), half, wrapped)
    threshold = half if discont is None else discont
    jumps = where(absolute(steps) < threshold, 0, wrapped - steps)
    angles = dispatch.cast(angles, dtype)
    shift = cumsum(dispatch.cast(jumps, dtype), axis=position, dtype=dtype)
    first = angles[_along(angles, position, slice(None, 1))]
    return concat([first, angles[_along(angles, position, slice(1, None))] + shift], position)


@public
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> NDArray:
    """The values at `x` of the piecewise linear function through the points (`xp`, `fp`).

    xp: ascending, one dimension; the order is not checked. left, right: the values below and above all
    points, by default those of the first and the last point. With `period` the function is periodic, and `xp`
    may have any order. The result has the shape of `x`; it is float64 or complex128.
    Raises ShapeError unless `xp` and `fp` are 1-dimensional with equal lengths, ArgumentError if there are no
    points and for a period of 0.

    >>> import tracejit as tj
    >>> tj.interp([0.5, 1.5, 9.0], [0, 1, 2], [10, 20, 40])
    NDArray([15., 30., 40.], dtype=float64)
    """
    at, points = (dispatch.cast(asarray(v, _double(v)), FLOAT64) for v in (x, xp))
    values: Any = asarray(fp, _double(fp))
    values = dispatch.cast(values, COMPLEX128 if values.dtype.kind == "c" else FLOAT64)
    if points.ndim != 1 or values.shape != points.shape:
        what = (
            f"interp: points of shapes {points.shape} and {values.shape}; both need one dimension, and agree"
        )
        raise locate(ShapeError(what), user_location())
    if not points.size:
        raise locate(ArgumentError("interp: there are no points"), user_location())
    if period is not None:
        at, points, values = _periodic(at, points, values, period)
        left = right = None
    count = points.shape[0]
    segment = clip(searchsorted(points, at, "right") - 1, 0, max(count - 2, 0))
    if count == 1:
        result = values[segment]
    else:
        begin, end, low, high = points[segment], points[segment + 1], values[segment], values[segment + 1]
        width = end - begin
        fraction = (at - begin) / where(width == 0, 1.0, width)
        result = where(at == end, high, low + fraction * (high - low))
    result = where(at < points[0], values[0] if left is None else left, result)
    result = where(at > points[-1], values[-1] if right is None else right, result)
    return dispatch.cast(where(isnan(at), at, result), values.dtype)


def _double(x: Any) -> np.dtype | None:
    """Return float64 for Python floats and lists of them, which would become float32; None for other data."""
    known = on_host(x)
    return FLOAT64 if known is not None and not isinstance(x, np.ndarray) and known.dtype == FLOAT64 else None


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Reduce `x` and the points to one period; the points are sorted, with one more at both ends."""
    if is_number(period) and period == 0:
        raise locate(ArgumentError("interp: the period must not be 0"), user_location())
    length = absolute(period) if hasattr(period, "dtype") else abs(period)
    reduced = xp % length
    order = argsort(reduced)
    points, values = take(reduced, order), take(fp, order)
    return (
        x % length,
        concat([points[-1:] - length, points, points[:1] + length]),
        concat([values[-1:], values, values[:1]]),
    )
