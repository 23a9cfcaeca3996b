"""Reductions over axes, positions of extremes, and running sums.

Every reduction takes `axis` (an integer, several, or None for all) and `keepdims` (reduced dimensions stay
with extent 1). Reducing everything gives a 0-d array. Dtypes are NumPy's: sums of bools and small integers
are int64 or uint64, means of integers float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, locate
from tracejit.frontend.arrays import dispatch, immediate, promotion
from tracejit.frontend.arrays.axes import normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.location import user_location
from tracejit.ir.op import Op

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64, UINT64, FLOAT64 = map(np.dtype, ("bool", "int64", "uint64", "float64"))


def _reduce(op: Op, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Emit a reduction over sorted axes; with `keepdims` they stay with extent 1."""
    if x.dtype.kind == "c" and op is ops.sum:
        parts = (_reduce(op, dispatch.emit(part, x), axes, keepdims) for part in (ops.real, ops.imag))
        return dispatch.emit(ops.complex, *parts)
    result = dispatch.emit(op, x, axes=axes, pieces=0)
    return _restore(result, axes) if keepdims else result


def _restore(x: Any, axes: tuple[int, ...]) -> Any:
    """Insert a dimension of extent 1 at each of the sorted axes."""
    view = x._view
    for axis in axes:
        view = view.expand(axis)
    return ArrayCore.new(x._storage, view)


def _wide(name: str, x: Any, dtype: Any) -> Any:
    """`x` in the dtype in which it is summed: `dtype` if given, else NumPy's choice."""
    if dtype is not None:
        return dispatch.cast(x, promotion.supported(name, dtype))
    if x.dtype.kind in "bi":
        return dispatch.cast(x, INT64)
    return dispatch.cast(x, UINT64 if x.dtype.kind == "u" else x.dtype)


def _real(name: str, x: Any, dtype: Any) -> Any:
    """`x` in the dtype of its mean: `dtype` if given, else its own floating one or float64."""
    if dtype is None:
        return x if x.dtype.kind in "fc" else dispatch.cast(x, FLOAT64)
    wanted = promotion.supported(name, dtype)
    if wanted.kind not in "fc":
        raise locate(
            DTypeError(f"{name}: dtype must be a floating or complex one, not {wanted}"), user_location()
        )
    return dispatch.cast(x, wanted)


