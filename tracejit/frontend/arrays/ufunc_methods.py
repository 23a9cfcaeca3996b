"""Methods of NumPy's ufuncs: ``reduce``, ``accumulate``, ``reduceat``, ``outer``, ``at``.

All methods accept the function that implements the ufunc (`functions.UFUNCS`) and are composed of calls of
it. Reductions and scans without an operator of their own combine pairs of elements: a reduction halves the
axis until one element is left, and a scan doubles the distance of the pairs in each step (Hillis and Steele
1986). They are therefore available only for associative functions and for the two inverses of such functions:
``a - b - c`` is ``a - (b + c)``.

>>> import numpy as np, tracejit as tj
>>> np.bitwise_or.reduce(tj.asarray([1, 4, 8]))
NDArray(13, dtype=int64)
>>> np.maximum.accumulate(tj.asarray([1, 3, 2]))
NDArray([1, 3, 3], dtype=int64)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import assignment, dispatch
from tracejit.frontend.arrays.axes import normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import UFUNCS, movement, reductions, scans, sorting
from tracejit.frontend.arrays.views import broadcasted, selected, sliced
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread
from tracejit.ir.types import DTYPES, is_floating

Function = Callable[..., Any]

DIRECT: dict[np.ufunc, Function] = {
    np.add: reductions.sum,
    np.multiply: reductions.prod,
    np.maximum: reductions.max,
    np.minimum: reductions.min,
    np.logical_and: reductions.all,
    np.logical_or: reductions.any,
}
"""Ufuncs with dedicated reductions."""

SCANS: dict[np.ufunc, Function] = {
    np.add: scans.running_sums,
    np.multiply: scans.running_products,
    np.maximum: lambda x, axis: dispatch.emit(ops.cumulative_max, x, axis=axis),
    np.minimum: lambda x, axis: dispatch.emit(ops.cumulative_min, x, axis=axis),
}
"""Ufuncs with dedicated scans."""

INVERSES: dict[np.ufunc, np.ufunc] = {np.subtract: np.add, np.divide: np.multiply}
"""Inverse ufuncs, with the associative ufunc by which elements after the first are combined."""

ASSOCIATIVE = {
    *DIRECT,
    *(np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.fmax, np.fmin),
    *(np.logaddexp, np.logaddexp2, np.hypot, np.gcd, np.lcm),
}


def _refuse(name: str, what: str) -> TracejitError:
    return locate(ArgumentError(f"numpy.{name}: {what}"), user_location())


def _as_computed(ufunc: np.ufunc, method: str, x: Any, dtype: Any) -> Any:
    """Return `x` in the dtype in which NumPy combines its elements."""
    name = f"{ufunc.__name__}.{method}"
    if ufunc not in ASSOCIATIVE and ufunc not in INVERSES:
        raise _refuse(name, "there is none for NDArrays; convert with x.numpy() first")
    array = dispatch.as_array(name, x)
    requested = None if dtype is None else np.dtype(dtype)
    try:
        loop_dtype = ufunc.resolve_dtypes((requested, requested or array.dtype, None), reduction=True)[1]
    except TypeError:
        raise locate(DTypeError(f"numpy.{name}: not defined for {array.dtype}"), user_location()) from None
    return dispatch.cast(array, loop_dtype if loop_dtype in DTYPES else np.dtype("float32"))


# -- reduce --------------------------------------------------------------------------------------------------


def reduce(
    ufunc: np.ufunc,
    function: Function,
    x: Any,
    /,
    axis: Any = 0,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """Implement ``ufunc.reduce`` by `function`; an `initial` of None means no initial value."""
    array = _as_computed(ufunc, "reduce", x, dtype)
    axes = () if not array.ndim and axis in (0, -1) else normalize_axes(ufunc.__name__, axis, array.ndim)
    identity = None if ufunc.identity is None else np.asarray(ufunc.identity).astype(array.dtype)
    start = identity if initial is None else initial
    if where is not True:
        if start is None or ufunc in INVERSES:
            raise _refuse(
                f"{ufunc.__name__}.reduce", "where needs an initial value, or a ufunc with identity"
            )
        neutral = start if identity is None else identity
        array = dispatch.cast(dispatch.apply(ops.where, where, array, neutral), array.dtype)
    if start is not None and any(array.shape[a] == 0 for a in axes):
        shape = tuple(n for a, n in enumerate(array.shape) if a not in axes)
        result = dispatch.full(start, shape, array.dtype, array.device, ufunc.__name__)
    else:
        result = _reduced(ufunc, function, array, axes)
        result = result if initial is None else dispatch.cast(function(initial, result), array.dtype)
    if not keepdims:
        return result
    return result.reshape(tuple(1 if a in axes else n for a, n in enumerate(array.shape)))


def _reduced(ufunc: np.ufunc, function: Function, x: Any, axes: tuple[int, ...]) -> Any:
    if ufunc in DIRECT:
        options = {"dtype": x.dtype} if ufunc in (np.add, np.multiply) else {}
        return DIRECT[ufunc](x, axis=axes, **options)
    if ufunc in INVERSES and len(axes) > 1:
        raise _refuse(f"{ufunc.__name__}.reduce", "the order of elements counts; name one axis")
    for axis in reversed(axes):
        if x.shape[axis] == 0:
            raise locate(
                ShapeError(f"numpy.{ufunc.__name__}.reduce: no elements along axis {axis}"), user_location()
            )
        last = _without_first(ufunc, function, x, axis) if ufunc in INVERSES else _halved(function, x, axis)
        x = selected(last, axis, 0)
    return x


def _without_first(ufunc: np.ufunc, function: Function, x: Any, axis: int) -> Any:
    """Apply `ufunc`, an inverse, to the first element along `axis` and the combination of all others."""
    combine = DIRECT[INVERSES[ufunc]]
    others = combine(sliced(x, axis, 1, None), axis=axis, dtype=x.dtype, keepdims=True)
    return function(sliced(x, axis, 0, 1), others)


def _halved(function: Function, x: Any, axis: int) -> Any:
    """Combine the elements along `axis`, in order, to one."""
    while (count := x.shape[axis]) > 1:
        even = count - count % 2
        pairs = function(sliced(x, axis, 0, even, 2), sliced(x, axis, 1, even, 2))
        x = movement.concat([pairs, sliced(x, axis, even, None)], axis) if count % 2 else pairs
    return x


# -- accumulate ----------------------------------------------------------------------------------------------


def accumulate(ufunc: np.ufunc, function: Function, x: Any, /, axis: Any = 0, dtype: Any = None) -> Any:
    """Implement ``ufunc.accumulate`` by `function`."""
    array = _as_computed(ufunc, "accumulate", x, dtype)
    position = normalize_axis(f"{ufunc.__name__}.accumulate", axis, array.ndim)
    if ufunc not in INVERSES or array.shape[position] < 2:
        return _running(ufunc, function, array, position)
    first, others = sliced(array, position, 0, 1), sliced(array, position, 1, None)
    combine = INVERSES[ufunc]
    combined = _running(combine, UFUNCS[combine], others, position)
    return movement.concat([first, function(first, combined)], position)


def _running(ufunc: np.ufunc, function: Function, x: Any, axis: int) -> Any:
    """Scan `x`: return the combinations of the elements up to each element along `axis`."""
    if ufunc in SCANS and x.dtype.kind != "b":
        return SCANS[ufunc](x, axis)
    distance = 1
    while distance < x.shape[axis]:
        updated = function(sliced(x, axis, None, -distance), sliced(x, axis, distance, None))
        x = movement.concat([sliced(x, axis, 0, distance), updated], axis)
        distance *= 2
    return x.copy() if distance == 1 else x


# -- reduceat ------------------------------------------------------------------------------------------------


def reduceat(
    ufunc: np.ufunc, function: Function, x: Any, /, indices: Any, axis: Any = 0, dtype: Any = None
) -> Any:
    """Implement ``ufunc.reduceat`` by `function`: reductions of segments along an axis.

    A segment extends from one index to the next one, exclusively, if the next one is greater; otherwise it is
    one element. The lengths of the segments need a look at the indices.
    """
    name = f"{ufunc.__name__}.reduceat"
    array = _as_computed(ufunc, "reduceat", x, dtype)
    position = normalize_axis(name, axis, array.ndim)
    extent = array.shape[position]
    starts = _segment_starts(name, indices, extent)
    counts = np.maximum(np.append(starts[1:], extent)[: starts.size] - starts, 1)
    if ufunc not in INVERSES:
        segments = movement.take(array, _ranges(starts, counts), position)
        return _combined_segments(function, segments, position, counts)
    combine, is_long = UFUNCS[INVERSES[ufunc]], counts > 1
    others = movement.take(array, _ranges(starts[is_long] + 1, counts[is_long] - 1), position)
    combined = _combined_segments(combine, others, position, counts[is_long] - 1)
    first = movement.take(array, starts, position)
    results = function(movement.take(first, np.flatnonzero(is_long), position), combined)
    return _merged(results, first, position, is_long)


def _segment_starts(name: str, indices: Any, extent: int) -> np.ndarray:
    """Return the indices as a NumPy array, checked to be in range."""
    starts = indices.numpy() if isinstance(indices, ArrayCore) else np.asarray(indices)
    if not starts.size:
        starts = starts.astype(np.int64)
    if starts.ndim != 1 or starts.dtype.kind not in "iu":
        raise _refuse(name, f"indices are one line of integers, got {starts.dtype}{list(starts.shape)}")
    wrong = starts[(starts < 0) | (starts >= extent)]
    if wrong.size:
        message = f"numpy.{name}: index {wrong[0]} is out of bounds for an axis of {extent} elements"
        raise locate(OutOfBoundsError(message), user_location())
    return starts.astype(np.int64)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the concatenated ranges ``start, ..., start + count - 1``."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _combined_segments(function: Function, x: Any, axis: int, counts: np.ndarray) -> Any:
    """Combine the elements of adjacent segments with these `counts` along `axis`, in order, to one each."""
    while counts.max(initial=1) > 1:
        halves = (counts + 1) // 2
        left = 2 * _ranges(np.zeros_like(halves), halves) + np.repeat(np.cumsum(counts) - counts, halves)
        paired = left + 1 < np.repeat(np.cumsum(counts), halves)
        pairs = function(*(movement.take(x, left[paired] + k, axis) for k in (0, 1)))
        x, counts = _merged(pairs, movement.take(x, left, axis), axis, paired), halves
    return x


def _merged(chosen: Any, others: Any, axis: int, where: np.ndarray) -> Any:
    """Replace the elements of `others` where `where` is true by those of `chosen`, in order."""
    order = np.where(where, np.cumsum(where) - 1, np.arange(where.size) + where.sum())
    return chosen if where.all() else movement.take(movement.concat([chosen, others], axis), order, axis)


# -- outer ---------------------------------------------------------------------------------------------------


def outer(ufunc: np.ufunc, function: Function, x1: Any, x2: Any, /) -> Any:
    """Implement ``ufunc.outer`` by `function`: apply it to all pairs of elements."""
    name = f"{ufunc.__name__}.outer"
    first, second = dispatch.as_operand(name, x1), dispatch.as_operand(name, x2)
    if isinstance(first, ArrayCore) and isinstance(second, ArrayCore):
        view = first._view
        for _ in range(second.ndim):
            view = view.expand(len(view.shape))
        first = ArrayCore.new(first._storage, view)
    return function(first, second)


# -- at ------------------------------------------------------------------------------------------------------


def at(ufunc: np.ufunc, function: Function, x: Any, index: Any, /, *values: Any) -> None:
    """Implement ``ufunc.at`` by `function`: an element that occurs twice in the index is changed twice.

    Sums and extremes at indices are composed of sums and sorts. Other ufuncs change every element at most
    once per pass; the number of passes needs a look at the indices.
    """
    name = f"{ufunc.__name__}.at"
    if isinstance(x, np.ndarray):
        _at_of_numpy(ufunc, name, x, index, values)
        return
    if not isinstance(x, ArrayCore):
        raise _refuse(name, f"changes an array, not {type(x).__name__}")
    if len(values) != ufunc.nin - 1:
        raise _refuse(name, f"takes {ufunc.nin + 1} arguments")
    array: Any = x
    if ufunc in (np.add, np.subtract) and array.dtype.kind != "b":
        assignment.add_at(name, array, index, *values, negate=ufunc is np.subtract)
        return
    positions, operands = _positions(name, array, index, values)
    flat = array.flatten()
    if ufunc in (np.maximum, np.minimum) and array.dtype.kind != "c":
        extremes, has_values = _extremes(flat, positions, operands[0], smallest=ufunc is np.minimum)
        changed = dispatch.apply(ops.where, has_values, function(flat, extremes), flat)
    else:
        changed = _in_passes(function, flat, positions, operands)
    dispatch.write(array, changed.reshape(array.shape), f"numpy.{name}")


def _at_of_numpy(ufunc: np.ufunc, name: str, x: np.ndarray, index: Any, values: tuple[Any, ...]) -> None:
    """Change a NumPy array at NDArrays of indices, or by NDArrays of values."""
    if thread.trace is not None:
        thread.trace.refuse_fill(f"numpy.{name}")
    components = index if isinstance(index, tuple) else (index,)
    components, values = (
        tuple(each.numpy() if isinstance(each, ArrayCore) else each for each in arrays)
        for arrays in (components, values)
    )
    ufunc.at(x, components if isinstance(index, tuple) else components[0], *values)


def _positions(name: str, x: Any, index: Any, values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the positions in C order of the elements that an index selects, and the values, flattened."""
    numbered = dispatch.emit(ops.iota, size=x.size, device=x.device).reshape(x.shape)
    positions = numbered[index]
    operands = []
    for value in values:
        operand = dispatch.as_operand(name, value)
        if isinstance(operand, ArrayCore):
            if dispatch.broadcast_shape(name, [operand.shape, positions.shape]) != positions.shape:
                raise locate(
                    ShapeError(f"numpy.{name}: values of shape {operand.shape} do not fit {positions.shape}"),
                    user_location(),
                )
            broadcast: Any = broadcasted(operand, positions.shape)
            operand = broadcast.reshape((broadcast.size,))
        operands.append(operand)
    return positions.reshape((positions.size,)), tuple(operands)


