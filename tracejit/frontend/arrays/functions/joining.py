"""Functions that join, split and repeat arrays, in addition to `concat`, `stack` and `unstack`.

The results of a split are views; joined arrays are new. Elements are inserted, deleted and repeated by
gathers with an integer index of their origins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.errors import ArgumentError, OutOfBoundsError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import axis_list, integer, new_shape, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.manipulation import (
    broadcast_to,
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    swapaxes,
)
from tracejit.frontend.arrays.functions.movement import concat, take, unstack
from tracejit.frontend.arrays.functions.sorting import argsort
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import sliced
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64 = np.dtype("int64")
EMPTY = -1


# -- minimum number of dimensions ----------------------------------------------------------------------------


def _expanded(arrays: tuple[Any, ...], new_axes: Sequence[tuple[int, ...]]) -> Any:
    """Expand arrays by dimensions of extent 1; `new_axes` are their axes, by the number of dimensions."""
    results = []
    for x in arrays:
        array = asarray(x)
        axes = new_axes[array.ndim] if array.ndim < len(new_axes) else ()
        results.append(expand_dims(array, axis=axes) if axes else array)
    return results[0] if len(results) == 1 else tuple(results)


@public
def atleast_1d(*arrays: Any) -> Any:
    """Views of the arrays with at least one dimension: one view for one array, otherwise a tuple.

    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.atleast_1d(3)
    NDArray([3], dtype=int64)
    """
    return _expanded(arrays, [(0,)])


@public
def atleast_2d(*arrays: Any) -> Any:
    """Views of the arrays with at least two dimensions: one view for one array, otherwise a tuple.

    New dimensions are leading ones.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.atleast_2d(tj.zeros(3)).shape
    (1, 3)
    """
    return _expanded(arrays, [(0, 1), (0,)])


@public
def atleast_3d(*arrays: Any) -> Any:
    """Views of the arrays with at least three dimensions: one view for one array, otherwise a tuple.

    Shape (n,) becomes (1, n, 1), shape (m, n) becomes (m, n, 1).
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.atleast_3d(tj.zeros(3)).shape
    (1, 3, 1)
    """
    return _expanded(arrays, [(0, 1, 2), (0, 2), (2,)])


# -- joined --------------------------------------------------------------------------------------------------


def _parts(arrays: Any) -> list[Any]:
    """Return the arrays of a sequence, or the slices of one array along the first axis."""
    return list(unstack(arrays)) if isinstance(arrays, ArrayCore) else [asarray(x) for x in arrays]


@public(names="row_stack")
def vstack(arrays: Any, *, dtype: Any = None) -> NDArray:
    """Arrays joined vertically: along the first axis, with 1-dimensional arrays as rows.

    The result has the common dtype, or `dtype`.
    Raises ShapeError if other extents differ, ArgumentError for an empty list.

    >>> import tracejit as tj
    >>> tj.vstack([tj.asarray([1, 2]), tj.asarray([3, 4])])
    NDArray([[1, 2],
             [3, 4]], dtype=int64)
    """
    return concat([atleast_2d(x) for x in _parts(arrays)], 0, dtype=dtype)


@public
def hstack(arrays: Any, *, dtype: Any = None) -> NDArray:
    """Arrays joined horizontally: along the second axis, or along the first one for 1-dimensional arrays.

    The result has the common dtype, or `dtype`.
    Raises ShapeError if other extents differ, ArgumentError for an empty list.

    >>> import tracejit as tj
    >>> tj.hstack([tj.asarray([1, 2]), tj.asarray([3])])
    NDArray([1, 2, 3], dtype=int64)
    """
    parts = [atleast_1d(x) for x in _parts(arrays)]
    return concat(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype)


@public
def dstack(arrays: Any) -> NDArray:
    """Arrays joined along the third axis; `atleast_3d` expands those with fewer dimensions.

    The result has the common dtype.
    Raises ShapeError if other extents differ, ArgumentError for an empty list.

    >>> import tracejit as tj
    >>> tj.dstack([tj.asarray([1, 2]), tj.asarray([3, 4])])
    NDArray([[[1, 3],
              [2, 4]]], dtype=int64)
    """
    return concat([atleast_3d(x) for x in _parts(arrays)], 2)


@public
def column_stack(arrays: Any) -> NDArray:
    """Arrays joined along the second axis, with 1-dimensional arrays as columns.

    The result has the common dtype.
    Raises ShapeError if other extents differ, ArgumentError for an empty list.

    >>> import tracejit as tj
    >>> tj.column_stack([tj.asarray([1, 2]), tj.asarray([3, 4])])
    NDArray([[1, 3],
             [2, 4]], dtype=int64)
    """
    columns = [x.reshape((x.size, 1)) if x.ndim < 2 else x for x in _parts(arrays)]
    return concat(columns, 1)


@public
def block(arrays: Any) -> NDArray:
    """An array assembled from nested lists of blocks: the innermost lists are joined along the last axis.

    The enclosing lists are joined along the preceding axes.

    The result has the common dtype.
    Raises ShapeError if extents differ, ArgumentError for empty lists or lists of unequal depth.

    >>> import tracejit as tj
    >>> tj.block([[tj.eye(2), tj.zeros((2, 1))], [tj.ones((1, 3))]])
    NDArray([[1., 0., 0.],
             [0., 1., 0.],
             [1., 1., 1.]], dtype=float32)
    """
    depths, leaves = _depths(arrays)
    if len(depths) != 1 or depths == {EMPTY}:
        raise locate(ArgumentError("block: lists must not be empty and all of one depth"), user_location())
    (depth,) = depths
    ndim = max(depth, *(leaf.ndim for leaf in leaves), 0)
    return _assembled(arrays, ndim, ndim - depth)


def _depths(arrays: Any) -> tuple[set[int], list[Any]]:
    """Return the depths of the arrays in nested lists (`EMPTY` for an empty list), and the arrays."""
    if not isinstance(arrays, list):
        return {0}, [asarray(arrays)]
    depths, leaves = set() if arrays else {EMPTY}, []
    for item in arrays:
        item_depths, item_leaves = _depths(item)
        depths |= {d if d == EMPTY else d + 1 for d in item_depths}
        leaves += item_leaves
    return depths, leaves


def _assembled(arrays: Any, ndim: int, axis: int) -> Any:
    """Join nested lists, the outermost one along `axis`."""
    if isinstance(arrays, list):
        return concat([_assembled(item, ndim, axis + 1) for item in arrays], axis)
    array = asarray(arrays)
    expanded = array.reshape((1,) * (ndim - array.ndim) + array.shape)
    return expanded.copy() if axis == ndim == 0 or expanded is arrays else expanded


@public
def append(x: Any, values: Any, /, axis: int | None = None) -> NDArray:
    """`x` and `values` joined along an axis; for None both are flattened. The result is a new array.

    The result has the common dtype.
    Raises ShapeError if other extents differ, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.append(tj.asarray([1, 2]), [3, 4])
    NDArray([1, 2, 3, 4], dtype=int64)
    """
    return concat([x, values], axis)


# -- inserted and deleted ------------------------------------------------------------------------------------


def _positions(name: str, where: Any, extent: int) -> Any:
    """A 1-dimensional index as integers: a NumPy array, or an NDArray if `where` is one of integers."""
    if isinstance(where, slice):
        return np.arange(extent)[where]
    if isinstance(where, ArrayCore) and where.dtype.kind in "iu":
        line: Any = where
        return dispatch.cast(line, INT64)
    index = where.numpy() if isinstance(where, ArrayCore) else np.asarray(where)
    if index.dtype == bool:
        if name == "delete" and index.shape != (extent,):
            raise locate(
                ShapeError(f"delete: a mask of shape {index.shape} for {extent} elements"), user_location()
            )
        return np.flatnonzero(index)
    if index.dtype.kind not in "iu" and index.size:
        raise locate(
            OutOfBoundsError(f"{name}: positions must be integers or booleans, not {index.dtype}"),
            user_location(),
        )
    return index.astype(np.int64)


def _checked(name: str, positions: np.ndarray, extent: int, maximum: int) -> np.ndarray:
    """Return positions without negative ones. Raises OutOfBoundsError for those above `maximum`."""
    wrapped = np.where(positions < 0, positions + extent, positions)
    invalid = (wrapped < 0) | (wrapped > maximum)
    if invalid.any():
        raise locate(
            OutOfBoundsError(
                f"{name}: index {positions[invalid].flat[0]} is out of bounds for extent {extent}"
            ),
            user_location(),
        )
    return wrapped


@public
def insert(x: Any, obj: Any, values: Any, /, axis: int | None = None) -> NDArray:
    """`x` with `values` inserted before the positions `obj` along an axis; for None `x` is flattened.

    obj: an integer, several integers, a slice or a mask; all refer to positions in the original `x`. `values`
    are cast to the dtype of `x` and broadcast. Several values for one position keep their order. Positions in
    an NDArray must not be negative. The result is a new array.
    Raises OutOfBoundsError for a position out of range, ShapeError for values that do not broadcast.

    >>> import tracejit as tj
    >>> tj.insert(tj.asarray([1, 2, 3]), [1, 3], [10, 30])
    NDArray([ 1, 10,  2,  3, 30], dtype=int64)
    """
    array: Any = asarray(x)
    if axis is None:
        array, axis = ravel(array), 0
    along = normalize_axis("insert", axis, array.ndim)
    extent = array.shape[along]
    where = _positions("insert", obj, extent)
    new: Any = values if isinstance(values, ArrayCore) else asarray(values, device=array.device)
    new = dispatch.cast(new, array.dtype)
    if where.size == 1:
        new = new.reshape((1,) * (array.ndim - new.ndim) + new.shape)
        new = moveaxis(new, 0, along) if where.ndim == 0 else new
    count = new.shape[along] if where.size == 1 else where.size
    shape = (*array.shape[:along], count, *array.shape[along + 1 :])
    if not isinstance(where, ArrayCore):
        where = _checked("insert", where, extent, extent)
        order: Any = np.argsort([*np.broadcast_to(where.ravel(), count), *range(extent)], kind="stable")
    else:
        line = broadcast_to(ravel(where), (count,))
        order = argsort(concat([line, asarray(np.arange(extent), device=line.device)]), stable=True)
    return take(concat([broadcast_to(new, shape), array], along), order, axis=along)


@public
def delete(x: Any, obj: Any, /, axis: int | None = None) -> NDArray:
    """`x` without the positions `obj` along an axis; for None `x` is flattened. The result is a new array.

    obj: an integer, several integers, a slice or a mask. An NDArray is looked at.
    Raises OutOfBoundsError for a position out of range, ShapeError for a mask of another shape.

    >>> import tracejit as tj
    >>> tj.delete(tj.asarray([1, 2, 3, 4]), [0, -1])
    NDArray([2, 3], dtype=int64)
    """
    array: Any = asarray(x)
    if axis is None:
        array, axis = ravel(array), 0
    along = normalize_axis("delete", axis, array.ndim)
    extent = array.shape[along]
    where = _positions("delete", obj.numpy() if isinstance(obj, ArrayCore) else obj, extent)
    is_kept = np.ones(extent, bool)
    is_kept[_checked("delete", where, extent, extent - 1)] = False
    return take(array, np.flatnonzero(is_kept), axis=along)


# -- split ---------------------------------------------------------------------------------------------------


@public
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[NDArray]:
    """Split an array along an axis, into a number of nearly equal views, or before the indices in a list.

    Raises AxisError for an axis out of range, ArgumentError for no sections or indices that are not integers.

    >>> import tracejit as tj
    >>> [part.shape for part in tj.array_split(tj.zeros(7), 3)]
    [(3,), (2,), (2,)]
    """
    return _split("array_split", asarray(x), indices_or_sections, axis)


def _split(name: str, array: Any, sections: Any, axis: int) -> list[Any]:
    """Split an array into a number of sections whose extents differ by at most 1, or before indices."""
    along = normalize_axis(name, axis, array.ndim)
    extent = array.shape[along]
    if hasattr(sections, "__len__") and not (isinstance(sections, ArrayCore) and not sections.shape):
        cuts = [integer(f"{name}: index", i) for i in sections]
    else:
        count = integer(f"{name}: sections", sections)
        if count <= 0:
            raise locate(ShapeError(f"{name}: the number of sections must be positive"), user_location())
        section, remainder = divmod(extent, count)
        cuts = [i * section + min(i, remainder) for i in range(1, count)]
    bounds = zip([0, *cuts], [*cuts, extent], strict=True)
    return [sliced(array, along, start, stop) for start, stop in bounds]


@public
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[NDArray]:
    """Split an array along an axis, into a number of equal views, or before the indices in a list.

    Raises ShapeError if the views would not be equal, AxisError for an axis out of range, ArgumentError for
    indices that are not integers.

    >>> import tracejit as tj
    >>> [part.tolist() for part in tj.split(tj.arange(5), [1, 3])]
    [[0], [1, 2], [3, 4]]
    """
    array = asarray(x)
    if not hasattr(indices_or_sections, "__len__"):
        count = integer("split: sections", indices_or_sections)
        extent = array.shape[normalize_axis("split", axis, array.ndim)]
        if count > 0 and extent % count:
            raise locate(
                ShapeError(f"split: extent {extent} is no multiple of {count}; use array_split"),
                user_location(),
            )
    return _split("split", array, indices_or_sections, axis)


@public
def hsplit(x: Any, indices_or_sections: Any) -> list[NDArray]:
    """`split` along the second axis, or along the first axis of a 1-dimensional array.

    Raises ShapeError for an array without dimensions, and what `split` raises.

    >>> import tracejit as tj
    >>> [part.tolist() for part in tj.hsplit(tj.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    array = _with_at_least("hsplit", x, 1)
    return split(array, indices_or_sections, 1 if array.ndim > 1 else 0)


@public
def vsplit(x: Any, indices_or_sections: Any) -> list[NDArray]:
    """`split` along the first axis of an array with two or more dimensions.

    Raises ShapeError for fewer dimensions, and what `split` raises.

    >>> import tracejit as tj
    >>> [part.shape for part in tj.vsplit(tj.zeros((4, 3)), 2)]
    [(2, 3), (2, 3)]
    """
    return split(_with_at_least("vsplit", x, 2), indices_or_sections, 0)


@public
def dsplit(x: Any, indices_or_sections: Any) -> list[NDArray]:
    """`split` along the third axis.

    Raises ShapeError for fewer dimensions, and what `split` raises.

    >>> import tracejit as tj
    >>> [part.shape for part in tj.dsplit(tj.zeros((1, 3, 4)), 2)]
    [(1, 3, 2), (1, 3, 2)]
    """
    return split(_with_at_least("dsplit", x, 3), indices_or_sections, 2)


def _with_at_least(name: str, x: Any, ndim: int) -> Any:
    array = asarray(x)
    if array.ndim < ndim:
        raise locate(
            ShapeError(f"{name}: needs at least {ndim} dimensions, got shape {array.shape}"), user_location()
        )
    return array


# -- repetition and rotation ---------------------------------------------------------------------------------


@public(method=True)
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> NDArray:
    """The elements along an axis, each repeated; for None those of the flattened array.

    repeats: the number of repetitions, or one for each element (an NDArray is looked at).
    The result is a new array.
    Raises ShapeError for negative numbers or another number of them, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.repeat(tj.asarray([1, 2]), 2)
    NDArray([1, 1, 2, 2], dtype=int64)
    >>> tj.repeat(tj.asarray([1, 2]), [3, 1])
    NDArray([1, 1, 1, 2], dtype=int64)
    """
    array: Any = asarray(x)
    if axis is None:
        array, axis = ravel(array), 0
    along = normalize_axis("repeat", axis, array.ndim)
    counts = np.asarray(repeats.numpy() if isinstance(repeats, ArrayCore) else repeats)
    extent = array.shape[along]
    if (
        counts.dtype.kind not in "biu"
        or counts.ndim > 1
        or counts.size not in (1, extent)
        or (counts < 0).any()
    ):
        raise locate(
            ShapeError(f"repeat: expected 1 or {extent} numbers from 0 on, got {counts}"), user_location()
        )
    if counts.size != 1:
        return take(array, np.repeat(np.arange(extent), counts), axis=along)
    count = int(counts.reshape(()))
    repeated = broadcast_to(
        expand_dims(array, axis=along + 1), (*array.shape[: along + 1], count, *array.shape[along + 1 :])
    )
    return reshape(repeated, (*array.shape[:along], extent * count, *array.shape[along + 1 :]), copy=True)


@public
def tile(x: Any, reps: Any, /) -> NDArray:
    """The array repeated `reps` times along each dimension.

    The shorter one of the shape and `reps` is extended by leading ones. The result is a new array.
    Raises ShapeError for negative numbers, ArgumentError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.tile(tj.asarray([1, 2]), (2, 2))
    NDArray([[1, 2, 1, 2],
             [1, 2, 1, 2]], dtype=int64)
    """
    array: Any = asarray(x)
    times = new_shape("tile", reps)
    ndim = max(array.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    extents = (1,) * (ndim - array.ndim) + array.shape
    interleaved = array.reshape(tuple(n for extent in extents for n in (1, extent)))
    pairs = tuple(n for pair in zip(times, extents, strict=True) for n in pair)
    result = tuple(count * extent for count, extent in zip(times, extents, strict=True))
    return reshape(broadcast_to(interleaved, pairs), result, copy=True)


@public
def resize(x: Any, shape: Any, /) -> NDArray:
    """A new array of another shape, filled with the elements in C order, repeatedly.

    Without elements it is filled with zeros. Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.resize(tj.asarray([1, 2, 3]), (2, 2))
    NDArray([[1, 2],
             [3, 1]], dtype=int64)
    """
    array: Any = ravel(asarray(x))
    extents = new_shape("resize", shape)
    size = math.prod(extents)
    if not array.size:
        return dispatch.full(0, extents, array.dtype, array.device, "resize")
    if size > array.size:
        array = tile(array, -(-size // array.size))
    return reshape(sliced(array, 0, 0, size), extents, copy=True)


@public
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> NDArray:
    """The array rotated by 90 degrees `k` times in the plane of two axes, from first to second (a view).

    Raises AxisError for axes out of range or equal, ArgumentError for other than two of them.

    >>> import tracejit as tj
    >>> tj.rot90(tj.asarray([[1, 2], [3, 4]]))
    NDArray([[2, 4],
             [1, 3]], dtype=int64)
    """
    array = asarray(m)
    plane = axis_list("rot90", tuple(axes), array.ndim)
    if len(plane) != 2:
        raise locate(ArgumentError(f"rot90: expected two axes, got {axes}"), user_location())
    first, second = plane
    turns = integer("rot90: k", k) % 4
    if turns in (0, 2):
        return flip(array, plane) if turns else flip(array, ())
    return (
        swapaxes(flip(array, second), first, second)
        if turns == 1
        else flip(swapaxes(array, first, second), second)
    )


@public
def fliplr(m: Any, /) -> NDArray:
    """Elements in reverse order along the second axis (a view).

    Raises AxisError for fewer than two dimensions.

    >>> import tracejit as tj
    >>> tj.fliplr(tj.asarray([[1, 2], [3, 4]]))
    NDArray([[2, 1],
             [4, 3]], dtype=int64)
    """
    return flip(_with_at_least("fliplr", m, 2), 1)


@public
def flipud(m: Any, /) -> NDArray:
    """Elements in reverse order along the first axis (a view).

    Raises AxisError for an array without dimensions.

    >>> import tracejit as tj
    >>> tj.flipud(tj.asarray([[1, 2], [3, 4]]))
    NDArray([[3, 4],
             [1, 2]], dtype=int64)
    """
    return flip(_with_at_least("flipud", m, 1), 0)
