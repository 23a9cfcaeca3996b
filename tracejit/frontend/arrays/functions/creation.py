"""Creating arrays from Python and NumPy data, or filled with a number.

Floating arrays are float32 unless a dtype is given, integers int64. Shapes are integers or tuples of them.
`device` is a `Device` or its text (``"cpu:0"``); the default device if left out.
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
"""The default dtypes of Python numbers, where NumPy's have double precision."""


def chosen_dtype(name: str, dtype: Any, default: np.dtype) -> np.dtype:
    """`dtype` if given, else the default."""
    return default if dtype is None else promotion.supported(name, dtype)


def check_order(name: str, order: str) -> None:
    """Raise if `order` asks for a memory layout that new arrays do not have: theirs is C order."""
    if order not in ("C", "K", "A"):
        raise locate(
            ArgumentError(f"{name}: new arrays lie in C order, order={order!r} is not supported"),
            user_location(),
        )


# -- from data -----------------------------------------------------------------------------------------------


@public(names="asanyarray")
def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> NDArray:
    """An array of a number, nested lists or a NumPy array (copied); an NDArray itself, unless it must change.

    Python floats become float32, ints int64, bools bool; NumPy data keep their dtype. ``copy=True`` always
    copies; ``copy=False`` raises ArgumentError where a copy is needed. To share memory, use `from_dlpack`.
    An NDArray stays on its device, unless `device` is given; other data go to the default device.
    The result has the shape of the data.
    Raises ShapeError for lists of unequal lengths, DTypeError or ArgumentError for data of other dtypes,
    DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.asarray([[1, 2], [3, 4]])
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """
    asked = None if dtype is None else promotion.supported("asarray", dtype)
    array = _gather(obj, asked)
    if copy is False and array is not obj:
        raise locate(
            ArgumentError(
                f"asarray: {type(obj).__name__} data are always copied; use from_dlpack to share memory "
                "with it"
            ),
            user_location(),
        )
    wanted = chosen_dtype("asarray", dtype, array.dtype)
    place = chosen_device("asarray", device)
    if device is None and place is not array.device and holds_recorded(obj):
        place = array.device
    if (wanted, place) != (array.dtype, array.device) and copy is False:
        raise locate(
            ArgumentError(
                f"asarray: {array.dtype} on {array.device} to {wanted} on {place} needs a copy, but "
                "copy=False"
            ),
            user_location(),
        )
    made = dispatch.cast(array, wanted)
    if place != made.device:
        made = dispatch.emit(ops.copy_to, made, device=place, priority=0)
    return made.copy() if copy and made is obj else made


def _gather(obj: Any, dtype: np.dtype | None) -> Any:
    """`obj` as an array of the dtype its data suggest; Python's numbers have `dtype` if that is given."""
    if isinstance(obj, np.float64) or (_is_plain_number(obj) and dtype is not None):
        return dispatch.full(obj, (), dtype or FLOAT64, default_device(), "asarray")
    if is_number(obj) or isinstance(obj, ArrayCore | np.ndarray | np.generic | bool):
        return dispatch.as_array("asarray", obj)
    if hasattr(obj, "__dlpack__"):
        return dispatch.as_array("asarray", obj)
    if isinstance(obj, list | tuple) and holds_recorded(obj):
        wanted = dtype or _suggested(obj)
        return _stack([dispatch.cast(_gather(item, wanted), wanted) for item in obj])
    return ArrayCore.from_numpy(_from_lists(obj, dtype))


def _from_lists(obj: Any, dtype: np.dtype | None) -> np.ndarray:
    """Nested lists without arrays of ours as a NumPy array."""
    numbers_only = isinstance(obj, list | tuple) and not _holds_arrays(obj)
    try:
        array = np.asarray(obj, dtype if numbers_only else None)
    except (ValueError, OverflowError) as error:
        told = f"asarray: {message(error)}"
        is_ragged = isinstance(error, ValueError) and "NaN" not in told
        raise locate((ShapeError if is_ragged else DTypeError)(told), user_location()) from None
    if array.dtype.hasobject:
        what = "numbers beyond 64 bits" if numbers_only else f"{type(obj).__name__} data"
        raise locate(
            ArgumentError(f"asarray: expected numbers, arrays or nested lists of these, got {what}"),
            user_location(),
        )
    if dtype is None and array.dtype in SINGLES and not _holds_arrays(obj):
        return array.astype(SINGLES[array.dtype])
    return array


def _is_plain_number(obj: Any) -> bool:
    """Whether `obj` is a number of Python's, or a proxy for one."""
    return (is_number(obj) or isinstance(obj, bool)) and not isinstance(obj, np.generic)


def _suggested(obj: Any) -> np.dtype:
    """The dtype of an array of nested lists which hold arrays or traced numbers."""
    if isinstance(obj, list | tuple):
        kinds = tuple(map(_suggested, obj)) or (FLOAT32,)
        if not _holds_arrays(obj) and any(map(is_floating, kinds)):
            return FLOAT32
        return promotion.common("asarray", kinds)
    if isinstance(obj, np.float64):
        return FLOAT64
    return promotion.common_dtype("asarray", (dispatch.as_operand("asarray", obj),))


def holds_recorded(obj: Any) -> bool:
    """Whether nested lists hold arrays or numbers whose values must not be looked at."""
    if isinstance(obj, list | tuple):
        return any(map(holds_recorded, obj))
    return isinstance(obj, ArrayCore) or type(obj) is NumberProxy


