"""Cumulative sums and products along an axis: every element is the reduction of all elements up to it.

Dtypes are those of the reduction: bools and small integers are summed in int64 or uint64.

>>> import tracejit as tj
>>> tj.cumprod(tj.asarray([2, 3, 4]))
NDArray([ 2,  6, 24], dtype=int64)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import normalize_axis
from tracejit.frontend.arrays.functions.manipulation import ravel
from tracejit.frontend.arrays.functions.reductions import cast_for_sum
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import sliced
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def running_sums(x: Any, axis: int) -> Any:
    """Return cumulative sums, of complex numbers by their real and imaginary parts."""
    if x.dtype.kind != "c":
        return dispatch.emit(ops.cumulative_sum, x, axis=axis)
    parts = (running_sums(dispatch.emit(part, x), axis) for part in (ops.real, ops.imag))
    return dispatch.emit(ops.complex, *parts)


def running_products(x: Any, axis: int) -> Any:
    """Return cumulative products."""
    return dispatch.emit(ops.cumulative_prod, x, axis=axis)


def _running(
    name: str, scan: Callable[..., Any], start: int, x: Any, axis: Any, dtype: Any, include_initial: bool
) -> Any:
    """Implement a scan as the array API defines it: an array of several dimensions needs an axis."""
    array = dispatch.as_array(name, x)
    if axis is None and array.ndim != 1:
        what = f"{name}: name the axis for an array of {array.ndim} dimensions"
        raise locate(ArgumentError(what), user_location())
    position = normalize_axis(name, 0 if axis is None else axis, array.ndim)
    result = scan(cast_for_sum(name, array, dtype), position)
    if not include_initial:
        return result
    shape = list(result.shape)
    shape[position] += 1
    extended = dispatch.full(start, tuple(shape), result.dtype, result.device)
    dispatch.write(sliced(extended, position, 1, None), result)
    return extended


@public
def cumulative_sum(
    x: Any, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Cumulative sum along an axis, which is optional for one dimension; dtypes are as for `sum`.

    With `include_initial` a 0 precedes the first element, so the extent of the axis increases by 1.
    Otherwise the result has the shape of `x`.
    Raises ArgumentError without an axis for more than one dimension, AxisError for one out of range.

    >>> import tracejit as tj
    >>> tj.cumulative_sum(tj.asarray([1, 2, 3]))
    NDArray([1, 3, 6], dtype=int64)
    """
    return _running("cumulative_sum", running_sums, 0, x, axis, dtype, include_initial)


@public
def cumulative_prod(
    x: Any, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Cumulative product along an axis, which is optional for one dimension; dtypes are as for `prod`.

    With `include_initial` a 1 precedes the first element, so the extent of the axis increases by 1.
    Otherwise the result has the shape of `x`.
    Raises ArgumentError without an axis for more than one dimension, AxisError for one out of range.

    >>> import tracejit as tj
    >>> tj.cumulative_prod(tj.asarray([2, 3, 4]), include_initial=True)
    NDArray([ 1,  2,  6, 24], dtype=int64)
    """
    return _running("cumulative_prod", running_products, 1, x, axis, dtype, include_initial)


def _flattening(name: str, scan: Callable[..., Any], x: Any, axis: Any, dtype: Any) -> Any:
    """Implement a scan as NumPy defines it: without an axis the array is flattened."""
    array = cast_for_sum(name, dispatch.as_array(name, x), dtype)
    if axis is None:
        array, axis = ravel(array), 0
    return scan(array, normalize_axis(name, axis, array.ndim))


@public(method=True)
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> NDArray:
    """Cumulative sums along an axis, or (None) of the flattened array.

    Bools and small integers are summed in int64 or uint64, unless a `dtype` is specified.
    Raises AxisError for an axis out of range, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.cumsum(tj.asarray([[1, 2], [3, 4]]))
    NDArray([ 1,  3,  6, 10], dtype=int64)
    """
    return _flattening("cumsum", running_sums, x, axis, dtype)


@public(method=True)
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> NDArray:
    """Cumulative products along an axis, or (None) of the flattened array.

    Bools and small integers are multiplied in int64 or uint64, unless a `dtype` is specified. The gradient
    does not divide, so zeros are allowed.
    Raises AxisError for an axis out of range, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.cumprod(tj.asarray([[1, 2], [3, 4]]), axis=1)
    NDArray([[ 1,  2],
             [ 3, 12]], dtype=int64)
    """
    return _flattening("cumprod", running_products, x, axis, dtype)
