"""Sorting, searching and sets.

`unique` and the set functions except `isin` are looks at the elements, which make a traced function
piecewise. `nonzero`, `argwhere` and `flatnonzero` are looks at the number of elements: each number is a
separate path of the trace. With `size` they need no look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.manipulation import flip, moveaxis, ravel, reshape
from tracejit.frontend.arrays.functions.movement import concat, take
from tracejit.frontend.arrays.functions.ranges import arange
from tracejit.frontend.arrays.functions.scans import cumulative_sum
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.selection import positions
from tracejit.frontend.arrays.views import sliced
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

INT64 = np.dtype("int64")
KINDS = (None, "quicksort", "mergesort", "heapsort", "stable")
"""NumPy's names of methods. All return the same elements, and positions are always stable here."""


# -- sorting -------------------------------------------------------------------------------------------------


def _ordered(name: str, x: Any, axis: Any, kind: Any, order: Any) -> tuple[Any, int]:
    """Return the array, flattened if the axis is None, and the axis along which it is sorted."""
    if kind not in KINDS:
        raise locate(ArgumentError(f"{name}: kind {kind!r} is none of {KINDS[1:]}"), user_location())
    if order is not None:
        raise locate(ArgumentError(f"{name}: order is for fields, which arrays do not have"), user_location())
    array = dispatch.as_array(name, x)
    if axis is None:
        array, axis = ravel(array), 0
    return array, normalize_axis(name, axis, array.ndim)


@public
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> NDArray:
    """A sorted copy along an axis (None: of the flattened array), ascending, nan last; descending, nan first.

    `kind` and `stable` are NumPy's; they have no effect, because equal elements are indistinguishable.
    Shape and dtype are unchanged.
    Raises AxisError for an axis out of range, ArgumentError for an unknown `kind` and for `order`.

    >>> import tracejit as tj
    >>> tj.sort(tj.asarray([3, 1, 2]), descending=True)
    NDArray([3, 2, 1], dtype=int64)
    """
    array, position = _ordered("sort", x, axis, kind, order)
    result = dispatch.emit(ops.sort, array, axis=position)
    return flip(result, axis=position) if descending else result


@public(method=True)
def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> NDArray:
    """Positions (int64) of the elements in sorted order along an axis; equal elements keep their order.

    Without an axis (None) the array is flattened. See `sort`.
    The shape is unchanged.
    Raises AxisError for an axis out of range, ArgumentError for an unknown `kind` and for `order`.

    >>> import tracejit as tj
    >>> tj.argsort(tj.asarray([30, 10, 20]))
    NDArray([1, 2, 0], dtype=int64)
    """
    array, position = _ordered("argsort", x, axis, kind, order)
    if not descending:
        return dispatch.emit(ops.argsort, array, axis=position)
    reverse_order = dispatch.emit(ops.argsort, flip(array, axis=position), axis=position)
    return array.shape[position] - 1 - flip(reverse_order, axis=position)


@public
def lexsort(keys: Any, axis: int = -1) -> NDArray:
    """Positions (int64) that sort by several keys of one shape: by the last key first.

    `keys` is a list of arrays, or an array whose first dimension is that of the keys.
    Raises ShapeError if shapes differ, AxisError for an axis out of range, ArgumentError for no key.

    >>> import tracejit as tj
    >>> tj.lexsort([tj.asarray([2, 1, 3]), tj.asarray([1, 1, 0])])
    NDArray([2, 1, 0], dtype=int64)
    """
    arrays = [dispatch.as_array("lexsort", key) for key in keys]
    if not arrays:
        raise locate(ArgumentError("lexsort: expected at least one key"), user_location())
    if any(key.shape != arrays[0].shape for key in arrays):
        shapes = ", ".join(str(key.shape) for key in arrays)
        raise locate(ShapeError(f"lexsort: keys of shapes {shapes} must agree"), user_location())
    position = normalize_axis("lexsort", axis, arrays[0].ndim)
    order = argsort(arrays[0], axis=position)
    for key in arrays[1:]:
        next_order = argsort(gather_along(key, order, position), axis=position)
        order = gather_along(order, next_order, position)
    return order


