"""Assignments to indices: ``x[index] = value``, and sums at indices. Rules and results are NumPy's.

Slices are written through their view. All else is a select between the value and what was there, whose shape
depends on no value, so that it can be replayed:

- a mask, where the value is the same for every element that it picks (a number, say), is the condition;
  other values make an index of integers of the mask, for which its elements are looked at;
- integer arrays say for each place who writes it last (`_last_writers`), if anybody does.

>>> import tracejit as tj
>>> x = tj.zeros(4)
>>> x[tj.asarray([0, 2, 2])] = tj.asarray([1.0, 2.0, 3.0])
>>> x
NDArray([1., 0., 3., 0.], dtype=float32)
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tracejit.errors import DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, in_memory, promotion, selection
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.indexing import (
    BASIC,
    Picked,
    check_mask,
    expanded,
    is_advanced,
    is_mask,
    is_split,
    masks_to_integers,
    numbers_as_arrays,
    picked,
    view_of,
    with_places_for_masks,
)
from tracejit.frontend.arrays.views import broadcasted, dropped, sliced
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread
from tracejit.ops import (
    add,
    argsort,
    gather,
    imag,
    iota,
    maximum,
    not_equal,
    real,
    scatter_add,
    subtract,
    where,
)
from tracejit.ops import complex as complex_of

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")
SELECTED = 1 << 16
"""The most elements of an array of which a run-time number says which are written: all are read for it."""
FEW = 1 << 14
"""The most writes and places of which replays find the last writes by bits: a sort costs more."""


def setitem(x: ArrayCore, index: Any, value: Any) -> None:
    """``x[index] = value``, seen through every array that shares x's memory."""
    parts = expanded(x, index)
    if BASIC.issuperset(map(type, parts)) or not any(map(is_advanced, parts)):
        places = numbers_as_arrays(x, parts) if x.size <= SELECTED else None
        if places is not None and places[0] is x:
            _write_picked(x, picked(x, places[1], is_split(index)), _held(x, value))
            return
        dispatch.write(ArrayCore.concrete(x._storage, view_of(x, parts)), value, casts=True)
        return
    if in_memory.setitem(x, index, value):
        return
    if isinstance(index, ArrayCore) and is_mask(index) and _write_selected(x, index, value):
        return
    x, parts = with_places_for_masks(x, parts)
    advanced = [p for p in parts if is_advanced(p)]
    held = _held(x, value)
    split = is_split(index)
    if len(advanced) == 1 and is_mask(advanced[0]) and _write_masked(x, parts, split, held):
        return
    _write_picked(x, picked(x, masks_to_integers(x, parts), split), held)


def _held(x: ArrayCore, value: Any) -> Any:
    """`value` as an array of the dtype of `x`, cast as assignments cast."""
    given = dispatch.as_operand("assignment", value)
    if isinstance(given, ArrayCore):
        return dispatch.cast(given, x.dtype)
    return dispatch.full(given, (), x.dtype, x.device, "assignment")


