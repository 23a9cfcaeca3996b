"""Averages, ranges, covariances and correlations.

Weights are numbers for each element, or along one axis. Conditions on them (that their sum is not 0, say) are
checked of data from outside; arrays are not looked at, and give nan or infinity where they break one.

>>> import tracejit as tj
>>> tj.average(tj.asarray([1.0, 5.0]), weights=[3, 1])
NDArray(2., dtype=float64)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import axis_list, integer, normalize_axes
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.checks import on_host, require
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import clip, conj, imag, real
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import squeeze
from tracejit.frontend.arrays.functions.movement import concat
from tracejit.frontend.arrays.functions.placing import diagonal
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

FLOAT64 = np.dtype("float64")


def broadcast_weights(name: str, weights: Any, x: Any, axis: Any) -> Any:
    """Weights in the shape of `x`, given for all elements or along axes, as a view."""
    given = asarray(weights)
    if given.shape == x.shape:
        return given
    if axis is None:
        what = f"{name}: weights of shape {given.shape} for an array of shape {x.shape}; name the axis"
        raise locate(ArgumentError(what), user_location())
    axes = axis_list(name, axis, x.ndim)
    if given.shape != tuple(x.shape[a] for a in axes):
        what = f"{name}: weights of shape {given.shape} do not fit axis {axis} of an array of shape {x.shape}"
        raise locate(ShapeError(what), user_location())
    view = given._view.permute([axes.index(a) for a in sorted(axes)])
    for a in range(x.ndim):
        view = view if a in axes else view.expand(a)
    return ArrayCore.new(given._storage, view.broadcast(x.shape))


@public
def average(
    x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Weighted mean over axes: the sum of products with `weights`, divided by the sum of these.

    weights: of the shape of `x`, or of the extents of the axes named; without them it is the mean. With
    `returned` a pair of the average and the sum of the weights, in one shape.
    Integers give float64; else the dtype is the common one of array and weights.
    Raises ShapeError or ArgumentError for weights that do not fit, ArgumentError if the sum of weights from
    outside is 0 (arrays of this package are not looked at), AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.average(tj.asarray([1.0, 2.0, 4.0]), weights=tj.asarray([3.0, 0.0, 1.0]))
    NDArray(1.75, dtype=float32)
    """
    array: Any = asarray(x)
    axes = normalize_axes("average", axis, array.ndim)
    if weights is None:
        found = reductions.mean(array, axis=axes, keepdims=keepdims)
        count = dispatch.full(array.size / max(found.size, 1), found.shape, found.dtype, found.device)
        return (found, count) if returned else found
    each = broadcast_weights("average", weights, array, axis)
    dtype = promotion.common_dtype("average", (array, each))
    dtype = dtype if is_inexact(array.dtype) else promotion.common("average", (dtype, FLOAT64))
    total = reductions.sum(each, axis=axes, dtype=dtype, keepdims=keepdims)
    if (known := on_host(weights)) is not None:
        sums = np.sum(known, axis=None if known.shape != array.shape else axes)
        require(np.all(sums != 0), "average: the weights add up to 0, so they cannot be divided by their sum")
    products = dispatch.cast(array, dtype) * dispatch.cast(each, dtype)
    found = reductions.sum(products, axis=axes, dtype=dtype, keepdims=keepdims) / total
    return (found, total) if returned else found


