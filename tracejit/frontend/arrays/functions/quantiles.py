"""Medians and quantiles, with and without nan: a sort, and a gather from the sorted rows.

The rows of an array (the reduced axes, flattened) are sorted, nan last. Each method defines the *virtual
index* of a quantile among n elements, which may be fractional (Hyndman and Fan, "Sample quantiles in
statistical packages", 1996); the value is interpolated between its two neighbours. For functions that ignore
nan, n differs by row.

Numbers and lists of numbers are weak quantiles: the result has the floating dtype of the array. External
quantiles are checked immediately, those in NDArrays when the result is computed.

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
from tracejit.frontend.arrays.functions.sorting import gather_along
from tracejit.frontend.arrays.functions.statistics import broadcast_weights
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_floating, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")
floor, ceil, isnan = FUNCTIONS["floor"], FUNCTIONS["ceil"], FUNCTIONS["isnan"]


# -- virtual indices -----------------------------------------------------------------------------------------


def _continuous(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    """Return the virtual index n q + m with m linear in q: Hyndman and Fan's continuous methods."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _is_integral(x: Any) -> Any:
    return x == floor(x)


def _inverted(n: Any, q: Any) -> Any:
    scaled = n * q  # compared before any addition, since a fused multiply-add would not round it
    return where(_is_integral(scaled), scaled - 1, floor(scaled))


def _closest(n: Any, q: Any) -> Any:
    doubled = n * q * 2
    below = floor((doubled - 1) / 2)  # virtual indices that end in .5 are rounded to even
    return where((doubled % 2 == 1) & (below % 2 == 0), below - 1, below)


VIRTUAL_INDICES: dict[str, Callable[[Any, Any], Any]] = {
    "averaged_inverted_cdf": lambda n, q: where(_is_integral(n * q), n * q - 0.5, floor(n * q)),
    "interpolated_inverted_cdf": _continuous(0, 1),
    "hazen": _continuous(0.5, 0.5),
    "weibull": _continuous(0, 0),
    "linear": lambda n, q: (n - 1) * q,
    "median_unbiased": _continuous(1 / 3, 1 / 3),
    "normal_unbiased": _continuous(3 / 8, 3 / 8),
    "midpoint": lambda n, q: 0.5 * (floor((n - 1) * q) + ceil((n - 1) * q)),
}
"""Methods that interpolate: the virtual index, from 0 on, of the quantile `q` among `n` elements."""

POSITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "inverted_cdf": _inverted,
    "closest_observation": _closest,
    "lower": lambda n, q: floor((n - 1) * q),
    "higher": lambda n, q: ceil((n - 1) * q),
    "nearest": lambda n, q: rounded((n - 1) * q),
}
"""Methods that select an element: its position."""

METHODS = (*POSITIONS, *VIRTUAL_INDICES)


# -- rows ----------------------------------------------------------------------------------------------------


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """Flatten the axes into the last dimension."""
    batch = [a for a in range(x.ndim) if a not in axes]
    view = x._view.permute([*batch, *axes])
    shape = (*[x.shape[a] for a in batch], math.prod(x.shape[a] for a in axes))
    return ArrayCore.new(x._storage, view).reshape(shape)


def _gathered(ordered: Any, index: Any) -> Any:
    """Gather elements of each row at positions in range, common to all rows (1-dimensional) or by row."""
    if index.ndim == 1 and ordered.ndim > 1:
        return dispatch.emit(ops.gather, ordered, index, axis=ordered.ndim - 1)
    return gather_along(ordered, index, ordered.ndim - 1)


def _numbers(rows: Any) -> Any:
    """Return the number of elements of each row that are not nan, with a last dimension of extent 1."""
    return count_nonzero(~isnan(rows), axis=-1, keepdims=True)


def _nan_where(condition: Any, x: Any) -> Any:
    return dispatch.cast(where(condition, math.nan, x), x.dtype)


def _last(ordered: Any) -> Any:
    """The last element of each row, with a last dimension of extent 1."""
    view = ordered._view
    return ArrayCore.new(ordered._storage, view.slice_axis(ordered.ndim - 1, view.shape[-1] - 1, None))


# -- quantiles -----------------------------------------------------------------------------------------------


