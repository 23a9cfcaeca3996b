"""Indexing: basic indices create views, integer arrays gather, boolean masks read their values.

`view_of` converts a basic index (integers, slices, ``...``, ``None``) to a view, and `picked` computes the
elements that an index with integer arrays selects. `getitem` implements ``x[index]``; rules and results are
NumPy's. For assignments see `assignment`.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, OutOfBoundsError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, in_memory, padded_slices, selection
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.views import broadcasted
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.ranges import positions
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.view import View
from tracejit.ops import check_index, gather, update

_ALL = slice(None)
INT64 = np.dtype("int64")
BASIC = frozenset({int, slice})
"""Types of the components of most indices, for a fast test."""
INTEGER, BOUNDS = frozenset({int}), frozenset({int, type(None)})
"""Types of the integers of most indices, and of the bounds of most slices, for fast tests."""


def _is_array(index: Any) -> bool:
    return isinstance(index, (ArrayCore, np.ndarray, list))


def is_advanced(index: Any) -> bool:
    """Whether a component of an index selects by values: an array, or a single bool."""
    return _is_array(index) or isinstance(index, (bool, np.bool_))


def is_mask(index: Any) -> bool:
    return isinstance(index, (bool, np.bool_)) or getattr(index, "dtype", None) == np.dtype(bool)


def expanded(x: ArrayCore, index: Any) -> list[Any]:
    """Return the index as a list, with ``...`` expanded and missing dimensions appended."""
    components = list(index) if isinstance(index, tuple) else [index]
    if BASIC.issuperset(map(type, components)) and len(components) <= x.ndim:
        return components + [_ALL] * (x.ndim - len(components))
    components = [_of_list(p, x) if isinstance(p, list) else p for p in components]
    used = sum(
        (p.ndim if _is_array(p) and is_mask(p) else 1)
        for p in components
        if p is not None and p is not Ellipsis
    )
    if used > x.ndim:
        raise locate(
            OutOfBoundsError(f"index: {used} indices for an array of {x.ndim} dimensions, shape {x.shape}"),
            user_location(),
        )
    dots = [i for i, p in enumerate(components) if p is Ellipsis]
    if len(dots) > 1:
        raise locate(OutOfBoundsError("index: at most one ellipsis (...) is allowed"), user_location())
    at = dots[0] if dots else len(components)
    return [*components[:at], *[_ALL] * (x.ndim - used), *components[at + 1 :]]


def _of_list(part: list[Any], x: ArrayCore) -> Any:
    """Return an index that is a list as an array, without looking at run-time numbers and array elements."""
    if not any(type(each) is NumberProxy or isinstance(each, ArrayCore) for each in part):
        return np.asarray(part)
    elements = [_as_element(each, x) for each in part]
    if None in elements:
        return np.asarray(part)
    result = dispatch.full(0, (len(elements),), INT64, x.device, "index")
    for position, element in enumerate(elements):
        result = dispatch.emit(update, result, element, view=View(position, (), ()))
    return result


def _as_element(part: Any, x: ArrayCore) -> Any:
    """Return an integer in an index that is a list as an array without dimensions, or None."""
    if isinstance(part, ArrayCore):
        is_integer = part.shape == () and part.dtype.kind in "iu"
        return dispatch.cast(part, INT64) if is_integer else None
    if isinstance(part, bool) or not isinstance(part, int | np.integer):
        return None
    return dispatch.full(part, (), INT64, x.device, "index")


def _integer(part: Any) -> int:
    """Return an integer component of an index. Raises ArgumentError for other types."""
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
    """Return start, stop and step of a slice of a dimension with this extent."""
    if BOUNDS.issuperset((type(part.start), type(part.stop), type(part.step))) and part.step != 0:
        return part.indices(extent)
    bounds = [None if b is None else _integer(b) for b in (part.start, part.stop, part.step)]
    if bounds[2] == 0:
        raise locate(ArgumentError("index: a slice step cannot be zero"), user_location())
    return slice(*bounds).indices(extent)


def view_of(x: ArrayCore, components: list[Any]) -> View:
    """Return the view that a fully expanded basic index selects."""
    view, dimension = x._view, 0
    offset, shape, strides = view.offset, [], []
    for part in components:
        if part is None:
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = view.shape[dimension], view.strides[dimension]
        if type(part) is int and -extent <= part < extent:
            offset += part % extent * stride
        elif isinstance(part, slice):
            types = type(part.start), type(part.stop), type(part.step)
            if NumberProxy in types and positions.any_moves(part):
                start, count, step = positions.bounds(part, extent)
            else:
                start, stop, step = _slice(part, extent)
                count = len(range(start, stop, step))
            offset += start * stride if count else 0
            shape.append(count)
            strides.append(stride * step)
        else:
            moves = positions.does_move(part)
            position = part._value if moves else _integer(part)
            if not -extent <= position < extent:
                raise locate(
                    OutOfBoundsError(
                        f"index {position} is out of bounds for axis {dimension} with extent {extent}; "
                        f"expected {-extent} to {extent - 1}"
                    ),
                    user_location(),
                )
            row = positions.position(part, dimension, extent) if moves else position % extent
            offset += row * stride
        dimension += 1
    return View(offset, tuple(shape), tuple(strides), view.writable)


def _has_integers_only(index: Any) -> bool:
    """Whether a basic index consists of integers only: its result is a scalar in NumPy, not a view."""
    components = index if isinstance(index, tuple) else (index,)
    if INTEGER.issuperset(map(type, components)):
        return True
    return not any(p is None or p is Ellipsis or isinstance(p, slice) for p in components)


def getitem(x: ArrayCore, index: Any) -> Any:
    """Return ``x[index]``: a view for slices, a new array for single elements and for arrays as indices."""
    components = expanded(x, index)
    if BASIC.issuperset(map(type, components)) or not any(map(is_advanced, components)):
        if type(thread.trace) is Trace:
            components = with_numbers(components)
            between = padded_slices.between_numbers(x, components)
            if between is not None:
                return between
        replaced = numbers_as_arrays(x, components)
        if replaced is not None:
            result = _selected(*replaced, is_split(index))
            if result.shape or not _has_integers_only(index):  # otherwise it is not a view in NumPy, either
                thread.trace.picks.note(result._storage, x._storage)
            return result
        view = ArrayCore.concrete(x._storage, view_of(x, components))
        return dispatch.element(view) if not view.shape and _has_integers_only(index) else view
    computed = in_memory.getitem(x, index)
    if computed is not None:
        return computed
    chosen = selection.selection_of(components[0])
    if chosen is not None and all(map(padded_slices.is_full, components[1:])):
        picked_later = chosen.taken_from(x)
        if picked_later is not None:
            return picked_later
    x, components = expand_scalar_masks(x, components)
    if (
        isinstance(components[0], ArrayCore)
        and is_mask(components[0])
        and all(map(padded_slices.is_full, components[1:]))
    ):
        check_mask(x, components[0], 0)
        if components[0].shape == x.shape[: components[0].ndim]:
            picked_later = selection.select(x, components[0])
            if picked_later is not None:
                return picked_later
    return _gather(x, integer_arrays(x, components), is_split(index))


def with_numbers(components: list[Any]) -> list[Any]:
    """Replace array elements that are bounds of the only such slice in a basic index by run-time numbers.

    No loop surrounds the looks: the state of the body would be unknown there (see `look_loops.states`).
    """
    slices = [i for i, part in enumerate(components) if type(part) is slice and _has_array(part)]
    if len(slices) != 1:
        return components
    (at,) = slices
    start, stop = components[at].start, components[at].stop
    used_up = (start._storage,) if isinstance(start, ArrayCore) else ()
    if isinstance(start, ArrayCore):
        start = thread.trace.element(start, "index()")
    if isinstance(stop, ArrayCore):
        stop = thread.trace.element(stop, "index()", used_up)
    return [*components[:at], slice(start, stop, components[at].step), *components[at + 1 :]]


def _has_array(part: slice) -> bool:
    """Whether a bound of a slice is an element of an array of integers, and no bound is another array."""
    arrays = [bound for bound in (part.start, part.stop) if isinstance(bound, ArrayCore)]
    return bool(arrays) and all(bound.ndim == 0 and bound.dtype.kind in "iu" for bound in arrays)


def numbers_as_arrays(x: ArrayCore, components: list[Any]) -> tuple[ArrayCore, list[Any]] | None:
    """Replace run-time numbers that vary from call to call by arrays in a basic index.

    Return the array to index and its new index, which selects elements anew in each call, or None if there
    are no such numbers. Slices between such numbers are applied first, each along its dimension. The result
    is then a copy where NumPy returns a view (see `recording.picks`).
    """
    trace = thread.trace
    if trace is None:
        return None
    source, axis, changed = x, 0, False
    for i, part in enumerate(components):
        if type(part) is slice and NumberProxy in (type(part.start), type(part.stop)):
            rows = _rows_between(trace, part, x.shape[axis], x.device)
            if rows is not None:
                source = dispatch.emit(gather, source, rows, axis=axis)
                components = [*components[:i], _ALL, *components[i + 1 :]]
                changed = True
        elif trace.varies(part) and -x.shape[axis] <= part._value < x.shape[axis]:
            index = dispatch.full(part, (), INT64, x.device, "index")
            components = [*components[:i], index, *components[i + 1 :]]
            changed = True
        axis += part is not None
    return (source, components) if changed else None


def _rows_between(trace: Any, part: slice, extent: int, device: Any) -> Any:
    """Return the positions of a slice whose bounds are run-time numbers that vary from call to call.

    The length of the slice must be constant, and a guard checks it. Return None for other slices.
    """
    bounds = padded_slices.bounds_between(trace, part, extent)
    if bounds is None:
        return None
    start, stop = bounds
    count = stop - start
    length = count._value if type(count) is NumberProxy else count
    return padded_slices.positions(start, length, extent, device) if length > 0 and count == length else None


def expand_scalar_masks(x: Any, components: list[Any]) -> tuple[Any, list[Any]]:
    """Expand each 0-d mask to one dimension of extent 1, and `x` by one at the position of the mask."""
    view, expanded_components, axis = x._view, [], 0
    for part in components:
        if _is_array(part) and is_mask(part) and part.ndim == 0:
            view, part = view.expand(axis), part.reshape((1,))
        expanded_components.append(part)
        axis += part.ndim if _is_array(part) and is_mask(part) else part is not None
    return x if view is x._view else ArrayCore.concrete(x._storage, view), expanded_components


def check_mask(x: ArrayCore, mask: Any, axis: int) -> None:
    """Raise unless the shape of `mask` equals the extents of `x` from `axis` on. As in NumPy, an extent of 0
    fits each extent.
    """
    if not _is_array(mask):
        raise locate(
            ArgumentError("index: a single bool is no index; use None to insert a dimension"), user_location()
        )
    covered = x.shape[axis : axis + mask.ndim]
    if any(n not in (0, m) for n, m in zip(mask.shape, covered, strict=True)):
        raise locate(
            OutOfBoundsError(f"index: a mask of shape {tuple(mask.shape)} does not fit dimensions {covered}"),
            user_location(),
        )


def masks_to_integers(x: ArrayCore, components: list[Any]) -> list[Any]:
    """Convert boolean masks to integer arrays, as NumPy's ``nonzero`` does: a look at their values."""
    out: list[Any] = []
    axis = 0
    for part in components:
        if part is None:
            out.append(part)
            continue
        if is_advanced(part) and is_mask(part):
            check_mask(x, part, axis)
            out.extend(selection.positions(part))
            axis += part.ndim
        else:
            out.append(part)
            axis += 1
    return out


