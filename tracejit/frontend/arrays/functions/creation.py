"""Creation of arrays from Python and NumPy data, or filled with a number.

Default dtypes are float32 for floats and int64 for integers. Shapes are integers or tuples of integers.
`device` is a `Device` or its text (``"cpu:0"``); if omitted, it is the default device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate, message
from tracejit.frontend.arrays import dispatch, immediate, promotion
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import chosen_device, default_device
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import selected
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy, is_number
from tracejit.ir.types import is_floating

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64, FLOAT32, FLOAT64 = map(np.dtype, ("bool", "int64", "float32", "float64"))
SINGLES = {FLOAT64: FLOAT32, np.dtype("complex128"): np.dtype("complex64")}
"""The default dtypes of Python numbers, by NumPy's default dtypes of double precision."""


def chosen_dtype(name: str, dtype: Any, default: np.dtype) -> np.dtype:
    """Return `dtype`, checked, or the default for None."""
    return default if dtype is None else promotion.supported(name, dtype)


def check_order(name: str, order: str) -> None:
    """Raise ArgumentError if `order` requests another memory layout than C order, that of all new arrays."""
    if order not in ("C", "K", "A"):
        raise locate(
            ArgumentError(f"{name}: new arrays lie in C order, order={order!r} is not supported"),
            user_location(),
        )


# -- from data -----------------------------------------------------------------------------------------------


@public(names="asanyarray")
def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> NDArray:
    """An array of the data: a number, nested lists or a NumPy array, which are copied, or an NDArray.

    An NDArray that needs no change is returned itself.
    Python floats become float32, ints int64, bools bool; NumPy data keep their dtype. ``copy=True`` always
    copies; ``copy=False`` raises ArgumentError if a copy is needed. To share memory, use `from_dlpack`.
    Without `device`, an NDArray remains on its device, and other data are created on the default device.
    The result has the shape of the data.
    Raises ShapeError for lists of unequal lengths, DTypeError or ArgumentError for data of other dtypes,
    DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.asarray([[1, 2], [3, 4]])
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """
    requested = None if dtype is None else promotion.supported("asarray", dtype)
    array = _gather(obj, requested)
    if copy is False and array is not obj:
        raise locate(
            ArgumentError(
                f"asarray: {type(obj).__name__} data are always copied; use from_dlpack to share memory "
                "with it"
            ),
            user_location(),
        )
    target_dtype = chosen_dtype("asarray", dtype, array.dtype)
    target = chosen_device("asarray", device)
    if device is None and target is not array.device and contains_recorded(obj):
        target = array.device
    if (target_dtype, target) != (array.dtype, array.device) and copy is False:
        raise locate(
            ArgumentError(
                f"asarray: {array.dtype} on {array.device} to {target_dtype} on {target} needs a copy, but "
                "copy=False"
            ),
            user_location(),
        )
    result = dispatch.cast(array, target_dtype)
    if target != result.device:
        result = dispatch.emit(ops.copy_to, result, device=target, priority=0)
    return result.copy() if copy and result is obj else result


def _gather(obj: Any, dtype: np.dtype | None) -> Any:
    """Return `obj` as an array of the dtype of its data; Python numbers have `dtype`, unless it is None."""
    if isinstance(obj, np.float64) or (_is_python_number(obj) and dtype is not None):
        return dispatch.full(obj, (), dtype or FLOAT64, default_device(), "asarray")
    if is_number(obj) or isinstance(obj, ArrayCore | np.ndarray | np.generic | bool):
        return dispatch.as_array("asarray", obj)
    if hasattr(obj, "__dlpack__"):
        return dispatch.as_array("asarray", obj)
    if isinstance(obj, list | tuple) and contains_recorded(obj):
        common = dtype or _inferred(obj)
        return _stack([dispatch.cast(_gather(item, common), common) for item in obj])
    return ArrayCore.from_numpy(_from_lists(obj, dtype))


def _from_lists(obj: Any, dtype: np.dtype | None) -> np.ndarray:
    """Convert nested lists without NDArrays to a NumPy array."""
    numbers_only = isinstance(obj, list | tuple) and not _has_typed(obj)
    try:
        array = np.asarray(obj, dtype if numbers_only else None)
    except (ValueError, OverflowError) as error:
        text = f"asarray: {message(error)}"
        is_ragged = isinstance(error, ValueError) and "NaN" not in text
        raise locate((ShapeError if is_ragged else DTypeError)(text), user_location()) from None
    if array.dtype.hasobject:
        what = "numbers beyond 64 bits" if numbers_only else f"{type(obj).__name__} data"
        raise locate(
            ArgumentError(f"asarray: expected numbers, arrays or nested lists of these, got {what}"),
            user_location(),
        )
    if dtype is None and array.dtype in SINGLES and not _has_typed(obj):
        return array.astype(SINGLES[array.dtype])
    return array


