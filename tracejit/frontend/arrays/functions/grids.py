"""Grids of positions, and indices of subsets of arrays: `indices`, `ix_`, triangles, flat positions.

Results that depend only on shapes are computed on the host or from `iota`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ShapeError, locate
from tracejit.frontend.arrays import dispatch, indexing
from tracejit.frontend.arrays.axes import integer, new_shape
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import default_device
from tracejit.frontend.arrays.functions.creation import FLOAT32, asarray, chosen_dtype, ones
from tracejit.frontend.arrays.functions.manipulation import (
    broadcast_arrays,
    broadcast_to,
    chosen_order,
)
from tracejit.frontend.arrays.functions.movement import in_range, stack
from tracejit.frontend.arrays.functions.ranges import arange, diagonal_of, eye, positions
from tracejit.frontend.arrays.functions.sorting import nonzero
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64 = np.dtype("int64")


def _lines(extents: tuple[int, ...]) -> list[Any]:
    """Return the positions along each dimension, as arrays with the extent 1 in all other dimensions."""
    device, ndim = default_device(), len(extents)
    return [
        positions(tuple(n if b == a else 1 for b in range(ndim)), a, device) for a, n in enumerate(extents)
    ]


@public
def indices(dimensions: Any, dtype: Any = INT64, sparse: bool = False) -> Any:
    """The positions of all elements of an array: one array per dimension, stacked along a new axis.

    With `sparse`, the result is a tuple of arrays that broadcast to these.
    Raises ShapeError for a negative extent, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.indices((2, 2))
    NDArray([[[0, 0],
              [1, 1]],
    <BLANKLINE>
             [[0, 1],
              [0, 1]]], dtype=int64)
    """
    extents = new_shape("indices", dimensions)
    index_dtype = chosen_dtype("indices", dtype, INT64)
    lines = [dispatch.cast(line, index_dtype) for line in _lines(extents)]
    if sparse:
        return tuple(lines)
    if not lines:
        return dispatch.full(0, (0,), index_dtype, default_device())
    return stack([broadcast_to(line, extents) for line in lines])


@public
def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = None, **options: Any) -> Any:
    """The result of a function of the positions of all elements, called with one array per dimension.

    The positions have the dtype `dtype` (float32 by default). Options are passed to the function.
    Raises ShapeError for a negative extent, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.fromfunction(lambda i, j: i * 10 + j, (2, 2), dtype=int)
    NDArray([[ 0,  1],
             [10, 11]], dtype=int64)
    """
    index_dtype = chosen_dtype("fromfunction", dtype, FLOAT32)
    extents = new_shape("fromfunction", shape)
    return function(*(broadcast_to(line, extents) for line in indices(extents, index_dtype, True)), **options)


@public
def identity(n: int, dtype: Any = None) -> NDArray:
    """The matrix of n rows and columns with ones on the diagonal and zeros elsewhere (float32 by default).

    Raises ShapeError for a negative extent, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.identity(2, dtype=tj.int8)
    NDArray([[1, 0],
             [0, 1]], dtype=int8)
    """
    return eye(n, dtype=dtype)


@public
def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None) -> NDArray:
    """Ones on and below the k-th diagonal, zeros elsewhere (float32 by default), of n rows and m columns.

    The default of m is n.
    Raises ShapeError for a negative extent, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.tri(2, 3, dtype=tj.int8)
    NDArray([[1, 0, 0],
             [1, 1, 0]], dtype=int8)
    """
    shape = new_shape("tri", (n, n if m is None else m))
    rows, columns = _lines(shape)
    return dispatch.cast(columns <= rows + diagonal_of("tri", k, shape), chosen_dtype("tri", dtype, FLOAT32))


# -- indices of triangles ------------------------------------------------------------------------------------


def _on_host(arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    return tuple(ArrayCore.from_numpy(array) for array in arrays)


@public
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[NDArray, ...]:
    """The row and column indices of the elements on and below the k-th diagonal, of n rows and m columns.

    The indices are int64.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.tril_indices(2)
    (NDArray([0, 1, 1], dtype=int64), NDArray([0, 0, 1], dtype=int64))
    """
    rows, columns = new_shape("tril_indices", (n, n if m is None else m))
    return _on_host(np.tril_indices(rows, integer("tril_indices: k", k), columns))


@public
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[NDArray, ...]:
    """The row and column indices of the elements on and above the k-th diagonal, of n rows and m columns.

    The indices are int64.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.triu_indices(2)
    (NDArray([0, 0, 1], dtype=int64), NDArray([0, 1, 1], dtype=int64))
    """
    rows, columns = new_shape("triu_indices", (n, n if m is None else m))
    return _on_host(np.triu_indices(rows, integer("triu_indices: k", k), columns))


def _matrix_shape(name: str, x: Any) -> tuple[int, int]:
    if asarray(x).ndim != 2:
        raise locate(
            ShapeError(f"{name}: expected 2 dimensions, got shape {asarray(x).shape}"), user_location()
        )
    rows, columns = x.shape
    return rows, columns


@public
def tril_indices_from(x: Any, /, k: int = 0) -> tuple[NDArray, ...]:
    """`tril_indices` of a matrix.

    Raises ShapeError for other than two dimensions.

    >>> import tracejit as tj
    >>> tj.tril_indices_from(tj.ones((1, 2)))
    (NDArray([0], dtype=int64), NDArray([0], dtype=int64))
    """
    rows, columns = _matrix_shape("tril_indices_from", x)
    return tril_indices(rows, k, columns)


@public
def triu_indices_from(x: Any, /, k: int = 0) -> tuple[NDArray, ...]:
    """`triu_indices` of a matrix.

    Raises ShapeError for other than two dimensions.

    >>> import tracejit as tj
    >>> tj.triu_indices_from(tj.ones((1, 2)))
    (NDArray([0, 0], dtype=int64), NDArray([0, 1], dtype=int64))
    """
    rows, columns = _matrix_shape("triu_indices_from", x)
    return triu_indices(rows, k, columns)


@public
def diag_indices(n: int, ndim: int = 2) -> tuple[NDArray, ...]:
    """The index of the diagonal of an array with `ndim` dimensions of extent n.

    The index is int64.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.diag_indices(2)
    (NDArray([0, 1], dtype=int64), NDArray([0, 1], dtype=int64))
    """
    return (arange(*new_shape("diag_indices", n)),) * integer("diag_indices: ndim", ndim)


@public
def diag_indices_from(x: Any, /) -> tuple[NDArray, ...]:
    """`diag_indices` of an array whose extents are equal.

    Raises ShapeError for fewer than two dimensions or unequal extents.

    >>> import tracejit as tj
    >>> tj.diag_indices_from(tj.ones((1, 1)))
    (NDArray([0], dtype=int64), NDArray([0], dtype=int64))
    """
    shape = asarray(x).shape
    if len(shape) < 2 or len(set(shape)) > 1:
        raise locate(
            ShapeError(f"diag_indices_from: expected two or more equal extents, got shape {shape}"),
            user_location(),
        )
    return diag_indices(shape[0], len(shape))


@public
def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[NDArray, ...]:
    """The index of the elements that ``mask_func(x, k)``, for example `triu`, keeps of an n by n matrix x.

    It is called with ones, and its result is looked at. The indices are int64.
    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.mask_indices(2, tj.triu, 1)
    (NDArray([0], dtype=int64), NDArray([1], dtype=int64))
    """
    (extent,) = new_shape("mask_indices", n)
    return nonzero(mask_func(ones((extent, extent), dtype=INT64), k))


# -- open grids and flat positions ---------------------------------------------------------------------------


@public
def ix_(*sequences: Any) -> tuple[NDArray, ...]:
    """An index of all combinations of positions: the sequences as arrays that broadcast with one another.

    A sequence of bools is converted to the positions of its true elements, which is a look.
    Raises ShapeError for a sequence of several dimensions.

    >>> import tracejit as tj
    >>> tj.arange(9).reshape(3, 3)[tj.ix_([0, 2], [1, 2])]
    NDArray([[1, 2],
             [7, 8]], dtype=int64)
    """
    arrays = []
    for axis, sequence in enumerate(sequences):
        line: Any = sequence if isinstance(sequence, ArrayCore) else np.asarray(sequence)
        if line.ndim != 1:
            raise locate(
                ShapeError(f"ix_: expected sequences of one dimension, got shape {line.shape}"),
                user_location(),
            )
        if line.dtype == bool:
            line = np.flatnonzero(line.numpy() if isinstance(line, ArrayCore) else line)
        index = indexing.index_array(line)
        arrays.append(index.reshape(tuple(-1 if a == axis else 1 for a in range(len(sequences)))))
    return tuple(arrays)


@public
def unravel_index(index: Any, shape: Any, order: str = "C") -> tuple[NDArray, ...]:
    """Convert positions in the flattened array to an index: one array per dimension of `shape`.

    order: the order of the flattened array, "C" or "F". Negative positions count from the end. The indices
    are int64.
    Raises OutOfBoundsError for positions out of range, ArgumentError for another order.

    >>> import tracejit as tj
    >>> tj.unravel_index(tj.asarray([5, 3]), (2, 3))
    (NDArray([1, 1], dtype=int64), NDArray([2, 0], dtype=int64))
    """
    extents = new_shape("unravel_index", shape)
    remaining = dispatch.emit(ops.check_index, indexing.index_array(index), extent=math.prod(extents), axis=0)
    fastest_first = extents if chosen_order("unravel_index", order, "CF") == "F" else extents[::-1]
    coordinates = []
    for extent in fastest_first:
        coordinates.append(remaining % extent)
        remaining = remaining // extent
    return tuple(coordinates if order in "Ff" else coordinates[::-1])


@public
def ravel_multi_index(index: Any, shape: Any, mode: Any = "raise", order: str = "C") -> NDArray:
    """Convert an index, one array of integers per dimension, to positions in the flattened array.

    mode: as for `take`, one for all dimensions or one for each; order: the order of the flattened array, "C"
    or "F". With the mode "raise", negative positions count from the end.
    Raises OutOfBoundsError for positions out of range, ArgumentError for another mode or order, ShapeError
    for another number of arrays.

    >>> import tracejit as tj
    >>> tj.ravel_multi_index(([1, 1], [2, 0]), (2, 3))
    NDArray([5, 3], dtype=int64)
    """
    extents = new_shape("ravel_multi_index", shape)
    lines = [indexing.index_array(line) for line in index]
    modes = mode if isinstance(mode, tuple | list) else (mode,) * len(extents)
    if not len(lines) == len(modes) == len(extents):
        raise locate(
            ShapeError(f"ravel_multi_index: {len(lines)} arrays for the shape {extents}"), user_location()
        )
    dimensions = list(zip(broadcast_arrays(*lines), extents, modes, range(len(extents)), strict=True))
    if chosen_order("ravel_multi_index", order, "CF") == "F":
        dimensions.reverse()
    result: Any = 0
    for line, extent, mode_of_axis, axis in dimensions:
        inside = in_range("ravel_multi_index", line, extent, mode_of_axis)
        result = result * extent + dispatch.emit(ops.check_index, inside, extent=extent, axis=axis)
    return result


@public
def ndindex(*shape: Any) -> Iterator[tuple[int, ...]]:
    """An iterator over all positions of an array of this shape, in C order.

    Raises ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> list(tj.ndindex(2, 2))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    extents = shape[0] if len(shape) == 1 else shape
    return iter(np.ndindex(*new_shape("ndindex", extents)))
