"""Functions that change the shape or the order of elements. They return views, which alias as in NumPy.

`reshape` copies if the strides do not allow a view; the result of `broadcast_to` is read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracejit.errors import ArgumentError, AxisError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import (
    axis_list,
    new_shape,
    normalize_axes,
    normalize_axis,
    normalize_shape,
)
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import dropped, viewed
from tracejit.frontend.recording.location import user_location
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


# -- shape ---------------------------------------------------------------------------------------------------


def chosen_order(name: str, order: str, known: str) -> str:
    """Return the letter of an order of elements in upper case.

    Raises ArgumentError unless it is in `known`.
    """
    letter = str(order).upper()
    if letter not in tuple(known):
        raise locate(
            ArgumentError(f"{name}: order is one of {', '.join(known)}, not {order!r}"), user_location()
        )
    return letter


@public
def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> NDArray:
    """The elements in C order with another shape, in which one extent of -1 is inferred.

    With the order ``"F"`` the first index of both shapes varies fastest; ``"A"`` selects this order for an
    array that is stored in it. The result is a view if the strides allow it, otherwise a copy; ``copy=True``
    always copies. The dtype is unchanged.
    Raises ShapeError if the numbers of elements differ, ArgumentError for ``copy=False`` if a copy is needed,
    and for other orders.

    >>> import tracejit as tj
    >>> tj.reshape(tj.arange(6), (2, -1))
    NDArray([[0, 1, 2],
             [3, 4, 5]], dtype=int64)
    """
    array = dispatch.as_array("reshape", x)
    extents = _inferred(array, normalize_shape("reshape", shape))
    if is_fortran(array, chosen_order("reshape", order, "CFA")):
        return transpose(reshape(transpose(array), extents[::-1], copy=copy))
    view = array._view.reshape(extents)
    if copy is False and view is None:
        raise locate(
            ArgumentError(
                f"reshape: {array.shape} to {extents} needs a copy with these strides, but copy=False"
            ),
            user_location(),
        )
    if copy or view is None:
        copied = array.copy()
        return viewed(copied, View.of_shape(extents))
    return viewed(array, view)


def _inferred(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Replace the -1 in `shape`. Raises ShapeError unless it has the same number of elements as `x`."""
    unknown = [i for i, n in enumerate(shape) if n == -1]
    known = 1
    for n in shape:
        known *= 1 if n == -1 else n
    is_valid = len(unknown) <= 1 and all(n >= -1 for n in shape)
    if is_valid and unknown and known and x.size % known == 0:
        axis = unknown[0]
        return (*shape[:axis], x.size // known, *shape[axis + 1 :])
    if not is_valid or unknown or known != x.size:
        raise locate(
            ShapeError(f"reshape: cannot reshape {x.shape} ({x.size} elements) to {shape}"), user_location()
        )
    return shape


def is_fortran(x: Any, order: str) -> bool:
    """Whether `order` means for this array that the first index varies fastest."""
    view = x._view
    reverse = view.permute(range(len(view.shape))[::-1])
    return order == "F" or (order == "A" and reverse.is_contiguous() and not view.is_contiguous())


def as_in_memory(x: Any) -> Any:
    """Permute the dimensions of `x` to the order of their strides, the greatest one first."""
    strides = x._view.strides
    return permute_dims(x, sorted(range(x.ndim), key=lambda a: -abs(strides[a])))


@public(method=True)
def ravel(x: Any, /, order: str = "C") -> NDArray:
    """The flattened array, in C order: a view if the strides allow it, otherwise a copy.

    With the order ``"F"`` the first index varies fastest; ``"A"`` selects this order for an array that is
    stored in it; ``"K"`` is the order of the elements in memory.
    Raises ArgumentError for an object that is not an array or number, and for other orders.

    >>> import tracejit as tj
    >>> tj.ravel(tj.asarray([[1, 2], [3, 4]]))
    NDArray([1, 2, 3, 4], dtype=int64)
    """
    array = dispatch.as_array("ravel", x)
    letter = chosen_order("ravel", order, "CFAK")
    if letter == "K":
        array = as_in_memory(array)
    elif is_fortran(array, letter):
        array = transpose(array)
    return reshape(array, (array.size,))


@public(method=True)
def squeeze(x: Any, /, axis: Any = None) -> NDArray:
    """Remove the dimensions of extent 1 (a view): all of them, or those of `axis`, which must have extent 1.

    Raises ShapeError for an axis of another extent, AxisError for an axis out of range or given twice,
    ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.squeeze(tj.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    array = dispatch.as_array("squeeze", x)
    if axis is None:
        axes: Sequence[int] = [a for a, n in enumerate(array.shape) if n == 1]
    else:
        axes = normalize_axes("squeeze", axis, array.ndim)
    invalid = [a for a in axes if array.shape[a] != 1]
    if invalid:
        raise locate(
            ShapeError(
                f"squeeze: axis {invalid[0]} of {array.shape} has extent "
                f"{array.shape[invalid[0]]}, expected 1"
            ),
            user_location(),
        )
    return dropped(array, *axes)


@public
def expand_dims(x: Any, /, axis: Any = 0) -> NDArray:
    """Insert dimensions of extent 1 (a view) at the positions `axis` of the result.

    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.expand_dims(tj.zeros(3), axis=(0, -1)).shape
    (1, 3, 1)
    """
    array = dispatch.as_array("expand_dims", x)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    view = array._view
    for position in normalize_axes("expand_dims", axis, array.ndim + count):
        view = view.expand(position)
    return viewed(array, view)


@public
def broadcast_to(x: Any, /, shape: Any) -> NDArray:
    """The array broadcast to `shape`: a read-only view.

    Raises ShapeError if the array does not broadcast to `shape`, ArgumentError for an object that is not an
    array or number. Writing to the result raises ReadOnlyError.

    >>> import tracejit as tj
    >>> tj.broadcast_to(tj.asarray([1, 2]), (2, 2))
    NDArray([[1, 2],
             [1, 2]], dtype=int64)
    """
    array = dispatch.as_array("broadcast_to", x)
    extents = new_shape("broadcast_to", shape)
    if dispatch.broadcast_shape("broadcast_to", [array.shape, extents]) != extents:
        raise locate(
            ShapeError(f"broadcast_to: an array of shape {array.shape} does not broadcast to {extents}"),
            user_location(),
        )
    return viewed(array, array._view.broadcast(extents).read_only())


@public
def sliding_window_view(x: Any, /, window_shape: Any, axis: Any = None) -> NDArray:
    """All windows of the array: a read-only view, whose last dimensions are those of a window.

    `window_shape` has an extent for each dimension, or for each of those in `axis`, whose extents decrease by
    that of the window minus 1. Raises ShapeError for a window that is larger than the array, or has another
    number of extents than there are axes. Writing to the result raises ReadOnlyError.

    >>> import tracejit as tj
    >>> tj.sliding_window_view(tj.arange(4), 2)
    NDArray([[0, 1],
             [1, 2],
             [2, 3]], dtype=int64)
    """
    name = "sliding_window_view"
    array = dispatch.as_array(name, x)
    window = new_shape(name, window_shape)
    every = axis if isinstance(axis, tuple | list) else range(array.ndim) if axis is None else (axis,)
    axes = [normalize_axis(name, each, array.ndim) for each in every]  # one may occur twice, as in NumPy
    if len(window) != len(axes):
        raise locate(
            ShapeError(f"{name}: {len(window)} extents of a window for {len(axes)} axes of {array.shape}"),
            user_location(),
        )
    extents = list(array.shape)
    for each, extent in zip(axes, window, strict=True):
        extents[each] -= extent - 1
    if any(extents[each] < 1 for each in axes):
        raise locate(
            ShapeError(f"{name}: a window {window} is larger than the array {array.shape}"), user_location()
        )
    view = array._view
    strides = view.strides + tuple(view.strides[each] for each in axes)
    return viewed(array, View(view.offset, (*extents, *window), strides).read_only())


@public
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which arrays of these shapes broadcast.

    Raises ShapeError if they do not.

    >>> import tracejit as tj
    >>> tj.broadcast_shapes((2, 1), 3)
    (2, 3)
    """
    extents = [new_shape("broadcast_shapes", shape) for shape in shapes]
    return dispatch.broadcast_shape("broadcast_shapes", extents)


@public
def broadcast_arrays(*arrays: Any) -> tuple[NDArray, ...]:
    """Views of all arrays with their common broadcast shape; expanded views are read-only.

    Raises ShapeError if they do not broadcast, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> [x.shape for x in tj.broadcast_arrays(tj.zeros((2, 1)), tj.zeros(3))]
    [(2, 3), (2, 3)]
    """
    operands = [dispatch.as_array("broadcast_arrays", x) for x in arrays]
    shape = dispatch.broadcast_shape("broadcast_arrays", [x.shape for x in operands])
    return tuple(x if x.shape == shape else viewed(x, x._view.broadcast(shape).read_only()) for x in operands)


# -- order of dimensions and elements ------------------------------------------------------------------------


@public
def permute_dims(x: Any, /, axes: Any) -> NDArray:
    """Dimensions in another order (a view).

    Raises AxisError if `axes` is not a permutation of all dimensions, ArgumentError for an object that is no
    array or number.

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
    return viewed(array, array._view.permute(order))


@public
def transpose(x: Any, /, axes: Any = None) -> NDArray:
    """Dimensions reversed, or in the order `axes` (a view).

    Raises AxisError if `axes` is not a permutation of all dimensions, ArgumentError for an object that is no
    array or number.

    >>> import tracejit as tj
    >>> tj.transpose(tj.zeros((2, 3))).shape
    (3, 2)
    """
    array = dispatch.as_array("transpose", x)
    return permute_dims(array, tuple(range(array.ndim))[::-1] if axes is None else axes)


@public
def matrix_transpose(x: Any, /) -> NDArray:
    """The last two dimensions exchanged (a view).

    Raises ShapeError for fewer than 2 dimensions, ArgumentError for an object that is not an array or number.

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


@public(method=True)
def swapaxes(x: Any, axis1: int, axis2: int) -> NDArray:
    """Two dimensions exchanged (a view).

    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.swapaxes(tj.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    array = dispatch.as_array("swapaxes", x)
    order = list(range(array.ndim))
    first = normalize_axis("swapaxes", axis1, array.ndim)
    second = normalize_axis("swapaxes", axis2, array.ndim)
    order[first], order[second] = second, first
    return viewed(array, array._view.permute(order))


@public
def moveaxis(x: Any, source: Any, destination: Any, /) -> NDArray:
    """Move dimensions to other positions, with the others in order (a view).

    Raises AxisError for axes out of range, given twice, or lists of unequal length, ArgumentError for an
    object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.moveaxis(tj.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    array = dispatch.as_array("moveaxis", x)
    moved = axis_list("moveaxis", source, array.ndim)
    targets = axis_list("moveaxis", destination, array.ndim)
    if len(moved) != len(targets):
        raise locate(AxisError(f"moveaxis: {source} and {destination} differ in length"), user_location())
    order = [a for a in range(array.ndim) if a not in moved]
    for target, axis in sorted(zip(targets, moved, strict=True)):
        order.insert(target, axis)
    return viewed(array, array._view.permute(order))


@public
def rollaxis(x: Any, axis: int, start: int = 0) -> NDArray:
    """Move one dimension before the position `start` (a view); `moveaxis` is easier to read.

    Raises AxisError for an axis or a start out of range.

    >>> import tracejit as tj
    >>> tj.rollaxis(tj.zeros((2, 3, 4)), 2, 1).shape
    (2, 4, 3)
    """
    array = dispatch.as_array("rollaxis", x)
    source = normalize_axis("rollaxis", axis, array.ndim)
    target = normalize_axis("rollaxis", start, array.ndim + (start >= 0))
    return moveaxis(array, source, target - 1 if source < target else target)


@public
def flip(x: Any, /, axis: Any = None) -> NDArray:
    """Reverse the order of elements along the axes, by default along all (a view).

    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.flip(tj.arange(3))
    NDArray([2, 1, 0], dtype=int64)
    """
    array = dispatch.as_array("flip", x)
    view = array._view
    for position in normalize_axes("flip", axis, array.ndim):
        view = view.slice_axis(position, None, None, -1)
    return viewed(array, view)
