"""Indexing: basic indices give views that alias, integer arrays gather, boolean masks look at values.

`view_of` turns a basic index (integers, slices, ``...``, ``None``) into a view. `getitem` and `setitem` are
what ``x[index]`` and ``x[index] = value`` do; rules and results are NumPy's.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, OutOfBoundsError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.ir.view import View
from tracejit.ops import add, check_index, copy, gather, multiply, where

_ALL = slice(None)
_BASIC = frozenset({int, slice})
"""Types of the parts of most indices."""


def _is_array(index: Any) -> bool:
    return isinstance(index, (ArrayCore, np.ndarray, list))


def _is_advanced(index: Any) -> bool:
    """Whether this is an index by values: of an array, or a single truth value."""
    return _is_array(index) or isinstance(index, (bool, np.bool_))


def _is_mask(index: Any) -> bool:
    return isinstance(index, (bool, np.bool_)) or getattr(index, "dtype", None) == np.dtype(bool)


def _expanded(x: ArrayCore, index: Any) -> list[Any]:
    """The index as a list with ``...`` replaced and missing dimensions filled in."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if _BASIC.issuperset(map(type, parts)) and len(parts) <= x.ndim:
        return parts + [_ALL] * (x.ndim - len(parts))
    parts = [np.asarray(p) if isinstance(p, list) else p for p in parts]
    used = sum(
        (p.ndim if _is_mask(p) and _is_array(p) else 1) for p in parts if p is not None and p is not Ellipsis
    )
    if used > x.ndim:
        raise locate(
            OutOfBoundsError(f"index: {used} indices for an array of {x.ndim} dimensions, shape {x.shape}"),
            user_location(),
        )
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise locate(OutOfBoundsError("index: at most one ellipsis (...) is allowed"), user_location())
    at = dots[0] if dots else len(parts)
    return [*parts[:at], *[_ALL] * (x.ndim - used), *parts[at + 1 :]]


def _integer(part: Any) -> int:
    try:
        return operator.index(part)
    except TypeError:
        raise locate(
            ArgumentError(
                f"index: {type(part).__name__} {part!r} is no index; use integers, slices, ..., None, or "
                "arrays of integers or booleans"
            ),
            user_location(),
        ) from None


