"""Reductions over axes, and positions of extremes.

Every reduction accepts `axis` (an integer, several, or None for all) and `keepdims` (reduced dimensions are
kept with extent 1). Most accept `where` (a mask of the reduced elements that broadcasts to the array) and
`initial` (a value with which the elements are combined). A reduction over all axes returns a 0-d array.
Dtypes are NumPy's: sums of bools and small integers are int64 or uint64, means of integers float64.
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
from tracejit.frontend.arrays.views import broadcasted, expanded, selected
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread
from tracejit.ir.op import Op
from tracejit.ir.types import HALVES, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64, UINT64, FLOAT64 = map(np.dtype, ("bool", "int64", "uint64", "float64"))
FLOAT32 = np.dtype("float32")


def _reduce(op: Op, x: Any, axes: tuple[int, ...], keepdims: bool, in_order: bool = False) -> Any:
    """Emit a reduction over sorted axes; `keepdims` keeps them with extent 1. `in_order`: floats are added in
    the order of the first axis, if that is the only one (see `Selection.adds_in_order`).
    """
    if x.dtype.kind == "c" and op is ops.sum:
        parts = (_reduce(op, dispatch.emit(part, x), axes, keepdims) for part in (ops.real, ops.imag))
        return dispatch.emit(ops.complex, *parts)
    if in_order and op is ops.sum and axes == (0,) and x.dtype in (FLOAT32, FLOAT64) and not thread.tapes:
        sums = dispatch.emit(ops.cumulative_sum, x, axis=0)
        result = selected(sums, 0, x.shape[0] - 1).copy()
    else:
        result = dispatch.emit(op, x, axes=axes, pieces=0)
    return expanded(result, *axes) if keepdims else result


def cast_for_sum(name: str, x: Any, dtype: Any) -> Any:
    """Cast `x` to the dtype in which it is summed: `dtype`, or for None NumPy's choice."""
    if dtype is not None:
        return dispatch.cast(x, promotion.supported(name, dtype))
    if x.dtype.kind in "bi":
        return dispatch.cast(x, INT64)
    return dispatch.cast(x, UINT64 if x.dtype.kind == "u" else x.dtype)


def _mean_dtype(name: str, x: Any, dtype: Any) -> np.dtype:
    """Return the dtype of a mean of `x`: `dtype`, or for None that of `x` if it is floating, else float64."""
    if dtype is None:
        return x.dtype if is_inexact(x.dtype) else FLOAT64
    result = promotion.supported(name, dtype)
    if not is_inexact(result):
        raise locate(
            DTypeError(f"{name}: dtype must be a floating or complex one, not {result}"), user_location()
        )
    return result


def mask(name: str, where: Any, shape: tuple[int, ...]) -> Any:
    """Return `where` as bools, broadcast to the shape of an array."""
    condition = dispatch.cast(asarray(where), BOOL)
    if dispatch.broadcast_shape(name, [condition.shape, shape]) != shape:
        raise locate(
            ShapeError(f"{name}: where of shape {condition.shape} does not broadcast to the array's {shape}"),
            user_location(),
        )
    return broadcasted(condition, shape)


def _masked(name: str, x: Any, where: Any, otherwise: Any) -> Any:
    """Replace the elements of `x` by `otherwise` where `where` is false."""
    if where is True:
        return x
    return dispatch.cast(dispatch.apply(ops.where, mask(name, where, x.shape), x, otherwise), x.dtype)


def _selected(name: str, x: Any, axis: Any, keepdims: bool, where: Any) -> tuple[Any, Any, Any]:
    """Return the array to reduce, its axes and its mask; for a selection its content and its mask."""
    selection = selection_of(x) if where is True else None
    reduced = None if selection is None else selection.reduced(name, axis, keepdims)
    return (x, axis, where) if reduced is None else reduced


def _in_order(x: Any) -> bool:
    """Whether floats of an array are added in their order."""
    selection = selection_of(x)
    return selection is not None and selection.adds_in_order


def _count(name: str, x: Any, axes: tuple[int, ...], keepdims: bool, where: Any, dtype: np.dtype) -> Any:
    """Return the number of reduced elements; for a mask an array of `dtype`."""
    if where is True:
        return math.prod(x.shape[a] for a in axes)
    counted = _reduce(ops.sum, dispatch.cast(mask(name, where, x.shape), INT64), axes, keepdims)
    return dispatch.cast(counted, dtype)


