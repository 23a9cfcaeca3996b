"""Affine views: maps from indices to elements of a C-contiguous base.

A `View` consists of offset, shape and strides, in units of elements. Basic slicing, transposition,
broadcasting, flips and reshapes without copy are functions from view to view. The frontend composes them in
Python, and records the final view as a single `view` node. `compose` does the same for two recorded nodes.

>>> v = View.of_shape((4, 6))
>>> v.permute((1, 0)).slice_axis(0, 5, None, -2)
View(offset=5, shape=(3, 4), strides=(-2, 6))
>>> v.permute((1, 0)).reshape((24,)) is None
True
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit.forking import make_rlock
from tracejit.ir.moving import IterationsDiffer, Moving


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 0:
            return True
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True


@dataclass(slots=True, unsafe_hash=True)
class View:
    """An affine index map: element ``i`` is element ``offset + sum(i * strides)`` of the base.

    Immutable by convention: enforcing it would make construction six times slower.

    writable: false for broadcast views and views of them, which are read-only as in NumPy. Views in graphs
              ignore it.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool = field(default=True, repr=False)
    _facts: tuple[int, bool, tuple[int, int]] = field(init=False, repr=False, compare=False)

    def _derived(self) -> tuple[int, bool, tuple[int, int]]:
        """Size, whether contiguous, and span; cached."""
        try:
            return self._facts
        except AttributeError:
            size, contiguous = math.prod(self.shape), _is_contiguous(self.shape, self.strides)
            span = (self.offset, self.offset + size) if contiguous else self._compute_span()
            self._facts = size, contiguous, span
            return self._facts

    @staticmethod
    def of_shape(shape: Sequence[int]) -> View:
        """Return the identity view of a C-contiguous base of `shape`; cached."""
        return _identity(tuple(shape))

    @property
    def size(self) -> int:
        return self._derived()[0]

    def known(self) -> View:
        """Resolve a lazy view (see `LazyView`) and return it."""
        return self

    def read_only(self) -> View:
        """Return a view of the same elements that is not writable."""
        return View(self.offset, self.shape, self.strides, False)

    def moved(self, by: int) -> View:
        """Return the view of the same elements in a base that begins `by` elements earlier."""
        return View(self.offset + by, self.shape, self.strides, self.writable)

    def is_contiguous(self) -> bool:
        """Whether the elements are in C order without gaps (the strides of extents 1 are irrelevant)."""
        return self._derived()[1]

    def is_identity(self, base_shape: tuple[int, ...], start: int = 0) -> bool:
        """Whether this is the identity on a base of `base_shape` in all iterations of a loop.

        start: the element at which the base begins
        """
        try:
            return self.offset == start and self.shape == base_shape and self._derived()[1]
        except IterationsDiffer:
            return False

    def covers(self, base_shape: Sequence[int]) -> bool:
        """Whether every element of the base is mapped exactly once."""
        return self.size == math.prod(base_shape) and not self.overlaps_itself()

    def overlaps_itself(self) -> bool:
        """Whether two indices may map to one element (broadcast or overlapping strides); conservative."""
        if self.is_contiguous():
            return False
        extent_so_far = 0
        dimensions = ((abs(s), n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1)
        for stride, extent in sorted(dimensions):
            if stride <= extent_so_far:
                return True
            extent_so_far += stride * (extent - 1)
        return False

    def span(self) -> tuple[int, int]:
        """The range of elements, from the lowest to one past the highest; (offset, offset) if empty."""
        return self._derived()[2]

    def _compute_span(self) -> tuple[int, int]:
        low = high = self.offset
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 0:
                return self.offset, self.offset
            if stride < 0:
                low += stride * (extent - 1)
            else:
                high += stride * (extent - 1)
        return low, high + 1

    def permute(self, axes: Sequence[int]) -> View:
        """Permute dimensions."""
        return View(self.offset, *self._take(axes), self.writable)

    def expand(self, axis: int) -> View:
        """Insert a dimension of extent 1."""
        return View(
            self.offset,
            (*self.shape[:axis], 1, *self.shape[axis:]),
            (*self.strides[:axis], 0, *self.strides[axis:]),
            self.writable,
        )

    def drop(self, axes: Sequence[int]) -> View:
        """Remove dimensions of extent 1."""
        axes_left = [a for a in range(len(self.shape)) if a not in set(axes)]
        return self.permute(axes_left)

    def broadcast(self, shape: Sequence[int]) -> View:
        """Broadcast to a compatible `shape`, as in NumPy."""
        lead = len(shape) - len(self.shape)
        strides = [0] * lead + [
            s if n == m else 0 for s, n, m in zip(self.strides, self.shape, shape[lead:], strict=True)
        ]
        return View(self.offset, tuple(shape), tuple(strides), self.writable)

    def select(self, axis: int, index: int) -> View:
        """Fix a dimension at `index`, which is non-negative and in range."""
        other_axes = [a for a in range(len(self.shape)) if a != axis]
        return View(self.offset + index * self.strides[axis], *self._take(other_axes), self.writable)

    def slice_axis(self, axis: int, start: int | None, stop: int | None, step: int | None = None) -> View:
        """Slice one dimension, as in Python."""
        start, stop, step = slice(start, stop, step).indices(self.shape[axis])
        extent = len(range(start, stop, step))
        offset = self.offset + (start * self.strides[axis] if extent else 0)
        shape, strides = list(self.shape), list(self.strides)
        shape[axis], strides[axis] = extent, strides[axis] * step
        return View(offset, tuple(shape), tuple(strides), self.writable)

    def _take(self, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes)

    def merged(self) -> View:
        """Return a view of the same elements in the same order with as few dimensions as possible."""
        shape: list[int] = []
        strides: list[int] = []
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 1:
                continue
            if shape and strides[-1] == stride * extent:
                shape[-1] *= extent
                strides[-1] = stride
            else:
                shape.append(extent)
                strides.append(stride)
        return View(self.offset, tuple(shape), tuple(strides))

    def reshape(self, shape: Sequence[int]) -> View | None:
        """Return a view of the same elements in C order with another shape; None if that requires a copy."""
        shape = tuple(shape)
        if self.size == 0:
            return View(self.offset, shape, contiguous_strides(shape), self.writable)
        groups = self.merged()
        strides: list[int] = []
        g, remaining = len(groups.shape) - 1, 1
        stride = groups.strides[g] if groups.shape else 1
        remaining = groups.shape[g] if groups.shape else 1
        for extent in reversed(shape):
            if extent == 1:
                strides.append(0)
                continue
            if remaining == 1:
                g -= 1
                stride, remaining = groups.strides[g], groups.shape[g]
            if remaining % extent:
                return None
            strides.append(stride)
            stride, remaining = stride * extent, remaining // extent
        return View(self.offset, shape, tuple(reversed(strides)), self.writable)

    def compose(self, outer: View) -> View | None:
        """Compose with `outer`, a view of the C-contiguous result of this view.

        Returns a view of the base, or None if the composition is not affine.
        """
        return _composed(self, outer)

    def read(self, base: np.ndarray) -> np.ndarray:
        """Return a NumPy view of a C-contiguous array `base`."""
        if self.size == 0:
            return np.empty(self.shape, base.dtype)
        item = base.itemsize
        strides = tuple([s * item for s in self.strides])
        return np.ndarray(self.shape, base.dtype, base, self.offset * item, strides)

    def __str__(self) -> str:
        shape, strides = (",".join(map(str, numbers)) for numbers in (self.shape, self.strides))
        return f"{self.offset}+[{shape}]:[{strides}]"


class LazyView(View):
    """A lazily evaluated view: `_resolve` turns it into a `View` at the first use."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        self._resolve()
        return getattr(self, name)

    def _derived(self) -> tuple[int, bool, tuple[int, int]]:
        self._resolve()
        return View._derived(self)

    def known(self) -> View:
        self._resolve()
        return self

    def __eq__(self, other: object) -> bool:
        self._resolve()
        return View.__eq__(self, other) is True

    def __hash__(self) -> int:
        self._resolve()
        return hash(self)

    def __repr__(self) -> str:
        self._resolve()
        return repr(self)

    def _resolve(self) -> None:
        raise NotImplementedError


class NumPyView(LazyView):
    """The view that a NumPy view of a C-contiguous array represents; `_facts` contains both arrays.

    Most views of small arrays are accessed through NumPy only, and never resolved.
    """

    __slots__ = ()

    def _resolve(self) -> None:
        with _lock:
            if type(self) is not NumPyView:
                return  # another thread has resolved it
            arrays: Any = self._facts
            array, base = arrays
            item = base.itemsize
            distance = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            self.offset, self.shape = distance // item if array.size else 0, array.shape
            self.strides = tuple([s // item for s in array.strides])
            if not array.size:
                self.strides = contiguous_strides(array.shape)
            self.writable = array.flags.writeable
            del self._facts
            self.__class__ = View  # type: ignore[assignment]


_lock = make_rlock()


IDENTITIES: dict[tuple[int, ...], View] = {}
"""Identity views by shape, for inlined lookups in hot paths (see `View.of_shape`)."""


@functools.lru_cache(maxsize=4096)
def _identity(shape: tuple[int, ...]) -> View:
    shape = tuple([n if isinstance(n, Moving) else operator.index(n) for n in shape])
    view = View(0, shape, contiguous_strides(shape))
    if len(IDENTITIES) < 4096:
        IDENTITIES[shape] = view
    return view


@functools.lru_cache(maxsize=8192)
def _composed(view: View, outer: View) -> View | None:
    """Implement `View.compose`, cached because fusion composes the same views repeatedly.

    Dimensions without elements are composed, too: a kernel that reduces one stores results along the others.
    """
    if view.size == 0:
        return View(view.offset, outer.shape, (0,) * len(outer.shape))
    inner = view.merged()
    dims = list(zip(inner.shape, contiguous_strides(inner.shape), inner.strides, strict=True))
    position, remainder = [], outer.offset
    for _extent, unit, _stride in dims:
        position.append(remainder // unit)
        remainder %= unit
    offset = inner.offset + sum(p * d[2] for p, d in zip(position, dims, strict=True))
    strides = []
    lowest, highest = list(position), list(position)
    for extent, stride in zip(outer.shape, outer.strides, strict=True):
        if extent <= 1 or stride == 0:
            strides.append(0)
            continue
        axis = next((a for a, d in enumerate(dims) if abs(stride) % d[1] == 0), None)
        if axis is None:
            return None
        steps = stride // dims[axis][1]
        distance = steps * (extent - 1)
        lowest[axis] += min(distance, 0)
        highest[axis] += max(distance, 0)
        strides.append(steps * dims[axis][2])
    if any(lo < 0 or hi >= d[0] for lo, hi, d in zip(lowest, highest, dims, strict=True)):
        return None if outer.size else View(view.offset, outer.shape, (0,) * len(strides))
    return View(offset, outer.shape, tuple(strides))


class UncountedView(LazyView):
    """The lazy identity view of an array of unknown extent; `_facts` is a function that returns its shape."""

    __slots__ = ()

    def _resolve(self) -> None:
        count: Any = self._facts
        shape = count()
        del self._facts
        self.offset, self.shape, self.strides, self.writable = 0, shape, contiguous_strides(shape), True
        self.__class__ = View  # type: ignore[assignment]
