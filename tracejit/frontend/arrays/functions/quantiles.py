"""Medians and quantiles, with and without nan: a sort, and elements picked from the sorted rows.

The rows of an array (the axes named, flattened) are sorted, nan last. Each method says at which *place*, a
fraction between positions, a quantile stands among n elements (Hyndman and Fan, "Sample quantiles in
statistical packages", 1996); between the two neighbours of a place the value is interpolated. Functions that
ignore nan have another n for each row.

Numbers and lists of numbers are weak quantiles: the result keeps the array's floating dtype. Quantiles from
outside are checked at once, those in arrays when the result is computed.

>>> import tracejit as tj
>>> tj.quantile(tj.asarray([1.0, 2.0, 4.0, 8.0]), 0.5)
NDArray(3., dtype=float32)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import normalize_axes
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.checks import checked, on_host, require
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, clip, where
from tracejit.frontend.arrays.functions.elementwise import round as rounded
from tracejit.frontend.arrays.functions.manipulation import moveaxis
from tracejit.frontend.arrays.functions.reductions import count_nonzero, mean
from tracejit.frontend.arrays.functions.scans import cumsum
from tracejit.frontend.arrays.functions.sorting import along
from tracejit.frontend.arrays.functions.statistics import broadcast_weights
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_floating, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")
floor, ceil, isnan = FUNCTIONS["floor"], FUNCTIONS["ceil"], FUNCTIONS["isnan"]


# -- places --------------------------------------------------------------------------------------------------


def _between(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    """Places n q + m, where m is linear in q: Hyndman and Fan's continuous methods."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _is_whole(x: Any) -> Any:
    return x == floor(x)


def _inverted(n: Any, q: Any) -> Any:
    scaled = n * q  # compared before anything is added: a fused multiply-add would not round it
    return where(_is_whole(scaled), scaled - 1, floor(scaled))


def _closest(n: Any, q: Any) -> Any:
    doubled = n * q * 2
    below = floor((doubled - 1) / 2)  # of places that end in .5, the even number above or below
    return where((doubled % 2 == 1) & (below % 2 == 0), below - 1, below)


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "averaged_inverted_cdf": lambda n, q: where(_is_whole(n * q), n * q - 0.5, floor(n * q)),
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "linear": lambda n, q: (n - 1) * q,
    "median_unbiased": _between(1 / 3, 1 / 3),
    "normal_unbiased": _between(3 / 8, 3 / 8),
    "midpoint": lambda n, q: 0.5 * (floor((n - 1) * q) + ceil((n - 1) * q)),
}
"""Methods that interpolate: the place of the quantile `q` among `n` elements, counted from 0."""

POSITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": _inverted,
    "closest_observation": _closest,
    "lower": lambda n, q: floor((n - 1) * q),
    "higher": lambda n, q: ceil((n - 1) * q),
    "nearest": lambda n, q: rounded((n - 1) * q),
}
"""Methods that pick an element: its position."""

METHODS = (*POSITIONS, *PLACES)


# -- rows ----------------------------------------------------------------------------------------------------


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """The axes, flattened, as the last dimension."""
    kept = [a for a in range(x.ndim) if a not in axes]
    view = x._view.permute([*kept, *axes])
    shape = (*[x.shape[a] for a in kept], math.prod(x.shape[a] for a in axes))
    return ArrayCore.new(x._storage, view).reshape(shape)


def _picked(ordered: Any, index: Any) -> Any:
    """Elements of each row at positions in range: the same for all (one dimension), or for each its own."""
    if index.ndim == 1 and ordered.ndim > 1:
        return dispatch.emit(ops.gather, ordered, index, axis=ordered.ndim - 1)
    return along(ordered, index, ordered.ndim - 1)


def _numbers(rows: Any) -> Any:
    """The number of elements of each row that are no nan, with a last dimension of extent 1."""
    return count_nonzero(~isnan(rows), axis=-1, keepdims=True)


def _nan_where(condition: Any, x: Any) -> Any:
    return dispatch.cast(where(condition, math.nan, x), x.dtype)


def _last(ordered: Any) -> Any:
    view = ordered._view
    return ArrayCore.new(ordered._storage, view.slice_axis(ordered.ndim - 1, view.shape[-1] - 1, None))


# -- quantiles -----------------------------------------------------------------------------------------------