def _combined(op: Op, result: Any, initial: Any) -> Any:
    """Combine the result of a reduction with an initial value, which is cast to its dtype."""
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
    """Sum over axes, and of `initial`; without elements it is 0.

    Bools and small integers are summed in int64 or uint64, unless a `dtype` is specified.
    where: a mask of the summed elements that broadcasts to `x`.
    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number, DTypeError for an unsupported dtype, ShapeError for a mask that does not broadcast.

    >>> import tracejit as tj
    >>> tj.sum(tj.asarray([[1, 2], [3, 4]]), axis=0)
    NDArray([4, 6], dtype=int64)
    """
    is_default = dtype is None and initial is None and where is True and not keepdims
    computed = immediate.reduction(ops.sum, x, axis) if is_default else None
    if computed is not None:
        return computed
    array, axis, where = _selected("sum", dispatch.as_array("sum", x), axis, keepdims, where)
    axes = normalize_axes("sum", axis, array.ndim)
    elements = _masked("sum", cast_for_sum("sum", array, dtype), where, 0)
    return _combined(ops.add, _reduce(ops.sum, elements, axes, keepdims, _in_order(x)), initial)


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
    """Product over axes, and of `initial`; without elements it is 1. Dtypes and `where` are as for `sum`.

    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.prod(tj.asarray([1, 2, 3, 4]))
    NDArray(24, dtype=int64)
    """
    is_default = dtype is None and initial is None and where is True and not keepdims
    computed = immediate.reduction(ops.prod, x, axis) if is_default else None
    if computed is not None:
        return computed
    array, axis, where = _selected("prod", dispatch.as_array("prod", x), axis, keepdims, where)
    axes = normalize_axes("prod", axis, array.ndim)
    elements = _masked("prod", cast_for_sum("prod", array, dtype), where, 1)
    return _combined(ops.multiply, _reduce(ops.prod, elements, axes, keepdims), initial)


