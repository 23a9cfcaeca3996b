"""Slices whose length is a run-time number, ``x[lo:hi]``, padded to a bucket of lengths.

    for k in range(n):
        total[k] = values[first[k] : first[k + 1]].sum()

A slice between numbers that the body reads from arrays is first recorded with its length, which is guarded.
If the length varies at this place in the code, the slice is padded: it becomes a selection of its elements
among the following ones, as many as the smallest bucket that contains the length. (The last element of the
array is repeated where the array ends earlier.) Operations that do not need the length, such as elementwise
ones and reductions, apply to all elements and respect the mask; see `selection`. A path is thus recorded for
each bucket, not for each length.

A padded slice is a copy where NumPy returns a view (see `recording.picks`).

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
from tracejit.frontend.arrays.selection import Selection, filled, with_dimensions
from tracejit.frontend.arrays.views import sliced
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.ranges.ranges import site_of
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.segments import MAX_SHARED_BUCKET
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.types import Device
from tracejit.ops import add, gather, iota, less, maximum, minimum

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
    lead = next((i for i, part in enumerate(components) if type(part) is slice), None)
    if lead is None or not all(map(is_full, components[lead + 1 :])):
        return None
    if lead:
        before, part = components[:lead], components[lead]
        varies = thread.trace.varies(part.start) or thread.trace.varies(part.stop)
        if not varies or not all(map(_is_integer, before)):
            return None
        return between_numbers(x[tuple(before)], components[lead:])
    bounds = bounds_between(thread.trace, components[0], x.shape[0])
    if bounds is None:
        return None
    start, stop = bounds
    if type(start) is int and type(stop) is int:
        return sliced(x, 0, start, max(start, stop))
    count: Any = stop - start
    length = max(count._value, 0)
    capacity = thread.trace.slice_capacity(site_of(sys._getframe()), length)
    if capacity:
        return _padded(x, start, count, capacity)
    return _of_length(x, start, count, length)


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
    first = dispatch.full(start, (), INT64, device, "index")
    first = dispatch.apply(minimum, dispatch.apply(maximum, first, 0), extent)
    places = dispatch.apply(add, dispatch.emit(iota, size=length, device=device), first)
    return dispatch.apply(minimum, places, extent - 1)


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
    while not count <= capacity:
        capacity *= 2
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