def _count(x: Any, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def sum(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Sum over axes; of nothing it is 0.

    Bools and small integers are summed in int64 or uint64, unless `dtype` says otherwise.
    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.sum(tj.asarray([[1, 2], [3, 4]]), axis=0)
    NDArray([4, 6], dtype=int64)
    """
    computed = immediate.reduction(ops.sum, x, axis) if dtype is None and not keepdims else None
    if computed is not None:
        return computed
    array = dispatch.as_array("sum", x)
    axes = normalize_axes("sum", axis, array.ndim)
    return _reduce(ops.sum, _wide("sum", array, dtype), axes, keepdims)


def prod(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Product over axes; of nothing it is 1. Dtypes as for `sum`.

    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.prod(tj.asarray([1, 2, 3, 4]))
    NDArray(24, dtype=int64)
    """
    computed = immediate.reduction(ops.prod, x, axis) if dtype is None and not keepdims else None
    if computed is not None:
        return computed
    array = dispatch.as_array("prod", x)
    axes = normalize_axes("prod", axis, array.ndim)
    return _reduce(ops.prod, _wide("prod", array, dtype), axes, keepdims)


def max(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Largest element over axes; nan if one is nan. Raises ShapeError where there are no elements.

    The dtype stays.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.max(tj.asarray([[1, 7], [3, 4]]), axis=1)
    NDArray([7, 4], dtype=int64)
    """
    computed = None if keepdims else immediate.reduction(ops.max, x, axis)
    if computed is not None:
        return computed
    array = dispatch.as_array("max", x)
    return _reduce(ops.max, array, normalize_axes("max", axis, array.ndim), keepdims)


def min(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Smallest element over axes; nan if one is nan. Raises ShapeError where there are no elements.

    The dtype stays.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.min(tj.asarray([[1, 7], [3, 4]]), axis=1, keepdims=True)
    NDArray([[1],
             [3]], dtype=int64)
    """
    computed = None if keepdims else immediate.reduction(ops.min, x, axis)
    if computed is not None:
        return computed
    array = dispatch.as_array("min", x)
    return _reduce(ops.min, array, normalize_axes("min", axis, array.ndim), keepdims)


def any(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Whether an element is true (not 0) over axes; of nothing it is False.

    The result is bool.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.any(tj.asarray([False, True]))
    NDArray(True, dtype=bool)
    """
    array = dispatch.as_array("any", x)
    return _reduce(ops.any, dispatch.cast(array, BOOL), normalize_axes("any", axis, array.ndim), keepdims)


def all(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Whether every element is true (not 0) over axes; of nothing it is True.

    The result is bool.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.all(tj.asarray([False, True]))
    NDArray(False, dtype=bool)
    """
    array = dispatch.as_array("all", x)
    return _reduce(ops.all, dispatch.cast(array, BOOL), normalize_axes("all", axis, array.ndim), keepdims)


def mean(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Arithmetic mean over axes; of nothing it is nan. Integers and bools give float64.

    Floating dtypes stay, unless `dtype` says otherwise.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for a `dtype` that is not floating.

    >>> import tracejit as tj
    >>> tj.mean(tj.asarray([1, 2, 4, 5]))
    NDArray(3., dtype=float64)
    """
    computed = None if dtype is not None or keepdims else immediate.reduction(ops.sum, x, axis)
    if computed is not None:
        return computed / (x.size if axis is None else x.shape[axis])
    array = dispatch.as_array("mean", x)
    axes = normalize_axes("mean", axis, array.ndim)
    return _reduce(ops.sum, _real("mean", array, dtype), axes, keepdims) / _count(array, axes)


def var(
    x: Any,
    axis: Any = None,
    *,
    dtype: Any = None,
    correction: float | None = None,
    ddof: float | None = None,
    keepdims: bool = False,
) -> NDArray:
    """Variance over axes: the mean square deviation from the mean, in two passes.

    The sum of squares is divided by n - `correction` (0 by default; `ddof` is NumPy's word for it).
    Dtypes as for `mean`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number;
    ArgumentError for both `correction` and `ddof`, DTypeError for a `dtype` that is not floating.

    >>> import tracejit as tj
    >>> tj.var(tj.asarray([1.0, 3.0]), correction=1)
    NDArray(2., dtype=float32)
    """
    return _variance("var", x, axis, dtype, correction, ddof, keepdims)


def std(
    x: Any,
    axis: Any = None,
    *,
    dtype: Any = None,
    correction: float | None = None,
    ddof: float | None = None,
    keepdims: bool = False,
) -> NDArray:
    """Standard deviation over axes: the square root of `var`, with the same arguments.

    Dtypes as for `mean`.
    Raises what `var` raises.

    >>> import tracejit as tj
    >>> tj.std(tj.asarray([1.0, 3.0]))
    NDArray(1., dtype=float32)
    """
    return dispatch.apply(ops.sqrt, _variance("std", x, axis, dtype, correction, ddof, keepdims))


def _variance(
    name: str, x: Any, axis: Any, dtype: Any, correction: float | None, ddof: float | None, keepdims: bool
) -> Any:
    if correction is not None and ddof is not None:
        raise locate(ArgumentError(f"{name}: correction and ddof mean the same; give one"), user_location())
    less = next((c for c in (correction, ddof) if c is not None), 0)
    array = _real(name, dispatch.as_array(name, x), dtype)
    axes = normalize_axes(name, axis, array.ndim)
    count = _count(array, axes)
    deviation = array - _reduce(ops.sum, array, axes, True) / count
    squares = _reduce(ops.sum, _squared_length(deviation), axes, keepdims)
    return squares / (count - less if count > less else 0)


def _squared_length(x: Any) -> Any:
    """The squares of the absolute values."""
    if x.dtype.kind != "c":
        return dispatch.apply(ops.square, x)
    return dispatch.apply(ops.square, dispatch.emit(ops.real, x)) + dispatch.apply(
        ops.square, dispatch.emit(ops.imag, x)
    )


def _position(op: Op, x: Any, axis: Any, keepdims: bool) -> Any:
    array = dispatch.as_array(op.name, x)
    if axis is None:
        result = dispatch.emit(op, array.ravel(), axis=0)
        return _restore(result, tuple(range(array.ndim))) if keepdims else result
    position = normalize_axis(op.name, axis, array.ndim)
    result = dispatch.emit(op, array, axis=position)
    return _restore(result, (position,)) if keepdims else result


def argmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first largest element, or of the first nan, along an axis or of all elements.

    Raises ShapeError where there are no elements, AxisError for an axis out of range, ArgumentError for what
    is no array or number.

    >>> import tracejit as tj
    >>> tj.argmax(tj.asarray([[1, 9, 2], [7, 4, 3]]), axis=1)
    NDArray([1, 0], dtype=int64)
    """
    return _position(ops.argmax, x, axis, keepdims)


def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first smallest element, or of the first nan, along an axis or of all elements.

    Raises ShapeError where there are no elements, AxisError for an axis out of range, ArgumentError for what
    is no array or number.

    >>> import tracejit as tj
    >>> tj.argmin(tj.asarray([4, 1, 1]))
    NDArray(1, dtype=int64)
    """
    return _position(ops.argmin, x, axis, keepdims)


def cumulative_sum(
    x: Any, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Running sum along an axis (which may be left out for one dimension); dtypes as for `sum`.

    With `include_initial` a 0 stands before the first element, so the axis grows by one.
    The result has the shape of `x`, but for `include_initial`.
    Raises ArgumentError without an axis for more than one dimension, AxisError for one out of range.

    >>> import tracejit as tj
    >>> tj.cumulative_sum(tj.asarray([1, 2, 3]))
    NDArray([1, 3, 6], dtype=int64)
    """
    array = dispatch.as_array("cumulative_sum", x)
    if axis is None and array.ndim != 1:
        raise locate(
            ArgumentError(f"cumulative_sum: name the axis for an array of {array.ndim} dimensions"),
            user_location(),
        )
    position = normalize_axis("cumulative_sum", 0 if axis is None else axis, array.ndim)
    result = _scan_sum(_wide("cumulative_sum", array, dtype), position)
    if not include_initial:
        return result
    extended = list(result.shape)
    extended[position] += 1
    grown = dispatch.full(0, tuple(extended), result.dtype, result.device)
    dispatch.write(ArrayCore.new(grown._storage, grown._view.slice_axis(position, 1, None)), result)
    return grown


def _scan_sum(x: Any, axis: int) -> Any:
    """Running sums, of complex numbers by their parts."""
    if x.dtype.kind != "c":
        return dispatch.emit(ops.cumulative_sum, x, axis=axis)
    parts = (_scan_sum(dispatch.emit(part, x), axis) for part in (ops.real, ops.imag))
    return dispatch.emit(ops.complex, *parts)


def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The number of elements over axes that are not 0 (int64).

    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.count_nonzero(tj.asarray([0, 3, 0, 4]))
    NDArray(2, dtype=int64)
    """
    array = dispatch.as_array("count_nonzero", x)
    axes = normalize_axes("count_nonzero", axis, array.ndim)
    return _reduce(ops.sum, dispatch.cast(dispatch.cast(array, BOOL), INT64), axes, keepdims)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]
