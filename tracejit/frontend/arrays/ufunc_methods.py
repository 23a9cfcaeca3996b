"""Methods of NumPy's ufuncs: ``reduce``, ``accumulate``, ``reduceat``, ``outer``, ``at``.

All take the function that stands for the ufunc here (`functions.UFUNCS`) and are composed of its calls.
Where there is no operator, reductions and running results combine pairs, as NumPy's sums do: a reduction
halves the axis until one element is left, a running result reaches twice as far with each step (Hillis and
Steele 1986). So only associative functions have them, and the two that undo one: ``a - b - c`` is
``a - (b + c)``.

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
"""Ufuncs whose reductions are functions of their own."""

SCANS: dict[np.ufunc, Function] = {
    np.add: scans.running_sums,
    np.multiply: scans.running_products,
    np.maximum: lambda x, axis: dispatch.emit(ops.cumulative_max, x, axis=axis),
    np.minimum: lambda x, axis: dispatch.emit(ops.cumulative_min, x, axis=axis),
}
"""Ufuncs whose running results are operators."""

UNDOING: dict[np.ufunc, np.ufunc] = {np.subtract: np.add, np.divide: np.multiply}
"""Ufuncs that take away from the first element what others put together."""

ASSOCIATIVE = {
    *DIRECT,
    *(np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.fmax, np.fmin),
    *(np.logaddexp, np.logaddexp2, np.hypot, np.gcd, np.lcm),
}


def _refuse(name: str, what: str) -> TracejitError:
    return locate(ArgumentError(f"numpy.{name}: {what}"), user_location())


def _computed(ufunc: np.ufunc, method: str, x: Any, dtype: Any) -> Any:
    """`x` in the dtype in which NumPy combines its elements."""
    name = f"{ufunc.__name__}.{method}"
    if ufunc not in ASSOCIATIVE and ufunc not in UNDOING:
        raise _refuse(name, "there is none for NDArrays; convert with x.numpy() first")
    array = dispatch.as_array(name, x)
    wanted = None if dtype is None else np.dtype(dtype)
    try:
        found = ufunc.resolve_dtypes((wanted, wanted or array.dtype, None), reduction=True)[1]
    except TypeError:
        raise locate(DTypeError(f"numpy.{name}: not defined for {array.dtype}"), user_location()) from None
    return dispatch.cast(array, found if found in DTYPES else np.dtype("float32"))


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
    """Implement ``ufunc.reduce`` by `function`; `initial` is None where there is none."""
    array = _computed(ufunc, "reduce", x, dtype)
    axes = () if not array.ndim and axis in (0, -1) else normalize_axes(ufunc.__name__, axis, array.ndim)
    identity = None if ufunc.identity is None else np.asarray(ufunc.identity).astype(array.dtype)
    start = identity if initial is None else initial
    if where is not True:
        if start is None or ufunc in UNDOING:
            raise _refuse(
                f"{ufunc.__name__}.reduce", "where needs an initial value, or a ufunc with identity"
            )
        left_out = start if identity is None else identity
        array = dispatch.cast(dispatch.apply(ops.where, where, array, left_out), array.dtype)
    if start is not None and any(array.shape[a] == 0 for a in axes):
        kept = tuple(n for a, n in enumerate(array.shape) if a not in axes)
        result = dispatch.full(start, kept, array.dtype, array.device, ufunc.__name__)
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
    if ufunc in UNDOING and len(axes) > 1:
        raise _refuse(f"{ufunc.__name__}.reduce", "the order of elements counts; name one axis")
    for axis in reversed(axes):
        if x.shape[axis] == 0:
            raise locate(
                ShapeError(f"numpy.{ufunc.__name__}.reduce: no elements along axis {axis}"), user_location()
            )
        last = _without_first(ufunc, function, x, axis) if ufunc in UNDOING else _halved(function, x, axis)
        x = selected(last, axis, 0)
    return x


def _without_first(ufunc: np.ufunc, function: Function, x: Any, axis: int) -> Any:
    """The first element along `axis`, less all others."""
    whole = DIRECT[UNDOING[ufunc]]
    others = whole(sliced(x, axis, 1, None), axis=axis, dtype=x.dtype, keepdims=True)
    return function(sliced(x, axis, 0, 1), others)


def _halved(function: Function, x: Any, axis: int) -> Any:
    """The elements along `axis` combined, in order, to one."""
    while (count := x.shape[axis]) > 1:
        even = count - count % 2
        pairs = function(sliced(x, axis, 0, even, 2), sliced(x, axis, 1, even, 2))
        x = movement.concat([pairs, sliced(x, axis, even, None)], axis) if count % 2 else pairs
    return x


# -- accumulate ----------------------------------------------------------------------------------------------


def accumulate(ufunc: np.ufunc, function: Function, x: Any, /, axis: Any = 0, dtype: Any = None) -> Any:
    """Implement ``ufunc.accumulate`` by `function`."""
    array = _computed(ufunc, "accumulate", x, dtype)
    position = normalize_axis(f"{ufunc.__name__}.accumulate", axis, array.ndim)
    if ufunc not in UNDOING or array.shape[position] < 2:
        return _running(ufunc, function, array, position)
    first, others = sliced(array, position, 0, 1), sliced(array, position, 1, None)
    together = UNDOING[ufunc]
    taken = _running(together, UFUNCS[together], others, position)
    return movement.concat([first, function(first, taken)], position)


def _running(ufunc: np.ufunc, function: Function, x: Any, axis: int) -> Any:
    """The results up to each element along `axis`."""
    if ufunc in SCANS and x.dtype.kind != "b":
        return SCANS[ufunc](x, axis)
    reach = 1
    while reach < x.shape[axis]:
        further = function(sliced(x, axis, None, -reach), sliced(x, axis, reach, None))
        x = movement.concat([sliced(x, axis, 0, reach), further], axis)
        reach *= 2
    return x.copy() if reach == 1 else x


# -- reduceat ------------------------------------------------------------------------------------------------


def reduceat(
    ufunc: np.ufunc, function: Function, x: Any, /, indices: Any, axis: Any = 0, dtype: Any = None
) -> Any:
    """Implement ``ufunc.reduceat`` by `function`: reductions of parts along an axis.

    A part reaches from one index to before the next one, if that is greater; else it is one element. The
    indices are looked at, to know how many elements the parts have.
    """
    name = f"{ufunc.__name__}.reduceat"
    array = _computed(ufunc, "reduceat", x, dtype)
    position = normalize_axis(name, axis, array.ndim)
    extent = array.shape[position]
    starts = _part_starts(name, indices, extent)
    counts = np.maximum(np.append(starts[1:], extent)[: starts.size] - starts, 1)
    if ufunc not in UNDOING:
        parts = movement.take(array, _runs(starts, counts), position)
        return _combined_parts(function, parts, position, counts)
    together, longer = UFUNCS[UNDOING[ufunc]], counts > 1
    others = movement.take(array, _runs(starts[longer] + 1, counts[longer] - 1), position)
    taken = _combined_parts(together, others, position, counts[longer] - 1)
    first = movement.take(array, starts, position)
    less = function(movement.take(first, np.flatnonzero(longer), position), taken)
    return _merged(less, first, position, longer)


def _part_starts(name: str, indices: Any, extent: int) -> np.ndarray:
    """The indices as NumPy's, checked."""
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


