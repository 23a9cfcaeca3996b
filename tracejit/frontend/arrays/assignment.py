"""Indexed assignment: ``x[index] = value``, and accumulation at indices. Rules and results are NumPy's.

Assignments to slices write through the view. Other assignments depend on no run-time shape either, so a trace
can be replayed:

- A mask is the condition of a select between new value and old content, if the value is uniform along the
  elements that the mask picks (a number, for example). For other values the mask is converted to integer
  indices, which is a look.
- Integer arrays become a `scatter`. Of several writes to one element, the last one remains.

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
from tracejit.frontend.arrays import dispatch, in_memory, padded_slices, promotion, selection
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.indexing import (
    BASIC,
    INTEGER,
    Picked,
    check_mask,
    expand_scalar_masks,
    expanded,
    integer_arrays,
    is_advanced,
    is_mask,
    is_split,
    numbers_as_arrays,
    picked,
    view_of,
    with_numbers,
)
from tracejit.frontend.arrays.views import broadcasted, dropped
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.trace import Trace
from tracejit.ops import (
    add,
    imag,
    real,
    scatter,
    scatter_add,
    subtract,
    where,
)
from tracejit.ops import complex as complex_of

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")


def setitem(x: ArrayCore, index: Any, value: Any) -> None:
    """Implement ``x[index] = value``. All arrays that share the memory of `x` see the write."""
    components = expanded(x, index)
    if BASIC.issuperset(map(type, components)) or not any(map(is_advanced, components)):
        if type(thread.trace) is Trace:
            components = with_numbers(components)
            if _write_between(x, components, value):
                return
        indices = numbers_as_arrays(x, components)
        if indices is not None and indices[0] is x:
            _write_picked(x, picked(x, indices[1], is_split(index)), _as_content(x, value))
            return
        dispatch.write(ArrayCore.concrete(x._storage, view_of(x, components)), value, casts=True)
        return
    if in_memory.setitem(x, index, value):
        return
    if isinstance(index, ArrayCore) and is_mask(index) and _write_selected(x, index, value):
        return
    x, components = expand_scalar_masks(x, components)
    advanced = [p for p in components if is_advanced(p)]
    content = _as_content(x, value)
    split = is_split(index)
    if len(advanced) == 1 and is_mask(advanced[0]) and _write_masked(x, components, split, content):
        return
    _write_picked(x, picked(x, integer_arrays(x, components), split), content)


def _as_content(x: ArrayCore, value: Any) -> Any:
    """Return `value` as an array, cast to the dtype of `x` by the rules of assignment."""
    operand = dispatch.as_operand("assignment", value)
    if isinstance(operand, ArrayCore):
        return dispatch.cast(operand, x.dtype)
    return dispatch.full(operand, (), x.dtype, x.device, "assignment")


def _squeezed(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    """Drop the leading dimensions of extent 1 by which `value` exceeds `shape`.

    Raises ShapeError unless the result broadcasts to `shape`.
    """
    extra = max(value.ndim - len(shape), 0)
    fits = all(n == 1 for n in value.shape[:extra])
    extents = value.shape[extra:]
    if not fits or any(n not in (1, m) for n, m in zip(extents[::-1], shape[::-1], strict=False)):
        raise locate(
            ShapeError(f"{name}: a value of shape {value.shape} does not fit the shape {shape}"),
            user_location(),
        )
    return dropped(value, *range(extra))


def _write_between(x: ArrayCore, components: list[Any], value: Any) -> bool:
    """Write to a slice between numbers that vary from call to call, as `padded_slices` does. Return False,
    without a write, for other components of a basic index. A trace is recorded.
    """
    parts = padded_slices.at_slice(components)
    if parts is None:
        return False
    before, part = parts
    if NumberProxy not in (type(part.start), type(part.stop)) or not INTEGER.issuperset(map(type, before)):
        return False
    rows = [*before, *[slice(None)] * (len(components) - len(before))]
    target = ArrayCore.concrete(x._storage, view_of(x, rows)) if before else x
    return padded_slices.assign_between(target, part, _as_content(x, value))


# -- masks ---------------------------------------------------------------------------------------------------


def _write_masked(x: ArrayCore, components: list[Any], split: bool, value: Any) -> bool:
    """Write `value` where the only mask in `components` is true.

    Return False, without a write, if `value` varies along the elements that the mask picks.
    """
    mask_index = next(i for i, p in enumerate(components) if is_mask(p))
    check_mask(x, components[mask_index], sum(p is not None for p in components[:mask_index]))
    mask: Any = dispatch.as_operand("assignment", components[mask_index])
    if not mask.size:
        return False  # it may have other extents than `x`
    mask = mask if mask.device is x.device else mask.to(x.device)
    view = view_of(x, [*components[:mask_index], *[slice(None)] * mask.ndim, *components[mask_index + 1 :]])
    before = sum(p is None or isinstance(p, slice) for p in components[:mask_index])
    if before and (split or not _adjacent(components)):
        moved = range(before, before + mask.ndim)
        view = view.permute([*moved, *[a for a in range(len(view.shape)) if a not in moved]])
        before = 0
    after = len(view.shape) - before - mask.ndim
    along = value.ndim - after - 1  # the dimension of the value that runs along the picked elements
    if along >= 0 and value.shape[along] != 1:
        return False
    target = ArrayCore.concrete(x._storage, view)
    content = _squeezed("assignment", _stretched(value, along, mask.ndim), view.shape)
    dispatch.write(target, dispatch.apply(where, selection.with_dimensions(mask, after), content, target))
    return True


def _write_selected(x: ArrayCore, mask: Any, value: Any) -> bool:
    """Write a selection made by the same mask, without counting; return False for other values."""
    source = selection.selection_of(value)
    if source is None or source.inner != x.ndim - mask.ndim or not source.has_mask(mask):
        return False
    content = source.content
    if dispatch.broadcast_shape("assignment", [content.shape, x.shape]) != x.shape:
        return False
    dispatch.write(x, dispatch.apply(where, source.expanded_mask(), dispatch.cast(content, x.dtype), x))
    return True


def _adjacent(components: list[Any]) -> bool:
    """Whether the integers and arrays among `components` are adjacent."""
    by_value = [i for i, p in enumerate(components) if not (p is None or isinstance(p, slice))]
    return by_value[-1] - by_value[0] + 1 == len(by_value)


def _stretched(value: Any, axis: int, count: int) -> Any:
    """Replace dimension `axis`, of extent 1, by `count` such dimensions. A negative axis means no change."""
    if axis < 0:
        return value
    view = value._view
    for _ in range(count - 1):
        view = view.expand(axis)
    return ArrayCore.concrete(value._storage, view)


# -- integer arrays ------------------------------------------------------------------------------------------


def _write_picked(x: ArrayCore, to: Picked, value: Any) -> None:
    """Write `value`, broadcast, to the elements `to` of `x`; the last write to an element wins."""
    content = _merged("assignment", value, to)
    if content.size == 0:
        return
    target = ArrayCore.concrete(x._storage, to.view)
    merged = (*to.outer, math.prod(to.extents), *to.inner)
    position = to.position.reshape((to.position.size,))
    written = dispatch.emit(scatter, target.reshape(merged), content, position, axis=to.lead)
    dispatch.write(target, written.reshape(to.view.shape))


def _merged(name: str, value: Any, to: Picked) -> Any:
    """Broadcast `value` to the elements `to`, with the dimensions of the integer arrays merged into one."""
    reduced = _squeezed(name, value, to.shape)
    broadcast = broadcasted(reduced, to.shape)
    return broadcast.reshape((*to.outer, to.position.size, *to.inner))


def _sums(values: Any, position: Any, extent: int, axis: int = 0) -> Any:
    """Return the sum of the values at each of `extent` positions along `axis`."""
    if values.dtype.kind == "c":
        components = (_sums(dispatch.emit(part, values), position, extent, axis) for part in (real, imag))
        return dispatch.emit(complex_of, *components)
    return dispatch.emit(scatter_add, values, position, axis=axis, extent=extent)


# -- sums ----------------------------------------------------------------------------------------------------


def add_at(name: str, x: ArrayCore, index: Any, values: Any, *, negate: bool = False) -> None:
    """Add `values`, broadcast, to the elements ``x[index]`` in place, once per occurrence of an element.

    With `negate` they are subtracted. The values for one element are summed in the order of the index, and
    the sum is added to the element: the rounding of floats may differ from that of sequential additions.
    """
    x, components = expand_scalar_masks(x, expanded(x, index))
    addend = dispatch.as_operand(name, values)
    dtype = promotion.common(name, (promotion.kind_of(x), promotion.kind_of(addend)))
    if dtype.kind == "b":
        raise locate(
            DTypeError(f"{name}: not defined for bool; use x[index] |= values, or cast with astype"),
            user_location(),
        )
    if isinstance(addend, ArrayCore):
        addend = dispatch.cast(addend, dtype)
    else:
        addend = dispatch.full(addend, (), dtype, x.device, name)
    if any(map(is_advanced, components)):
        to = picked(x, integer_arrays(x, components), is_split(index))
        flat = to.position.reshape((to.position.size,))
        total = _sums(_merged(name, addend, to), flat, math.prod(to.extents), to.lead).reshape(to.view.shape)
        target = ArrayCore.concrete(x._storage, to.view)
    else:
        target = ArrayCore.concrete(x._storage, view_of(x, components))
        total = _squeezed(name, addend, target.shape)
    combine = functools.partial(dispatch.apply, subtract if negate else add)
    dispatch.in_place(name, combine, target, total)