class _Quantiles:
    """The wanted quantiles: their `values`, flattened, and the `shape` and `dtype` of results.

    whole:    they are integers, 0 or 1, so that the method "linear" picks an element
    in_range: None if that is known
    """

    def __init__(self, name: str, q: Any, x: Any, scale: int):
        known, self.what = on_host(q), f"{name}: quantiles must lie in the range 0 to {scale}"
        if known is not None:
            require(known.dtype.kind in "biuf", f"{name}: quantiles are numbers, not {known.dtype}")
            require(np.all((known >= 0) & (known <= scale)), self.what)
        is_weak = isinstance(q, np.float64) or not isinstance(q, ArrayCore | np.ndarray | np.generic)
        given: Any = asarray(q if known is None else known)
        if is_weak and is_floating(given.dtype):
            given = asarray(q, FLOAT64)
        if given.ndim > 2:
            what = f"{name}: q has shape {given.shape}; give 0 to 2 dimensions"
            raise locate(ShapeError(what), user_location())
        self.shape, is_integer = given.shape, given.dtype.kind in "biu"
        self.whole = is_integer and scale == 1
        kind = FLOAT64 if is_weak or is_integer else given.dtype
        self.values = dispatch.cast(given, kind).reshape((given.size,)) / scale
        self.in_range = None if known is not None else (self.values >= 0) & (self.values <= 1)
        precise = x.dtype if is_floating(x.dtype) else FLOAT64
        self.dtype = precise if is_weak else promotion.common(name, (precise, kind))

    def positions(self, index: Any, extent: int) -> Any:
        """`index` as positions in rows of so many elements; one out of range is an error at run time."""
        found = dispatch.cast(index, INT64)
        return found if self.in_range is None else checked(found, self.in_range, extent, self.what)


def _quantile(
    name: str,
    x: Any,
    q: Any,
    axis: Any,
    method: str,
    keepdims: bool,
    weights: Any,
    *,
    scale: int = 1,
    skips_nan: bool = False,
) -> Any:
    """All four functions: `q` in 0 to `scale`, nan ignored or not."""
    array: Any = asarray(x)
    if array.dtype.kind == "c":
        raise locate(DTypeError(f"{name}: complex numbers have no order; got {array.dtype}"), user_location())
    if method not in METHODS:
        what = f"{name}: method {method!r} is none of {', '.join(METHODS)}"
        raise locate(ArgumentError(what), user_location())
    wanted = _Quantiles(name, q, array, scale)
    axes = normalize_axes(name, axis, array.ndim)
    rows = _rows(array, axes)
    extent = rows.shape[-1]
    if not extent and not skips_nan:
        raise locate(ShapeError(f"{name}: there are no elements along axis {axis}"), user_location())
    ignores = skips_nan and is_floating(array.dtype)
    if weights is not None:
        if method != "inverted_cdf":
            what = f'{name}: weights go with the method "inverted_cdf" only, not {method!r}'
            raise locate(ArgumentError(what), user_location())
        known = on_host(weights)
        require(known is None or np.all(known >= 0), f"{name}: weights must not be negative")
        require(known is None or np.any(known > 0), f"{name}: all weights are 0")
        each = _rows(broadcast_weights(name, weights, array, axis), axes)
        found = _weighted(rows, each, wanted, ignores)
    elif not extent:
        shape = (*rows.shape[:-1], wanted.values.size)
        found = dispatch.full(math.nan, shape, wanted.dtype, array.device, name)
    else:
        found = _unweighted(rows, wanted, method, ignores)
    kept = tuple(1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes)
    return moveaxis(found, -1, 0).reshape((*wanted.shape, *kept))


def _unweighted(rows: Any, wanted: _Quantiles, method: str, ignores: bool) -> Any:
    """Quantiles along the last dimension of the rows."""
    ordered, extent, q = dispatch.emit(ops.sort, rows, axis=rows.ndim - 1), rows.shape[-1], wanted.values
    count = dispatch.cast(_numbers(rows), q.dtype) if ignores else extent
    most = dispatch.apply(ops.maximum, count - 1, 0) if ignores else extent - 1

    def at(index: Any) -> Any:
        clipped = clip(index, 0, most)
        return _picked(ordered, wanted.positions(clipped, extent))

    if method in POSITIONS or (method == "linear" and wanted.whole):
        found = at(POSITIONS.get(method, PLACES["linear"])(count, q))
    else:
        found = _interpolated(at, PLACES[method](count, q), wanted.dtype)
    if not is_floating(rows.dtype):
        return found
    return _nan_where(count == 0 if ignores else isnan(_last(ordered)), found)


def _interpolated(at: Callable[[Any], Any], place: Any, dtype: np.dtype) -> Any:
    """The value at a place between two positions; from the nearer one, so that both ends are exact."""
    below, above = at(floor(place)), at(floor(place) + 1)
    fraction = place - floor(place)
    share = dispatch.cast(fraction, dtype)
    distance = dispatch.cast(above - below, dtype)
    return where(share >= 0.5, above - distance * (1 - share), below + distance * share)


def _weighted(rows: Any, weights: Any, wanted: _Quantiles, ignores: bool) -> Any:
    """The first element up to which the weights reach the quantile of their sum."""
    axis, extent = rows.ndim - 1, rows.shape[-1]
    each = dispatch.cast(weights, FLOAT64)
    if ignores:
        each = where(isnan(rows), 0.0, each)
    order = dispatch.emit(ops.argsort, rows, axis=axis)
    ordered = along(rows, order, axis)
    reached: Any = cumsum(along(each, order, axis), axis=axis)
    share = dispatch.cast(reached / _last(reached), wanted.values.dtype)
    is_before = (share[..., None, :] < wanted.values[:, None]) | (share[..., None, :] == 0)
    found = _picked(ordered, wanted.positions(clip(count_nonzero(is_before, axis=-1), 0, extent - 1), extent))
    if not is_floating(rows.dtype):
        return found
    return _nan_where(isnan(_last(share)) if ignores else isnan(_last(ordered)), found)