def _is_python_number(obj: Any) -> bool:
    """Whether `obj` is a Python number or a proxy for one, and no NumPy scalar."""
    return (is_number(obj) or isinstance(obj, bool)) and not isinstance(obj, np.generic)


def _inferred(obj: Any) -> np.dtype:
    """Return the dtype of an array of nested lists that contain arrays or traced numbers."""
    if isinstance(obj, list | tuple):
        kinds = tuple(map(_inferred, obj)) or (FLOAT32,)
        if not _has_typed(obj) and any(map(is_floating, kinds)):
            return FLOAT32
        return promotion.common("asarray", kinds)
    if isinstance(obj, np.float64):
        return FLOAT64
    return promotion.common_dtype("asarray", (dispatch.as_operand("asarray", obj),))


def contains_recorded(obj: Any) -> bool:
    """Whether nested lists contain NDArrays or traced numbers, which must not be looked at."""
    if isinstance(obj, list | tuple):
        return any(map(contains_recorded, obj))
    return isinstance(obj, ArrayCore) or type(obj) is NumberProxy


def _has_typed(obj: Any) -> bool:
    """Whether `obj` is, or its nested lists contain, data with a dtype, unlike Python numbers."""
    if isinstance(obj, list | tuple):
        return any(map(_has_typed, obj))
    return not (is_number(obj) or isinstance(obj, bool)) or isinstance(obj, np.generic)


def _stack(items: Sequence[Any]) -> Any:
    """Stack arrays of one shape and dtype along a new first dimension."""
    first = items[0]
    if any(item.shape != first.shape for item in items):
        shapes = ", ".join(str(item.shape) for item in items)
        raise locate(
            ShapeError(f"asarray: the items of a list have different shapes: {shapes}"), user_location()
        )
    dtype = first.dtype
    result = empty((len(items), *first.shape), dtype=dtype, device=first.device)
    for index, item in enumerate(items):
        dispatch.write(selected(result, 0, index), item)
    return result


@public
def array(
    obj: Any, /, dtype: Any = None, *, copy: bool | None = True, ndmin: int = 0, device: Any = None
) -> NDArray:
    """A new array with a copy of the elements of `obj`; like `asarray` with ``copy=True``.

    It has at least `ndmin` dimensions; new leading dimensions have the extent 1.
    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.array(tj.ones(2), dtype=tj.int8)
    NDArray([1, 1], dtype=int8)
    """
    result = asarray(obj, dtype=dtype, device=device, copy=copy)
    missing = ndmin - result.ndim
    return result.reshape((1,) * missing + result.shape) if missing > 0 else result


@public
def ascontiguousarray(x: Any, /, dtype: Any = None) -> NDArray:
    """`x` as an array of one or more dimensions that is stored in C order: itself if possible, else a copy.

    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.ascontiguousarray(tj.ones((2, 3)).T).strides
    (8, 4)
    """
    array: Any = asarray(x, dtype=dtype)
    array = array if array.ndim else array.reshape((1,))
    return array if array._view.is_contiguous() else array.copy()


@public
def asfortranarray(x: Any, /, dtype: Any = None) -> NDArray:
    """`x` as an array whose first index varies fastest in memory: itself if possible, else a copy.

    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.asfortranarray(tj.ones((2, 3))).strides
    (4, 8)
    """
    return ascontiguousarray(asarray(x, dtype=dtype).T).T


# -- filled --------------------------------------------------------------------------------------------------


