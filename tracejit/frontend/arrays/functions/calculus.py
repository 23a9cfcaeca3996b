"""Differences, slopes and integrals of samples along axes, and interpolation between them."""

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
    """The array to join to `x`: one element along the axis for a number, else itself; None stays."""
    if end is None:
        return None
    given = dispatch.as_operand("diff", end)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if not isinstance(given, ArrayCore):
        return dispatch.full(given, shape, result_type(x, given), x.device, "diff")
    array: Any = given
    return array if array.ndim else broadcast_to(array, shape)


@public
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


@public
def ediff1d(x: Any, /, to_end: Any = None, to_begin: Any = None) -> NDArray:
    """Differences of neighbours in the flattened array, with elements before and behind them if given.

    The dtype stays. Raises DTypeError for elements that it cannot hold, and for bool.

    >>> import tracejit as tj
    >>> tj.ediff1d(tj.asarray([1, 2, 4]), to_begin=-99)
    NDArray([-99,   1,   2], dtype=int64)
    """
    line = ravel(asarray(x))
    if line.dtype.kind == "b":
        raise locate(DTypeError("ediff1d: not defined for bool; cast it with astype"), user_location())
    found = diff(line) if line.size else line
    ends = [None if end is None else ravel(asarray(end)) for end in (to_begin, to_end)]
    for name, end in zip(("to_begin", "to_end"), ends, strict=True):
        if end is not None and not np.can_cast(end.dtype, line.dtype, "same_kind"):
            what = f"ediff1d: {name} of {end.dtype} does not fit the array's {line.dtype}; cast it first"
            raise locate(DTypeError(what), user_location())
    parts = [part for part in (ends[0], found, ends[1]) if part is not None]
    return concat([dispatch.cast(part, line.dtype) for part in parts])


# -- gradients of samples ------------------------------------------------------------------------------------