def _extremes(x: Any, positions: Any, values: Any, *, smallest: bool) -> tuple[Any, Any]:
    """Return the greatest (or smallest) value for each element of `x`, and whether the element has values.

    A nan precedes all numbers. The values are assigned in sorted order, so that the extreme is written last.
    """
    has_values = dispatch.full(False, x.shape, np.dtype(bool), x.device)
    assignment.setitem(has_values, positions, True)
    if not isinstance(values, ArrayCore):
        return values, has_values
    key: Any = values
    if smallest:
        key = dispatch.apply(ops.negative if is_floating(values.dtype) else ops.bitwise_invert, values)
    order = sorting.argsort(key, stable=True)
    ordered, target = movement.take(values, order), movement.take(positions, order)
    extremes = dispatch.full(0, x.shape, values.dtype, x.device)
    assignment.setitem(extremes, target, ordered)
    return extremes, has_values


def _in_passes(function: Function, x: Any, positions: Any, values: tuple[Any, ...]) -> Any:
    """Apply `function` to the elements at `positions`; each pass uses the next value of every element."""
    indices = positions.numpy()
    order = np.argsort(indices, kind="stable")
    starts = np.flatnonzero(np.diff(indices[order], prepend=-1))
    passes = np.empty(len(indices), np.int64)
    passes[order] = np.arange(len(indices)) - np.repeat(starts, np.diff(starts, append=len(indices)))
    for number in range(passes.max(initial=-1) + 1):
        chosen = np.flatnonzero(passes == number)
        operands = [
            v if not isinstance(v, ArrayCore) or not v.ndim else movement.take(v, chosen) for v in values
        ]
        target = indices[chosen]
        result = function(movement.take(x, target), *operands)
        if not np.can_cast(result.dtype, x.dtype, "same_kind"):
            raise locate(
                DTypeError(f"{function.__name__}.at: {result.dtype} results do not fit {x.dtype} elements"),
                user_location(),
            )
        assignment.setitem(x, target, result)
    return x