def _extreme(op: Op, pair: Op, x: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    """Implement `max` and `min` by the reducing operator `op` and the binary operator `pair`."""
    is_default, name = initial is None and where is True and not keepdims, op.name
    computed = immediate.reduction(op, x, axis) if is_default else None
    if computed is not None:
        return computed
    array = dispatch.as_array(name, x)
    selection = selection_of(array) if initial is None else None
    if selection is not None and array.dtype.kind in "biuf" and where is True:
        reduced = selection.reduced(name, axis, keepdims)
        if reduced is not None and selection.picks(f"{name}: whether the mask picks anything"):
            elements, axes, where = reduced
            return _reduce(op, _masked(name, elements, where, _identity(op, array.dtype)), axes, keepdims)
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
    return dispatch.apply(pair, _reduce(op, _masked(name, array, where, start), axes, keepdims), start)


def _identity(op: Op, dtype: np.dtype) -> Any:
    """Return the identity element of `op` (max or min) for a dtype."""
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
    """Largest element over axes, and of `initial`; nan if any is nan.

    The dtype is unchanged. `where` is as for `sum`; it needs an `initial`.
    Raises ShapeError if there are no elements and no `initial`, AxisError for an axis out of range or
    given twice, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.max(tj.asarray([[1, 7], [3, 4]]), axis=1)
    NDArray([7, 4], dtype=int64)
    """
    return _extreme(ops.max, ops.maximum, x, axis, keepdims, initial, where)


@public(names="amin", method=True)
def min(
    x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = True
) -> NDArray:
    """Smallest element over axes, and of `initial`; nan if any is nan.

    The dtype is unchanged. `where` is as for `sum`; it needs an `initial`.
    Raises ShapeError if there are no elements and no `initial`, AxisError for an axis out of range or
    given twice, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.min(tj.asarray([[1, 7], [3, 4]]), axis=1, keepdims=True)
    NDArray([[1],
             [3]], dtype=int64)
    """
    return _extreme(ops.min, ops.minimum, x, axis, keepdims, initial, where)


@public(method=True)
def any(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> NDArray:
    """Whether any element over axes is true (not 0); without elements False.

    The result is bool. `where` is as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.any(tj.asarray([False, True]))
    NDArray(True, dtype=bool)
    """
    array, axis, where = _selected("any", dispatch.as_array("any", x), axis, keepdims, where)
    elements = _masked("any", dispatch.cast(array, BOOL), where, False)
    return _reduce(ops.any, elements, normalize_axes("any", axis, array.ndim), keepdims)


@public(method=True)
def all(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> NDArray:
    """Whether all elements over axes are true (not 0); without elements True.

    The result is bool. `where` is as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.all(tj.asarray([False, True]))
    NDArray(False, dtype=bool)
    """
    array, axis, where = _selected("all", dispatch.as_array("all", x), axis, keepdims, where)
    elements = _masked("all", dispatch.cast(array, BOOL), where, True)
    return _reduce(ops.all, elements, normalize_axes("all", axis, array.ndim), keepdims)


@public(method=True)
def mean(
    x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> NDArray:
    """Arithmetic mean over axes; without elements it is nan. For integers and bools the dtype is float64.

    Floating dtypes are preserved, unless a `dtype` is specified; half dtypes are summed and divided in
    float32. `where` is as for `sum`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number, DTypeError for a `dtype` that is not floating.

    >>> import tracejit as tj
    >>> tj.mean(tj.asarray([1, 2, 4, 5]))
    NDArray(3., dtype=float64)
    """
    is_default = dtype is None and where is True and not keepdims
    computed = immediate.reduction(ops.sum, x, axis) if is_default else None
    if computed is not None:
        return computed / (x.size if axis is None else x.shape[axis])
    array, axis, where = _selected("mean", dispatch.as_array("mean", x), axis, keepdims, where)
    axes = normalize_axes("mean", axis, array.ndim)
    return _mean("mean", array, _mean_dtype("mean", array, dtype), axes, keepdims, where, _in_order(x))


def _mean(
    name: str,
    x: Any,
    dtype: np.dtype,
    axes: tuple[int, ...],
    keepdims: bool,
    where: Any,
    in_order: bool = False,
) -> Any:
    """Compute a mean in `dtype`, or in float32 for a half dtype, in which the sum may overflow.

    No local variable keeps a cast of `x` alive.
    """
    computed_in = _computed_in(dtype)
    total = _reduce(ops.sum, _masked(name, dispatch.cast(x, computed_in), where, 0), axes, keepdims, in_order)
    return dispatch.cast(total / _count(name, x, axes, keepdims, where, computed_in), dtype)


def _computed_in(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which means of `dtype` are computed."""
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

    The sum of squares is divided by n - `correction` (0 by default; `ddof` is NumPy's name for it).
    mean: the mean, if it is known, as returned by `mean` with ``keepdims=True``.
    Dtypes and `where` are as for `mean`.
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number, and for both `correction` and `ddof`, DTypeError for a `dtype` that is not floating.

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

    Dtypes are as for `mean`.
    Raises what `var` raises.

    >>> import tracejit as tj
    >>> tj.std(tj.asarray([1.0, 3.0]))
    NDArray(1., dtype=float32)
    """
    variance = _variance("std", x, axis, dtype, correction, ddof, keepdims, where, mean)
    return dispatch.apply(ops.sqrt, variance)


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
    reduction = next((c for c in (correction, ddof) if c is not None), 0)
    array = dispatch.as_array(name, x)
    if center is None:
        array, axis, where = _selected(name, array, axis, keepdims, where)
    result_dtype = _mean_dtype(name, array, dtype)
    array = dispatch.cast(array, _computed_in(result_dtype))
    axes = normalize_axes(name, axis, array.ndim)
    mean = _mean(name, array, array.dtype, axes, True, where) if center is None else center
    squares = _masked(name, _squared_magnitude(array - mean), where, 0)
    count = _count(name, array, axes, keepdims, where, squares.dtype)
    divisor = (
        dispatch.apply(ops.maximum, count - reduction, 0)
        if where is not True
        else builtins.max(count - reduction, 0)
    )
    result = _reduce(ops.sum, squares, axes, keepdims) / divisor
    return dispatch.cast(result, result_dtype) if result_dtype in HALVES else result


def _squared_magnitude(x: Any) -> Any:
    """Return the squares of the absolute values."""
    if x.dtype.kind != "c":
        return dispatch.apply(ops.square, x)
    return dispatch.apply(ops.square, dispatch.emit(ops.real, x)) + dispatch.apply(
        ops.square, dispatch.emit(ops.imag, x)
    )


def _position(op: Op, x: Any, axis: Any, keepdims: bool) -> Any:
    """Implement `argmax` and `argmin`."""
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

    Raises ShapeError if there are no elements, AxisError for an axis out of range, ArgumentError for an
    object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.argmax(tj.asarray([[1, 9, 2], [7, 4, 3]]), axis=1)
    NDArray([1, 0], dtype=int64)
    """
    return _position(ops.argmax, x, axis, keepdims)


@public(method=True)
def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """Position (int64) of the first smallest element, or of the first nan, along an axis or of all elements.

    Raises ShapeError if there are no elements, AxisError for an axis out of range, ArgumentError for an
    object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.argmin(tj.asarray([4, 1, 1]))
    NDArray(1, dtype=int64)
    """
    return _position(ops.argmin, x, axis, keepdims)


@public
def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> NDArray:
    """The number of elements over axes that are not 0 (int64).

    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.count_nonzero(tj.asarray([0, 3, 0, 4]))
    NDArray(2, dtype=int64)
    """
    array, axis, where = _selected(
        "count_nonzero", dispatch.as_array("count_nonzero", x), axis, keepdims, True
    )
    axes = normalize_axes("count_nonzero", axis, array.ndim)
    elements = _masked("count_nonzero", dispatch.cast(array, BOOL), where, False)
    return _reduce(ops.sum, dispatch.cast(elements, INT64), axes, keepdims)