@public
def empty(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array with undefined elements (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.empty((2, 3)).shape
    (2, 3)
    """
    check_order("empty", order)
    target = chosen_device("empty", device)
    return dispatch.emit(
        ops.empty, shape=new_shape("empty", shape), dtype=chosen_dtype("empty", dtype, FLOAT32), device=target
    )


@public
def ndarray(shape: Any, dtype: Any = None, *, order: str = "C") -> NDArray:
    """An array with undefined elements (float32 by default): NumPy's name for `empty`.

    The class of arrays is `NDArray`. Raises what `empty` raises.

    >>> import tracejit as tj
    >>> tj.ndarray((2, 3), tj.int8).shape
    (2, 3)
    """
    return empty(shape, dtype, order)


@public
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array whose elements are all `fill_value`: a number, or an array that broadcasts to `shape`.

    The dtype is that of the value: bool, int64 or float32 for Python numbers.
    Raises ShapeError if the value does not broadcast to `shape` or an extent is negative, ArgumentError for
    other values, DTypeError for an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.full(2, 7)
    NDArray([7, 7], dtype=int64)
    """
    check_order("full", order)
    return _filled("full", shape, fill_value, dtype, device)


def _filled(name: str, shape: Any, fill_value: Any, dtype: Any, device: Any) -> NDArray:
    """Implement `full` for the function called `name`."""
    is_simple = device is None and (dtype is None or isinstance(dtype, np.dtype))
    computed = immediate.filled(fill_value, shape, dtype) if is_simple else None
    if computed is not None:
        return computed
    value = dispatch.as_operand(name, fill_value)
    target_dtype = chosen_dtype(name, dtype, promotion.common_dtype(name, (value,)))
    extents = new_shape(name, shape)
    if isinstance(value, ArrayCore) and dispatch.broadcast_shape(name, [value.shape, extents]) != extents:
        raise locate(
            ShapeError(f"{name}: a value of shape {value.shape} does not fit {extents}"), user_location()
        )
    return dispatch.full(value, extents, target_dtype, chosen_device(name, device), name)


@public
def zeros(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array of zeros (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.zeros(2)
    NDArray([0., 0.], dtype=float32)
    """
    check_order("zeros", order)
    return _filled("zeros", shape, 0, chosen_dtype("zeros", dtype, FLOAT32), device)


@public
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array of ones (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.ones(2, dtype=tj.int32)
    NDArray([1, 1], dtype=int32)
    """
    check_order("ones", order)
    return _filled("ones", shape, 1, chosen_dtype("ones", dtype, FLOAT32), device)


@public
def full_like(
    x: Any,
    /,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    *,
    shape: Any = None,
    device: Any = None,
) -> NDArray:
    """An array with the shape, dtype and device of `x`, unless specified, filled with `fill_value`.

    It is stored in C order; `subok` has no effect, since there are no subclasses.
    Raises what `full` raises.

    >>> import tracejit as tj
    >>> tj.full_like(tj.asarray([1, 2]), 5)
    NDArray([5, 5], dtype=int64)
    """
    like = asarray(x)
    return full(
        like.shape if shape is None else shape,
        fill_value,
        order=order,
        dtype=chosen_dtype("full_like", dtype, like.dtype),
        device=like.device if device is None else device,
    )


@public
def zeros_like(
    x: Any,
    /,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    *,
    shape: Any = None,
    device: Any = None,
) -> NDArray:
    """Zeros with the shape, dtype and device of `x`, unless specified.

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.zeros_like(tj.asarray([True, True]))
    NDArray([False, False], dtype=bool)
    """
    return full_like(x, 0, dtype, order, subok, shape=shape, device=device)


@public
def ones_like(
    x: Any,
    /,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    *,
    shape: Any = None,
    device: Any = None,
) -> NDArray:
    """Ones with the shape, dtype and device of `x`, unless specified.

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.ones_like(tj.zeros(2))
    NDArray([1., 1.], dtype=float32)
    """
    return full_like(x, 1, dtype, order, subok, shape=shape, device=device)


@public
def empty_like(
    x: Any,
    /,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    *,
    shape: Any = None,
    device: Any = None,
) -> NDArray:
    """An array with undefined elements and the shape, dtype and device of `x`, unless specified.

    Raises ShapeError for a negative extent, ArgumentError for extents that are not integers, DTypeError for
    an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.empty_like(tj.zeros((2, 3))).shape
    (2, 3)
    """
    like = asarray(x)
    return empty(
        like.shape if shape is None else shape,
        order=order,
        dtype=chosen_dtype("empty_like", dtype, like.dtype),
        device=like.device if device is None else device,
    )


@public
def frombuffer(buffer: Any, dtype: Any = None, count: int = -1, offset: int = 0) -> NDArray:
    """A new 1-dimensional array with a copy of the elements (float32 by default) of a buffer, such as bytes.

    count: the number of elements, by default all; offset: the number of bytes before the first element.
    Raises ValueError for a buffer that is too small or does not end with an element, DTypeError for an
    unsupported dtype.

    >>> import tracejit as tj
    >>> tj.frombuffer(bytes([1, 0, 2, 0]), dtype=tj.int16)
    NDArray([1, 2], dtype=int16)
    """
    return asarray(np.frombuffer(buffer, chosen_dtype("frombuffer", dtype, FLOAT32), count, offset))


@public
def fromiter(iterable: Any, dtype: Any, count: int = -1) -> NDArray:
    """A new 1-dimensional array of the numbers of an iterable: all, or the first `count` ones.

    Raises ValueError for too few numbers, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.fromiter((k * k for k in range(4)), dtype=tj.int32)
    NDArray([0, 1, 4, 9], dtype=int32)
    """
    target_dtype = promotion.supported("fromiter", dtype)
    numbers = iter(iterable)
    items = list(numbers if count < 0 else itertools.islice(numbers, count))
    if len(items) < count:
        raise locate(ShapeError(f"fromiter: {len(items)} numbers, not {count}"), user_location())
    return asarray(items, dtype=target_dtype)


@public
def asarray_chkfinite(obj: Any, dtype: Any = None) -> NDArray:
    """`asarray` with a check that no element is infinite or nan, which is a look at all elements.

    Raises ArgumentError if the check fails, and what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.asarray_chkfinite([1, 2])
    NDArray([1, 2], dtype=int64)
    """
    array = asarray(obj, dtype)
    if not np.isfinite(array.numpy(copy=False)).all():
        what = "asarray_chkfinite: there are infinite numbers or nan; replace them with tj.nan_to_num"
        raise locate(ArgumentError(what), user_location())
    return array