@public
def ptp(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The range over axes: the largest element less the smallest one.

    The dtype stays.
    Raises ShapeError where there are no elements, AxisError for an axis out of range, DTypeError for bool.

    >>> import tracejit as tj
    >>> tj.ptp(tj.asarray([[1, 7], [3, 4]]), axis=1)
    NDArray([6, 1], dtype=int64)
    """
    array = asarray(x)
    largest = reductions.max(array, axis, keepdims=keepdims)
    return largest - reductions.min(array, axis, keepdims=keepdims)


# -- covariance ----------------------------------------------------------------------------------------------


def _variables(name: str, x: Any, rowvar: bool, dtype: np.dtype) -> Any:
    """Variables in rows, observations in columns."""
    if x.ndim > 2:
        what = f"{name}: observations have at most two dimensions, got shape {x.shape}"
        raise locate(ShapeError(what), user_location())
    rows = x.reshape((1, x.size)) if x.ndim < 2 else x if rowvar else x.T
    return dispatch.cast(rows, dtype)


def _weights(name: str, weights: Any, count: int, *, whole: bool) -> Any:
    """Weights of observations, or None; those that count observations (`whole`) must be integers."""
    if weights is None:
        return None
    given, known = asarray(weights), on_host(weights)
    if given.shape != (count,):
        what = f"cov: {name} of shape {given.shape} for {count} observations; give one number for each"
        raise locate(ShapeError(what), user_location())
    if known is not None:
        require(np.all(known >= 0), f"cov: {name} must not be negative")
        require(not whole or np.all(known == np.round(known)), f"cov: {name} must be integers")
    return dispatch.cast(given, FLOAT64)


@public
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> NDArray:
    """Covariances of variables, each a row of `m` (a column without `rowvar`), observations along the rows.

    y: further variables of the same observations. The sum of products is divided by n - `ddof` (1, or 0 with
    `bias`). fweights: how often each observation was made; aweights: how much it counts. The result, of one
    variable without dimensions, is a matrix in `dtype`, by default float64 or complex128.
    Raises ShapeError for more than two dimensions and weights that do not fit, ArgumentError for negative
    weights from outside and a `ddof` that is no integer.

    >>> import tracejit as tj
    >>> tj.cov(tj.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    NDArray([[ 1., -1.],
             [-1.,  1.]], dtype=float64)
    """
    given = [asarray(x) for x in (m, y) if x is not None]
    wanted = promotion.common("cov", (*[x.dtype for x in given], FLOAT64))
    kind = wanted if dtype is None else promotion.supported("cov", dtype)
    rows: Any = [_variables("cov", x, rowvar, kind) for x in given]
    table = concat(rows) if len(rows) > 1 else rows[0]
    variables, count = table.shape
    if not variables:
        return dispatch.full(0, (0, 0), kind, table.device)
    less = (0 if bias else 1) if ddof is None else integer("cov: ddof", ddof)
    counted = _weights("fweights", fweights, count, whole=True)
    valued = _weights("aweights", aweights, count, whole=False)
    weights = valued if counted is None else counted if valued is None else counted * valued
    if weights is None:
        deviation, factor = table - reductions.mean(table, axis=1, keepdims=True), max(count - less, 0)
        weighted = deviation
    else:
        total = weights.sum()
        each = dispatch.cast(weights, kind)
        mean = (table * each).sum(axis=1, keepdims=True) / dispatch.cast(total, kind)
        deviation = table - mean
        weighted = deviation * each
        unbiased = total - (less if valued is None else less * (weights * valued).sum() / total)
        factor = dispatch.cast(dispatch.apply(ops.maximum, unbiased, 0), kind)
    return squeeze(matmul(deviation, conj(weighted).T) / factor)


@public
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> NDArray:
    """Pearson's correlation coefficients: covariances divided by both standard deviations.

    Arguments and dtype as for `cov`. Raises ShapeError for more than two dimensions.

    >>> import tracejit as tj
    >>> tj.corrcoef(tj.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    NDArray([[ 1., -1.],
             [-1.,  1.]], dtype=float64)
    """
    c: Any = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    deviation = dispatch.apply(ops.sqrt, real(diagonal(c)))
    found = c / deviation[:, None] / deviation[None, :]
    if found.dtype.kind != "c":
        return clip(found, -1, 1)
    return dispatch.emit(ops.complex, clip(real(found), -1, 1), clip(imag(found), -1, 1))