class _Quantiles:
    """The requested quantiles: their `values`, flattened, and the `shape` and `dtype` of results.

    is_integer: whether they are integers, 0 or 1, for which the method "linear" selects an element
    in_range:   a condition on the values, to be checked at run time; None if they are already checked
    """

    def __init__(self, name: str, q: Any, x: Any, scale: int):
        known, self.what = on_host(q), f"{name}: quantiles must lie in the range 0 to {scale}"
        if known is not None:
            require(known.dtype.kind in "biuf", f"{name}: quantiles are numbers, not {known.dtype}")
            require(np.all((known >= 0) & (known <= scale)), self.what)
        is_weak = isinstance(q, np.float64) or not isinstance(q, ArrayCore | np.ndarray | np.generic)
        array: Any = asarray(q if known is None else known)
        if is_weak and is_floating(array.dtype):
            array = asarray(q, FLOAT64)
        if array.ndim > 2:
            what = f"{name}: q has shape {array.shape}; give 0 to 2 dimensions"
            raise locate(ShapeError(what), user_location())
        self.shape, has_integers = array.shape, array.dtype.kind in "biu"
        self.is_integer = has_integers and scale == 1
        kind = FLOAT64 if is_weak or has_integers else array.dtype
        self.values = dispatch.cast(array, kind).reshape((array.size,)) / scale
        self.in_range = None if known is not None else (self.values >= 0) & (self.values <= 1)
        precise = x.dtype if is_floating(x.dtype) else FLOAT64
        self.dtype = precise if is_weak else promotion.common(name, (precise, kind))

    def positions(self, index: Any, extent: int) -> Any:
        """Return `index` as positions in rows of `extent` elements, with the run-time check of `in_range`."""
        position = dispatch.cast(index, INT64)
        return position if self.in_range is None else checked(position, self.in_range, extent, self.what)


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
    """Implement all four functions: `q` is in 0 to `scale`, and nan is ignored with `skips_nan`."""
    array: Any = asarray(x)
    if array.dtype.kind == "c":
        raise locate(DTypeError(f"{name}: complex numbers have no order; got {array.dtype}"), user_location())
    if method not in METHODS:
        what = f"{name}: method {method!r} is none of {', '.join(METHODS)}"
        raise locate(ArgumentError(what), user_location())
    quantiles = _Quantiles(name, q, array, scale)
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
        row_weights = _rows(broadcast_weights(name, weights, array, axis), axes)
        result = _weighted(rows, row_weights, quantiles, ignores)
    elif not extent:
        shape = (*rows.shape[:-1], quantiles.values.size)
        result = dispatch.full(math.nan, shape, quantiles.dtype, array.device, name)
    else:
        result = _unweighted(rows, quantiles, method, ignores)
    batch = tuple(1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes)
    return moveaxis(result, -1, 0).reshape((*quantiles.shape, *batch))


def _unweighted(rows: Any, quantiles: _Quantiles, method: str, ignores: bool) -> Any:
    """Return the quantiles along the last dimension of the rows."""
    ordered, extent, q = dispatch.emit(ops.sort, rows, axis=rows.ndim - 1), rows.shape[-1], quantiles.values
    count = dispatch.cast(_numbers(rows), q.dtype) if ignores else extent
    maximum = dispatch.apply(ops.maximum, count - 1, 0) if ignores else extent - 1

    def at(index: Any) -> Any:
        clipped = clip(index, 0, maximum)
        return _gathered(ordered, quantiles.positions(clipped, extent))

    if method in POSITIONS or (method == "linear" and quantiles.is_integer):
        result = at(POSITIONS.get(method, VIRTUAL_INDICES["linear"])(count, q))
    else:
        result = _interpolated(at, VIRTUAL_INDICES[method](count, q), quantiles.dtype)
    if not is_floating(rows.dtype):
        return result
    return _nan_where(count == 0 if ignores else isnan(_last(ordered)), result)


def _interpolated(at: Callable[[Any], Any], index: Any, dtype: np.dtype) -> Any:
    """Return the value at a virtual index, from its nearer neighbour, so that both ends are exact."""
    below, above = at(floor(index)), at(floor(index) + 1)
    fraction = index - floor(index)
    weight = dispatch.cast(fraction, dtype)
    distance = dispatch.cast(above - below, dtype)
    return where(weight >= 0.5, above - distance * (1 - weight), below + distance * weight)