def _runs(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``start, start + 1, ...`` of each part, one part after the other."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _combined_parts(function: Function, x: Any, axis: int, counts: np.ndarray) -> Any:
    """Parts of these `counts` along `axis` combined, in order, each to one element."""
    while counts.max(initial=1) > 1:
        halves = (counts + 1) // 2
        left = 2 * _runs(np.zeros_like(halves), halves) + np.repeat(np.cumsum(counts) - counts, halves)
        paired = left + 1 < np.repeat(np.cumsum(counts), halves)
        pairs = function(*(movement.take(x, left[paired] + k, axis) for k in (0, 1)))
        x, counts = _merged(pairs, movement.take(x, left, axis), axis, paired), halves
    return x


def _merged(chosen: Any, others: Any, axis: int, where: np.ndarray) -> Any:
    """`others` with the elements `where` that holds replaced by those of `chosen`, in order."""
    order = np.where(where, np.cumsum(where) - 1, np.arange(where.size) + where.sum())
    return chosen if where.all() else movement.take(movement.concat([chosen, others], axis), order, axis)


# -- outer ---------------------------------------------------------------------------------------------------


def outer(ufunc: np.ufunc, function: Function, x1: Any, x2: Any, /) -> Any:
    """Implement ``ufunc.outer`` by `function`: its results for all pairs of elements."""
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
    """Implement ``ufunc.at`` by `function`: elements named twice are changed twice.

    Sums and extremes at indices are composed of sums and sorts. All else changes every element once in a
    round and needs to look at the indices, to know how many rounds there are.
    """
    name = f"{ufunc.__name__}.at"
    if not isinstance(x, ArrayCore):
        raise _refuse(name, "cannot change a NumPy array by NDArrays; make it one with tj.asarray")
    if len(values) != ufunc.nin - 1:
        raise _refuse(name, f"takes {ufunc.nin + 1} arguments")
    array: Any = x
    if ufunc in (np.add, np.subtract) and array.dtype.kind != "b":
        assignment.add_at(name, array, index, *values, negate=ufunc is np.subtract)
        return
    place, given = _places(name, array, index, values)
    flat = array.flatten()
    if ufunc in (np.maximum, np.minimum) and array.dtype.kind != "c":
        extremes, there = _extremes(flat, place, given[0], smallest=ufunc is np.minimum)
        changed = dispatch.apply(ops.where, there, function(flat, extremes), flat)
    else:
        changed = _in_rounds(function, flat, place, given)
    dispatch.write(array, changed.reshape(array.shape), f"numpy.{name}")


def _places(name: str, x: Any, index: Any, values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The elements of `x` that an index means, as places in C order, and the values for them, as lines."""
    numbered = dispatch.emit(ops.iota, size=x.size, device=x.device).reshape(x.shape)
    place = numbered[index]
    given = []
    for value in values:
        operand = dispatch.as_operand(name, value)
        if isinstance(operand, ArrayCore):
            if dispatch.broadcast_shape(name, [operand.shape, place.shape]) != place.shape:
                raise locate(
                    ShapeError(f"numpy.{name}: values of shape {operand.shape} do not fit {place.shape}"),
                    user_location(),
                )
            wide: Any = broadcasted(operand, place.shape)
            operand = wide.reshape((wide.size,))
        given.append(operand)
    return place.reshape((place.size,)), tuple(given)


def _extremes(x: Any, place: Any, values: Any, *, smallest: bool) -> tuple[Any, Any]:
    """The greatest (or smallest) value for each element of `x`, nan before all, and if there is one.

    Values are stored in the order of their size, so that the last one wins.
    """
    there = dispatch.full(False, x.shape, np.dtype(bool), x.device)
    assignment.setitem(there, place, True)
    if not isinstance(values, ArrayCore):
        return values, there
    key: Any = values
    if smallest:
        key = dispatch.apply(ops.negative if is_floating(values.dtype) else ops.bitwise_invert, values)
    order = sorting.argsort(key, stable=True)
    ordered, target = movement.take(values, order), movement.take(place, order)
    extremes = dispatch.full(0, x.shape, values.dtype, x.device)
    assignment.setitem(extremes, target, ordered)
    return extremes, there


def _in_rounds(function: Function, x: Any, place: Any, values: tuple[Any, ...]) -> Any:
    """`x` with `function` applied at each place, in each round to the next value of every element."""
    places = place.numpy()
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    rounds = np.empty(len(places), np.int64)
    rounds[order] = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
    for number in range(rounds.max(initial=-1) + 1):
        chosen = np.flatnonzero(rounds == number)
        given = [
            v if not isinstance(v, ArrayCore) or not v.ndim else movement.take(v, chosen) for v in values
        ]
        target = places[chosen]
        result = function(movement.take(x, target), *given)
        if not np.can_cast(result.dtype, x.dtype, "same_kind"):
            raise locate(
                DTypeError(f"{function.__name__}.at: {result.dtype} results do not fit {x.dtype} elements"),
                user_location(),
            )
        assignment.setitem(x, target, result)
    return x
