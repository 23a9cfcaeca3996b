"""Reductions over axes, and positions of extremes.

Every reduction takes `axis` (an integer, several, or None for all) and `keepdims` (reduced dimensions stay
with extent 1), and most take `where` (a mask that broadcasts to the array: what counts) and `initial` (what
the elements are combined with). Reducing everything gives a 0-d array. Dtypes are NumPy's: sums of bools and
small integers are int64 or uint64, means of integers float64.
"""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, immediate, promotion
from tracejit.frontend.arrays.axes import normalize_axes, normalize_axis
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.selection import selection_of
from tracejit.frontend.arrays.views import broadcasted, expanded
from tracejit.frontend.recording.location import user_location
from tracejit.ir.op import Op
from tracejit.ir.types import HALVES, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64, UINT64, FLOAT64 = map(np.dtype, ("bool", "int64", "uint64", "float64"))
FLOAT32 = np.dtype("float32")


def _reduce(op: Op, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Emit a reduction over sorted axes; with `keepdims` they stay with extent 1."""
    if x.dtype.kind == "c" and op is ops.sum:
        parts = (_reduce(op, dispatch.emit(part, x), axes, keepdims) for part in (ops.real, ops.imag))
        return dispatch.emit(ops.complex, *parts)
    result = dispatch.emit(op, x, axes=axes, pieces=0)
    return expanded(result, *axes) if keepdims else result


def wide(name: str, x: Any, dtype: Any) -> Any:
    """`x` in the dtype in which it is summed: `dtype` if given, else NumPy's choice."""
    if dtype is not None:
        return dispatch.cast(x, promotion.supported(name, dtype))
    if x.dtype.kind in "bi":
        return dispatch.cast(x, INT64)
    return dispatch.cast(x, UINT64 if x.dtype.kind == "u" else x.dtype)


def _mean_dtype(name: str, x: Any, dtype: Any) -> np.dtype:
    """The dtype of a mean of `x`: `dtype` if given, else its own floating one or float64."""
    if dtype is None:
        return x.dtype if is_inexact(x.dtype) else FLOAT64
    wanted = promotion.supported(name, dtype)
    if not is_inexact(wanted):
        raise locate(
            DTypeError(f"{name}: dtype must be a floating or complex one, not {wanted}"), user_location()
        )
    return wanted


def mask(name: str, where: Any, shape: tuple[int, ...]) -> Any:
    """`where` as bools of an array's shape."""
    given = dispatch.cast(asarray(where), BOOL)
    if dispatch.broadcast_shape(name, [given.shape, shape]) != shape:
        raise locate(
            ShapeError(f"{name}: where of shape {given.shape} does not broadcast to the array's {shape}"),
            user_location(),
        )
    return broadcasted(given, shape)


def _chosen(name: str, x: Any, where: Any, otherwise: Any) -> Any:
    """`x`, with `otherwise` where `where` does not hold."""
    if where is True:
        return x
    return dispatch.cast(dispatch.apply(ops.where, mask(name, where, x.shape), x, otherwise), x.dtype)


def _selected(name: str, x: Any, axis: Any, keepdims: bool, where: Any) -> tuple[Any, Any, Any]:
    """The array to reduce, its axes and its mask: all elements, if `x` is a selection of them by a mask."""
    picked = selection_of(x) if where is True else None
    found = None if picked is None else picked.reduced(name, axis, keepdims)
    return (x, axis, where) if found is None else found


def _count(name: str, x: Any, axes: tuple[int, ...], keepdims: bool, where: Any, dtype: np.dtype) -> Any:
    """The number of elements that count; for a mask an array of `dtype`."""
    if where is True:
        return math.prod(x.shape[a] for a in axes)
    return _reduce(ops.sum, dispatch.cast(mask(name, where, x.shape), dtype), axes, keepdims)


def _combined(op: Op, result: Any, initial: Any) -> Any:
    """The result of a reduction, combined with an initial value, which is cast to its dtype."""
    if initial is None:
        return result
    start = dispatch.full(initial, (), result.dtype, result.device, op.name)
    return dispatch.apply(op, result, start)


@public(method=True)
def sum(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> NDArray:
    """Sum over axes, and of `initial`; of nothing it is 0.

    Bools and small integers are summed in int64 or uint64, unless `dtype` says otherwise.
    where: a mask that broadcasts to `x`; the other elements are left out.
    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for an unsupported dtype, ShapeError for a mask that does not broadcast.

    >>> import tracejit as tj
    >>> tj.sum(tj.asarray([[1, 2], [3, 4]]), axis=0)
    NDArray([4, 6], dtype=int64)
    """
    is_plain = dtype is None and initial is None and where is True and not keepdims
    computed = immediate.reduction(ops.sum, x, axis) if is_plain else None
    if computed is not None:
        return computed
    array, axis, where = _selected("sum", dispatch.as_array("sum", x), axis, keepdims, where)
    axes = normalize_axes("sum", axis, array.ndim)
    chosen = _chosen("sum", wide("sum", array, dtype), where, 0)
    return _combined(ops.add, _reduce(ops.sum, chosen, axes, keepdims), initial)


@public(method=True)
def prod(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> NDArray:
    """Product over axes, and of `initial`; of nothing it is 1. Dtypes and `where` as for `sum`.

    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.prod(tj.asarray([1, 2, 3, 4]))
    NDArray(24, dtype=int64)
    """
    is_plain = dtype is None and initial is None and where is True and not keepdims
    computed = immediate.reduction(ops.prod, x, axis) if is_plain else None
    if computed is not None:
        return computed
    array, axis, where = _selected("prod", dispatch.as_array("prod", x), axis, keepdims, where)
    axes = normalize_axes("prod", axis, array.ndim)
    chosen = _chosen("prod", wide("prod", array, dtype), where, 1)
    return _combined(ops.multiply, _reduce(ops.prod, chosen, axes, keepdims), initial)


def _extreme(op: Op, pair: Op, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    """`max` or `min`: the operator that reduces, and that for two elements."""
    is_plain, name = initial is None and where is True and not keepdims, op.name
    computed = immediate.reduction(op, x, axis) if is_plain else None
    if computed is not None:
        return computed
    array = dispatch.as_array(name, x)
    picked = selection_of(array) if initial is None else None
    if picked is not None and array.dtype.kind in "biuf" and where is True:
        found = picked.reduced(name, axis, keepdims)
        if found is not None and picked.picks(f"{name}: whether the mask picks anything"):
            elements, axes, where = found
            return _reduce(op, _chosen(name, elements, where, _last(op, array.dtype)), axes, keepdims)
    array, axis, where = (
        (array, axis, where) if initial is None else _selected(name, array, axis, keepdims, where)
    )
    axes = normalize_axes(name, axis, array.ndim)
    if initial is None:
        if where is not True:
            what = f"{name}: where leaves elements out, so give an initial value, for where it leaves none"
            raise locate(ArgumentError(what), user_location())
        return _reduce(op, array, axes, keepdims)
    start = dispatch.full(initial, (), array.dtype, array.device, name)
    if 0 in (array.shape[a] for a in axes):
        shape = tuple(1 if a in axes else n for a, n in enumerate(array.shape) if keepdims or a not in axes)
        return dispatch.full(start, shape, array.dtype, array.device, name)
    return dispatch.apply(pair, _reduce(op, _chosen(name, array, where, start), axes, keepdims), start)


def _last(op: Op, dtype: np.dtype) -> Any:
    """The value that `op` (max or min) gives only if there is no other."""
    if dtype.kind == "f":
        return -math.inf if op is ops.max else math.inf
    if dtype.kind == "b":
        return op is not ops.max
    limits = np.iinfo(dtype)
    return limits.min if op is ops.max else limits.max


@public(names="amax", method=True)
def max(
    x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> NDArray:
    """Largest element over axes, and of `initial`; nan if one is nan.

    The dtype stays. `where` as for `sum`; it needs an `initial`.
    Raises ShapeError where there are no elements and no `initial`, AxisError for an axis out of range or
    given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.max(tj.asarray([[1, 7], [3, 4]]), axis=1)
    NDArray([7, 4], dtype=int64)
    """
    return _extreme(ops.max, ops.maximum, x, axis, keepdims, initial, where)


@public(names="amin", method=True)
def min(
    x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> NDArray:
    """Smallest element over axes, and of `initial`; nan if one is nan.

    The dtype stays. `where` as for `sum`; it needs an `initial`.
    Raises ShapeError where there are no elements and no `initial`, AxisError for an axis out of range or
    given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.min(tj.asarray([[1, 7], [3, 4]]), axis=1, keepdims=True)
    NDArray([[1],
             [3]], dtype=int64)
    """
    return _extreme(ops.min, ops.minimum, x, axis, keepdims, initial, where)


@public(method=True)
def any(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> NDArray:
    """Whether an element is true (not 0) over axes; of nothing it is False.

    The result is bool. `where` as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.any(tj.asarray([False, True]))
    NDArray(True, dtype=bool)
    """
    array, axis, where = _selected("any", dispatch.as_array("any", x), axis, keepdims, where)
    chosen = _chosen("any", dispatch.cast(array, BOOL), where, False)
    return _reduce(ops.any, chosen, normalize_axes("any", axis, array.ndim), keepdims)


@public(method=True)
def all(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> NDArray:
    """Whether every element is true (not 0) over axes; of nothing it is True.

    The result is bool. `where` as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.all(tj.asarray([False, True]))
    NDArray(False, dtype=bool)
    """
    array, axis, where = _selected("all", dispatch.as_array("all", x), axis, keepdims, where)
    chosen = _chosen("all", dispatch.cast(array, BOOL), where, True)
    return _reduce(ops.all, chosen, normalize_axes("all", axis, array.ndim), keepdims)


@public(method=True)
def mean(
    x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> NDArray:
    """Arithmetic mean over axes; of nothing it is nan. Integers and bools give float64.

    Floating dtypes stay, unless `dtype` says otherwise; half numbers are added and divided in float32.
    `where` as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number,
    DTypeError for a `dtype` that is not floating.

    >>> import tracejit as tj
    >>> tj.mean(tj.asarray([1, 2, 4, 5]))
    NDArray(3., dtype=float64)
    """
    is_plain = dtype is None and where is True and not keepdims
    computed = immediate.reduction(ops.sum, x, axis) if is_plain else None
    if computed is not None:
        return computed / (x.size if axis is None else x.shape[axis])
    array, axis, where = _selected("mean", dispatch.as_array("mean", x), axis, keepdims, where)
    axes = normalize_axes("mean", axis, array.ndim)
    return _mean("mean", array, _mean_dtype("mean", array, dtype), axes, keepdims, where)


def _mean(name: str, x: Any, dtype: np.dtype, axes: tuple[int, ...], keepdims: bool, where: Any) -> Any:
    """The mean, computed in `dtype`, or in float32 where that is a half: the sum of half numbers may be
    beyond their largest though their mean is not. No name here keeps a cast of `x` in memory.
    """
    within = _within(dtype)
    total = _reduce(ops.sum, _chosen(name, dispatch.cast(x, within), where, 0), axes, keepdims)
    return dispatch.cast(total / _count(name, x, axes, keepdims, where, within), dtype)


def _within(dtype: np.dtype) -> np.dtype:
    """The dtype in which means of `dtype` are computed."""
    return FLOAT32 if dtype in HALVES else dtype


@public(method=True)
def var(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float | None = None,
) -> NDArray:
    """Variance over axes: the mean square deviation from the mean, in two passes.

    The sum of squares is divided by n - `correction` (0 by default; `ddof` is NumPy's word for it).
    mean: the mean, where it is known, as `mean` with ``keepdims=True`` gives it.
    Dtypes and `where` as for `mean`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number;
    ArgumentError for both `correction` and `ddof`, DTypeError for a `dtype` that is not floating.

    >>> import tracejit as tj
    >>> tj.var(tj.asarray([1.0, 3.0]), correction=1)
    NDArray(2., dtype=float32)
    """
    return _variance("var", x, axis, dtype, correction, ddof, keepdims, where, mean)


@public(method=True)
def std(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: float | None = None,
) -> NDArray:
    """Standard deviation over axes: the square root of `var`, with the same arguments.

    Dtypes as for `mean`.
    Raises what `var` raises.

    >>> import tracejit as tj
    >>> tj.std(tj.asarray([1.0, 3.0]))
    NDArray(1., dtype=float32)
    """
    found = _variance("std", x, axis, dtype, correction, ddof, keepdims, where, mean)
    return dispatch.apply(ops.sqrt, found)


def _variance(
    name: str,
    x: Any,
    axis: Any,
    dtype: Any,
    correction: float | None,
    ddof: float | None,
    keepdims: bool,
    where: Any,
    center: Any,
) -> Any:
    if correction is not None and ddof is not None:
        raise locate(ArgumentError(f"{name}: correction and ddof mean the same; give one"), user_location())
    less = next((c for c in (correction, ddof) if c is not None), 0)
    given = dispatch.as_array(name, x)
    if center is None:
        given, axis, where = _selected(name, given, axis, keepdims, where)
    wanted = _mean_dtype(name, given, dtype)
    array = dispatch.cast(given, _within(wanted))
    axes = normalize_axes(name, axis, array.ndim)
    known = _mean(name, array, array.dtype, axes, True, where) if center is None else center
    squares = _chosen(name, _squared_length(array - known), where, 0)
    count = _count(name, array, axes, keepdims, where, squares.dtype)
    rest = (
        dispatch.apply(ops.maximum, count - less, 0) if where is not True else builtins.max(count - less, 0)
    )
    result = _reduce(ops.sum, squares, axes, keepdims) / rest
    return dispatch.cast(result, wanted) if wanted in HALVES else result


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
        return expanded(result, *range(array.ndim)) if keepdims else result
    position = normalize_axis(op.name, axis, array.ndim)
    result = dispatch.emit(op, array, axis=position)
    return expanded(result, position) if keepdims else result


@public(method=True)
def argmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first largest element, or of the first nan, along an axis or of all elements.

    Raises ShapeError where there are no elements, AxisError for an axis out of range, ArgumentError for what
    is no array or number.

    >>> import tracejit as tj
    >>> tj.argmax(tj.asarray([[1, 9, 2], [7, 4, 3]]), axis=1)
    NDArray([1, 0], dtype=int64)
    """
    return _position(ops.argmax, x, axis, keepdims)


@public(method=True)
def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first smallest element, or of the first nan, along an axis or of all elements.

    Raises ShapeError where there are no elements, AxisError for an axis out of range, ArgumentError for what
    is no array or number.

    >>> import tracejit as tj
    >>> tj.argmin(tj.asarray([4, 1, 1]))
    NDArray(1, dtype=int64)
    """
    return _position(ops.argmin, x, axis, keepdims)


@public
def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The number of elements over axes that are not 0 (int64).

    Raises AxisError for an axis out of range or given twice, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.count_nonzero(tj.asarray([0, 3, 0, 4]))
    NDArray(2, dtype=int64)
    """
    array, axis, where = _selected(
        "count_nonzero", dispatch.as_array("count_nonzero", x), axis, keepdims, True
    )
    axes = normalize_axes("count_nonzero", axis, array.ndim)
    chosen = _chosen("count_nonzero", dispatch.cast(array, BOOL), where, False)
    return _reduce(ops.sum, dispatch.cast(chosen, INT64), axes, keepdims)