def _weighted(rows: Any, weights: Any, quantiles: _Quantiles, ignores: bool) -> Any:
    """Return the first element whose cumulative weight is at least the quantile of the total weight."""
    axis, extent = rows.ndim - 1, rows.shape[-1]
    effective = dispatch.cast(weights, FLOAT64)
    if ignores:
        effective = where(isnan(rows), 0.0, effective)
    order = dispatch.emit(ops.argsort, rows, axis=axis)
    ordered = gather_along(rows, order, axis)
    cumulative: Any = cumsum(gather_along(effective, order, axis), axis=axis)
    share = dispatch.cast(cumulative / _last(cumulative), quantiles.values.dtype)
    is_before = (share[..., None, :] < quantiles.values[:, None]) | (share[..., None, :] == 0)
    position = clip(count_nonzero(is_before, axis=-1), 0, extent - 1)
    result = _gathered(ordered, quantiles.positions(position, extent))
    if not is_floating(rows.dtype):
        return result
    return _nan_where(isnan(_last(share)) if ignores else isnan(_last(ordered)), result)


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
    """Quantiles over axes: the values below which a fraction `q` of the elements is; nan if any is nan.

    q: a number from 0 to 1, or an array or list of up to two dimensions, which come first in the result.
    method: one of NumPy's: "linear" (interpolated between the neighbours), "inverted_cdf", "hazen", ...
    weights: for the method "inverted_cdf"; of the shape of `x` or along the axes. `overwrite_input` is
    NumPy's, and has no effect. The result is floating, except for methods that select an element, which
    preserve the dtype.
    Raises ArgumentError for a `q` out of range (for arrays OutOfBoundsError when the result is computed), an
    unknown method and invalid weights, ShapeError if there are no elements, AxisError for an axis out of
    range, DTypeError for complex numbers.

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
    """Quantiles over axes of the elements that are not nan; nan if there are none.

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
    """Percentiles over axes of the elements that are not nan: `nanquantile` with `q` from 0 to 100.

    Arguments, shape, dtype and errors are those of `quantile`. Raises what that raises.

    >>> import tracejit as tj
    >>> tj.nanpercentile(tj.asarray([1.0, tj.nan, 3.0]), 50)
    NDArray(2., dtype=float32)
    """
    return _quantile("nanpercentile", x, q, axis, method, keepdims, weights, scale=100, skips_nan=True)


# -- medians -------------------------------------------------------------------------------------------------


def _median(name: str, x: Any, axis: Any, keepdims: bool, *, skips_nan: bool) -> Any:
    """Implement `median` and `nanmedian`."""
    array: Any = asarray(x)
    axes = normalize_axes(name, axis, array.ndim)
    rows = _rows(array, axes)
    extent, last = rows.shape[-1], rows.ndim - 1
    shape = tuple(1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes)
    if not extent:
        dtype = array.dtype if is_inexact(array.dtype) else FLOAT64
        return dispatch.full(math.nan, shape, dtype, array.device, name)
    ordered = dispatch.emit(ops.sort, rows, axis=last)
    if skips_nan and is_inexact(array.dtype):
        count = _numbers(rows)
        pair = [clip((count + offset) // 2, 0, extent - 1) for offset in (-1, 0)]
        lower, upper = (_gathered(ordered, index) for index in pair)
        return ((lower + upper) / 2).reshape(shape)
    middle = ordered._view.slice_axis(last, (extent - 1) // 2, extent // 2 + 1)
    result = mean(ArrayCore.new(ordered._storage, middle), axis=-1)
    if is_inexact(array.dtype):
        result = _nan_where(isnan(_last(ordered)).reshape(result.shape), result)
    return result.reshape(shape)


@public
def median(x: Any, axis: Any = None, *, overwrite_input: bool = False, keepdims: bool = False) -> NDArray:
    """The middle element over axes, or the mean of the middle two; nan if any is nan, or there are none.

    The dtype is that of `mean`. `overwrite_input` is NumPy's, and has no effect.
    Raises AxisError for an axis out of range, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.median(tj.asarray([[3.0, 1.0, 2.0], [1.0, 1.0, 7.0]]), axis=1)
    NDArray([2., 1.], dtype=float32)
    """
    return _median("median", x, axis, keepdims, skips_nan=False)


@public
def nanmedian(x: Any, axis: Any = None, *, overwrite_input: bool = False, keepdims: bool = False) -> NDArray:
    """`median` of the elements that are not nan; nan if there are none.

    The dtype is that of `mean`. `overwrite_input` is NumPy's, and has no effect.
    Raises AxisError for an axis out of range, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.nanmedian(tj.asarray([1.0, tj.nan, 3.0]))
    NDArray(2., dtype=float32)
    """
    return _median("nanmedian", x, axis, keepdims, skips_nan=True)
