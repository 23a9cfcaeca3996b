"""Selections by a mask in a traced call, ``x[mask]``, without their extent, which depends on values.

A `Selection` is all of `x`, and the mask. Most uses need no extent and see no difference:

    x[m].mean()                a reduction `where` the mask holds
    x[m] * 2 + y[m]            elementwise, for all elements: a selection of the same mask
    x[m] = f(x[m])             a select

What else is done with it (its shape, an index, a product, a mask that may be another one) counts what the
mask picks, by a look, and gathers: it is an array like any other from then on (`Selection.gather`).

What always holds:
- The elements that the mask does not pick are never seen. They are 1 where `x` enters, and where another
  array does while a gradient is taken: what is computed of them has no effect on results or gradients.
- A selection is what `x` and the mask were when it was made.
- Two masks are one if they were recorded as one value, or computed in the same way of the same values:
  ``x[x > 0] = x[x > 0] ** 2``.

>>> import tracejit as tj
>>> step = tj.jit(lambda x: x[x > 0].sum())
>>> step(tj.asarray([1.0, -5.0, 2.0])), step(tj.asarray([1.0, 5.0, 2.0])), step.cache_info().traces
(NDArray(3., dtype=float32), NDArray(8., dtype=float32), 1)
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ReplayError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import normalize_axes
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.views import expanded, sliced
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import lock, quiet, thread
from tracejit.frontend.recording.storage import Uncounted
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.view import UncountedView
from tracejit.ops import add, cumulative_sum, gather, iota, scatter_add, where
from tracejit.ops import sum as sum_op

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")
LOOK_BACK = 256
"""Among so many nodes, the last ones, it is seen how masks were computed."""


class Selection:
    """The elements of `content` where `mask` holds, in C order; `content` has the dimensions of the mask, and
    those of one element.

    inner: the number of dimensions of one element.
    """

    __slots__ = ("_shape", "_storage", "content", "dtype", "inner", "mask", "trace")

    def __init__(self, trace: Trace, content: Any, mask: Any) -> None:
        self.trace, self.content, self.mask = trace, content, mask
        self.dtype, self.inner = content.dtype, content.ndim - mask.ndim
        self._shape: tuple[int, ...] | None = None  # when it is counted

    def array(self) -> Any:
        """The array of this selection."""
        storage = Uncounted(self)
        self._storage = weakref.ref(storage)
        view: Any = UncountedView.__new__(UncountedView)
        view._facts = self.gather
        made = ArrayCore.new(storage, view)
        made._memory = self
        self.trace.masks.uncounted.append(self._storage)
        return made

    # -- what it is, as NumPy arrays say it ------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return self.inner + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.gather()

    @property
    def size(self) -> int:
        return math.prod(self.gather())

    def wide(self) -> Any:
        """The mask with dimensions of extent 1 for those of one element."""
        return with_dimensions(self.mask, self.inner)

    # -- uses without an extent ------------------------------------------------------------------------------

    def has_mask(self, mask: Any) -> bool:
        """Whether `mask` picks the same elements."""
        if mask.shape != self.mask.shape or thread.trace is not self.trace:
            return False
        return _are_same(self.trace, value_of(self.trace, mask), value_of(self.trace, self.mask))

    def parts(self, operands: Sequence[Any]) -> list[Any] | None:
        """Operands with all elements of selections; None if they need not fit element by element."""
        found: list[Any] = []
        for x in operands:
            other = selection_of(x)
            if other is not None:
                is_same = other is self or (other.inner == self.inner and self.has_mask(other.mask))
                found.append(other.content if is_same else None)
            elif isinstance(x, ArrayCore):
                found.append(self._entered(x) if self._is_spread(x) else None)
            else:
                found.append(None if isinstance(x, Value) else x)
        return None if any(x is None for x in found) else found

    def _is_spread(self, x: Any) -> bool:
        """Whether an array broadcasts along the elements picked, whatever their number."""
        return x.ndim <= self.inner or (x.ndim == self.inner + 1 and x.shape[0] == 1)

    def _entered(self, x: Any) -> Any:
        return filled(self.wide(), x) if thread.tapes else x

    def applied(self, call: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """``call(*operands)``, elementwise, as a selection; None if it needs an extent, known then."""
        found = self.parts(operands)
        if found is None:
            gather_all(operands)
            return None
        made = call(*found)
        if isinstance(made, tuple):
            return tuple(Selection(self.trace, each, self.mask).array() for each in made)
        return Selection(self.trace, made, self.mask).array()

    def reduced(self, name: str, axis: Any, keepdims: bool) -> tuple[Any, tuple[int, ...], Any] | None:
        """A reduction as one of all elements: these, its axes, and where they count; None if the elements
        picked are an axis of the result.
        """
        axes = normalize_axes(name, axis, self.ndim)
        covered = self.mask.ndim
        if 0 not in axes or (keepdims and covered != 1):
            return None
        return self.content, (*range(covered), *(a - 1 + covered for a in axes if a)), self.wide()

    def picks(self, what: str) -> bool:
        """Whether the mask picks anything: this looks."""
        counted = dispatch.emit(sum_op, dispatch.cast(self.mask, INT64), axes=axes_of(self.mask), pieces=0)
        return bool(self.trace.element(counted, what) > 0)

    # -- counting --------------------------------------------------------------------------------------------

    def gather(self) -> tuple[int, ...]:
        """Count the selected elements, and gather them; the shape."""
        if self._shape is None:
            if self.trace.numbers.closed:
                text = "an array that a mask picked in a traced function is used outside of it; return it"
                raise locate(ReplayError(text), user_location())
            if thread.trace is not self.trace:
                what = "what a mask picks is used where its extent cannot be counted"
                self.trace.give_up(what, "count it before: look at its shape")
            content = self.content
            line = content.reshape((self.mask.size, *content.shape[self.mask.ndim :]))
            picked = dispatch.emit(gather, line, picked_places(self.mask), axis=0)
            self._shape = picked.shape
            storage = self._storage()
            if storage is not None:
                storage.become(picked._storage.pending, self.trace)
                self.trace.created.append(self._storage)
            self.content = self.mask = None
        return self._shape


def select(x: Any, mask: Any) -> Any:
    """``x[mask]`` as a selection; None if nothing is traced that could count it later."""
    trace = thread.trace
    if type(trace) is not Trace:
        return None
    mask = mask if mask.device is x.device else mask.to(x.device)
    with lock, quiet:
        held = ArrayCore.new(trace.new(value_of(trace, mask)))
    wide = with_dimensions(held, x.ndim - held.ndim)
    return Selection(trace, filled(wide, x), held).array()


def filled(mask: Any, x: Any) -> Any:
    """`x` with 1 where the mask does not hold."""
    return dispatch.cast(dispatch.apply(where, mask, x, x.dtype.kind == "b" or 1), x.dtype)


def selection_of(x: Any) -> Selection | None:
    """The selection of an array; None if it has an extent."""
    if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
        return x._storage.buffer
    return None


def gather_all(operands: Sequence[Any]) -> None:
    """Count all selections among operands."""
    for x in operands:
        found = selection_of(x)
        if found is not None:
            found.gather()


def with_dimensions(x: Any, count: int) -> Any:
    """`x` with `count` more dimensions of extent 1 at the end."""
    return expanded(x, *range(x.ndim, x.ndim + count))


def axes_of(x: Any) -> tuple[int, ...]:
    """All axes of an array."""
    return tuple(range(x.ndim))


# -- places --------------------------------------------------------------------------------------------------


def picked_places(mask: Any) -> Any:
    """Places (int64), in C order, of what a mask picks in a traced call: their number is looked at.

    The place of each is summed where its number among those picked says; all others go behind the last.
    """
    trace = thread.trace
    with lock, quiet:
        value = value_of(trace, mask)
    known = trace.masks.places.get(mask._storage)
    if known is not None and known[0] is value:
        return known[1]
    line = dispatch.cast(mask.reshape((mask.size,)), INT64)
    found = trace.element(
        dispatch.emit(sum_op, line, axes=(0,), pieces=0), "the number of elements that a mask picks"
    )
    count = operator.index(found)
    if not count:
        places = dispatch.full(0, (0,), INT64, mask.device)
    else:
        number = dispatch.apply(add, dispatch.emit(cumulative_sum, line, axis=0), -1)
        to = dispatch.apply(where, mask.reshape((mask.size,)), number, mask.size)
        here = dispatch.emit(iota, size=mask.size, device=mask.device)
        sums = dispatch.emit(scatter_add, here, to, axis=0, extent=mask.size + 1)
        places = sliced(sums, 0, 0, count).copy()
    with lock, quiet:
        trace.masks.places[mask._storage] = value_of(trace, mask), places
    return places


def positions(mask: Any) -> tuple[Any, ...]:
    """The positions of a mask, as by NumPy's `nonzero`: one array for each dimension."""
    if not isinstance(mask, ArrayCore):
        return np.nonzero(mask)
    if type(thread.trace) is not Trace:
        return np.nonzero(mask.numpy())
    places, parts = picked_places(dispatch.cast(mask, BOOL)), []
    for extent in reversed(mask.shape):
        parts.append(places % extent if extent else places)
        places = places // extent if extent else places
    return tuple(reversed(parts))


# -- masks that are one --------------------------------------------------------------------------------------


def value_of(trace: Any, x: Any) -> Value:
    """The value of an array in a trace."""
    return trace.read(x._storage, x._view)


def _are_same(trace: Trace, one: Value, other: Value) -> bool:
    """Whether two values were computed in the same way."""
    if one is other:
        return True
    if one.type != other.type:
        return False
    first, second = _producer(trace, one), _producer(trace, other)
    if first is None or second is None or first.op is not second.op or Trait.ORDERED in first.op.traits:
        return False
    if len(first.outputs) > 1 or first.attrs != second.attrs or len(first.inputs) != len(second.inputs):
        return False
    return all(_are_same(trace, *pair) for pair in zip(first.inputs, second.inputs, strict=True))


def _producer(trace: Trace, value: Value) -> Node | None:
    return next((node for node in reversed(trace.nodes[-LOOK_BACK:]) if value in node.outputs), None)
