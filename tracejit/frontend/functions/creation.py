"""Creating arrays: from Python and NumPy data, filled with a number, or computed from positions.

Floating arrays are float32 unless a dtype is given, integers int64. Shapes are integers or tuples of them.
`device` is a `Device` or its text (``"cpu:0"``); the default device if left out.

Everything that depends on positions starts from one operator, `iota`; a grid of indices is a view of it
(`positions`), so that it costs no memory inside a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend import dispatch
from tracejit.frontend.array import ArrayCore
from tracejit.frontend.axes import as_device, integer, new_shape
from tracejit.frontend.location import user_location
from tracejit.frontend.number import NumberProxy, is_number
from tracejit.ir.types import Device
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.ndarray import NDArray

BOOL, INT64, FLOAT32, FLOAT64 = map(np.dtype, ("bool", "int64", "float32", "float64"))


def _dtype(name: str, dtype: Any, default: np.dtype) -> np.dtype:
    return default if dtype is None else dispatch.supported(name, dtype)


def _device(name: str, device: Any) -> Device:
    return as_device(name, device, ArrayCore.default_device)


# -- from data -----------------------------------------------------------------------------------------------


def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> NDArray:
    """An array of a number, nested lists or a NumPy array (copied); an NDArray itself, unless it must change.

    Python floats become float32, ints int64, bools bool; NumPy data keep their dtype. ``copy=True`` always
    copies; ``copy=False`` raises ArgumentError where a copy is needed. To share memory, use `from_dlpack`.

    >>> import tracejit as tj
    >>> tj.asarray([[1, 2], [3, 4]])
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """
    array = _gather(obj)
    if copy is False and array is not obj:
        raise locate(
            ArgumentError(
                f"asarray: {type(obj).__name__} data are always copied; use from_dlpack to share memory "
                "with it"
            ),
            user_location(),
        )
    wanted = _dtype("asarray", dtype, array.dtype)
    place = as_device("asarray", device, array.device)
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
        made = dispatch.emit(ops.copy_to, made, device=place)
    return made.copy() if copy and made is obj else made


def _gather(obj: Any) -> Any:
    """`obj` as an array of the dtype its data suggest."""
    if isinstance(obj, ArrayCore | np.ndarray | np.generic) or hasattr(obj, "__dlpack__"):
        return dispatch.as_array("asarray", obj)
    if is_number(obj) or isinstance(obj, bool):
        return dispatch.as_array("asarray", obj)
    if isinstance(obj, list | tuple) and _holds_recorded(obj):
        return _stack([_gather(item) for item in obj])
    try:
        array = np.asarray(obj)
    except ValueError as error:
        raise locate(ShapeError(f"asarray: {error}"), user_location()) from None
    if array.dtype == FLOAT64 and not _holds_numpy(obj):
        array = array.astype(FLOAT32)
    return ArrayCore.from_numpy(array)


def _holds_recorded(obj: Any) -> bool:
    """Whether nested lists hold arrays or numbers whose values must not be looked at."""
    if isinstance(obj, list | tuple):
        return any(map(_holds_recorded, obj))
    return isinstance(obj, ArrayCore) or type(obj) is NumberProxy


def _holds_numpy(obj: Any) -> bool:
    """Whether `obj` is, or its nested lists hold, data that already have a NumPy dtype."""
    if isinstance(obj, list | tuple):
        return any(map(_holds_numpy, obj))
    return not is_number(obj) or isinstance(obj, np.generic)


def _stack(items: Sequence[Any]) -> Any:
    """Arrays of one shape along a new first dimension, in their common dtype."""
    first = items[0]
    if any(item.shape != first.shape for item in items):
        shapes = ", ".join(str(item.shape) for item in items)
        raise locate(
            ShapeError(f"asarray: the items of a list have different shapes: {shapes}"), user_location()
        )
    dtype = dispatch.common_dtype("asarray", items)
    result = empty((len(items), *first.shape), dtype=dtype, device=first.device)
    for index, item in enumerate(items):
        dispatch.write(
            ArrayCore.new(result._storage, result._view.select(0, index)), dispatch.cast(item, dtype)
        )
    return result


def array(obj: Any, /, dtype: Any = None, *, device: Any = None) -> NDArray:
    """A new array with a copy of `obj`'s elements; like `asarray` with ``copy=True``.

    >>> import tracejit as tj
    >>> tj.array(tj.ones(2), dtype=tj.int8)
    NDArray([1, 1], dtype=int8)
    """
    return asarray(obj, dtype=dtype, device=device, copy=True)


# -- filled --------------------------------------------------------------------------------------------------


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """An array of arbitrary elements (float32 by default).

    >>> import tracejit as tj
    >>> tj.empty((2, 3)).shape
    (2, 3)
    """
    where = _device("empty", device)
    return dispatch.emit(
        ops.empty, shape=new_shape("empty", shape), dtype=_dtype("empty", dtype, FLOAT32), device=where
    )


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """An array whose elements are all `fill_value`: a number, or an array that broadcasts to `shape`.

    The dtype is that of the value: bool, int64 or float32 for Python numbers.

    >>> import tracejit as tj
    >>> tj.full(2, 7)
    NDArray([7, 7], dtype=int64)
    """
    value = dispatch.as_operand("full", fill_value)
    wanted = _dtype("full", dtype, dispatch.common_dtype("full", (value,)))
    extents = new_shape("full", shape)
    if isinstance(value, ArrayCore) and dispatch.broadcast_shape("full", [value.shape, extents]) != extents:
        raise locate(
            ShapeError(f"full: a value of shape {value.shape} does not fit {extents}"), user_location()
        )
    return dispatch.full(value, extents, wanted, _device("full", device))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """An array of zeros (float32 by default).

    >>> import tracejit as tj
    >>> tj.zeros(2)
    NDArray([0., 0.], dtype=float32)
    """
    return full(shape, 0, dtype=_dtype("zeros", dtype, FLOAT32), device=device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """An array of ones (float32 by default).

    >>> import tracejit as tj
    >>> tj.ones(2, dtype=tj.int32)
    NDArray([1, 1], dtype=int32)
    """
    return full(shape, 1, dtype=_dtype("ones", dtype, FLOAT32), device=device)


def full_like(
    x: Any, /, fill_value: Any, dtype: Any = None, *, shape: Any = None, device: Any = None
) -> NDArray:
    """An array like `x` (shape, dtype, device, unless given) whose elements are all `fill_value`.

    >>> import tracejit as tj
    >>> tj.full_like(tj.asarray([1, 2]), 5)
    NDArray([5, 5], dtype=int64)
    """
    like = dispatch.as_array("full_like", x)
    return full(
        like.shape if shape is None else shape,
        fill_value,
        dtype=_dtype("full_like", dtype, like.dtype),
        device=like.device if device is None else device,
    )


def zeros_like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> NDArray:
    """Zeros with the shape, dtype and device of `x`, unless given.

    >>> import tracejit as tj
    >>> tj.zeros_like(tj.asarray([True, True]))
    NDArray([False, False], dtype=bool)
    """
    return full_like(x, 0, dtype=dtype, shape=shape, device=device)


def ones_like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> NDArray:
    """Ones with the shape, dtype and device of `x`, unless given.

    >>> import tracejit as tj
    >>> tj.ones_like(tj.zeros(2))
    NDArray([1., 1.], dtype=float32)
    """
    return full_like(x, 1, dtype=dtype, shape=shape, device=device)


def empty_like(x: Any, /, dtype: Any = None, *, shape: Any = None, device: Any = None) -> NDArray:
    """Arbitrary elements with the shape, dtype and device of `x`, unless given.

    >>> import tracejit as tj
    >>> tj.empty_like(tj.zeros((2, 3))).shape
    (2, 3)
    """
    like = dispatch.as_array("empty_like", x)
    return empty(
        like.shape if shape is None else shape,
        dtype=_dtype("empty_like", dtype, like.dtype),
        device=like.device if device is None else device,
    )


# -- from positions ------------------------------------------------------------------------------------------


def positions(shape: tuple[int, ...], axis: int, device: Device) -> Any:
    """For each element of an array of `shape` its index along `axis`, int64: a broadcast view of an iota."""
    line = dispatch.emit(ops.iota, size=shape[axis], device=device)
    strides = tuple(int(a == axis) for a in range(len(shape)))
    return ArrayCore.new(line._storage, View(0, shape, strides))


def _line(count: int, start: Any, step: Any, dtype: np.dtype, device: Device) -> Any:
    """start, start + step, ...: integers exactly, others computed in float64 and cast once."""
    index = dispatch.emit(ops.iota, size=count, device=device)
    if dtype.kind == "f" or isinstance(start, float) or isinstance(step, float):
        index = dispatch.cast(index, FLOAT64)
    if not (type(step) is int and step == 1):
        index = index * step
    if not (type(start) is int and start == 0):
        index = index + start
    return dispatch.cast(index, dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> NDArray:
    """Evenly spaced numbers from `start` (0 if only one is given) up to `stop`, which is left out.

    int64 where all are integers, else float32.

    >>> import tracejit as tj
    >>> tj.arange(2, 8, 2)
    NDArray([2, 4, 6], dtype=int64)
    """
    if stop is None:
        start, stop = 0, start
    for bound in (start, stop, step):
        if not is_number(bound):
            raise locate(
                ArgumentError(f"arange: expected numbers, got {type(bound).__name__} {bound!r}"),
                user_location(),
            )
    if step == 0:
        raise locate(ArgumentError("arange: step must not be 0"), user_location())
    whole = all(isinstance(bound, int) for bound in (start, stop, step))
    if whole:
        count = len(range(integer("arange", start), integer("arange", stop), integer("arange", step)))
    else:
        count = max(0, math.ceil((stop - start) / step))
    wanted = _dtype("arange", dtype, INT64 if whole else FLOAT32)
    return _line(count, start, step, wanted, _device("arange", device))


def linspace(
    start: Any, stop: Any, num: int = 50, *, dtype: Any = None, endpoint: bool = True, device: Any = None
) -> NDArray:
    """`num` evenly spaced numbers from `start` to `stop`, which without `endpoint` is left out (float32).

    Integer dtypes round down. `start` and `stop` are numbers.

    >>> import tracejit as tj
    >>> tj.linspace(0, 1, 5)
    NDArray([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    for bound in (start, stop):
        if not is_number(bound):
            raise locate(
                ArgumentError(f"linspace: expected numbers, got {type(bound).__name__}"), user_location()
            )
    count = integer("linspace: num", num)
    if count < 0:
        raise locate(ShapeError(f"linspace: num must not be negative, got {count}"), user_location())
    wanted = _dtype("linspace", dtype, FLOAT32)
    intervals = count - 1 if endpoint else count
    index = dispatch.emit(ops.iota, size=count, device=_device("linspace", device))
    line = dispatch.cast(index, FLOAT64)
    line = line * ((stop - start) / intervals) + start if intervals > 0 else line + start
    if endpoint and count > 1:
        line = dispatch.apply(ops.where, index == intervals, stop * 1.0, line)
    if wanted.kind in "iu":
        line = dispatch.apply(ops.floor, line)
    return dispatch.cast(line, wanted)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> NDArray:
    """Ones on the k-th diagonal and zeros elsewhere (float32 by default).

    >>> import tracejit as tj
    >>> tj.eye(2, dtype=tj.int8)
    NDArray([[1, 0],
             [0, 1]], dtype=int8)
    """
    shape = new_shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    where = _device("eye", device)
    hits = positions(shape, 1, where) == positions(shape, 0, where) + integer("eye: k", k)
    return dispatch.cast(hits, _dtype("eye", dtype, FLOAT32))


def _triangle(name: str, x: Any, k: int, *, lower: bool) -> Any:
    array = dispatch.as_array(name, x)
    if array.ndim < 2:
        raise locate(
            ShapeError(f"{name}: needs at least 2 dimensions, got shape {array.shape}"), user_location()
        )
    matrix = array.shape[-2:]
    column = positions(matrix, 1, array.device)
    diagonal = positions(matrix, 0, array.device) + integer(f"{name}: k", k)
    kept = column <= diagonal if lower else column >= diagonal
    return dispatch.apply(ops.where, kept, array, False if array.dtype == BOOL else 0)


def tril(x: Any, /, k: int = 0) -> NDArray:
    """The elements of matrices on and below the k-th diagonal, zeros elsewhere.

    >>> import tracejit as tj
    >>> tj.tril(tj.ones((2, 2)))
    NDArray([[1., 0.],
             [1., 1.]], dtype=float32)
    """
    return _triangle("tril", x, k, lower=True)


def triu(x: Any, /, k: int = 0) -> NDArray:
    """The elements of matrices on and above the k-th diagonal, zeros elsewhere.

    >>> import tracejit as tj
    >>> tj.triu(tj.ones((2, 2)))
    NDArray([[1., 1.],
             [0., 1.]], dtype=float32)
    """
    return _triangle("triu", x, k, lower=False)


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[NDArray, ...]:
    """Coordinate arrays from one-dimensional ones; the first two dimensions are swapped unless ``"ij"``.

    >>> import tracejit as tj
    >>> x, y = tj.meshgrid(tj.arange(3), tj.arange(2))
    >>> y
    NDArray([[0, 0, 0],
             [1, 1, 1]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise locate(ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}'), user_location())
    lines = [dispatch.as_array("meshgrid", x) for x in arrays]
    if any(x.ndim > 1 for x in lines):
        raise locate(ShapeError("meshgrid: the arrays must have one dimension each"), user_location())
    order = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        order[:2] = 1, 0
    shape = tuple(lines[i].size for i in order)
    grids = []
    for i, line in enumerate(lines):
        stride = line._view.strides[0] if line.ndim else 0
        strides = tuple(stride if order[a] == i else 0 for a in range(len(shape)))
        grids.append(ArrayCore.new(line._storage, View(line._view.offset, shape, strides)).copy())
    return tuple(grids)


__all__ = [
    "arange",
    "array",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]