@public
def quantile(
    x: Any,
    q: Any,
    axis: Any = None,
    *,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> NDArray:
    """Quantiles over axes: the values below which a share `q` of the elements lies; nan if one is nan.

    q: a number from 0 to 1, or an array or list of up to two dimensions, which come first in the result.
    method: one of NumPy's: "linear" (interpolated between the neighbours), "inverted_cdf", "hazen", ...
    weights: for the method "inverted_cdf"; of the shape of `x` or along the axes named. `overwrite_input` is
    NumPy's, and changes nothing.
    The result is floating, but for methods that pick an element, which keep the dtype.
    Raises ArgumentError for a `q` out of range (OutOfBoundsError when the result is computed, for arrays), an
    unknown method and weights that do not fit, ShapeError where there are no elements, AxisError for an axis
    out of range, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.quantile(tj.asarray([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]]), [0.0, 0.75], axis=1)
    NDArray([[1. , 4. ],
             [2.5, 7. ]], dtype=float32)
    """
    return _quantile("quantile", x, q, axis, method, keepdims, weights)


@public
def percentile(
    x: Any,
    q: Any,
    axis: Any = None,
    *,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> NDArray:
    """Percentiles over axes: `quantile` with `q` from 0 to 100.

    Arguments, shape, dtype and errors are those of `quantile`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.percentile(tj.asarray([1.0, 2.0, 3.0]), 75)
    NDArray(2.5, dtype=float32)
    """
    return _quantile("percentile", x, q, axis, method, keepdims, weights, scale=100)


@public
def nanquantile(
    x: Any,
    q: Any,
    axis: Any = None,
    *,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> NDArray:
    """Quantiles over axes of the elements that are no nan; nan where there is none.

    Arguments, shape, dtype and errors are those of `quantile`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanquantile(tj.asarray([1.0, tj.nan, 3.0]), 0.5)
    NDArray(2., dtype=float32)
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, weights, skips_nan=True)


@public
def nanpercentile(
    x: Any,
    q: Any,
    axis: Any = None,
    *,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> NDArray:
    """Percentiles over axes of the elements that are no nan: `nanquantile` with `q` from 0 to 100.

    Arguments, shape, dtype and errors are those of `quantile`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanpercentile(tj.asarray([1.0, tj.nan, 3.0]), 50)
    NDArray(2., dtype=float32)
    """
    return _quantile("nanpercentile", x, q, axis, method, keepdims, weights, scale=100, skips_nan=True)


# -- medians -------------------------------------------------------------------------------------------------


def _median(name: str, x: Any, axis: Any, keepdims: bool, *, skips_nan: bool) -> Any:
    array: Any = asarray(x)
    axes = normalize_axes(name, axis, array.ndim)
    rows = _rows(array, axes)
    extent, last = rows.shape[-1], rows.ndim - 1
    kept = tuple(1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes)
    if not extent:
        dtype = array.dtype if is_inexact(array.dtype) else FLOAT64
        return dispatch.full(math.nan, kept, dtype, array.device, name)
    ordered = dispatch.emit(ops.sort, rows, axis=last)
    if skips_nan and is_inexact(array.dtype):
        count = _numbers(rows)
        pair = [clip((count + less) // 2, 0, extent - 1) for less in (-1, 0)]
        lower, upper = (_picked(ordered, index) for index in pair)
        return ((lower + upper) / 2).reshape(kept)
    middle = ordered._view.slice_axis(last, (extent - 1) // 2, extent // 2 + 1)
    found = mean(ArrayCore.new(ordered._storage, middle), axis=-1)
    if is_inexact(array.dtype):
        found = _nan_where(isnan(_last(ordered)).reshape(found.shape), found)
    return found.reshape(kept)


@public
def median(x: Any, axis: Any = None, *, overwrite_input: bool = False, keepdims: bool = False) -> NDArray:
    """The element in the middle over axes, or the mean of the two there; nan if one is nan, or there is none.

    The dtype is that of `mean`. `overwrite_input` is NumPy's, and changes nothing.
    Raises AxisError for an axis out of range, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.median(tj.asarray([[3.0, 1.0, 2.0], [1.0, 1.0, 7.0]]), axis=1)
    NDArray([2., 1.], dtype=float32)
    """
    return _median("median", x, axis, keepdims, skips_nan=False)


@public
def nanmedian(x: Any, axis: Any = None, *, overwrite_input: bool = False, keepdims: bool = False) -> NDArray:
    """`median` of the elements that are no nan; nan where there is none.

    The dtype is that of `mean`. `overwrite_input` is NumPy's, and changes nothing.
    Raises AxisError for an axis out of range, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nanmedian(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(2., dtype=float32)
    """
    return _median("nanmedian", x, axis, keepdims, skips_nan=True)
