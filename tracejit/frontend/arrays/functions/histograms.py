"""Counting: histograms over bins, occurrences of integers, and the bins of values.

Values are searched among the edges of bins, and counted by a scatter-add. Values outside are added to an
extra bin, which is dropped. If the edges depend on values (a number of bins), they are computed in the
recording. If the number of edges also depends on values (``bins="auto"``, `bincount` without `length`), the
values are looked at, which makes a traced function piecewise.

>>> import tracejit as tj
>>> tj.histogram(tj.asarray([1.0, 2.0, 2.5, 4.0]), bins=3)[0]
NDArray([1, 2, 1], dtype=int64)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate, message
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.calculus import diff
from tracejit.frontend.arrays.functions.checks import checked, on_host, require
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, clip, where
from tracejit.frontend.arrays.functions.manipulation import flip, ravel
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.functions.ranges import linspace
from tracejit.frontend.arrays.functions.sorting import searchsorted
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread
from tracejit.ir.types import is_floating

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")
isfinite = FUNCTIONS["isfinite"]


def _summed_by(values: Any, index: Any, extent: int) -> Any:
    """Sum values (None: ones) by positions from 0 to `extent`, of which the last one is dropped."""
    if values is None:
        values = dispatch.full(1, index.shape, INT64, index.device)
    if values.dtype.kind == "c":
        parts = (_summed_by(dispatch.emit(part, values), index, extent) for part in (ops.real, ops.imag))
        return dispatch.emit(ops.complex, *parts)
    return dispatch.emit(ops.scatter_add, values, index, axis=0, extent=extent + 1)[:extent]


# -- integers ------------------------------------------------------------------------------------------------


@public
def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> NDArray:
    """The number of occurrences (int64), or the sum of weights (float64), of each integer from 0 on.

    The length of the result is the largest integer plus 1, at least `minlength`. This is a look at `x`: a
    traced function runs piecewise if there are larger integers. With `length` the result has this length, and
    larger integers are ignored.
    Raises ShapeError for more than one dimension and weights of another shape, DTypeError for other dtypes
    than integers and bools, ArgumentError (with `length` OutOfBoundsError, when it is computed) for negative
    integers.

    >>> import tracejit as tj
    >>> tj.bincount(tj.asarray([0, 3, 1, 3]))
    NDArray([1, 1, 0, 2], dtype=int64)
    >>> tj.bincount(tj.asarray([0, 3, 1, 3]), weights=[0.5, 1, 2, 1], length=2)
    NDArray([0.5, 2. ], dtype=float64)
    """
    array: Any = asarray(x)
    if array.ndim != 1:
        raise locate(ShapeError(f"bincount: integers have one dimension, not {array.shape}"), user_location())
    if array.dtype.kind not in "biu" and array.size:
        raise locate(DTypeError(f"bincount: counts integers, not {array.dtype}; use astype"), user_location())
    values = None if weights is None else dispatch.cast(asarray(weights), FLOAT64)
    if values is not None and values.shape != array.shape:
        what = f"bincount: weights of shape {values.shape} for integers of shape {array.shape}"
        raise locate(ShapeError(what), user_location())
    result_length = integer("bincount: minlength", minlength)
    require(result_length >= 0, f"bincount: minlength {result_length} is negative")
    index, what = dispatch.cast(array, INT64), "bincount: there are negative integers, which are not counted"
    if length is not None:
        extent = integer("bincount: length", length)
        require(extent >= 0, f"bincount: length {extent} is negative")
        index = checked(dispatch.apply(ops.minimum, index, extent), index >= 0, extent + 1, what)
        return _summed_by(values, index, extent)
    is_traced = thread.trace is not None
    if is_traced and index.size and result_length and (index.min() >= 0) & (index.max() < result_length):
        return _summed_by(values, index, result_length)
    if index.size:
        elements = index.numpy(copy=False)
        require(elements.min() >= 0, what)
        result_length = max(result_length, int(elements.max()) + 1)
    return _summed_by(values, index, result_length)


# -- edges ---------------------------------------------------------------------------------------------------


def _is_sequence(x: Any) -> bool:
    return isinstance(x, list | tuple) or (isinstance(x, np.ndarray | ArrayCore) and bool(x.ndim))


def _sorted_edges(name: str, bins: Any) -> Any:
    """Return explicit edges of bins as an array; the order of external data is checked."""
    known = on_host(bins)
    edges: Any = asarray(bins if known is None else known)
    if edges.ndim != 1:
        what = f"{name}: edges of bins have one dimension, not shape {edges.shape}"
        raise locate(ShapeError(what), user_location())
    require(known is None or np.all(known[:-1] <= known[1:]), f"{name}: the edges of bins must not decrease")
    return edges


def _bounds(name: str, x: Any, range: Any) -> tuple[Any, Any]:
    """Return the first and the last edge: the `range`, or without one the extremes of the elements."""
    if range is None:
        if not x.size:
            return 0.0, 1.0
        kind = x.dtype if is_floating(x.dtype) else FLOAT64
        first, last = dispatch.cast(x.min(), kind), dispatch.cast(x.max(), kind)
        margin = dispatch.cast(first == last, kind) / 2
        return first - margin, last + margin
    first, last = range
    known = on_host((first, last))
    if known is not None:
        require(np.all(np.isfinite(known)), f"{name}: the range {range} is not finite")
        require(known[0] <= known[1], f"{name}: the range {range} must not end before it begins")
        if known[0] == known[1]:
            return first - 0.5, last + 0.5
    return first, last


def _edges(name: str, x: Any, bins: Any, range: Any) -> Any:
    """Return the edges of bins, specified explicitly, by their number, or by the name of a rule."""
    if isinstance(bins, str):
        try:
            return asarray(np.histogram_bin_edges(x.numpy(), bins, range))
        except ValueError as error:
            raise locate(ArgumentError(f"{name}: {message(error)}"), user_location()) from None
    if _is_sequence(bins):
        return _sorted_edges(name, bins)
    count = integer(f"{name}: bins", bins)
    require(count > 0, f"{name}: there must be at least one bin, not {count}")
    is_precise = not is_floating(x.dtype) or (name == "histogramdd" and range is not None)  # as in NumPy
    first, last = _bounds(name, x, range)
    return linspace(first, last, count + 1, dtype=FLOAT64 if is_precise else x.dtype)


def _values(name: str, x: Any) -> Any:
    """Return the flattened elements, with bools as uint8. Raises DTypeError for complex numbers."""
    array: Any = ravel(asarray(x))
    if array.dtype.kind == "c":
        raise locate(DTypeError(f"{name}: complex numbers have no order; got {array.dtype}"), user_location())
    return dispatch.cast(array, np.dtype("uint8")) if array.dtype.kind == "b" else array


def _bin_of_even(x: Any, edges: Any) -> Any:
    """Return the bins of elements between equally spaced edges; any bin for elements outside.

    The bin is computed without a search, then corrected by comparison with its two edges, because rounding
    can make it one too small or too large. This is the method of NumPy's histograms.
    """
    count, first, last = edges.shape[0] - 1, edges[0], edges[-1]
    x = dispatch.cast(x, edges.dtype)
    guess = where((first <= x) & (x < last), (x - first) / (last - first) * count, 0)
    bin_index = clip(dispatch.cast(guess, INT64), 0, count - 1)
    lower = dispatch.emit(ops.gather, edges, bin_index, axis=0)
    upper = dispatch.emit(ops.gather, edges, bin_index + 1, axis=0)
    return bin_index - (x < lower) + (x >= upper)


def _bin_indices(name: str, x: Any, edges: Any, is_even: bool = False) -> Any:
    """Return the bin of each element, or the number of bins for elements outside.

    The last bin includes its right edge.
    """
    count, first, last = edges.shape[0] - 1, edges[0], edges[-1]
    bin_index = _bin_of_even(x, edges) if is_even else searchsorted(edges, x, "right") - 1
    bin_index = where(x == last, count - 1, bin_index)
    bin_index = where((x >= first) & (x <= last), bin_index, count)
    what = f"{name}: the range of the elements is not finite, or the edges of bins decrease"
    return checked(bin_index, isfinite(first) & (first <= last), count + 1, what)


@public
def histogram_bin_edges(x: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> NDArray:
    """The edges of the bins of `histogram`, one more than there are bins.

    Arguments are those of `histogram`; `weights` have no effect.
    Raises ArgumentError for invalid bins or ranges.

    >>> import tracejit as tj
    >>> tj.histogram_bin_edges(tj.asarray([1.0, 3.0]), bins=2)
    NDArray([1., 2., 3.], dtype=float32)
    """
    edges: NDArray = _edges("histogram_bin_edges", _values("histogram_bin_edges", x), bins, range)
    return edges


@public
def histogram(
    x: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[NDArray, NDArray]:
    """The number of elements in each bin, and the edges of the bins; the last bin includes both of its edges.

    bins: the number of bins over `range` (by default that of the elements), the edges, or the name of one of
    NumPy's rules ("auto", "fd", "sturges", ...), which is a look at the elements. weights: the weight of each
    element. With `density` the integral over the bins is 1.
    Counts are int64, or of the dtype of the weights, or float64 for a density.
    Raises ArgumentError for invalid bins or ranges (OutOfBoundsError at the computation if they are computed
    from arrays), ShapeError for weights of another shape, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.histogram(tj.asarray([1, 2, 1, 5]), bins=[0, 2, 4, 6], density=True)
    (NDArray([0.25 , 0.125, 0.125], dtype=float64), NDArray([0, 2, 4, 6], dtype=int64))
    """
    values = _values("histogram", x)
    flat_weights = None
    if weights is not None:
        weights = asarray(weights)
        if weights.shape != asarray(x).shape:
            what = f"histogram: weights of shape {weights.shape} for elements of shape {asarray(x).shape}"
            raise locate(ShapeError(what), user_location())
        require(not isinstance(bins, str), "histogram: rules for bins do not know weights; give their number")
        flat_weights = ravel(weights)
        flat_weights = dispatch.cast(flat_weights, INT64) if flat_weights.dtype.kind == "b" else flat_weights
    edges = _edges("histogram", values, bins, range)
    is_even = not (_is_sequence(bins) or isinstance(bins, str))
    counts = _summed_by(flat_weights, _bin_indices("histogram", values, edges, is_even), edges.shape[0] - 1)
    if not density:
        return counts, edges
    return counts / dispatch.cast(diff(edges), FLOAT64) / counts.sum(), edges


@public
def digitize(x: Any, bins: Any, right: bool = False) -> NDArray:
    """The number (int64) of the bin of each element: i for ``bins[i - 1] <= x < bins[i]``.

    bins: edges, ascending or descending. With `right`, bins include their right edge instead of the left one.
    The result has the shape of `x`.
    Raises ShapeError unless the edges are 1-dimensional, ArgumentError for external edges that are not
    monotonic.

    >>> import tracejit as tj
    >>> tj.digitize(tj.asarray([0.2, 6.4, 3.0]), [0.0, 1.0, 2.5, 4.0])
    NDArray([1, 4, 3], dtype=int64)
    """
    known, side = on_host(bins), "left" if right else "right"
    edges: Any = asarray(bins if known is None else known)
    if edges.ndim != 1:
        what = f"digitize: edges of bins have one dimension, not shape {edges.shape}"
        raise locate(ShapeError(what), user_location())
    if known is not None:
        steps = np.sign(np.diff(known.astype(FLOAT64)))
        require(np.all(steps >= 0) or np.all(steps <= 0), "digitize: the edges of bins must rise or fall")
        if np.all(steps >= 0):
            return searchsorted(edges, x, side)
        return edges.size - searchsorted(flip(edges), x, side)
    if not edges.size:
        return searchsorted(edges, x, side)
    is_ascending = edges[0] <= edges[-1]
    number = searchsorted(where(is_ascending, edges, flip(edges)), x, side)
    return where(is_ascending, number, edges.size - number)


# -- several dimensions --------------------------------------------------------------------------------------


def _per_dimension(name: str, option: Any, count: int) -> list[Any]:
    """Return an option for each dimension, from one for all dimensions or from a list."""
    if not _is_sequence(option):
        return [option] * count
    options = list(option)
    if len(options) != count:
        raise locate(ArgumentError(f"{name}: {len(options)} of them for {count} dimensions"), user_location())
    return options


@public
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[NDArray, tuple[NDArray, ...]]:
    """The number of points in each bin of a grid, and the edges along each dimension.

    sample: points in rows, or a list of arrays, one for each coordinate. bins: a number or edges for each
    dimension, or a number for all; range: a pair, or None, for each dimension. weights: the weight of each
    point. With `density` the integral over the bins is 1.
    Counts are float64. Raises what `histogram` raises, and ArgumentError for options of another number of
    dimensions.

    >>> import tracejit as tj
    >>> tj.histogramdd(tj.asarray([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), bins=2)[0]
    NDArray([[1., 0.],
             [1., 1.]], dtype=float64)
    """
    is_list = isinstance(sample, list | tuple)
    points: Any = stack([asarray(x) for x in sample], axis=-1) if is_list else asarray(sample)
    points = points.reshape((-1, 1)) if points.ndim == 1 else points
    if points.ndim != 2:
        what = f"histogramdd: points are rows of two dimensions, not shape {points.shape}"
        raise locate(ShapeError(what), user_location())
    count = points.shape[1]
    columns = [_values("histogramdd", points[:, d]) for d in _dimensions(count)]
    ranges = _per_dimension("histogramdd: range", range, count)
    edges = [
        _edges("histogramdd", x, b, r)
        for x, b, r in zip(columns, _per_dimension("histogramdd: bins", bins, count), ranges, strict=True)
    ]
    shape = tuple(e.shape[0] - 1 for e in edges)
    size, flat_index, is_outside = math.prod(shape), 0, False
    for x, e, extent in zip(columns, edges, shape, strict=True):
        index = _bin_indices("histogramdd", x, e)
        is_outside = (index == extent) | is_outside
        flat_index = flat_index * extent + clip(index, 0, extent - 1)
    values = None if weights is None else asarray(weights)
    if values is not None and values.shape != points.shape[:1]:
        what = f"histogramdd: weights of shape {values.shape} for {points.shape[0]} points"
        raise locate(ShapeError(what), user_location())
    flat = _summed_by(values, where(is_outside, size, flat_index), size)
    counts = dispatch.cast(flat, promotion.common("histogramdd", (flat.dtype, FLOAT64))).reshape(shape)
    if not density:
        return counts, tuple(edges)
    densities = counts / counts.sum()
    for d, e in enumerate(edges):
        densities = densities / diff(e).reshape(tuple(-1 if a == d else 1 for a in _dimensions(count)))
    return densities, tuple(edges)


def _dimensions(count: int) -> Any:
    return np.arange(count).tolist()  # parameters of callers shadow `range`


@public
def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: Any = None,
) -> tuple[NDArray, NDArray, NDArray]:
    """The number of points in each bin of a plane, and the edges along x and along y.

    x, y: 1-dimensional coordinates. bins: a number or edges for both, or a pair of these. Other arguments and
    dtypes are those of `histogramdd`. Raises what `histogramdd` raises, and ShapeError for unequal lengths.

    >>> import tracejit as tj
    >>> tj.histogram2d(tj.asarray([0.0, 1.0, 1.0]), tj.asarray([0.0, 1.0, 0.0]), bins=2)[0]
    NDArray([[1., 0.],
             [1., 1.]], dtype=float64)
    """
    first, second = asarray(x), asarray(y)
    if first.shape != second.shape:
        what = f"histogram2d: coordinates of shapes {first.shape} and {second.shape} must agree"
        raise locate(ShapeError(what), user_location())
    is_pair = _is_sequence(bins) and len(bins) == 2
    bins_by_axis = bins if is_pair else (bins, bins)
    counts, edges = histogramdd([first, second], bins_by_axis, range, density, weights)
    return counts, edges[0], edges[1]