def integer_arrays(x: ArrayCore, components: list[Any]) -> list[Any]:
    """Convert the masks of an index with arrays to integer arrays, and integers that vary from call to call,
    too: NumPy treats integers beside arrays as arrays.
    """
    converted = masks_to_integers(x, components)
    replaced = numbers_as_arrays(x, converted)
    return converted if replaced is None or replaced[0] is not x else replaced[1]


def is_split(index: Any) -> bool:
    """Whether an ellipsis separates integers and arrays of an index, which are then not adjacent."""
    components = list(index) if isinstance(index, tuple) else [index]
    at = next((i for i, p in enumerate(components) if p is Ellipsis), len(components))
    by_value = [
        i for i, p in enumerate(components) if not (p is None or p is Ellipsis or isinstance(p, slice))
    ]
    return bool(by_value) and by_value[0] < at < by_value[-1]


@dataclasses.dataclass(slots=True)
class Picked:
    """The elements that an index with integer arrays selects.

    view: all elements of the array's storage that the slices select; its dimensions are `lead` dimensions of
        slices, then the dimensions that the integer arrays index, then the remaining dimensions of slices
    lead: number of dimensions before the indexed ones
    extents: extents of the indexed dimensions
    position: int64, of the broadcast shape of the integer arrays: positions in the indexed dimensions merged
        into one, in range
    """

    view: View
    lead: int
    extents: tuple[int, ...]
    position: Any

    @property
    def outer(self) -> tuple[int, ...]:
        """Extents of the dimensions before the indexed ones."""
        return self.view.shape[: self.lead]

    @property
    def inner(self) -> tuple[int, ...]:
        """Extents of the dimensions after the indexed ones."""
        return self.view.shape[self.lead + len(self.extents) :]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result: that of the integer arrays replaces the indexed dimensions."""
        return (*self.outer, *self.position.shape, *self.inner)


def picked(x: ArrayCore, components: list[Any], split: bool) -> Picked:
    """Return the elements that an expanded index with integer arrays selects; for `split` see `is_split`."""
    indexed = [i for i, p in enumerate(components) if not (p is None or isinstance(p, slice))]
    adjacent = not split and indexed == list(range(indexed[0], indexed[-1] + 1))
    arrays = [i for i in indexed if type(components[i]) is not int]  # integers only select a subarray
    view = view_of(x, [p if i not in arrays else _ALL for i, p in enumerate(components)])
    # The components with a dimension in `view`:
    remaining = [i for i, p in enumerate(components) if type(p) is not int]
    indices = [index_array(components[i], x) for i in arrays]
    shape = _broadcast_indices([i.shape for i in indices])
    axes = [remaining.index(i) for i in arrays]
    lead = [a for a, i in enumerate(remaining) if i not in arrays and i < indexed[0]] if adjacent else []
    tail = [a for a, i in enumerate(remaining) if i not in arrays and a not in lead]
    extents = tuple(view.shape[a] for a in axes)
    position: Any = None
    for axis, index, extent in zip(arrays, indices, extents, strict=True):
        broadcast = broadcasted(index, shape)
        checked = dispatch.emit(check_index, broadcast, extent=extent, axis=axis)
        position = checked if position is None else position * extent + checked
    return Picked(view.permute([*lead, *axes, *tail]), len(lead), extents, position)


def _selected(x: ArrayCore, components: list[Any], split: bool) -> Any:
    """Return the elements that an index without masks selects: a gather if it has arrays, else a view."""
    if any(map(is_advanced, components)):
        return _gather(x, components, split)
    return ArrayCore.concrete(x._storage, view_of(x, components))


def _gather(x: ArrayCore, components: list[Any], split: bool) -> Any:
    """Index with integer arrays by one gather along a merged dimension; for `split` see `is_split`."""
    elements = picked(x, components, split)
    source = ArrayCore.concrete(x._storage, elements.view)
    merged = source.reshape((*elements.outer, math.prod(elements.extents), *elements.inner))
    return dispatch.emit(gather, merged, elements.position, axis=elements.lead)


def index_array(part: Any, of: ArrayCore | None = None) -> Any:
    """Return an index of integers as an int64 array, on the device of the array `of` if there is one."""
    index = _integers(part)
    return index if of is None or index.device is of.device else index.to(of.device)


def _integers(part: Any) -> Any:
    array = dispatch.as_operand("index", part if isinstance(part, ArrayCore) else _index_elements(part))
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


def _index_elements(part: Any) -> np.ndarray:
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
