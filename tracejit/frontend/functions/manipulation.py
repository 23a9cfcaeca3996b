"""Rearranging arrays: views where strides allow, else copies composed of `empty` and assignments to slices.

Views alias, as in NumPy: `reshape` (where strides allow), `permute_dims`, `squeeze`, `expand_dims`, `flip`,
`broadcast_to` (which cannot be written). `concat`, `stack`, `roll` and `take` give new arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.errors import ArgumentError, AxisError, ShapeError, locate
from tracejit.frontend import dispatch, indexing
from tracejit.frontend.array import ArrayCore
from tracejit.frontend.axes import (
    axis_list,
    integer,
    new_shape,
    normalize_axes,
    normalize_axis,
    normalize_shape,
)
from tracejit.frontend.functions.creation import empty
from tracejit.frontend.location import user_location
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.ndarray import NDArray


def _seen(x: Any, view: View) -> Any:
    return ArrayCore.new(x._storage, view)


def _sequence(name: str, arrays: Any) -> list[Any]:
    """A non-empty sequence of arrays."""
    if isinstance(arrays, ArrayCore):
        arrays = list(arrays)  # type: ignore[call-overload]
    if not isinstance(arrays, tuple | list) or not arrays:
        raise locate(ArgumentError(f"{name}: expected a non-empty list of arrays"), user_location())
    return [dispatch.as_array(name, x) for x in arrays]


# -- shape ---------------------------------------------------------------------------------------------------


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> NDArray:
    """The elements in C order under another shape, in which one -1 is inferred.

    A view where strides allow, else a copy; ``copy=True`` always copies, ``copy=False`` raises rather than
    copy.

    >>> import tracejit as tj
    >>> tj.reshape(tj.arange(6), (2, -1))
    NDArray([[0, 1, 2],
             [3, 4, 5]], dtype=int64)
    """
    array = dispatch.as_array("reshape", x)
    wanted = _inferred(array, normalize_shape("reshape", shape))
    view = array._view.reshape(wanted)
    if copy is False and view is None:
        raise locate(
            ArgumentError(
                f"reshape: {array.shape} to {wanted} needs a copy with these strides, but copy=False"
            ),
            user_location(),
        )
    if copy or view is None:
        fresh = array.copy()
        return _seen(fresh, View.of_shape(wanted))
    return _seen(array, view)


def _inferred(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with its -1 replaced; it must have as many elements as `x`."""
    unknown = [i for i, n in enumerate(shape) if n == -1]
    known = 1
    for n in shape:
        known *= 1 if n == -1 else n
    fits = len(unknown) <= 1 and all(n >= -1 for n in shape)
    if fits and unknown and known and x.size % known == 0:
        at = unknown[0]
        return (*shape[:at], x.size // known, *shape[at + 1 :])
    if not fits or unknown or known != x.size:
        raise locate(
            ShapeError(f"reshape: cannot reshape {x.shape} ({x.size} elements) to {shape}"), user_location()
        )
    return shape


def ravel(x: Any, /) -> NDArray:
    """One dimension, in C order: a view where strides allow, else a copy.

    >>> import tracejit as tj
    >>> tj.ravel(tj.asarray([[1, 2], [3, 4]]))
    NDArray([1, 2, 3, 4], dtype=int64)
    """
    array = dispatch.as_array("ravel", x)
    return reshape(array, (array.size,))


def squeeze(x: Any, /, axis: Any = None) -> NDArray:
    """Without the dimensions of extent 1 (a view): all of them, or those of `axis`, which must have extent 1.

    >>> import tracejit as tj
    >>> tj.squeeze(tj.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    array = dispatch.as_array("squeeze", x)
    if axis is None:
        axes: Sequence[int] = [a for a, n in enumerate(array.shape) if n == 1]
    else:
        axes = normalize_axes("squeeze", axis, array.ndim)
    wrong = [a for a in axes if array.shape[a] != 1]
    if wrong:
        raise locate(
            ShapeError(
                f"squeeze: axis {wrong[0]} of {array.shape} has extent {array.shape[wrong[0]]}, expected 1"
            ),
            user_location(),
        )
    return _seen(array, array._view.drop(axes))


def expand_dims(x: Any, /, axis: Any = 0) -> NDArray:
    """With dimensions of extent 1 inserted (a view), at the places `axis` that they have in the result.

    >>> import tracejit as tj
    >>> tj.expand_dims(tj.zeros(3), axis=(0, -1)).shape
    (1, 3, 1)
    """
    array = dispatch.as_array("expand_dims", x)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    view = array._view
    for position in normalize_axes("expand_dims", axis, array.ndim + count):
        view = view.expand(position)
    return _seen(array, view)


def broadcast_to(x: Any, /, shape: Any) -> NDArray:
    """The array repeated to `shape`: a view, which cannot be written.

    >>> import tracejit as tj
    >>> tj.broadcast_to(tj.asarray([1, 2]), (2, 2))
    NDArray([[1, 2],
             [1, 2]], dtype=int64)
    """
    array = dispatch.as_array("broadcast_to", x)
    wanted = new_shape("broadcast_to", shape)
    if dispatch.broadcast_shape("broadcast_to", [array.shape, wanted]) != wanted:
        raise locate(
            ShapeError(f"broadcast_to: an array of shape {array.shape} does not broadcast to {wanted}"),
            user_location(),
        )
    return _seen(array, array._view.broadcast(wanted))


def broadcast_arrays(*arrays: Any) -> tuple[NDArray, ...]:
    """Views of all arrays with the one shape that they broadcast to.

    >>> import tracejit as tj
    >>> [x.shape for x in tj.broadcast_arrays(tj.zeros((2, 1)), tj.zeros(3))]
    [(2, 3), (2, 3)]
    """
    given = [dispatch.as_array("broadcast_arrays", x) for x in arrays]
    shape = dispatch.broadcast_shape("broadcast_arrays", [x.shape for x in given])
    return tuple(_seen(x, x._view.broadcast(shape)) for x in given)


# -- order of dimensions and elements ------------------------------------------------------------------------


def permute_dims(x: Any, /, axes: Any) -> NDArray:
    """Dimensions in another order (a view).

    >>> import tracejit as tj
    >>> tj.permute_dims(tj.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    array = dispatch.as_array("permute_dims", x)
    order = axis_list("permute_dims", axes, array.ndim)
    if len(order) != array.ndim:
        raise locate(
            AxisError(f"permute_dims: axes {axes} are no permutation of {array.ndim} dimensions"),
            user_location(),
        )
    return _seen(array, array._view.permute(order))


def transpose(x: Any, /, axes: Any = None) -> NDArray:
    """Dimensions reversed, or in the order `axes` (a view).

    >>> import tracejit as tj
    >>> tj.transpose(tj.zeros((2, 3))).shape
    (3, 2)
    """
    array = dispatch.as_array("transpose", x)
    return permute_dims(array, tuple(range(array.ndim))[::-1] if axes is None else axes)


def matrix_transpose(x: Any, /) -> NDArray:
    """The last two dimensions exchanged (a view).

    >>> import tracejit as tj
    >>> tj.matrix_transpose(tj.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    array = dispatch.as_array("matrix_transpose", x)
    if array.ndim < 2:
        raise locate(
            ShapeError(f"matrix_transpose: needs at least 2 dimensions, got shape {array.shape}"),
            user_location(),
        )
    return swapaxes(array, -1, -2)


def swapaxes(x: Any, axis1: int, axis2: int) -> NDArray:
    """Two dimensions exchanged (a view).

    >>> import tracejit as tj
    >>> tj.swapaxes(tj.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    array = dispatch.as_array("swapaxes", x)
    order = list(range(array.ndim))
    first = normalize_axis("swapaxes", axis1, array.ndim)
    second = normalize_axis("swapaxes", axis2, array.ndim)
    order[first], order[second] = second, first
    return _seen(array, array._view.permute(order))


def moveaxis(x: Any, source: Any, destination: Any, /) -> NDArray:
    """Dimensions moved to other places, the rest in order (a view).

    >>> import tracejit as tj
    >>> tj.moveaxis(tj.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    array = dispatch.as_array("moveaxis", x)
    moved = axis_list("moveaxis", source, array.ndim)
    places = axis_list("moveaxis", destination, array.ndim)
    if len(moved) != len(places):
        raise locate(AxisError(f"moveaxis: {source} and {destination} differ in length"), user_location())
    order = [a for a in range(array.ndim) if a not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return _seen(array, array._view.permute(order))


def flip(x: Any, /, axis: Any = None) -> NDArray:
    """Elements in reverse order along the axes, all by default (a view).

    >>> import tracejit as tj
    >>> tj.flip(tj.arange(3))
    NDArray([2, 1, 0], dtype=int64)
    """
    array = dispatch.as_array("flip", x)
    view = array._view
    for position in normalize_axes("flip", axis, array.ndim):
        view = view.slice_axis(position, None, None, -1)
    return _seen(array, view)


# -- joining, moving -----------------------------------------------------------------------------------------


def _joined(arrays: list[Any], axis: int, dtype: Any) -> Any:
    """Arrays that differ in the extent of `axis` only, one after the other."""
    first = arrays[0]
    extent = sum(x.shape[axis] for x in arrays)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    result = empty(shape, dtype=dtype, device=first.device)
    start = 0
    for x in arrays:
        stop = start + x.shape[axis]
        if x.size:
            place = _seen(result, result._view.slice_axis(axis, start, stop))
            dispatch.write(place, dispatch.cast(x, dtype), "concat")
        start = stop
    return result


def concat(arrays: Any, /, axis: int | None = 0) -> NDArray:
    """Arrays one after the other along an axis, flattened first if that is None; other extents must agree.

    >>> import tracejit as tj
    >>> tj.concat([tj.asarray([1, 2]), tj.asarray([3])])
    NDArray([1, 2, 3], dtype=int64)
    """
    given = _sequence("concat", arrays)
    if axis is None:
        given, axis = [ravel(x) for x in given], 0
    first = given[0]
    position = normalize_axis("concat", axis, first.ndim)
    shapes = {(*x.shape[:position], *x.shape[position + 1 :]) for x in given}
    if len(shapes) > 1 or any(x.ndim != first.ndim for x in given):
        raise locate(
            ShapeError(
                f"concat: shapes {', '.join(str(x.shape) for x in given)} must agree except along axis "
                f"{position}"
            ),
            user_location(),
        )
    return _joined(given, position, dispatch.common_dtype("concat", given))


def stack(arrays: Any, /, axis: int = 0) -> NDArray:
    """Arrays of one shape along a new dimension.

    >>> import tracejit as tj
    >>> tj.stack([tj.asarray([1, 2]), tj.asarray([3, 4])], axis=1)
    NDArray([[1, 3],
             [2, 4]], dtype=int64)
    """
    given = _sequence("stack", arrays)
    if any(x.shape != given[0].shape for x in given):
        raise locate(
            ShapeError(f"stack: shapes {', '.join(str(x.shape) for x in given)} must be equal"),
            user_location(),
        )
    position = normalize_axis("stack", axis, given[0].ndim + 1)
    expanded = [expand_dims(x, axis=position) for x in given]
    return _joined(expanded, position, dispatch.common_dtype("stack", given))


def unstack(x: Any, /, axis: int = 0) -> tuple[NDArray, ...]:
    """The arrays along an axis, without that dimension (views).

    >>> import tracejit as tj
    >>> tj.unstack(tj.asarray([[1, 2], [3, 4]]), axis=1)[0]
    NDArray([1, 3], dtype=int64)
    """
    array = dispatch.as_array("unstack", x)
    position = normalize_axis("unstack", axis, array.ndim)
    return tuple(_seen(array, array._view.select(position, i)) for i in range(array.shape[position]))


def roll(x: Any, /, shift: Any, axis: Any = None) -> NDArray:
    """Elements moved by `shift` places along axes, those beyond the end coming in at the start.

    Without an axis the array is rolled as if flattened. One shift serves several axes, or each has its own.

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
            result = _joined([_seen(result, part) for part in parts], position, array.dtype)
    return result


def take(x: Any, indices: Any, /, axis: int | None = None) -> NDArray:
    """Elements at integer positions (negative: from the end) along an axis, or of the flattened array.

    The result has the shape of `indices` in place of the axis. Positions out of range raise OutOfBoundsError.

    >>> import tracejit as tj
    >>> tj.take(tj.asarray([10, 20, 30]), tj.asarray([2, 0]))
    NDArray([30, 10], dtype=int64)
    """
    array = dispatch.as_array("take", x)
    if axis is None:
        array, axis = ravel(array), 0
    position = normalize_axis("take", axis, array.ndim)
    index = indexing.index_array(indices)
    checked = dispatch.emit(ops.check_index, index, extent=array.shape[position], axis=position)
    return dispatch.emit(ops.gather, array, checked, axis=position)


__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "swapaxes",
    "take",
    "transpose",
    "unstack",
]