def _slice(part: slice, extent: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of a dimension."""
    bounds = [None if b is None else _integer(b) for b in (part.start, part.stop, part.step)]
    if bounds[2] == 0:
        raise locate(ArgumentError("index: a slice step cannot be zero"), user_location())
    return slice(*bounds).indices(extent)


def view_of(x: ArrayCore, parts: list[Any]) -> View:
    """The view that a fully expanded basic index means."""
    view, dimension = x._view, 0
    offset, shape, strides = view.offset, [], []
    for part in parts:
        if part is None:
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = view.shape[dimension], view.strides[dimension]
        if isinstance(part, slice):
            start, stop, step = _slice(part, extent)
            count = len(range(start, stop, step))
            offset += start * stride if count else 0
            shape.append(count)
            strides.append(stride * step)
        else:
            position = _integer(part)
            if not -extent <= position < extent:
                raise locate(
                    OutOfBoundsError(
                        f"index {position} is out of range for axis {dimension} with extent {extent}"
                    ),
                    user_location(),
                )
            offset += position % extent * stride
        dimension += 1
    return View(offset, tuple(shape), tuple(strides), view.writable)


def _has_integers_only(index: Any) -> bool:
    """Whether a basic index is integers only: an element found so is a scalar in NumPy, and no view."""
    parts = index if isinstance(index, tuple) else (index,)
    return not any(p is None or p is Ellipsis or isinstance(p, slice) for p in parts)


def getitem(x: ArrayCore, index: Any) -> Any:
    """``x[index]``: a view for slices, a new array for single elements and arrays of integers or booleans."""
    parts = _expanded(x, index)
    if _BASIC.issuperset(map(type, parts)) or not any(map(_is_advanced, parts)):
        view = ArrayCore.concrete(x._storage, view_of(x, parts))
        return dispatch.emit(copy, view) if not view.shape and _has_integers_only(index) else view
    parts = _masks_to_integers(x, parts)
    return _gather(x, parts, _is_split(index))


def setitem(x: ArrayCore, index: Any, value: Any) -> None:
    """``x[index] = value``, seen through every array that shares x's memory."""
    parts = _expanded(x, index)
    arrays = () if _BASIC.issuperset(map(type, parts)) else tuple(filter(_is_advanced, parts))
    if not arrays:
        dispatch.write(ArrayCore.concrete(x._storage, view_of(x, parts)), value, casts=True)
        return
    if len(arrays) == 1 and _is_mask(arrays[0]) and isinstance(arrays[0], (ArrayCore, np.ndarray)):
        _masked_write(x, parts, arrays[0], value)
        return
    raise locate(
        ArgumentError(
            "assignment through integer arrays is not supported; assign slices, or build the result with "
            "tj.where"
        ),
        user_location(),
    )


def _masked_write(x: ArrayCore, parts: list[Any], mask: Any, value: Any) -> None:
    """``x[..., mask] = number``: a select, whose shape depends on no value."""
    mask = dispatch.as_operand("assignment", mask)
    at = next(i for i, p in enumerate(parts) if _is_mask(p))
    before, after = parts[:at], parts[at + 1 :]
    if any(p != slice(None) for p in (*before, *after)):
        raise locate(
            ArgumentError("assignment through a mask takes full slices beside it; index first, then assign"),
            user_location(),
        )
    covered = x.shape[at : at + mask.ndim]
    if mask.shape != covered:
        raise locate(
            OutOfBoundsError(f"assignment: a mask of shape {mask.shape} does not fit dimensions {covered}"),
            user_location(),
        )
    given = dispatch.as_operand("assignment", value)
    if isinstance(given, ArrayCore) and given.size != 1:
        raise locate(
            ArgumentError(
                "assignment through a mask takes one number: with more, which goes where depends on the "
                "mask's values; write x[...] = tj.where(mask, values, x)"
            ),
            user_location(),
        )
    if isinstance(given, ArrayCore):
        given = ArrayCore.concrete(given._storage, given._view.reshape(()))
    wide = mask._view
    for _ in range(x.ndim - at - mask.ndim):
        wide = wide.expand(len(wide.shape))
    dispatch.write(x, dispatch.apply(where, ArrayCore.concrete(mask._storage, wide), given, x), casts=True)


def _masks_to_integers(x: ArrayCore, parts: list[Any]) -> list[Any]:
    """Boolean masks become the integer arrays NumPy's ``nonzero`` gives: this looks at their values."""
    out: list[Any] = []
    axis = 0
    for part in parts:
        if isinstance(part, (bool, np.bool_)):
            raise locate(
                ArgumentError("index: a single bool is no index; use None to insert a dimension"),
                user_location(),
            )
        if part is None:
            out.append(part)
            continue
        if _is_array(part) and _is_mask(part):
            covered = x.shape[axis : axis + part.ndim]
            if tuple(part.shape) != covered:
                raise locate(
                    OutOfBoundsError(
                        f"index: a mask of shape {tuple(part.shape)} does not fit dimensions {covered}"
                    ),
                    user_location(),
                )
            positions = np.nonzero(part.numpy() if isinstance(part, ArrayCore) else part)
            out.extend(positions)
            axis += part.ndim
        else:
            out.append(part)
            axis += 1
    return out


def _is_split(index: Any) -> bool:
    """Whether an ellipsis of any extent stands between integer arrays or integers: these are not adjacent."""
    parts = list(index) if isinstance(index, tuple) else [index]
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    by_value = [i for i, p in enumerate(parts) if not (p is None or p is Ellipsis or isinstance(p, slice))]
    return bool(by_value) and by_value[0] < at < by_value[-1]


def _gather(x: ArrayCore, parts: list[Any], split: bool) -> Any:
    """Integer-array indexing as one gather along a merged dimension; `split`: see `_is_split`."""
    arrays = [i for i, p in enumerate(parts) if not (p is None or isinstance(p, slice))]
    adjacent = not split and arrays == list(range(arrays[0], arrays[-1] + 1))
    basic = [p if i not in arrays else slice(None) for i, p in enumerate(parts)]
    seen = ArrayCore.concrete(x._storage, view_of(x, basic))
    indices = [index_array(parts[i]) for i in arrays]
    shape = _broadcast_indices([i.shape for i in indices])
    first = arrays[0] if adjacent else 0
    rest = [a for a in range(seen.ndim) if a not in arrays]
    lead = [a for a in rest if a < first] if adjacent else []
    tail = [a for a in rest if a not in lead]
    moved = seen._view.permute([*lead, *arrays, *tail])
    extents = [seen.shape[a] for a in arrays]
    source = ArrayCore.concrete(seen._storage, moved).reshape(
        (*[seen.shape[a] for a in lead], int(np.prod(extents)), *[seen.shape[a] for a in tail])
    )
    position: Any = None
    for axis, (index, extent) in enumerate(zip(indices, extents, strict=True)):
        wide = ArrayCore.concrete(index._storage, index._view.broadcast(shape))
        checked = dispatch.emit(check_index, wide, extent=extent, axis=arrays[axis])
        scaled = position if position is None else dispatch.apply(multiply, position, extent)
        position = checked if scaled is None else dispatch.apply(add, scaled, checked)
    return dispatch.emit(gather, source, position, axis=len(lead))


def index_array(part: Any) -> Any:
    """An index of integers as an int64 array."""
    array = dispatch.as_operand("index", part if isinstance(part, ArrayCore) else _plain_index(part))
    if array.dtype.kind not in "iu":
        if array.size == 0:
            return array.astype(np.int64)
        raise locate(
            OutOfBoundsError(
                f"index: arrays used as indices must hold integers or booleans, not {array.dtype}"
            ),
            user_location(),
        )
    return array if array.dtype == np.int64 else array.astype(np.int64)


def _plain_index(part: Any) -> np.ndarray:
    if isinstance(part, np.ndarray | list | tuple):
        return np.asarray(part)
    return np.asarray(_integer(part) if not isinstance(part, NumberProxy) else part._look(), dtype=np.int64)


def _broadcast_indices(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise locate(
            ShapeError(f"index: index arrays of shapes {' and '.join(map(str, shapes))} do not broadcast"),
            user_location(),
        ) from None
