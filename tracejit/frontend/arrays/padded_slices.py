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
from tracejit.ops import add, gather, iota, less, minimum

INT64 = np.dtype("int64")
ALL = slice(None)


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


def padded(x: Any, components: list[Any]) -> Any:
    """Return ``x[components]`` padded; None if that is not a slice of the first dimension between
    run-time numbers, or its length has not varied here.
    """
    part, trace = components[0] if components else None, thread.trace
    if type(part) is not slice or type(trace) is not Trace or any(each != ALL for each in components[1:]):
        return None
    extent = x.shape[0]
    start: Any = 0 if part.start is None else part.start
    stop: Any = extent if part.stop is None else part.stop
    if part.step is not None or not extent or not (trace.varies(start) or trace.varies(stop)):
        return None
    first, last = (each._value if type(each) is NumberProxy else each for each in (start, stop))
    if type(first) is not int or type(last) is not int or not 0 <= first <= extent or not 0 <= last <= extent:
        return None
    count: Any = stop - start
    is_constant = type(count) is not NumberProxy
    capacity = 0 if is_constant else trace.slice_capacity(site_of(sys._getframe()), last - first)
    if not capacity or not (start >= 0 and start <= extent and stop >= 0 and stop <= extent):
        return None
    while not count <= capacity:
        capacity *= 2
    rows = dispatch.emit(iota, size=capacity, device=x.device)
    mask = dispatch.apply(less, rows, dispatch.full(count, (), INT64, x.device, "index"))
    if type(start) is int and start + capacity <= extent:
        content = sliced(x, 0, start, start + capacity).copy()
    else:
        positions = dispatch.apply(add, rows, dispatch.full(start, (), INT64, x.device, "index"))
        content = dispatch.emit(gather, x, dispatch.apply(minimum, positions, extent - 1), axis=0)
    content = filled(with_dimensions(mask, x.ndim - 1), content)
    array = PaddedSlice(trace, content, mask, count).array()
    trace.picks.note(array._storage, x._storage)
    return array