def _holds_arrays(obj: Any) -> bool:
    """Whether `obj` is, or its nested lists hold, data that already have a dtype: no numbers of Python's."""
    if isinstance(obj, list | tuple):
        return any(map(_holds_arrays, obj))
    return not (is_number(obj) or isinstance(obj, bool)) or isinstance(obj, np.generic)


def _stack(items: Sequence[Any]) -> Any:
    """Arrays of one shape and dtype along a new first dimension."""
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
    """A new array with a copy of `obj`'s elements; like `asarray` with ``copy=True``.

    It has at least `ndmin` dimensions, new ones of extent 1 in front.
    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.array(tj.ones(2), dtype=tj.int8)
    NDArray([1, 1], dtype=int8)
    """
    made = asarray(obj, dtype=dtype, device=device, copy=copy)
    missing = ndmin - made.ndim
    return made.reshape((1,) * missing + made.shape) if missing > 0 else made


@public
def ascontiguousarray(x: Any, /, dtype: Any = None) -> NDArray:
    """`x` as an array of one or more dimensions in C order in memory: itself if it is one, else a copy.

    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.ascontiguousarray(tj.ones((2, 3)).T).strides
    (8, 4)
    """
    made: Any = asarray(x, dtype=dtype)
    made = made if made.ndim else made.reshape((1,))
    return made if made._view.is_contiguous() else made.copy()


@public
def asfortranarray(x: Any, /, dtype: Any = None) -> NDArray:
    """`x` as an array whose first index runs fastest in memory: itself if it is one, else a copy.

    Raises what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.asfortranarray(tj.ones((2, 3))).strides
    (4, 8)
    """
    return ascontiguousarray(asarray(x, dtype=dtype).T).T


# -- filled --------------------------------------------------------------------------------------------------


@public
def empty(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array of arbitrary elements (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.empty((2, 3)).shape
    (2, 3)
    """
    check_order("empty", order)
    where = chosen_device("empty", device)
    return dispatch.emit(
        ops.empty, shape=new_shape("empty", shape), dtype=chosen_dtype("empty", dtype, FLOAT32), device=where
    )


@public
def ndarray(shape: Any, dtype: Any = None, *, order: str = "C") -> NDArray:
    """An array of arbitrary elements (float32 by default): NumPy's name for `empty`.

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
    at_once = dtype is None or isinstance(dtype, np.dtype)
    computed = immediate.filled(fill_value, shape, dtype) if device is None and at_once else None
    if computed is not None:
        return computed
    value = dispatch.as_operand(name, fill_value)
    wanted = chosen_dtype(name, dtype, promotion.common_dtype(name, (value,)))
    extents = new_shape(name, shape)
    if isinstance(value, ArrayCore) and dispatch.broadcast_shape(name, [value.shape, extents]) != extents:
        raise locate(
            ShapeError(f"{name}: a value of shape {value.shape} does not fit {extents}"), user_location()
        )
    return dispatch.full(value, extents, wanted, chosen_device(name, device), name)


@public
def zeros(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array of zeros (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.zeros(2)
    NDArray([0., 0.], dtype=float32)
    """
    check_order("zeros", order)
    return _filled("zeros", shape, 0, chosen_dtype("zeros", dtype, FLOAT32), device)


@public
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> NDArray:
    """An array of ones (float32 by default).

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

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
    """An array like `x` (shape, dtype, device, unless given) whose elements are all `fill_value`.

    It lies in C order; `subok` has no effect, since there are no subclasses.
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
    """Zeros with the shape, dtype and device of `x`, unless given.

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

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
    """Ones with the shape, dtype and device of `x`, unless given.

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

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
    """Arbitrary elements with the shape, dtype and device of `x`, unless given.

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype, DeviceError for an unknown device.

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
    """A new array of one dimension of the elements (float32) that lie in a buffer, such as bytes, copied.

    count: so many elements, by default all; offset: bytes before the first one.
    Raises ValueError for a buffer that is too small or does not end with an element, DTypeError for an
    unsupported dtype.

    >>> import tracejit as tj
    >>> tj.frombuffer(bytes([1, 0, 2, 0]), dtype=tj.int16)
    NDArray([1, 2], dtype=int16)
    """
    return asarray(np.frombuffer(buffer, chosen_dtype("frombuffer", dtype, FLOAT32), count, offset))


@public
def fromiter(iterable: Any, dtype: Any, count: int = -1) -> NDArray:
    """A new array of one dimension of the numbers that an iterable gives: all, or `count` of them.

    Raises ValueError for too few numbers, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.fromiter((k * k for k in range(4)), dtype=tj.int32)
    NDArray([0, 1, 4, 9], dtype=int32)
    """
    wanted = promotion.supported("fromiter", dtype)
    given = iter(iterable)
    items = list(given if count < 0 else itertools.islice(given, count))
    if len(items) < count:
        raise locate(ShapeError(f"fromiter: {len(items)} numbers, not {count}"), user_location())
    return asarray(items, dtype=wanted)


@public
def asarray_chkfinite(obj: Any, dtype: Any = None) -> NDArray:
    """`asarray`, of which no element may be infinite or nan; for that they are looked at.

    Raises ArgumentError if one is, and what `asarray` raises.

    >>> import tracejit as tj
    >>> tj.asarray_chkfinite([1, 2])
    NDArray([1, 2], dtype=int64)
    """
    array = asarray(obj, dtype)
    if not np.isfinite(array.numpy(copy=False)).all():
        what = "asarray_chkfinite: there are infinite numbers or nan; replace them with tj.nan_to_num"
        raise locate(ArgumentError(what), user_location())
    return array
