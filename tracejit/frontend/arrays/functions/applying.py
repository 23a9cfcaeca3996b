"""Functions applied along axes, choices between arrays, and bits packed into bytes.

>>> import tracejit as tj
>>> tj.apply_along_axis(lambda line: line - line.mean(), 0, tj.asarray([[1.0, 2.0], [3.0, 6.0]]))
NDArray([[-1., -2.],
         [ 1.,  2.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, indexing
from tracejit.frontend.arrays.axes import axis_list, integer, normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.manipulation import broadcast_arrays, expand_dims, moveaxis, ravel
from tracejit.frontend.arrays.functions.movement import concat, in_range, stack
from tracejit.frontend.arrays.functions.placing import take_along_axis
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import check_callable, user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

UINT8 = np.dtype("uint8")


@public
def apply_along_axis(
    function: Callable[..., Any], axis: int, x: Any, /, *args: Any, **options: Any
) -> NDArray:
    """The results of a function for each line along an axis; the dimensions of a result replace the axis.

    The function is called in Python for each line, with the line, `args` and `options`; a traced function
    records all calls. Array functions with an `axis`, or `tj.vmap`, are faster.
    Raises ShapeError if there are no lines, AxisError for an axis out of range, ArgumentError for an object
    that is not a function.

    >>> import tracejit as tj
    >>> tj.apply_along_axis(lambda line: line.max(), 1, tj.asarray([[1, 7], [3, 4]]))
    NDArray([7, 4], dtype=int64)
    """
    check_callable("apply_along_axis", function)
    array: Any = asarray(x)
    position = normalize_axis("apply_along_axis", axis, array.ndim)
    lines = moveaxis(array, position, -1)
    outer = lines.shape[:-1]
    if 0 in outer:
        what = f"apply_along_axis: an array of shape {array.shape} has no lines along axis {position}"
        raise locate(ShapeError(what), user_location())
    results = [asarray(function(lines[index], *args, **options)) for index in np.ndindex(outer)]
    inner: Any = results[0].shape
    stacked = stack(results).reshape((*outer, *inner))
    count = len(inner)
    return moveaxis(stacked, [*range(-count, 0)], [*range(position, position + count)])


@public
def apply_over_axes(function: Callable[..., Any], x: Any, axes: Any, /) -> NDArray:
    """Reduce an array by ``function(x, axis)`` over one axis after the other, keeping the dimensions.

    Raises ShapeError for a function that changes other dimensions, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.apply_over_axes(tj.sum, tj.ones((2, 3)), [0, 1])
    NDArray([[6.]], dtype=float32)
    """
    array: Any = asarray(x)
    for axis in axis_list("apply_over_axes", axes, array.ndim):
        reduced = asarray(function(array, axis))
        if reduced.ndim == array.ndim - 1:
            reduced = expand_dims(reduced, axis=axis)
        if reduced.ndim != array.ndim:
            what = f"apply_over_axes: the function made {array.shape} {reduced.shape} along axis {axis}"
            raise locate(ShapeError(what), user_location())
        array = reduced
    result: NDArray = array
    return result


@public(method=True)
def choose(x: Any, choices: Any, /, mode: str = "raise") -> NDArray:
    """Select each element from the array among `choices` with the number in `x`; all broadcast.

    mode: the treatment of numbers out of range, as for `take`.
    Raises OutOfBoundsError for numbers out of range, ArgumentError for no choices and another mode.

    >>> import tracejit as tj
    >>> tj.choose(tj.asarray([0, 1, 1]), [tj.asarray([1, 2, 3]), 10])
    NDArray([ 1, 10, 10], dtype=int64)
    """
    choices = list(choices)
    if not choices:
        raise locate(ArgumentError("choose: there are no arrays to choose from"), user_location())
    number, *arrays = broadcast_arrays(indexing.index_array(x), *map(asarray, choices))
    index = in_range("choose", number, len(arrays), mode)
    result: NDArray = take_along_axis(stack(arrays), index[None], axis=0)[0]
    return result


@public
def trim_zeros(x: Any, trim: str = "fb", axis: Any = None) -> NDArray:
    """Remove slices of zeros from the front ("f") and the back ("b") of axes.

    This is a look at the elements, so a traced function runs piecewise. The dtype is unchanged.
    Raises ArgumentError for another `trim`, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.trim_zeros(tj.asarray([0, 0, 1, 0, 2, 0]))
    NDArray([1, 0, 2], dtype=int64)
    """
    sides = trim.lower() if isinstance(trim, str) else ""
    if not sides or set(sides) - set("fb"):
        raise locate(ArgumentError(f'trim_zeros: trim is made of "f" and "b", not {trim!r}'), user_location())
    array = asarray(x)
    axes = normalize_axes("trim_zeros", axis, array.ndim)
    nonzeros, view = np.nonzero(array.numpy()), array._view
    for a in axes:
        start, stop = 0, view.shape[a]
        first, last = (nonzeros[a].min(), nonzeros[a].max()) if nonzeros[a].size else (stop, start - 1)
        start = int(first) if "f" in sides else start
        stop = max(int(last) + 1, start) if "b" in sides else stop
        view = view.slice_axis(a, start, stop)
    return ArrayCore.new(array._storage, view)


# -- bits ----------------------------------------------------------------------------------------------------


def _weights(name: str, bitorder: str) -> np.ndarray:
    """Return the weights of the eight bits of a byte, in bit order."""
    if bitorder not in ("big", "little"):
        what = f'{name}: bitorder is "big" or "little", not {bitorder!r}'
        raise locate(ArgumentError(what), user_location())
    weights = 1 << np.arange(8, dtype=UINT8)
    return weights[::-1].copy() if bitorder == "big" else weights


def _along(x: Any, name: str, axis: int | None) -> tuple[Any, int]:
    """Return an array and a normalized axis; None means axis 0 of the flattened array."""
    return (ravel(x), 0) if axis is None else (x, normalize_axis(name, axis, x.ndim))


@public
def packbits(x: Any, /, axis: int | None = None, bitorder: str = "big") -> NDArray:
    """Groups of eight truth values along an axis (None: of the flattened array) as bits of bytes (uint8).

    Missing bits at the end are 0. The extent of the axis is divided by eight.
    Raises DTypeError for other dtypes than integers and bools, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.packbits(tj.asarray([True, False, False, False, False, False, True, True, True]))
    NDArray([131, 128], dtype=uint8)
    """
    array: Any = asarray(x)
    if array.dtype.kind not in "biu":
        raise locate(DTypeError(f"packbits: takes integers and bools, not {array.dtype}"), user_location())
    array, position = _along(array, "packbits", axis)
    lines = dispatch.cast(moveaxis(array != 0, position, -1), UINT8)
    missing = -lines.shape[-1] % 8
    if missing:
        end = dispatch.full(0, (*lines.shape[:-1], missing), UINT8, lines.device)
        lines = concat([lines, end], -1)
    groups = lines.reshape((*lines.shape[:-1], lines.shape[-1] // 8, 8))
    return moveaxis((groups * _weights("packbits", bitorder)).sum(axis=-1, dtype=UINT8), -1, position)


@public
def unpackbits(
    x: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> NDArray:
    """The bits of bytes (uint8) along an axis (None: of the flattened array), each 0 or 1 (uint8).

    count: the number of bits; a negative number removes bits from the end, missing bits are zeros.
    Raises DTypeError for another dtype than uint8, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.unpackbits(tj.asarray([131], dtype=tj.uint8))
    NDArray([1, 0, 0, 0, 0, 0, 1, 1], dtype=uint8)
    """
    array: Any = asarray(x)
    if array.dtype != UINT8:
        raise locate(DTypeError(f"unpackbits: takes bytes (uint8), not {array.dtype}"), user_location())
    array, position = _along(array, "unpackbits", axis)
    lines = moveaxis(array, position, -1)
    bits: Any = dispatch.cast((lines[..., None] & _weights("unpackbits", bitorder)) != 0, UINT8)
    line = bits.reshape((*lines.shape[:-1], 8 * lines.shape[-1]))
    extent = line.shape[-1]
    if count is not None:
        length = integer("unpackbits: count", count)
        length = length if length >= 0 else max(extent + length, 0)
        if length > extent:
            zeros = dispatch.full(0, (*line.shape[:-1], length - extent), UINT8, line.device)
            line = concat([line, zeros], -1)
        line = line[..., :length]
    return moveaxis(line, -1, position)