def _fitted(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """`value` without leading dimensions of extent 1 that `shape` lacks; it must broadcast to `shape`."""
    extra = max(value.ndim - len(shape), 0)
    fits = all(n == 1 for n in value.shape[:extra])
    kept = value.shape[extra:]
    if not fits or any(n not in (1, m) for n, m in zip(kept[::-1], shape[::-1], strict=False)):
        raise locate(
            ShapeError(f"{name}: a value of shape {value.shape} does not fit the shape {shape}"),
            user_location(),
        )
    return dropped(value, *range(extra))


# -- masks ---------------------------------------------------------------------------------------------------


def _write_masked(x: ArrayCore, parts: list[Any], split: bool, value: Any) -> bool:
    """Write `value` where the only mask in `parts` holds; False if `value` differs along what it picks."""
    at = next(i for i, p in enumerate(parts) if is_mask(p))
    check_mask(x, parts[at], sum(p is not None for p in parts[:at]))
    mask: Any = dispatch.as_operand("assignment", parts[at])
    mask = mask if mask.device is x.device else mask.to(x.device)
    seen = view_of(x, [*parts[:at], *[slice(None)] * mask.ndim, *parts[at + 1 :]])
    before = sum(p is None or isinstance(p, slice) for p in parts[:at])
    if before and (split or not _adjacent(parts)):
        moved = range(before, before + mask.ndim)
        seen = seen.permute([*moved, *[a for a in range(len(seen.shape)) if a not in moved]])
        before = 0
    after = len(seen.shape) - before - mask.ndim
    along = value.ndim - after - 1  # the dimension of the value that runs along the picked elements
    if along >= 0 and value.shape[along] != 1:
        return False
    target = ArrayCore.concrete(x._storage, seen)
    content = _fitted("assignment", _stretched(value, along, mask.ndim), seen.shape)
    dispatch.write(target, dispatch.apply(where, selection.with_dimensions(mask, after), content, target))
    return True


def _write_selected(x: ArrayCore, mask: Any, value: Any) -> bool:
    """Write what the same mask picked elsewhere, without counting it; False for other values."""
    found = selection.selection_of(value)
    if found is None or found.inner != x.ndim - mask.ndim or not found.has_mask(mask):
        return False
    content = found.content
    if dispatch.broadcast_shape("assignment", [content.shape, x.shape]) != x.shape:
        return False
    dispatch.write(x, dispatch.apply(where, found.wide(), dispatch.cast(content, x.dtype), x))
    return True


def _adjacent(parts: list[Any]) -> bool:
    """Whether integers and arrays among `parts` stand together."""
    by_value = [i for i, p in enumerate(parts) if not (p is None or isinstance(p, slice))]
    return by_value[-1] - by_value[0] + 1 == len(by_value)


def _stretched(value: Any, axis: int, count: int) -> Any:
    """`value` with `count` dimensions of extent 1 in place of one; as it is if it does not have that."""
    if axis < 0:
        return value
    view = value._view
    for _ in range(count - 1):
        view = view.expand(axis)
    return ArrayCore.concrete(value._storage, view)


# -- integer arrays ------------------------------------------------------------------------------------------


def _write_picked(x: ArrayCore, to: Picked, value: Any) -> None:
    """Write `value`, broadcast, to the elements `to` of `x`; of several for one element, the last."""
    content = _along("assignment", value, to)
    if content.size == 0:
        return
    extent = math.prod(to.extents)
    if content._view.strides[to.lead] == 0:  # every place gets the same
        there = _sums(dispatch.cast(to.position >= 0, INT64), to.position, extent) > 0
        content = sliced(content, to.lead, 0, 1)
        content = content.reshape((*to.outer, *[1] * len(to.extents), *to.inner))
    else:
        last = _last_writers(to.position, extent)
        there = last > 0
        content = dispatch.emit(gather, content, dispatch.apply(maximum, last - 1, 0), axis=to.lead)
        content = content.reshape(to.view.shape)
    target = ArrayCore.concrete(x._storage, to.view)
    there = selection.with_dimensions(there.reshape(to.extents), len(to.inner))
    dispatch.write(target, dispatch.apply(where, there, content, target))


def _along(name: str, value: Any, to: Picked) -> Any:
    """`value` broadcast to the elements `to`, the dimensions of the integer arrays taken as one."""
    fitted = _fitted(name, value, to.shape)
    wide = broadcasted(fitted, to.shape)
    return wide.reshape((*to.outer, to.position.size, *to.inner))


def _sums(values: Any, position: Any, extent: int, axis: int = 0) -> Any:
    """The sums of the values by position, for each of `extent` places along `axis`."""
    if values.dtype.kind == "c":
        parts = (_sums(dispatch.emit(part, values), position, extent, axis) for part in (real, imag))
        return dispatch.emit(complex_of, *parts)
    return dispatch.emit(scatter_add, values, position, axis=axis, extent=extent)


def _last_writers(position: Any, extent: int) -> Any:
    """The number of the last write to each of `extent` places, counted from 1; 0 for one never written."""
    line = position.reshape((position.size,))
    few = thread.trace is not None and max(line.size, extent) <= FEW
    return _last_by_bits(line, extent) if few else _last_by_order(line, extent)


def _last_by_bits(places: Any, extent: int) -> Any:
    """The greatest number at each place, found from sums alone, which need no call of a routine.

    From the highest bit of the numbers down, a place's number has that bit if one of those which are still
    candidates there has it, and these then are the candidates.
    """
    numbers = dispatch.emit(iota, size=places.size, device=places.device) + 1
    candidates = numbers > 0
    last: Any = 0
    for bit in reversed(range(places.size.bit_length())):
        holds = (numbers & (1 << bit)) != 0
        found = _sums(dispatch.cast(candidates & holds, INT64), places, extent) > 0
        candidates &= holds == dispatch.emit(gather, found, places, axis=0)
        last = last + dispatch.cast(found, INT64) * (1 << bit)
    return last


def _last_by_order(places: Any, extent: int) -> Any:
    """Sorted by place, and by number, a write is the last one for a place if the next has another place."""
    order = dispatch.emit(argsort, places, axis=0)
    ordered = dispatch.emit(gather, places, order, axis=0)
    is_last = dispatch.full(True, ordered.shape, BOOL, places.device)
    assigned = sliced(is_last, 0, 0, -1)
    dispatch.write(assigned, dispatch.apply(not_equal, ordered[:-1], ordered[1:]))
    return _sums(dispatch.apply(where, is_last, order + 1, 0), ordered, extent)


# -- sums ----------------------------------------------------------------------------------------------------


def add_at(name: str, x: ArrayCore, index: Any, values: Any, *, negate: bool = False) -> None:
    """Add `values`, broadcast, to the elements ``x[index]`` in place, once for each time that they are named.

    With `negate` they are subtracted. Values for one element are added up in the order of the index, before
    they are added to it: where floats are rounded, this may differ from one addition after the other.
    """
    x, parts = with_places_for_masks(x, expanded(x, index))
    given = dispatch.as_operand(name, values)
    dtype = promotion.common(name, (promotion.kind_of(x), promotion.kind_of(given)))
    if dtype.kind == "b":
        raise locate(
            DTypeError(f"{name}: not defined for bool; use x[index] |= values, or cast with astype"),
            user_location(),
        )
    if isinstance(given, ArrayCore):
        given = dispatch.cast(given, dtype)
    else:
        given = dispatch.full(given, (), dtype, x.device, name)
    if any(map(is_advanced, parts)):
        to = picked(x, masks_to_integers(x, parts), is_split(index))
        flat = to.position.reshape((to.position.size,))
        total = _sums(_along(name, given, to), flat, math.prod(to.extents), to.lead).reshape(to.view.shape)
        target = ArrayCore.concrete(x._storage, to.view)
    else:
        target = ArrayCore.concrete(x._storage, view_of(x, parts))
        total = _fitted(name, given, target.shape)
    combine = functools.partial(dispatch.apply, subtract if negate else add)
    dispatch.in_place(name, combine, target, total)
