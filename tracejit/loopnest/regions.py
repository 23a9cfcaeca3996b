"""Comparison of the sets of elements that views of one array cover.

>>> left, right = View.of_shape((4, 6)).slice_axis(1, 0, 2), View.of_shape((4, 6)).slice_axis(1, 2, None)
>>> disjoint(left, right, (4, 6))
True
>>> inverse(View.of_shape((4, 6)).permute((1, 0)), (4, 6))
View(offset=0, shape=(4, 6), strides=(1, 4))
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from tracejit.ir.view import View, contiguous_strides

NEIGHBOURS = 1024
"""The maximal number of nearby views of an array with which another view is compared."""


def same(one: View, other: View) -> bool:
    """Return whether two views cover the same elements in the same C order. Their shapes may differ."""
    return one.size == other.size and (one.size == 0 or one.merged() == other.merged())


def disjoint(one: View, other: View, shape: Sequence[int]) -> bool:
    """Return whether two views of an array of `shape` are known to share no element; False if in doubt."""
    return Region(one, shape).is_apart(Region(other, shape))


IndexBox = list[tuple[int, int]]


class Region:
    """The elements that `view` covers in an array of `shape`. The bounding box is computed once, at its
    first use.
    """

    __slots__ = ("_box", "shape", "view")

    def __init__(self, view: View, shape: Sequence[int]):
        self.view, self.shape = view, shape

    def box(self) -> IndexBox | None:
        """Return the `bounds`, computed on demand: the views of a loop may have different bounds in each
        iteration.
        """
        try:
            return self._box
        except AttributeError:
            self._box: IndexBox | None = bounds(self.view, self.shape)
            return self._box

    def is_apart(self, other: Region) -> bool:
        """Return whether two regions of an array are known to share no element; False if in doubt."""
        (low, high), (other_low, other_high) = self.view.span(), other.view.span()
        return bool(high <= other_low or other_high <= low) or are_apart(self.box(), other.box())


def are_apart(one: IndexBox | None, other: IndexBox | None) -> bool:
    """Return whether two results of `bounds` are known to share no element."""
    if one is None or other is None:
        return False
    return any(a[1] < b[0] or b[1] < a[0] for a, b in zip(one, other, strict=True))


def bounds(view: View, shape: Sequence[int]) -> IndexBox | None:
    """Return the lowest and highest index along each axis of the base array, or None if an axis of the
    view runs diagonally through the axes of the base, so that a box does not describe it.
    """
    units = contiguous_strides(shape)
    bounds = []
    remainder = view.offset
    for extent, unit in zip(shape, units, strict=True):
        index, remainder = (remainder // unit, remainder % unit) if extent > 1 else (0, remainder)
        bounds.append((index, index))
    pending = list(zip(view.shape, view.strides, strict=True))
    for extent, stride in pending:
        if extent == 1 or stride == 0:
            continue
        axis = next((a for a, u in enumerate(units) if shape[a] > 1 and abs(stride) % u == 0), None)
        if axis is None:
            return None
        step = stride // units[axis]
        steps_per_axis = shape[axis] // abs(step)  # steps along the axis, if they end at its end
        if shape[axis] % step == 0 and 1 < steps_per_axis < extent and extent % steps_per_axis == 0:
            pending += [(extent // steps_per_axis, stride * steps_per_axis), (steps_per_axis, stride)]
            continue
        extension = step * (extent - 1)
        low, high = bounds[axis]
        bounds[axis] = (low + min(extension, 0), high + max(extension, 0))
    if any(low < 0 or high >= extent for (low, high), extent in zip(bounds, shape, strict=True)):
        return None
    return bounds


def inverse(view: View, shape: Sequence[int]) -> View | None:
    """Return the inverse of a view that covers an array of `shape`: the view of its result that is the
    array.

    Return None if the inverse is not affine, or if `view` does not cover the array.
    """
    if not view.covers(shape):
        return None
    if view.size == 0:
        return View.of_shape(shape)
    dims = [d for d in zip(view.shape, view.strides, contiguous_strides(view.shape), strict=True) if d[0] > 1]
    dims.sort(key=lambda dim: -abs(dim[1]))
    # In order of decreasing stride the dimensions enumerate the array; a negative stride runs backwards.
    offset = sum(unit * (extent - 1) for extent, stride, unit in dims if stride < 0)
    strides = tuple(unit if stride > 0 else -unit for _, stride, unit in dims)
    return View(offset, tuple(dim[0] for dim in dims), strides).reshape(shape)


class Regions:
    """Views of one array of `shape`, for tests whether other views share elements with them."""

    def __init__(self, shape: Sequence[int]):
        self.shape = shape
        self._spans: list[tuple[int, int, IndexBox | None]] = []  # span and `bounds` of each view, sorted
        self._longest = 0

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, view: View) -> None:
        """Add a view."""
        self._insert((*view.span(), bounds(view, self.shape)))

    def update(self, others: Regions) -> None:
        """Add all views of `others`."""
        for span in others._spans:
            self._insert(span)

    def _insert(self, span: tuple[int, int, IndexBox | None]) -> None:
        self._spans.insert(bisect.bisect_left(self._spans, span[0], key=_first), span)
        self._longest = max(self._longest, span[1] - span[0])

    def are_apart(self, view: View) -> bool:
        """Return whether `view` is known to share no element with any of the views. Return False if in
        doubt, for instance if more than `NEIGHBOURS` views are near it.
        """
        (low, high), box = view.span(), bounds(view, self.shape)
        near = slice(
            bisect.bisect_right(self._spans, low - self._longest, key=_first),
            bisect.bisect_left(self._spans, high, key=_first),
        )
        return near.stop - near.start <= NEIGHBOURS and all(
            end <= low or are_apart(box, other) for _, end, other in self._spans[near]
        )


def _first(span: tuple[int, int, object]) -> int:
    return span[0]
