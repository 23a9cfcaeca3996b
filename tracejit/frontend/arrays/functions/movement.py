"""Functions that join, split, roll and gather arrays.

All are composed of `empty`, assignments to slices, and `gather`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, immediate, indexing, promotion
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray, empty
from tracejit.frontend.arrays.functions.elementwise import clip
from tracejit.frontend.arrays.functions.manipulation import expand_dims, ravel, reshape
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import selected, sliced, viewed
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def _sequence(name: str, arrays: Any) -> list[Any]:
    """Return a non-empty sequence as a list of arrays."""
    if isinstance(arrays, ArrayCore):
        arrays = unstack(arrays)
    if not isinstance(arrays, tuple | list) or not arrays:
        raise locate(ArgumentError(f"{name}: expected a non-empty list of arrays"), user_location())
    list_device = dispatch.device_of(arrays)
    operands = [
        dispatch.as_operand(name, asarray(x, device=list_device) if isinstance(x, list | tuple) else x)
        for x in arrays
    ]
    common = promotion.common(name, tuple(promotion.common_dtype(name, (x,)) for x in operands))
    device = dispatch.device_of(operands)
    return [x if isinstance(x, ArrayCore) else dispatch.full(x, (), common, device, name) for x in operands]


def _joined(arrays: list[Any], axis: int, dtype: Any) -> Any:
    """Concatenate arrays that differ only in the extent of `axis`."""
    computed = immediate.joined(arrays, axis, dtype)
    if computed is not None:
        return computed
    first = arrays[0]
    extent = sum(x.shape[axis] for x in arrays)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    result = empty(shape, dtype=dtype, device=first.device)
    start = 0
    for x in arrays:
        stop = start + x.shape[axis]
        if x.size:
            target = sliced(result, axis, start, stop)
            dispatch.write(target, dispatch.cast(x, dtype), "concat")
        start = stop
    return result


def _joined_dtype(name: str, arrays: list[Any], dtype: Any) -> np.dtype:
    """Return the common dtype of arrays, or `dtype` if their elements can be cast to it."""
    common = promotion.common_dtype(name, arrays)
    if dtype is None:
        return common
    target = promotion.supported(name, dtype)
    if not np.can_cast(common, target, "same_kind"):
        raise locate(
            DTypeError(f"{name}: {common} cannot become {target}; cast the arrays with astype"),
            user_location(),
        )
    return target


@public(names="concatenate")
def concat(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> NDArray:
    """Arrays joined along an axis; for None they are first flattened. All other extents must be equal.

    The result is a new array of the common dtype, or of `dtype`.
    Raises ShapeError if other extents differ, AxisError for an axis out of range, ArgumentError for an empty
    list or an object that is not a list of arrays, DTypeError for a `dtype` to which they cannot be cast.

    >>> import tracejit as tj
    >>> tj.concat([tj.asarray([1, 2]), tj.asarray([3])])
    NDArray([1, 2, 3], dtype=int64)
    """
    operands = _sequence("concat", arrays)
    if axis is None:
        operands, axis = [ravel(x) for x in operands], 0
    first = operands[0]
    position = normalize_axis("concat", axis, first.ndim)
    shapes = {(*x.shape[:position], *x.shape[position + 1 :]) for x in operands}
    if len(shapes) > 1 or any(x.ndim != first.ndim for x in operands):
        raise locate(
            ShapeError(
                f"concat: shapes {', '.join(str(x.shape) for x in operands)} must agree except along axis "
                f"{position}"
            ),
            user_location(),
        )
    return _joined(operands, position, _joined_dtype("concat", operands, dtype))


@public
def stack(arrays: Any, /, axis: int = 0, *, dtype: Any = None) -> NDArray:
    """Arrays of one shape joined along a new dimension.

    The result is a new array of the common dtype, or of `dtype`.
    Raises ShapeError if shapes differ, AxisError for an axis out of range, ArgumentError for an empty list or
    an object that is not a list of arrays, DTypeError for a `dtype` to which they cannot be cast.

    >>> import tracejit as tj
    >>> tj.stack([tj.asarray([1, 2]), tj.asarray([3, 4])], axis=1)
    NDArray([[1, 3],
             [2, 4]], dtype=int64)
    """
    operands = _sequence("stack", arrays)
    if any(x.shape != operands[0].shape for x in operands):
        raise locate(
            ShapeError(f"stack: shapes {', '.join(str(x.shape) for x in operands)} must be equal"),
            user_location(),
        )
    position = normalize_axis("stack", axis, operands[0].ndim + 1)
    expanded = [expand_dims(x, axis=position) for x in operands]
    return _joined(expanded, position, _joined_dtype("stack", operands, dtype))


@public
def unstack(x: Any, /, axis: int = 0) -> tuple[NDArray, ...]:
    """The slices of an array along an axis, without this dimension (views).

    Raises AxisError for an axis out of range, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.unstack(tj.asarray([[1, 2], [3, 4]]), axis=1)[0]
    NDArray([1, 3], dtype=int64)
    """
    array = dispatch.as_array("unstack", x)
    position = normalize_axis("unstack", axis, array.ndim)
    return tuple(selected(array, position, i) for i in range(array.shape[position]))


@public
def roll(x: Any, /, shift: Any, axis: Any = None) -> NDArray:
    """Elements shifted by `shift` positions along axes; elements beyond the end reappear at the start.

    Without an axis the array is rolled as if flattened. A single shift applies to all axes.
    The result is a new array of the same shape and dtype.
    Raises ArgumentError if numbers of shifts and axes differ or a shift is not an integer, AxisError for an
    axis out of range.

    >>> import tracejit as tj
    >>> tj.roll(tj.arange(5), 2)
    NDArray([3, 4, 0, 1, 2], dtype=int64)
    """
    array = dispatch.as_array("roll", x)
    if axis is None:
        return reshape(roll(ravel(array), shift, axis=0), array.shape)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list) else (shift,) * len(axes)
    if len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise locate(
            ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes; give one for each"),
            user_location(),
        )
    result = array.copy()
    for step, along in zip(shifts, axes, strict=True):
        position = normalize_axis("roll", along, array.ndim)
        extent = array.shape[position]
        start = -integer("roll: shift", step) % extent if extent else 0
        if start:
            view = result._view
            parts = view.slice_axis(position, start, None), view.slice_axis(position, 0, start)
            result = _joined([viewed(result, part) for part in parts], position, array.dtype)
    return result


def in_range(name: str, index: Any, extent: int, mode: str) -> Any:
    """Wrap or clip indices to `extent`, as `mode` requires; ``"raise"`` leaves them unchanged."""
    if mode not in ("raise", "wrap", "clip"):
        raise locate(
            ArgumentError(f'{name}: mode is "raise", "wrap" or "clip", not {mode!r}'), user_location()
        )
    if mode == "raise" or extent == 0:
        return index
    return index % extent if mode == "wrap" else clip(index, 0, extent - 1)


@public(method=True)
def take(x: Any, indices: Any, /, axis: int | None = None, *, mode: str = "raise") -> NDArray:
    """Elements at integer positions (negative: from the end) along an axis, or of the flattened array.

    The shape of `indices` replaces the axis in the result. Positions out of range raise OutOfBoundsError;
    with the mode ``"wrap"`` they are taken modulo the extent, with ``"clip"`` they are limited to the first
    and the last element, negative ones to the first. The dtype is that of `x`.
    Raises OutOfBoundsError for indices that are not integers, AxisError for an axis out of range,
    ArgumentError for another mode, and for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.take(tj.asarray([10, 20, 30]), tj.asarray([2, 0]))
    NDArray([30, 10], dtype=int64)
    """
    array = dispatch.as_array("take", x)
    if axis is None:
        array, axis = ravel(array), 0
    position = normalize_axis("take", axis, array.ndim)
    index = in_range("take", indexing.index_array(indices, array), array.shape[position], mode)
    checked = dispatch.emit(ops.check_index, index, extent=array.shape[position], axis=position)
    return dispatch.emit(ops.gather, array, checked, axis=position)