@public
def gradient(x: Any, /, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes along axes by central differences inside, by one-sided ones of the order 1 or 2 at the ends.

    spacing: nothing (distances are 1), a distance for all axes, or for each axis a distance or an array of
    the coordinates of its points, which need not be even. The result, for several axes a tuple of results,
    has the shape of `x` and is floating.
    Raises ShapeError for an axis that is too short or coordinates that do not fit, ArgumentError for another
    `edge_order` or number of spacings, AxisError for an axis out of range.
    Method: Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids", 1988.

    >>> import tracejit as tj
    >>> tj.gradient(tj.asarray([1.0, 4.0, 9.0, 16.0]))
    NDArray([3., 4., 6., 7.], dtype=float32)
    """
    given: Any = asarray(x)
    array = given if is_inexact(given.dtype) else dispatch.cast(given, FLOAT64)
    axes = tuple(range(array.ndim)) if axis is None else axis_list("gradient", axis, array.ndim)
    if edge_order not in (1, 2):
        raise locate(ArgumentError(f"gradient: edge_order is 1 or 2, not {edge_order}"), user_location())
    if len(spacing) not in (0, 1, len(axes)) or (len(spacing) == 1 != len(axes) and np.ndim(spacing[0])):
        what = (
            f"gradient: {len(spacing)} spacings for {len(axes)} axes; give none, one number, or one for each"
        )
        raise locate(ArgumentError(what), user_location())
    steps = spacing * len(axes) if len(spacing) == 1 else spacing or (1.0,) * len(axes)
    found = tuple(_slope(array, a, step, edge_order) for a, step in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _slope(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    """The slope along one axis, over a distance or over coordinates."""
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
        inner = [_mixed([at(slice(k, extent - 2 + k)) for k in range(3)], _middle_weights(left, right))]
    if edge_order == 1:
        front = (at(slice(1, 2)) - at(first)) / distance(first)
        back = (at(last) - at(slice(-2, -1))) / distance(last)
    else:
        begin, end = (distance(first), distance(slice(1, 2))), (distance(slice(-2, -1)), distance(last))
        front = _mixed([at(slice(k, k + 1)) for k in range(3)], _end_weights(*begin))
        mirrored = [-weight for weight in _end_weights(*end[::-1])]
        back = _mixed([at(slice(extent - 1 - k, extent - k)) for k in range(3)], mirrored)
    return dispatch.cast(concat([front, *inner, back], axis), x.dtype)


def _mixed(values: list[Any], weights: list[Any]) -> Any:
    return values[0] * weights[0] + values[1] * weights[1] + values[2] * weights[2]


def _middle_weights(left: Any, right: Any) -> list[Any]:
    """Weights of three points for the slope at the one in the middle, from their distances."""
    both = left + right
    return [-right / (left * both), (right - left) / (left * right), left / (right * both)]


def _end_weights(near: Any, far: Any) -> list[Any]:
    """Weights of three points for the slope at the first of them, from their distances."""
    both = near + far
    return [-(2 * near + far) / (near * both), both / (near * far), -near / (far * both)]


# -- angles, interpolation -----------------------------------------------------------------------------------


@public
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> NDArray:
    """Angles with jumps of more than half a `period` between neighbours undone by adding whole periods.

    discont: only jumps of at least so much are undone, if that is more than half a period. Integers with an
    integer period stay integers.
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
    rest = (steps + half) % period - half
    if dtype.kind not in "iu" or period % 2 == 0:  # half a period: the sign of the step stays
        rest = where((rest == -half) & (steps > 0), half, rest)
    least = half if discont is None else discont
    jumps = where(absolute(steps) < least, 0, rest - steps)
    whole = dispatch.cast(angles, dtype)
    shift = cumsum(dispatch.cast(jumps, dtype), axis=position, dtype=dtype)
    first = whole[_along(whole, position, slice(None, 1))]
    return concat([first, whole[_along(whole, position, slice(1, None))] + shift], position)


@public
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> NDArray:
    """Values of a piecewise linear function through the points (`xp`, `fp`) at `x`: float64 or complex128.

    xp: ascending, one dimension; not checked. left, right: the values below and above all points, by default
    those of the first and the last one. With `period` the function repeats, and `xp` may have any order.
    The result has the shape of `x`.
    Raises ShapeError for points that are no two arrays of equal length, ArgumentError for none of them and
    for a period of 0.

    >>> import tracejit as tj
    >>> tj.interp([0.5, 1.5, 9.0], [0, 1, 2], [10, 20, 40])
    NDArray([15., 30., 40.], dtype=float64)
    """
    at, places = (dispatch.cast(asarray(v, _wide(v)), FLOAT64) for v in (x, xp))
    given = asarray(fp, _wide(fp))
    values: Any = dispatch.cast(given, COMPLEX128 if given.dtype.kind == "c" else FLOAT64)
    if places.ndim != 1 or values.shape != places.shape:
        what = (
            f"interp: points of shapes {places.shape} and {values.shape}; both need one dimension, and agree"
        )
        raise locate(ShapeError(what), user_location())
    if not places.size:
        raise locate(ArgumentError("interp: there are no points"), user_location())
    if period is not None:
        at, places, values = _repeated(at, places, values, period)
        left = right = None
    count = places.shape[0]
    segment = clip(searchsorted(places, at, "right") - 1, 0, max(count - 2, 0))
    if count == 1:
        found = values[segment]
    else:
        begin, end, low, high = places[segment], places[segment + 1], values[segment], values[segment + 1]
        width = end - begin
        share = (at - begin) / where(width == 0, 1.0, width)
        found = where(at == end, high, low + share * (high - low))
    found = where(at < places[0], values[0] if left is None else left, found)
    found = where(at > places[-1], values[-1] if right is None else right, found)
    return dispatch.cast(where(isnan(at), at, found), values.dtype)


def _wide(x: Any) -> np.dtype | None:
    """float64 for numbers and lists of them, which would become float32; None for what has a dtype."""
    known = on_host(x)
    return FLOAT64 if known is not None and not isinstance(x, np.ndarray) and known.dtype == FLOAT64 else None


def _repeated(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """`x` within one period, and the points of it in order, with one more at both ends."""
    if is_number(period) and period == 0:
        raise locate(ArgumentError("interp: the period must not be 0"), user_location())
    length = absolute(period) if hasattr(period, "dtype") else abs(period)
    within = xp % length
    order = argsort(within)
    places, values = take(within, order), take(fp, order)
    return (
        x % length,
        concat([places[-1:] - length, places, places[:1] + length]),
        concat([values[-1:], values, values[:1]]),
    )
