"""Products of vectors, matrices and tensors, composed of `matmul` and sums of products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ShapeError, locate
from tracejit.frontend.arrays import dispatch, immediate, promotion
from tracejit.frontend.arrays.axes import axis_list, integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.manipulation import moveaxis, permute_dims, ravel, reshape
from tracejit.frontend.arrays.functions.movement import stack, unstack
from tracejit.frontend.arrays.functions.reductions import any, sum
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.selection import selection_of
from tracejit.frontend.arrays.views import dropped, expanded
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import quiet
from tracejit.ir.types import HALVES
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

FLOAT32, INT64 = np.dtype("float32"), np.dtype("int64")


@public
def matmul(x1: Any, x2: Any, /) -> NDArray:
    """The matrix product over the last two dimensions; leading ones broadcast, vectors are rows or columns.

    Shapes (..., n, k) and (..., k, m) produce (..., n, m), in the common dtype. For bools the result is
    whether any product is true.
    Raises ShapeError if the extents k differ, leading ones do not broadcast, or an operand has no dimension;
    ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.matmul(tj.asarray([[1, 2], [3, 4]]), tj.asarray([1, 1]))
    NDArray([3, 7], dtype=int64)
    """
    computed = immediate.product(x1, x2)
    if computed is not None:
        return computed
    a, b = dispatch.as_operand("matmul", x1), dispatch.as_operand("matmul", x2)
    with quiet:
        return _product(a, b)


def _product(a: Any, b: Any) -> Any:
    """Record the matrix product of operands."""
    if not isinstance(a, ArrayCore) or not isinstance(b, ArrayCore) or not a.ndim or not b.ndim:
        raise locate(
            ShapeError("matmul: operands need at least one dimension; use * for numbers"), user_location()
        )
    if _select_alike(a, b):
        if a.dtype in HALVES and a.dtype == b.dtype:  # their products are not rounded
            products = _sums_of_products(dispatch.cast(a, FLOAT32), dispatch.cast(b, FLOAT32))
            return dispatch.cast(products, a.dtype)
        return _sums_of_products(a, b)
    dtype = promotion.common_dtype("matmul", (a, b))
    if dtype.kind == "b":
        counts = matmul(dispatch.cast(a, INT64), dispatch.cast(b, INT64))
        return dispatch.apply(ops.not_equal, counts, 0)
    a, b = dispatch.cast(a, dtype), dispatch.cast(b, dtype)
    left = a._view if a.ndim > 1 else a._view.expand(0)
    right = b._view if b.ndim > 1 else b._view.expand(1)
    if left.shape[-1] != right.shape[-2]:
        raise locate(
            ShapeError(
                f"matmul: {a.shape} @ {b.shape}: the last extent of the first ({left.shape[-1]}) must equal "
                f"the last but one of the second ({right.shape[-2]})"
            ),
            user_location(),
        )
    shared = left.size > 0 and len(left.shape) > 2 and len(right.shape) == 2
    rows = left.reshape((left.size // left.shape[-1], left.shape[-1])) if shared else None
    if rows is not None:
        # One product instead of a batch: its gradients are single matrix products, too.
        tall = matmul(ArrayCore.new(a._storage, rows), ArrayCore.new(b._storage, right))
        return tall.reshape((*left.shape[:-1], *b.shape[1:]))
    if dtype.kind == "c":
        return _complex_product(a, b)
    batch = dispatch.broadcast_shape("matmul", [left.shape[:-2], right.shape[:-2]])
    matrices = [
        ArrayCore.new(
            x._storage, view if view.shape[:-2] == batch else view.broadcast((*batch, *view.shape[-2:]))
        )
        for x, view in ((a, left), (b, right))
    ]
    result = dispatch.emit(ops.matmul, *matrices)
    view = result._view
    if b.ndim == 1:
        view = view.drop([len(view.shape) - 1])
    if a.ndim == 1:
        view = view.drop([len(view.shape) - (2 if b.ndim > 1 else 1)])
    return ArrayCore.new(result._storage, view)


def _complex_product(a: Any, b: Any) -> Any:
    """Return the product of complex matrices, by four products of their real and imaginary parts."""
    (re, im), (re2, im2) = ([dispatch.emit(part, x) for part in (ops.real, ops.imag)] for x in (a, b))
    return dispatch.emit(ops.complex, matmul(re, re2) - matmul(im, im2), matmul(re, im2) + matmul(im, re2))


@public(method=True)
def dot(x1: Any, x2: Any, /) -> NDArray:
    """NumPy's dot: a product with a number, or sums over the last axis of `x1` and the second-last of `x2`.

    The result has the common dtype.
    Raises ShapeError if the summed extents differ, ArgumentError for an object that is not an array or
    number.

    >>> import tracejit as tj
    >>> tj.dot(tj.asarray([1, 2, 3]), tj.asarray([4, 5, 6]))
    NDArray(32, dtype=int64)
    """
    a, b = dispatch.as_array("dot", x1), dispatch.as_array("dot", x2)
    if not a.ndim or not b.ndim:
        return dispatch.apply(ops.multiply, a, b)
    if b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=((-1,), (-2,)))


@public
def outer(x1: Any, x2: Any, /) -> NDArray:
    """All products of an element of `x1` with one of `x2`, both flattened: shape (x1.size, x2.size).

    The result has the common dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.outer(tj.asarray([1, 2]), tj.asarray([10, 20]))
    NDArray([[10, 20],
             [20, 40]], dtype=int64)
    """
    a, b = ravel(dispatch.as_array("outer", x1)), ravel(dispatch.as_array("outer", x2))
    return dispatch.apply(ops.multiply, expanded(a, 1), b)


@public
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> NDArray:
    """Sum of products over pairs of axes: the last n of `x1` with the first n of `x2`, or two lists of axes.

    The result has the remaining dimensions of `x1`, then those of `x2`, and the common dtype.
    Raises ShapeError if extents or numbers of axes do not agree, AxisError for an axis out of range or given
    twice, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.tensordot(tj.ones((2, 3, 4)), tj.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    a, b = dispatch.as_array("tensordot", x1), dispatch.as_array("tensordot", x2)
    left, right = _contracted(a, b, axes)
    extents = [a.shape[i] for i in left]
    if extents != [b.shape[i] for i in right]:
        raise locate(
            ShapeError(f"tensordot: {a.shape} and {b.shape} do not agree along axes {left} and {right}"),
            user_location(),
        )
    free_a = [i for i in range(a.ndim) if i not in left]
    free_b = [i for i in range(b.ndim) if i not in right]
    inner = math.prod(extents)
    rows, columns = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
    product = matmul(
        reshape(permute_dims(a, (*free_a, *left)), (math.prod(rows), inner)),
        reshape(permute_dims(b, (*right, *free_b)), (inner, math.prod(columns))),
    )
    return reshape(product, (*rows, *columns))


def _contracted(a: Any, b: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of both arrays over which `tensordot` sums."""
    if isinstance(axes, tuple | list) and len(axes) == 2:
        left = axis_list("tensordot", axes[0], a.ndim)
        right = axis_list("tensordot", axes[1], b.ndim)
        if len(left) == len(right):
            return left, right
    elif not isinstance(axes, tuple | list):
        count = integer("tensordot: axes", axes)
        if 0 <= count <= min(a.ndim, b.ndim):
            return tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    raise locate(
        ShapeError(
            f"tensordot: axes {axes} do not fit shapes {a.shape} and {b.shape}; give a number or two lists "
            "of axes of equal length"
        ),
        user_location(),
    )


@public
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> NDArray:
    """Inner products of the vectors along an axis; all other dimensions broadcast.

    Complex elements of `x1` are conjugated.
    The result has the broadcast shape without the axis, and the common dtype.
    Raises ShapeError if extents along the axis differ or an operand has no dimension, AxisError for an axis
    out of range or given twice, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.vecdot(tj.asarray([[1, 2], [3, 4]]), tj.asarray([1, 10]))
    NDArray([21, 43], dtype=int64)
    """
    a, b = dispatch.as_array("vecdot", x1), dispatch.as_array("vecdot", x2)
    if not a.ndim or not b.ndim:
        raise locate(ShapeError("vecdot: operands need at least one dimension"), user_location())
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise locate(
            ShapeError(f"vecdot: vectors of {a.shape[-1]} and {b.shape[-1]} elements along axis {axis}"),
            user_location(),
        )
    return _sums_of_products(_conjugate(a), b)


def _sums_of_products(a: Any, b: Any) -> Any:
    """Sum the products over the last dimension; for bools, return whether any product is true."""
    product = dispatch.apply(ops.multiply, a, b)
    return any(product, axis=-1) if product.dtype == bool else sum(product, axis=-1, dtype=product.dtype)


def _conjugate(x: Any) -> Any:
    return dispatch.emit(ops.conj, x) if x.dtype.kind == "c" else x


@public
def inner(x1: Any, x2: Any, /) -> NDArray:
    """Sums of products over the last dimensions of both operands, or a product with a number.

    The result has the other dimensions of `x1`, then those of `x2`, and the common dtype.
    Raises ShapeError if the last extents differ, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.inner(tj.asarray([[1, 2], [3, 4]]), tj.asarray([1, 10]))
    NDArray([21, 43], dtype=int64)
    """
    a, b = dispatch.as_array("inner", x1), dispatch.as_array("inner", x2)
    if not a.ndim or not b.ndim:
        return dispatch.apply(ops.multiply, a, b)
    if a.ndim == b.ndim == 1:
        return _dot_of_vectors("inner", a, b)
    return tensordot(a, b, axes=((-1,), (-1,)))


@public
def vdot(x1: Any, x2: Any, /) -> NDArray:
    """The sum of products of two arrays of one size, both flattened: a 0-d array of the common dtype.

    Complex elements of `x1` are conjugated.
    Raises ShapeError if the sizes differ, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.vdot(tj.asarray([[1, 2], [3, 4]]), tj.asarray([[1, 0], [0, 1]]))
    NDArray(5, dtype=int64)
    """
    a, b = ravel(dispatch.as_array("vdot", x1)), ravel(dispatch.as_array("vdot", x2))
    return _dot_of_vectors("vdot", _conjugate(a), b)


def _select_alike(a: Any, b: Any) -> bool:
    """Whether two vectors are selections by one mask: their product does not need its extent."""
    selection = selection_of(a)
    if selection is None or selection_of(b) is None or not a.ndim == b.ndim == 1:
        return False
    return selection.contents((a, b)) is not None


def _dot_of_vectors(name: str, a: Any, b: Any) -> Any:
    if not _select_alike(a, b) and a.size != b.size:
        raise locate(ShapeError(f"{name}: vectors of {a.size} and {b.size} elements"), user_location())
    return _sums_of_products(a, b)


@public
def matvec(x1: Any, x2: Any, /) -> NDArray:
    """Products of matrices and vectors: shapes (..., n, k) and (..., k) produce (..., n).

    Leading dimensions broadcast; the result has the common dtype.
    Raises ShapeError if extents do not agree or dimensions are missing, ArgumentError for an object that is
    no array or number.

    >>> import tracejit as tj
    >>> tj.matvec(tj.asarray([[1, 2], [3, 4]]), tj.asarray([[1, 0], [0, 1]]))
    NDArray([[1, 3],
             [2, 4]], dtype=int64)
    """
    matrices, vectors = _matrices_and_vectors("matvec", x1, x2)
    if vectors.ndim == 1:
        return matmul(matrices, vectors)
    product = matmul(matrices, expanded(vectors, vectors.ndim))
    return dropped(product, product.ndim - 1)


@public
def vecmat(x1: Any, x2: Any, /) -> NDArray:
    """Products of vectors and matrices: shapes (..., k) and (..., k, n) produce (..., n).

    Leading dimensions broadcast; the result has the common dtype. Complex elements of `x1` are conjugated.
    Raises ShapeError if extents do not agree or dimensions are missing, ArgumentError for an object that is
    no array or number.

    >>> import tracejit as tj
    >>> tj.vecmat(tj.asarray([1, 10]), tj.asarray([[1, 2], [3, 4]]))
    NDArray([31, 42], dtype=int64)
    """
    matrices, vectors = _matrices_and_vectors("vecmat", x2, x1)
    product = matmul(expanded(_conjugate(vectors), vectors.ndim - 1), matrices)
    return dropped(product, product.ndim - 2)


def _matrices_and_vectors(name: str, matrices: Any, vectors: Any) -> tuple[Any, Any]:
    a, x = dispatch.as_array(name, matrices), dispatch.as_array(name, vectors)
    if a.ndim < 2 or not x.ndim:
        raise locate(
            ShapeError(f"{name}: matrices of shape {a.shape} and vectors of shape {x.shape}"), user_location()
        )
    return a, x


@public
def kron(x1: Any, x2: Any, /) -> NDArray:
    """The Kronecker product: each element of `x1` times all of `x2`, in blocks.

    The operand with fewer dimensions is extended by leading ones; extents multiply. The result has the common
    dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.kron(tj.asarray([1, 10]), tj.asarray([[1, 2], [3, 4]]))
    NDArray([[ 1,  2, 10, 20],
             [ 3,  4, 30, 40]], dtype=int64)
    """
    a, b = dispatch.as_array("kron", x1), dispatch.as_array("kron", x2)
    ndim = max(a.ndim, b.ndim)
    outer_shape = (1,) * (ndim - a.ndim) + a.shape
    inner_shape = (1,) * (ndim - b.ndim) + b.shape
    blocks = reshape(a, tuple(n for extent in outer_shape for n in (extent, 1)))
    block = reshape(b, tuple(n for extent in inner_shape for n in (1, extent)))
    product = dispatch.apply(ops.multiply, blocks, block)
    return reshape(product, tuple(n * m for n, m in zip(outer_shape, inner_shape, strict=True)))


def diagonal_view(name: str, x: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Return a view of the diagonals of the matrices in two dimensions, as the last dimension."""
    row, column = axis_list(name, (axis1, axis2), x.ndim)
    shift = integer(f"{name}: offset", offset)
    matrices = x._view
    height, width = matrices.shape[row], matrices.shape[column]
    matrices = matrices.slice_axis(row, min(max(-shift, 0), height), None)
    matrices = matrices.slice_axis(column, min(max(shift, 0), width), None)
    extent = min(matrices.shape[row], matrices.shape[column])
    batch = [a for a in range(x.ndim) if a not in (row, column)]
    view = View(
        matrices.offset,
        (*(matrices.shape[a] for a in batch), extent),
        (*(matrices.strides[a] for a in batch), matrices.strides[row] + matrices.strides[column]),
        matrices.writable,
    )
    return ArrayCore.new(x._storage, view)


@public(method=True)
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> NDArray:
    """The sums of the diagonals of the matrices in two dimensions; dtypes as for `sum`.

    `offset` is the distance from the main diagonal, positive above it. The other dimensions are kept.
    Raises AxisError for an axis out of range or given twice, ArgumentError for an object that is not an array
    or number.

    >>> import tracejit as tj
    >>> tj.trace(tj.asarray([[1, 2], [3, 4]]))
    NDArray(5, dtype=int64)
    """
    array = dispatch.as_array("trace", x)
    return sum(diagonal_view("trace", array, offset, axis1, axis2), axis=-1, dtype=dtype)


@public
def cross(
    x1: Any, x2: Any, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> NDArray:
    """Cross products of vectors of 3 elements along an axis; all other dimensions broadcast.

    The axes of the vectors are `axisa` and `axisb`, that of the result is `axisc`; `axis` sets all three.
    The result has the common dtype.
    Raises ShapeError for vectors of another length (append a 0 to those of 2), AxisError for an axis out of
    range, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.cross(tj.asarray([1, 0, 0]), tj.asarray([0, 1, 0]))
    NDArray([0, 0, 1], dtype=int64)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = dispatch.as_array("cross", x1), dispatch.as_array("cross", x2)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise locate(
            ShapeError(
                f"cross: vectors of {a.shape[-1]} and {b.shape[-1]} elements; expected 3, append a 0 to "
                "those of 2"
            ),
            user_location(),
        )
    (a0, a1, a2), (b0, b1, b2) = unstack(a, axis=-1), unstack(b, axis=-1)
    components = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]
    return stack(components, axis=axisc)
