"""Functions that read and write elements: by position, by mask, along an axis, on diagonals.

Functions that write modify their first argument, which must be an NDArray, in place and return nothing;
`scatter_add` returns a new array.

>>> import tracejit as tj
>>> x = tj.zeros(4)
>>> tj.put(x, [1, -1], [5, 6])
>>> x
NDArray([0., 5., 0., 6.], dtype=float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import assignment, dispatch, indexing
from tracejit.frontend.arrays.axes import axis_list, integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import imag, real
from tracejit.frontend.arrays.functions.manipulation import broadcast_to, ravel, reshape
from tracejit.frontend.arrays.functions.movement import in_range, take
from tracejit.frontend.arrays.functions.ranges import positions
from tracejit.frontend.arrays.functions.scans import cumulative_sum
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")


def _target(name: str, x: Any) -> Any:
    """Return `x`. Raises ArgumentError unless it is an NDArray."""
    if not isinstance(x, ArrayCore):
        raise locate(
            ArgumentError(f"{name}: changes an NDArray in place, got {type(x).__name__}; use tj.asarray"),
            user_location(),
        )
    return x


def cycled(values: Any, position: Any) -> Any:
    """Return the elements of the flattened `values` at positions modulo their number."""
    line = ravel(asarray(values, device=position.device))
    return take(line, position % line.size if line.size > 1 else position * 0)


def numbered(x: Any) -> Any:
    """Return the number of each element of `x` in C order, in the shape of `x`."""
    return reshape(dispatch.emit(ops.iota, size=x.size, device=x.device), x.shape)


def write_flat(x: Any, index: Any, values: Any) -> None:
    """Store values, broadcast, in the elements of the flattened `x` at `index`."""
    view = x._view.reshape((x.size,))
    if view is not None:
        assignment.setitem(ArrayCore.new(x._storage, view), index, values)
        return
    flat = x.flatten()
    assignment.setitem(flat, index, values)
    dispatch.write(x, flat.reshape(x.shape))


# -- by position ---------------------------------------------------------------------------------------------


@public(method=True)
def put(x: Any, indices: Any, values: Any, /, mode: str = "raise") -> None:
    """Store values at positions of the flattened array, repeated if there are fewer values than positions.

    mode: as for `take`. The last of several values for one position is stored.
    Raises OutOfBoundsError for positions out of range, ArgumentError for another mode.

    >>> import tracejit as tj
    >>> x = tj.arange(4)
    >>> tj.put(x, [0, 2], -1)
    >>> x
    NDArray([-1,  1, -1,  3], dtype=int64)
    """
    array = _target("put", x)
    index = ravel(in_range("put", indexing.index_array(indices, array), array.size, mode))
    if index.size:
        write_flat(array, index, cycled(values, numbered(index)))


@public
def scatter_add(x: Any, index: Any, values: Any, /) -> NDArray:
    """A copy of `x` with `values` added to ``x[index]``, once per occurrence of an element in the index.

    index: as in ``x[index]``. The result has the shape and dtype of `x`; ``np.add.at(x, index, values)`` is
    the in-place equivalent. Values for one element are summed before they are added to it.
    Raises OutOfBoundsError for an index out of range, ShapeError for values that do not broadcast to
    ``x[index]``, DTypeError for bool and for values that cannot be cast to the dtype.

    >>> import tracejit as tj
    >>> tj.scatter_add(tj.zeros(3), [0, 2, 0], tj.asarray([1.0, 2.0, 3.0]))
    NDArray([4., 0., 2.], dtype=float32)
    """
    result = asarray(x).copy()
    assignment.add_at("scatter_add", result, index, values)
    return result


# -- by mask -------------------------------------------------------------------------------------------------


def _mask(name: str, x: Any, mask: Any) -> Any:
    """Return `mask` as bools in the shape of `x`. Raises ShapeError for another size."""
    array = asarray(mask)
    if array.size != x.size:
        raise locate(
            ShapeError(f"{name}: a mask of shape {array.shape} for an array of shape {x.shape}"),
            user_location(),
        )
    return dispatch.cast(reshape(array, x.shape), BOOL).to(x.device)


@public
def place(x: Any, mask: Any, values: Any, /) -> None:
    """Store the values, in sequence, in the elements for which `mask` is true.

    The values are repeated if there are fewer than such elements.
    Raises ShapeError for a mask of another size, or if the mask selects elements but there are no values.

    >>> import tracejit as tj
    >>> x = tj.arange(5)
    >>> tj.place(x, x > 1, [7, 8])
    >>> x
    NDArray([0, 1, 7, 8, 7], dtype=int64)
    """
    array = _target("place", x)
    selected = _mask("place", array, mask)
    flat_values = ravel(asarray(values))
    if not flat_values.size:
        if bool(selected.any()):
            raise locate(ShapeError("place: there are no values to place"), user_location())
        return
    rank = cumulative_sum(ravel(selected), axis=0) - 1
    content = reshape(cycled(flat_values, rank), array.shape)
    copyto(array, content, casting="unsafe", where=selected)


@public
def putmask(x: Any, mask: Any, values: Any, /) -> None:
    """Store values in the elements for which `mask` is true; values and elements correspond by flat position.

    The values are repeated if there are fewer than elements of `x`.
    Raises ShapeError for a mask of another size.

    >>> import tracejit as tj
    >>> x = tj.arange(5)
    >>> tj.putmask(x, x > 1, [7, 8])
    >>> x
    NDArray([0, 1, 7, 8, 7], dtype=int64)
    """
    array = _target("putmask", x)
    selected = _mask("putmask", array, mask)
    if asarray(values).size:
        copyto(array, cycled(values, numbered(array)), casting="unsafe", where=selected)


@public
def copyto(dst: Any, src: Any, /, casting: str = "same_kind", where: Any = True) -> None:
    """Store the elements of `src`, broadcast, in those of `dst`, where `where` is true.

    Raises ShapeError if they do not broadcast to the shape of `dst`, DTypeError if `casting` does not allow
    the cast to its dtype.

    >>> import tracejit as tj
    >>> x = tj.zeros(3)
    >>> tj.copyto(x, 5, where=tj.asarray([True, False, True]))
    >>> x
    NDArray([5., 0., 5.], dtype=float32)
    """
    array = _target("copyto", dst)
    source = dispatch.as_operand("copyto", asarray(src) if isinstance(src, list | tuple) else src)
    if isinstance(source, ArrayCore) and not np.can_cast(source.dtype, array.dtype, casting):  # type: ignore[arg-type]
        raise locate(
            DTypeError(f"copyto: {source.dtype} cannot become {array.dtype} with casting {casting!r}"),
            user_location(),
        )
    if where is True:
        dispatch.write(array, source, "copyto", casts=casting == "unsafe")
        return
    mask = dispatch.cast(broadcast_to(asarray(where), array.shape), BOOL)
    if isinstance(source, ArrayCore):
        source = dispatch.cast(source, array.dtype)
    dispatch.write(array, dispatch.apply(ops.where, mask, source, array), "copyto", casts=casting == "unsafe")


@public
def compress(condition: Any, x: Any, /, axis: int | None = None) -> NDArray:
    """The slices along an axis for which `condition` is true; for None those of the flattened array.

    condition: one truth value for each slice, or for the first ones. It is looked at.
    Raises ShapeError for a condition of several dimensions, OutOfBoundsError if it is true beyond the end.

    >>> import tracejit as tj
    >>> tj.compress([False, True], tj.asarray([[1, 2], [3, 4]]), axis=0)
    NDArray([[3, 4]], dtype=int64)
    """
    selected = condition.numpy() if isinstance(condition, ArrayCore) else np.asarray(condition)
    if selected.ndim != 1:
        raise locate(
            ShapeError(f"compress: the condition must have one dimension, not shape {selected.shape}"),
            user_location(),
        )
    return take(asarray(x), np.flatnonzero(selected), axis=axis)


@public
def extract(condition: Any, x: Any, /) -> NDArray:
    """The elements for which `condition` is true; both are flattened, and the condition is looked at.

    Raises OutOfBoundsError if the condition is true beyond the end.

    >>> import tracejit as tj
    >>> tj.extract([True, False, True], tj.asarray([1, 2, 3]))
    NDArray([1, 3], dtype=int64)
    """
    return compress(ravel(condition) if isinstance(condition, ArrayCore) else np.ravel(condition), x)


# -- along an axis -------------------------------------------------------------------------------------------


def _along_axis(name: str, x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """Return an index of the elements at `indices` along an axis, and at their own position in all others."""
    index = indexing.index_array(indices)
    if index.ndim != x.ndim:
        raise locate(
            ShapeError(f"{name}: indices of shape {index.shape} for an array of shape {x.shape}"),
            user_location(),
        )
    lines = []
    for a, extent in enumerate(x.shape):
        shape = tuple(extent if b == a else 1 for b in range(x.ndim))
        lines.append(index if a == axis else positions(shape, a, x.device))
    return tuple(lines)


@public
def take_along_axis(x: Any, indices: Any, /, axis: int | None = -1) -> NDArray:
    """Elements at positions along an axis, which may differ for each line (like the results of `argsort`).

    indices: an array with the number of dimensions of `x`; all dimensions but the axis broadcast. Without an
    axis `x` is flattened. The result has the broadcast shape, and the dtype of `x`.
    Raises OutOfBoundsError for positions out of range, ShapeError for incompatible shapes.

    >>> import tracejit as tj
    >>> x = tj.asarray([[3, 1, 2], [4, 6, 5]])
    >>> tj.take_along_axis(x, tj.argsort(x, axis=1), axis=1)
    NDArray([[1, 2, 3],
             [4, 5, 6]], dtype=int64)
    """
    array: Any = asarray(x)
    if axis is None:
        array, axis = ravel(array), 0
    along = normalize_axis("take_along_axis", axis, array.ndim)
    return indexing.getitem(array, _along_axis("take_along_axis", array, indices, along))


@public
def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int | None) -> None:
    """Store values at positions along an axis, which may differ for each line.

    indices: as for `take_along_axis`; `values` broadcast to their shape. Without an axis `x` is flattened.
    Raises OutOfBoundsError for positions out of range, ShapeError for incompatible shapes.

    >>> import tracejit as tj
    >>> x = tj.zeros((2, 3))
    >>> tj.put_along_axis(x, tj.asarray([[2], [0]]), 1, axis=1)
    >>> x
    NDArray([[0., 0., 1.],
             [1., 0., 0.]], dtype=float32)
    """
    array = _target("put_along_axis", x)
    content = asarray(values) if isinstance(values, list | tuple) else values
    if axis is None:
        write_flat(array, indexing.index_array(indices, array), content)
        return
    along = normalize_axis("put_along_axis", axis, array.ndim)
    assignment.setitem(array, _along_axis("put_along_axis", array, indices, along), content)


# -- diagonals -----------------------------------------------------------------------------------------------


def _diagonal_view(name: str, x: Any, offset: int, axis1: int, axis2: int) -> View:
    """Return the view of a diagonal, with its dimension as the last one."""
    if x.ndim < 2:
        raise locate(ShapeError(f"{name}: needs at least 2 dimensions, got shape {x.shape}"), user_location())
    first, second = axis_list(name, (axis1, axis2), x.ndim)
    shift = integer(f"{name}: offset", offset)
    rows, columns = x.shape[first], x.shape[second]
    count = max(min(rows, columns - shift) if shift >= 0 else min(rows + shift, columns), 0)
    view, batch = x._view, [a for a in range(x.ndim) if a not in (first, second)]
    start = view.strides[second] * shift if shift >= 0 else -view.strides[first] * shift
    return View(
        view.offset + (start if count else 0),
        (*[view.shape[a] for a in batch], count),
        (*[view.strides[a] for a in batch], view.strides[first] + view.strides[second]),
        view.writable,
    )


@public(method=True)
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> NDArray:
    """The diagonal in the plane of two axes, `offset` to the right (a read-only view).

    It is the last dimension of the result, after all others. The dtype is that of `x`.
    Raises ShapeError for fewer than two dimensions, AxisError for axes out of range or equal.

    >>> import tracejit as tj
    >>> tj.diagonal(tj.asarray([[1, 2], [3, 4]]))
    NDArray([1, 4], dtype=int64)
    """
    array = asarray(x)
    return ArrayCore.new(array._storage, _diagonal_view("diagonal", array, offset, axis1, axis2).read_only())


@public
def diag(x: Any, /, k: int = 0) -> NDArray:
    """The k-th diagonal of a matrix (a new array), or the matrix with this k-th diagonal and zeros elsewhere.

    The dtype is that of `x`.
    Raises ShapeError for other than one or two dimensions.

    >>> import tracejit as tj
    >>> tj.diag(tj.asarray([1, 2]), k=1)
    NDArray([[0, 1, 0],
             [0, 0, 2],
             [0, 0, 0]], dtype=int64)
    """
    array: Any = asarray(x)
    if array.ndim == 2:
        return diagonal(array, k).copy()
    if array.ndim != 1:
        raise locate(
            ShapeError(f"diag: expected 1 or 2 dimensions, got shape {array.shape}"), user_location()
        )
    size = array.size + abs(integer("diag: k", k))
    result = dispatch.full(False, (size, size), array.dtype, array.device, "diag")
    dispatch.write(ArrayCore.new(result._storage, _diagonal_view("diag", result, k, 0, 1)), array)
    return result


@public
def diagflat(x: Any, /, k: int = 0) -> NDArray:
    """The matrix with the flattened array as its k-th diagonal and zeros elsewhere.

    The dtype is that of `x`.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.diagflat([[1, 2]])
    NDArray([[1, 0],
             [0, 2]], dtype=int64)
    """
    return diag(ravel(asarray(x)), k)


@public
def fill_diagonal(x: Any, value: Any, /, wrap: bool = False) -> None:
    """Store a number, or the elements of an array repeatedly, on the diagonal of an array.

    x: two dimensions, or more with equal extents. With `wrap` the diagonal of a tall matrix restarts below.
    Raises ShapeError for other shapes.

    >>> import tracejit as tj
    >>> x = tj.zeros((2, 2))
    >>> tj.fill_diagonal(x, 5)
    >>> x
    NDArray([[5., 0.],
             [0., 5.]], dtype=float32)
    """
    array = _target("fill_diagonal", x)
    shape = array.shape
    if array.ndim < 2 or (array.ndim > 2 and len(set(shape)) > 1):
        raise locate(
            ShapeError(f"fill_diagonal: expected a matrix or equal extents, got shape {shape}"),
            user_location(),
        )
    step = sum(shape[1] ** a for a in range(array.ndim))
    end = array.size if wrap or array.ndim > 2 else min(array.size, shape[1] * shape[1])
    diagonal_positions = range(0, end, step)
    if diagonal_positions:
        number = dispatch.emit(ops.iota, size=len(diagonal_positions), device=array.device)
        write_flat(array, slice(0, end, step), cycled(value, number))


def with_parts(x: NDArray, real_part: Any, imag_part: Any) -> Any:
    """Return the numbers of `x` with another real or imaginary part; for None with the part of `x`.

    Raises DTypeError for an imaginary part of real numbers.
    """
    if x.dtype.kind != "c":
        if imag_part is None:
            return real_part
        text = f"imag: an array of {x.dtype} has no imaginary part; convert it to a complex dtype"
        raise locate(DTypeError(text), user_location())
    old = real(x), imag(x)
    parts = [o if part is None else part for part, o in zip((real_part, imag_part), old, strict=True)]
    return dispatch.apply(ops.complex, *(asarray(part, old[0].dtype) for part in parts))
