"""Averages, ranges, covariances and correlations.

Weights are numbers for each element, or along one axis. Conditions on weights (for example a nonzero sum) are
checked for external data. NDArrays are not looked at; invalid ones lead to nan or infinity.

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
    """Return weights, of all elements or along axes, broadcast to the shape of `x`, as a view."""
    array = asarray(weights)
    if array.shape == x.shape:
        return array
    if axis is None:
        what = f"{name}: weights of shape {array.shape} for an array of shape {x.shape}; name the axis"
        raise locate(ArgumentError(what), user_location())
    axes = axis_list(name, axis, x.ndim)
    if array.shape != tuple(x.shape[a] for a in axes):
        what = f"{name}: weights of shape {array.shape} do not fit axis {axis} of an array of shape {x.shape}"
        raise locate(ShapeError(what), user_location())
    view = array._view.permute([axes.index(a) for a in sorted(axes)])
    for a in range(x.ndim):
        view = view if a in axes else view.expand(a)
    return ArrayCore.new(array._storage, view.broadcast(x.shape))


@public
def average(
    x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Weighted mean over axes: the sum of products with `weights`, divided by the sum of the weights.

    weights: of the shape of `x`, or of the extents of the axes; without weights the result is the mean. With
    `returned` it is a pair of the average and the sum of the weights, of equal shapes.
    For integers the dtype is float64, otherwise the common dtype of array and weights.
    Raises ShapeError or ArgumentError for weights of another shape, ArgumentError if the sum of external
    weights is 0 (NDArrays are not looked at), AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.average(tj.asarray([1.0, 2.0, 4.0]), weights=tj.asarray([3.0, 0.0, 1.0]))
    NDArray(1.75, dtype=float32)
    """
    array: Any = asarray(x)
    axes = normalize_axes("average", axis, array.ndim)
    if weights is None:
        mean = reductions.mean(array, axis=axes, keepdims=keepdims)
        count = dispatch.full(array.size / max(mean.size, 1), mean.shape, mean.dtype, mean.device)
        return (mean, count) if returned else mean
    element_weights = broadcast_weights("average", weights, array, axis)
    dtype = promotion.common_dtype("average", (array, element_weights))
    dtype = dtype if is_inexact(array.dtype) else promotion.common("average", (dtype, FLOAT64))
    total = reductions.sum(element_weights, axis=axes, dtype=dtype, keepdims=keepdims)
    if (known := on_host(weights)) is not None:
        sums = np.sum(known, axis=None if known.shape != array.shape else axes)
        require(np.all(sums != 0), "average: the weights add up to 0, so they cannot be divided by their sum")
    products = dispatch.cast(array, dtype) * dispatch.cast(element_weights, dtype)
    mean = reductions.sum(products, axis=axes, dtype=dtype, keepdims=keepdims) / total
    return (mean, total) if returned else mean


@public
def ptp(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The range over axes: the largest element minus the smallest one.

    The dtype is unchanged.
    Raises ShapeError if there are no elements, AxisError for an axis out of range, DTypeError for bool.

    >>> import tracejit as tj
    >>> tj.ptp(tj.asarray([[1, 7], [3, 4]]), axis=1)
    NDArray([6, 1], dtype=int64)
    """
    array = asarray(x)
    largest = reductions.max(array, axis, keepdims=keepdims)
    return largest - reductions.min(array, axis, keepdims=keepdims)


# -- covariance ----------------------------------------------------------------------------------------------


def _variables(name: str, x: Any, rowvar: bool, dtype: np.dtype) -> Any:
    """Return a matrix with variables in rows and observations in columns."""
    if x.ndim > 2:
        what = f"{name}: observations have at most two dimensions, got shape {x.shape}"
        raise locate(ShapeError(what), user_location())
    rows = x.reshape((1, x.size)) if x.ndim < 2 else x if rowvar else x.T
    return dispatch.cast(rows, dtype)


def _weights(name: str, weights: Any, count: int, *, integral: bool) -> Any:
    """Return weights of observations, or None; `integral` ones, which are frequencies, must be integers."""
    if weights is None:
        return None
    array, known = asarray(weights), on_host(weights)
    if array.shape != (count,):
        what = f"cov: {name} of shape {array.shape} for {count} observations; give one number for each"
        raise locate(ShapeError(what), user_location())
    if known is not None:
        require(np.all(known >= 0), f"cov: {name} must not be negative")
        require(not integral or np.all(known == np.round(known)), f"cov: {name} must be integers")
    return dispatch.cast(array, FLOAT64)


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

    y: further variables of the same observations. The sum of products is divided by n - `ddof` (by default 1,
    or 0 with `bias`). fweights: the frequency of each observation; aweights: its importance. The result is a
    matrix, or a 0-d array for one variable, in `dtype`, by default float64 or complex128.
    Raises ShapeError for more than two dimensions and weights of another shape, ArgumentError for negative
    external weights and a `ddof` that is not an integer.

    >>> import tracejit as tj
    >>> tj.cov(tj.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    NDArray([[ 1., -1.],
             [-1.,  1.]], dtype=float64)
    """
    operands = [asarray(x) for x in (m, y) if x is not None]
    default = promotion.common("cov", (*[x.dtype for x in operands], FLOAT64))
    kind = default if dtype is None else promotion.supported("cov", dtype)
    rows: Any = [_variables("cov", x, rowvar, kind) for x in operands]
    table = concat(rows) if len(rows) > 1 else rows[0]
    variables, count = table.shape
    if not variables:
        return dispatch.full(0, (0, 0), kind, table.device)
    correction = (0 if bias else 1) if ddof is None else integer("cov: ddof", ddof)
    frequencies = _weights("fweights", fweights, count, integral=True)
    importance = _weights("aweights", aweights, count, integral=False)
    weights = (
        importance if frequencies is None else frequencies if importance is None else frequencies * importance
    )
    if weights is None:
        deviation, factor = table - reductions.mean(table, axis=1, keepdims=True), max(count - correction, 0)
        weighted = deviation
    else:
        total = weights.sum()
        typed_weights = dispatch.cast(weights, kind)
        mean = (table * typed_weights).sum(axis=1, keepdims=True) / dispatch.cast(total, kind)
        deviation = table - mean
        weighted = deviation * typed_weights
        unbiased = total - (
            correction if importance is None else correction * (weights * importance).sum() / total
        )
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
    coefficients = c / deviation[:, None] / deviation[None, :]
    if coefficients.dtype.kind != "c":
        return clip(coefficients, -1, 1)
    return dispatch.emit(ops.complex, clip(real(coefficients), -1, 1), clip(imag(coefficients), -1, 1))
