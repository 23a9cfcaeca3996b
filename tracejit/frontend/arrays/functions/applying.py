"""Functions applied to parts of arrays, choices between arrays, and bits packed into bytes.

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
    """Results of a function for each line along an axis: the dimensions of a result replace the axis.

    The function is called with each line and `args` and `options`, in Python, for each line anew; a traced
    function records all calls. Array functions with an `axis`, or `tj.vmap`, do the same at once.
    Raises ShapeError where there is no line, AxisError for an axis out of range, ArgumentError for what is no
    function.

    >>> import tracejit as tj
    >>> tj.apply_along_axis(lambda line: line.max(), 1, tj.asarray([[1, 7], [3, 4]]))
    NDArray([7, 4], dtype=int64)
    """
    check_callable("apply_along_axis", function)
    array: Any = asarray(x)
    position = normalize_axis("apply_along_axis", axis, array.ndim)
    lines = moveaxis(array, position, -1)
    kept = lines.shape[:-1]
    if 0 in kept:
        what = f"apply_along_axis: an array of shape {array.shape} has no lines along axis {position}"
        raise locate(ShapeError(what), user_location())
    results = [asarray(function(lines[place], *args, **options)) for place in np.ndindex(kept)]
    inner: Any = results[0].shape
    together = stack(results).reshape((*kept, *inner))
    count = len(inner)
    return moveaxis(together, [*range(-count, 0)], [*range(position, position + count)])


@public
def apply_over_axes(function: Callable[..., Any], x: Any, axes: Any, /) -> NDArray:
    """An array reduced by ``function(x, axis)`` over one axis after the other, the dimensions kept.

    Raises ShapeError for a function that changes other dimensions, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.apply_over_axes(tj.sum, tj.ones((2, 3)), [0, 1])
    NDArray([[6.]], dtype=float32)
    """
    array: Any = asarray(x)
    for axis in axis_list("apply_over_axes", axes, array.ndim):
        found = asarray(function(array, axis))
        if found.ndim == array.ndim - 1:
            found = expand_dims(found, axis=axis)
        if found.ndim != array.ndim:
            what = f"apply_over_axes: the function made {array.shape} {found.shape} along axis {axis}"
            raise locate(ShapeError(what), user_location())
        array = found
    result: NDArray = array
    return result


@public(method=True)
def choose(x: Any, choices: Any, /, mode: str = "raise") -> NDArray:
    """Each element taken from the array among `choices` whose number stands in `x`; all broadcast.

    mode: for numbers out of range, as for `take`.
    Raises OutOfBoundsError for numbers out of range, ArgumentError for no choices and another mode.

    >>> import tracejit as tj
    >>> tj.choose(tj.asarray([0, 1, 1]), [tj.asarray([1, 2, 3]), 10])
    NDArray([ 1, 10, 10], dtype=int64)
    """
    given = list(choices)
    if not given:
        raise locate(ArgumentError("choose: there are no arrays to choose from"), user_location())
    number, *arrays = broadcast_arrays(indexing.index_array(x), *map(asarray, given))
    index = in_range("choose", number, len(arrays), mode)
    found: NDArray = take_along_axis(stack(arrays), index[None], axis=0)[0]
    return found


@public
def trim_zeros(x: Any, trim: str = "fb", axis: Any = None) -> NDArray:
    """Without the zeros at the front ("f") and the back ("b") of axes: those of lines in which all are 0.

    The elements are looked at, so a traced function runs piecewise. The dtype stays.
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
    places, view = np.nonzero(array.numpy()), array._view
    for a in axes:
        start, stop = 0, view.shape[a]
        first, last = (places[a].min(), places[a].max()) if places[a].size else (stop, start - 1)
        start = int(first) if "f" in sides else start
        stop = max(int(last) + 1, start) if "b" in sides else stop
        view = view.slice_axis(a, start, stop)
    return ArrayCore.new(array._storage, view)


# -- bits ----------------------------------------------------------------------------------------------------


def _weights(name: str, bitorder: str) -> np.ndarray:
    """The weights of eight bits."""
    if bitorder not in ("big", "little"):
        what = f'{name}: bitorder is "big" or "little", not {bitorder!r}'
        raise locate(ArgumentError(what), user_location())
    counts = 1 << np.arange(8, dtype=UINT8)
    return counts[::-1].copy() if bitorder == "big" else counts


def _along(x: Any, name: str, axis: int | None) -> tuple[Any, int]:
    """An array and the axis meant: that of the flattened array for None."""
    return (ravel(x), 0) if axis is None else (x, normalize_axis(name, axis, x.ndim))


@public
def packbits(x: Any, /, axis: int | None = None, bitorder: str = "big") -> NDArray:
    """Eight truth values each along an axis (None: of the flattened array) as bits of bytes (uint8).

    Missing ones at the end are 0. The axis is an eighth as long.
    Raises DTypeError for what are no integers or bools, AxisError for an axis out of range.

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

    count: so many of them; without the last ones if negative, with zeros where there are too few.
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
        wanted = integer("unpackbits: count", count)
        wanted = wanted if wanted >= 0 else max(extent + wanted, 0)
        if wanted > extent:
            zeros = dispatch.full(0, (*line.shape[:-1], wanted - extent), UINT8, line.device)
            line = concat([line, zeros], -1)
        line = line[..., :wanted]
    return moveaxis(line, -1, position)