def gather_along(x: Any, index: Any, axis: int) -> Any:
    """Gather ``x[..., index[..., i, ...], ...]`` along an axis.

    Positions must be in range, and the shapes must be equal except along the axis.
    """
    extent = x.shape[axis]
    rows, columns = moveaxis(x, axis, -1), moveaxis(index, axis, -1)
    first = arange(columns.size // columns.shape[-1] if columns.size else 0, device=x.device) * extent
    flat = reshape(columns, (first.size, columns.shape[-1])) + first[:, None]
    return moveaxis(reshape(dispatch.emit(ops.gather, ravel(rows), flat, axis=0), columns.shape), -1, axis)


def _check_kth(name: str, kth: Any, extent: int) -> None:
    """Raise ArgumentError for a `kth` out of range."""
    for k in kth if isinstance(kth, tuple | list) else (kth,):
        if not -extent <= integer(f"{name}: kth", k) < extent:
            raise locate(
                ArgumentError(f"{name}: kth {k} is out of range for an axis with extent {extent}"),
                user_location(),
            )


@public
def partition(
    x: Any, /, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> NDArray:
    """A copy with element `kth` along an axis in its sorted position, and no larger elements before it.

    This implementation sorts all elements.
    Raises ArgumentError for a `kth` out of range, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.partition(tj.asarray([3, 1, 2]), 1)[1]
    NDArray(2, dtype=int64)
    """
    array, position = _ordered("partition", x, axis, None, order)
    _check_kth("partition", kth, array.shape[position])
    return dispatch.emit(ops.sort, array, axis=position)


@public(method=True)
def argpartition(
    x: Any, /, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
) -> NDArray:
    """Positions (int64) of the elements of `partition`; this implementation sorts all elements.

    Raises ArgumentError for a `kth` out of range, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.argpartition(tj.asarray([3, 1, 2]), 1)[1]
    NDArray(2, dtype=int64)
    """
    array, position = _ordered("argpartition", x, axis, None, order)
    _check_kth("argpartition", kth, array.shape[position])
    return dispatch.emit(ops.argsort, array, axis=position)


@public
def top_k(x: Any, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[NDArray, NDArray]:
    """The `k` largest (or smallest) elements along an axis in order, and their positions (int64).

    Equal elements keep their order; nan is the largest.
    Raises ArgumentError for a `k` out of range, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> values, positions = tj.top_k(tj.asarray([3, 9, 5]), 2)
    >>> values, positions
    (NDArray([9, 5], dtype=int64), NDArray([1, 2], dtype=int64))
    """
    array, position = _ordered("top_k", x, axis, None, None)
    count = integer("top_k: k", k)
    if not 0 <= count <= array.shape[position]:
        raise locate(
            ArgumentError(
                f"top_k: k {count} is out of range for an axis with extent {array.shape[position]}"
            ),
            user_location(),
        )
    order = argsort(array, axis=position, descending=largest)
    first = sliced(order, position, 0, count)
    return gather_along(array, first, position), first.copy()


# -- searching -----------------------------------------------------------------------------------------------


@public(method=True)
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> NDArray:
    """Positions (int64) at which elements of `x2` can be inserted into the sorted `x1` preserving its order.

    With side "left" they are before equal elements, with "right" after them. `x1` has one dimension; `sorter`
    is the `argsort` of an `x1` that is not sorted. The result has the shape of `x2`.
    Raises ShapeError for an `x1` of other dimensions, ArgumentError for another `side`.

    >>> import tracejit as tj
    >>> tj.searchsorted(tj.asarray([10, 20, 30]), tj.asarray([5, 20]))
    NDArray([0, 1], dtype=int64)
    """
    keys, values = dispatch.as_array("searchsorted", x1), dispatch.as_operand("searchsorted", x2)
    if keys.ndim != 1:
        raise locate(
            ShapeError(f"searchsorted: the sorted array has shape {keys.shape}; it needs one dimension"),
            user_location(),
        )
    if side not in ("left", "right"):
        raise locate(ArgumentError(f'searchsorted: side is "left" or "right", not {side!r}'), user_location())
    if sorter is not None:
        keys = take(keys, sorter)
    common = promotion.common_dtype("searchsorted", (keys, values))
    values = values if isinstance(values, ArrayCore) else dispatch.full(values, (), common, keys.device)
    return dispatch.emit(
        ops.search_sorted, dispatch.cast(keys, common), dispatch.cast(values, common), side=side
    )


@public(method=True)
def nonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> tuple[NDArray, ...]:
    """Positions (int64) of the elements that are not 0, in C order: one array for each dimension.

    Their number depends on the values, and is a look in a traced function. With `size` there is no look, and
    the number is fixed: further positions are dropped, missing ones are `fill_value`.
    Raises ShapeError for an array without dimensions.

    >>> import tracejit as tj
    >>> tj.nonzero(tj.asarray([0, 3, 0, 4]))
    (NDArray([1, 3], dtype=int64),)
    >>> tj.nonzero(tj.asarray([0, 3, 0, 4]), size=3, fill_value=-1)
    (NDArray([ 1,  3, -1], dtype=int64),)
    """
    array = dispatch.as_array("nonzero", x)
    if not array.ndim:
        raise locate(ShapeError("nonzero: the array has no dimensions; use atleast_1d"), user_location())
    if size is None:
        return tuple(asarray(part, device=array.device) for part in positions(array))
    count = integer("nonzero: size", size)
    if count < 0:
        raise locate(ArgumentError(f"nonzero: size {count} is negative"), user_location())
    ranks = cumulative_sum(ravel(array) != 0, dtype=INT64)
    flat = searchsorted(ranks, arange(1, count + 1, device=array.device))
    is_missing, coordinates = flat == array.size, []
    for extent in reversed(array.shape):
        coordinates.append(
            dispatch.apply(ops.where, is_missing, fill_value, flat % extent if extent else flat)
        )
        flat = flat // extent if extent else flat
    return tuple(reversed(coordinates))


@public
def argwhere(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> NDArray:
    """Positions (int64) of the elements that are not 0: one row for each, one column for each dimension.

    `size` and `fill_value` as for `nonzero`.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.argwhere(tj.asarray([[0, 3], [4, 0]]))
    NDArray([[0, 1],
             [1, 0]], dtype=int64)
    """
    array = dispatch.as_array("argwhere", x)
    if not array.ndim:
        return asarray(np.argwhere(array.numpy()), device=array.device)
    coordinates = nonzero(array, size=size, fill_value=fill_value)
    return concat([part[:, None] for part in coordinates], axis=1)


@public
def flatnonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> NDArray:
    """Positions (int64) in the flattened array of the elements that are not 0.

    `size` and `fill_value` as for `nonzero`.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.flatnonzero(tj.asarray([[0, 3], [4, 0]]))
    NDArray([1, 2], dtype=int64)
    """
    return nonzero(ravel(dispatch.as_array("flatnonzero", x)), size=size, fill_value=fill_value)[0]


# -- sets ----------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The result of `unique_all`: distinct values, first positions, the index of each element, counts."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`: distinct values, and the number of occurrences of each."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`: distinct values, and the index of each element among them."""

    values: Any
    inverse_indices: Any


def _call_numpy(function: Any, *arrays: Any, **options: Any) -> Any:
    """Call NumPy's function on the elements of arrays, which is a look; the results are NDArrays."""
    name = function.__name__
    operands = [dispatch.as_array(name, x) for x in arrays]
    result = function(*[x.numpy() for x in operands], **options)
    if isinstance(result, tuple):
        return tuple(asarray(np.asarray(part), device=operands[0].device) for part in result)
    return asarray(np.asarray(result), device=operands[0].device)


@public
def unique(
    x: Any,
    /,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Distinct elements in ascending order, or distinct slices along an axis.

    With flags the result is a tuple: the distinct elements, their first positions, the index of each element
    of `x` among them, and their numbers of occurrences (int64). The shape depends on values: a traced
    function runs piecewise.
    Raises AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.unique(tj.asarray([3, 1, 3]), return_counts=True)
    (NDArray([1, 3], dtype=int64), NDArray([1, 2], dtype=int64))
    """
    array = dispatch.as_array("unique", x)
    if axis is not None:
        axis = normalize_axis("unique", axis, array.ndim)
    return _call_numpy(
        np.unique,
        array,
        return_index=return_index,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis,
        equal_nan=equal_nan,
    )


@public
def unique_all(x: Any, /) -> UniqueAll:
    """Distinct elements (each nan is distinct), first positions, the index of each element, and counts.

    The shape depends on values: a traced function runs piecewise.
    Elements keep their dtype; positions and counts are int64.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.unique_all(tj.asarray([3, 1, 3])).inverse_indices
    NDArray([1, 0, 1], dtype=int64)
    """
    results = unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    return UniqueAll(*results)


@public
def unique_counts(x: Any, /) -> UniqueCounts:
    """Distinct elements (each nan is distinct), and the number of occurrences of each.

    The shape depends on values: a traced function runs piecewise.
    Elements keep their dtype; positions and counts are int64.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.unique_counts(tj.asarray([3, 1, 3])).counts
    NDArray([1, 2], dtype=int64)
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


@public
def unique_inverse(x: Any, /) -> UniqueInverse:
    """Distinct elements (each nan is distinct), and the index among them of each element of `x`.

    The shape of the elements depends on values: a traced function runs piecewise.
    Elements keep their dtype; the indices are int64, and have the shape of `x`.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.unique_inverse(tj.asarray([3, 1, 3])).inverse_indices
    NDArray([1, 0, 1], dtype=int64)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))


@public
def unique_values(x: Any, /) -> NDArray:
    """Distinct elements (each nan is distinct) in ascending order.

    The shape depends on values: a traced function runs piecewise.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.unique_values(tj.asarray([3, 1, 3]))
    NDArray([1, 3], dtype=int64)
    """
    values: NDArray = unique(x, equal_nan=False)
    return values


@public
def isin(x1: Any, x2: Any, /, assume_unique: bool = False, invert: bool = False) -> NDArray:
    """Whether each element of `x1` is among those of `x2` (bool, in the shape of `x1`); nan never is.

    `assume_unique` is NumPy's, and has no effect.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.isin(tj.asarray([1, 2, 3]), tj.asarray([3, 1]))
    NDArray([ True, False,  True], dtype=bool)
    """
    left, right = dispatch.as_operand("isin", x1), dispatch.as_operand("isin", x2)
    common = promotion.common_dtype("isin", (left, right))
    elements, members = (dispatch.cast(dispatch.as_array("isin", x), common) for x in (left, right))
    if not members.size:
        return dispatch.full(invert, elements.shape, np.dtype(bool), elements.device)
    ordered = dispatch.emit(ops.sort, ravel(members), axis=0)
    position = dispatch.apply(ops.minimum, searchsorted(ordered, elements), members.size - 1)
    candidate = dispatch.emit(ops.gather, ordered, position, axis=0)
    return dispatch.apply(ops.not_equal if invert else ops.equal, candidate, elements)


@public
def intersect1d(x1: Any, x2: Any, /, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """Distinct elements that are in both arrays, ascending; with `return_indices` also their first positions.

    The shape depends on values: a traced function runs piecewise. The result has the common dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.intersect1d(tj.asarray([3, 1, 2]), tj.asarray([2, 3]))
    NDArray([2, 3], dtype=int64)
    """
    return _call_numpy(np.intersect1d, x1, x2, assume_unique=assume_unique, return_indices=return_indices)


@public
def union1d(x1: Any, x2: Any, /) -> NDArray:
    """Distinct elements that are in at least one of the arrays, ascending.

    The shape depends on values: a traced function runs piecewise. The result has the common dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.union1d(tj.asarray([3, 1]), tj.asarray([2, 3]))
    NDArray([1, 2, 3], dtype=int64)
    """
    values: NDArray = _call_numpy(np.union1d, x1, x2)
    return values


@public
def setdiff1d(x1: Any, x2: Any, /, assume_unique: bool = False) -> NDArray:
    """Distinct elements of `x1` that are not in `x2`, ascending.

    The shape depends on values: a traced function runs piecewise. The result has the common dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.setdiff1d(tj.asarray([3, 1, 2]), tj.asarray([2]))
    NDArray([1, 3], dtype=int64)
    """
    values: NDArray = _call_numpy(np.setdiff1d, x1, x2, assume_unique=assume_unique)
    return values


@public
def setxor1d(x1: Any, x2: Any, /, assume_unique: bool = False) -> NDArray:
    """Distinct elements that are in exactly one of the arrays, ascending.

    The shape depends on values: a traced function runs piecewise. The result has the common dtype.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.setxor1d(tj.asarray([3, 1]), tj.asarray([2, 3]))
    NDArray([1, 2], dtype=int64)
    """
    values: NDArray = _call_numpy(np.setxor1d, x1, x2, assume_unique=assume_unique)
    return values


@public
def sort_complex(x: Any, /) -> NDArray:
    """A sorted copy along the last axis, by real parts and then by imaginary parts, as complex numbers.

    The dtype is complex64 for small integers, complex128 for all other real numbers.
    Raises AxisError for an array without dimensions.

    >>> import tracejit as tj
    >>> tj.sort_complex(tj.asarray([2 + 1j, 1, 2 - 1j]))
    NDArray([1.+0.j, 2.-1.j, 2.+1.j], dtype=complex64)
    """
    values = sort(x)
    if values.dtype.kind == "c":
        return values
    is_small = values.dtype.kind in "iu" and values.dtype.itemsize <= 2
    return dispatch.cast(values, np.dtype("complex64" if is_small else "complex128"))
