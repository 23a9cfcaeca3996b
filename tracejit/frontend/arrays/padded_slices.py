"""Slices whose length is a run-time number, ``x[lo:hi]``, padded to a bucket of lengths.

    for k in range(n):
        total[k] = values[first[k] : first[k + 1]].sum()

A slice between numbers that the body reads from arrays is first recorded with its length, which is guarded.
If the length varies at this place in the code, the slice is padded: it becomes a selection of its elements
among the following ones, as many as the smallest bucket that contains the length. (The last element of the
array is repeated where the array ends earlier.) Operations that do not need the length, such as elementwise
ones and reductions, apply to all elements and respect the mask; see `selection`. A path is thus recorded for
each bucket, not for each length.

A padded slice is a copy where NumPy returns a view (see `recording.picks`). An assignment to such a slice,
``x[lo:hi] = y``, scatters as many elements as the bucket contains, the last one several times.

>>> import tracejit as tj
>>> head = tj.jit(lambda x, n: x[: int(n)].sum())
>>> x = tj.ones(16)
>>> [float(head(x, tj.asarray(n))) for n in (3, 5, 8, 1)], head.cache_info().traces
([3.0, 5.0, 8.0, 1.0], 2)
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.selection import Selection, filled, selection_of, with_dimensions
from tracejit.frontend.arrays.views import broadcasted, sliced
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.ranges.ranges import site_of
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.segments import MAX_SHARED_BUCKET
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.types import Device
from tracejit.ops import add, gather, iota, less, maximum, minimum, scatter, where

INT64 = np.dtype("int64")


class PaddedSlice(Selection):
    """The first `count` elements of `content`; see the module's docstring.

    count: a run-time number. There are no elements if it is negative.
    """

    __slots__ = ("count",)

    def __init__(self, trace: Trace, content: Any, mask: Any, count: Any) -> None:
        super().__init__(trace, content, mask)
        self.count = count

    def with_content(self, content: Any) -> PaddedSlice:
        return PaddedSlice(self.trace, content, self.mask, self.count)

    @property
    def adds_in_order(self) -> bool:
        return self.mask.size <= MAX_SHARED_BUCKET

    def selects_as(self, other: Selection) -> bool:
        if type(other) is not PaddedSlice or thread.trace is not self.trace:
            return False
        if other.mask is self.mask:
            return True
        is_equal = other.mask.shape == self.mask.shape and other.count._value == self.count._value
        return is_equal and bool(self.count == other.count)  # guarded

    def picks(self, what: str) -> bool:
        return bool(self.count > 0)

    def key_parts(self) -> tuple[Any, ...]:
        return self.content, self.mask, self.count

    def gathered(self) -> Any:
        count = max(operator.index(self.count), 0)  # guarded: another length is another path
        return sliced(self.content, 0, 0, count).copy()


def between_numbers(x: Any, components: list[Any]) -> Any:
    """Return ``x[components]`` if that is a slice of one dimension between numbers that vary from call to
    call, and integers select from the dimensions before; None otherwise. A trace is recorded.
    """
    parts = at_slice(components)
    if parts is None:
        return None
    before, part = parts
    if before:
        varies = thread.trace.varies(part.start) or thread.trace.varies(part.stop)
        if not varies or not all(map(_is_integer, before)):
            return None
        return between_numbers(x[tuple(before)], components[len(before) :])
    bounds = bounds_between(thread.trace, part, x.shape[0])
    if bounds is None:
        return None
    start, stop = bounds
    if type(start) is int and type(stop) is int:
        return sliced(x, 0, start, max(start, stop))
    count: Any = stop - start
    capacity = _capacity(count)
    if capacity:
        return _padded(x, start, count, capacity)
    return _of_length(x, start, count, max(count._value, 0))


def assign_between(x: Any, part: slice, value: Any) -> bool:
    """Assign to ``x[part]`` if that is a slice between numbers that vary from call to call. Return False,
    without a write, for other slices, and if the value may have another extent than the slice.

    value: an array of the dtype of `x`: a padded slice, or one element for all places.
    """
    bounds = bounds_between(thread.trace, part, x.shape[0])
    padded: Any = selection_of(value)
    if bounds is None or not _fits(value, padded, x):
        return False
    count: Any = bounds[1] - bounds[0]
    if type(count) is int:
        return False
    if padded is None:
        content, capacity = broadcasted(value, (1, *x.shape[1:])), _capacity(count)
    elif padded.count._value == count._value and padded.count == count:  # guarded
        content, capacity = padded.content, padded.mask.size
    else:
        return False
    if capacity:
        dispatch.write(x, _with_slice(x, bounds[0], count, content, capacity))
    return bool(capacity)


def _fits(value: Any, padded: Any, x: Any) -> bool:
    """Whether a value, maybe a selection `padded`, broadcasts to each slice of `x` of its length."""
    if padded is not None:
        content = padded.content
        if type(padded) is not PaddedSlice or content.ndim != x.ndim:
            return False
    else:
        content = value
        if content.ndim > x.ndim or (content.ndim == x.ndim and content.shape[0] != 1):
            return False
    inner = content.shape[1:] if content.ndim == x.ndim else content.shape
    return all(n in (1, m) for n, m in zip(inner[::-1], x.shape[:0:-1], strict=False))


def _with_slice(x: Any, start: Any, count: Any, content: Any, capacity: int) -> Any:
    """Return `x` with `count` elements from `start` on replaced by those of `content`, or by its only one.

    Places beyond the last one repeat it. If there is none, the array's own element is stored.
    """
    length = dispatch.full(count, (), INT64, x.device, "index")
    last = dispatch.apply(maximum, dispatch.apply(add, length, -1), 0)
    places = dispatch.apply(minimum, dispatch.emit(iota, size=capacity, device=x.device), last)
    rows = _shifted(places, start, x.shape[0], x.device)
    if content.shape[0] != 1:
        content = dispatch.emit(gather, content, places, axis=0)
    is_empty = with_dimensions(dispatch.apply(less, length, 1), x.ndim)
    present = dispatch.emit(gather, x, rows, axis=0)
    stored = dispatch.apply(where, is_empty, present, broadcasted(content, present.shape))
    return dispatch.emit(scatter, x, stored, rows, axis=0)


def at_slice(components: list[Any]) -> tuple[list[Any], slice] | None:
    """Return the components of an index before the first slice, and the slice, if it is followed by slices of
    all elements only; None for other indices.
    """
    lead = next((i for i, part in enumerate(components) if type(part) is slice), None)
    if lead is None or not all(map(is_full, components[lead + 1 :])):
        return None
    return components[:lead], components[lead]


def bounds_between(trace: Any, part: slice, extent: int) -> tuple[Any, Any] | None:
    """Return the bounds of a slice, of which one varies from call to call, as positions in a dimension with
    this extent; None for other slices.
    """
    bounds = (0 if part.start is None else part.start, extent if part.stop is None else part.stop)
    if part.step is not None or not extent or not any(map(trace.varies, bounds)):
        return None
    if any(type(each._value if type(each) is NumberProxy else each) is not int for each in bounds):
        return None
    return _in_range(bounds[0], extent), _in_range(bounds[1], extent)


def positions(start: Any, length: int, extent: int, device: Device) -> Any:
    """Return the positions of `length` elements from `start` on: the last one for those beyond the end.

    They are in range whatever the start is: an iteration of a native loop computes them even if its checks of
    the start fail, which ends the loop and discards the results.
    """
    return _shifted(dispatch.emit(iota, size=length, device=device), start, extent, device)


def _shifted(places: Any, start: Any, extent: int, device: Device) -> Any:
    """Return places in a slice as positions in the dimension, for a slice from `start` on."""
    first = dispatch.full(start, (), INT64, device, "index")
    first = dispatch.apply(minimum, dispatch.apply(maximum, first, 0), extent)
    return dispatch.apply(minimum, dispatch.apply(add, places, first), extent - 1)


def _capacity(count: Any) -> int:
    """Return the number of elements to which a slice of `count` elements is padded at the user's position in
    the code, which is guarded; 0 for a slice that has always had this length.
    """
    capacity: int = thread.trace.slice_capacity(site_of(sys._getframe()), max(count._value, 0))
    while capacity and not count <= capacity:
        capacity *= 2
    return capacity


def is_full(part: Any) -> bool:
    """Whether a component of an index is the slice of all elements."""
    return type(part) is slice and part.start is None and part.stop is None and part.step is None


def _is_integer(part: Any) -> bool:
    return type(part._value if type(part) is NumberProxy else part) is int


def _in_range(bound: Any, extent: int) -> Any:
    """Return a bound of a slice as a position from 0 to `extent`, as Python does. Its range is guarded."""
    if bound < 0:
        bound = bound + extent
        return bound if bound >= 0 else 0
    return bound if bound <= extent else extent


def _of_length(x: Any, start: Any, count: Any, length: int) -> Any:
    """Return the `count` elements from `start` on. Their number is guarded."""
    if not length:
        return sliced(x, 0, 0, 0) if count <= 0 else None
    if count != length:
        return None
    if type(start) is int:
        return sliced(x, 0, start, start + length)
    return _copied(x, _gathered(x, start, length))


def _padded(x: Any, start: Any, count: Any, capacity: int) -> Any:
    """Return the `count` elements from `start` on, padded to a bucket of at least `capacity` elements."""
    rows = dispatch.emit(iota, size=capacity, device=x.device)
    mask = dispatch.apply(less, rows, dispatch.full(count, (), INT64, x.device, "index"))
    if type(start) is int and start + capacity <= x.shape[0]:
        content = sliced(x, 0, start, start + capacity).copy()
    else:
        content = _gathered(x, start, capacity)
    content = filled(with_dimensions(mask, x.ndim - 1), content)
    return _copied(x, PaddedSlice(thread.trace, content, mask, count).array())


def _gathered(x: Any, start: Any, length: int) -> Any:
    return dispatch.emit(gather, x, positions(start, length, x.shape[0], x.device), axis=0)


def _copied(x: Any, array: Any) -> Any:
    """Note that an array is a copy of elements of `x` where NumPy returns a view."""
    thread.trace.picks.note(array._storage, x._storage)
    return array
