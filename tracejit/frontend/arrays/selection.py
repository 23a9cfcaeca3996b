"""Selections by a mask in a traced call, ``x[mask]``, whose extent depends on values and is deferred.

A `Selection` consists of all elements of `x` and the mask. Most operations do not need its extent:

    x[m].mean()                a reduction of the elements `where` the mask is true
    x[m] * 2 + y[m]            elementwise on all elements: a selection by the same mask
    x[m] = f(x[m])             a select

Any other operation (its shape, an index, a product, a mask that may be different) counts the selected
elements, which is a look, and gathers them. From then on the selection is an ordinary array
(`Selection.gather`).

Invariants:
- Elements that the mask does not select have no effect. They are replaced by 1 in `x`, and during the
  computation of a gradient also in other arrays, so that results computed from them affect neither results
  nor gradients.
- A selection is a snapshot of `x` and the mask at its creation.
- Two masks are equal if they were recorded as one value, or computed by equal operators from equal values:
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
from tracejit.ops import add, check_index, cumulative_sum, gather, iota, scatter_add, where
from tracejit.ops import sum as sum_op

BOOL, INT64 = np.dtype("bool"), np.dtype("int64")
LOOK_BACK = 256
"""Number of the last nodes of a trace that are searched for the producers of masks."""


class Selection:
    """The elements of `content` where `mask` is true, in C order.

    `content` has the dimensions of the mask, followed by those of one element.

    inner: the number of dimensions of one element.
    """

    __slots__ = ("_shape", "_storage", "content", "dtype", "inner", "mask", "trace")

    def __init__(self, trace: Trace, content: Any, mask: Any) -> None:
        self.trace, self.content, self.mask = trace, content, mask
        self.dtype, self.inner = content.dtype, content.ndim - mask.ndim
        self._shape: tuple[int, ...] | None = None  # known after `gather`

    def array(self) -> Any:
        """Return the array of this selection."""
        storage = Uncounted(self)
        self._storage = weakref.ref(storage)
        view: Any = UncountedView.__new__(UncountedView)
        view._facts = self.gather
        array = ArrayCore.new(storage, view)
        array._memory = self
        self.trace.masks.uncounted.append(self._storage)
        return array

    def with_content(self, content: Any) -> Selection:
        """Return other elements at the same places."""
        return Selection(self.trace, content, self.mask)

    def key_parts(self) -> tuple[Any, ...]:
        """The arrays and numbers that the selection consists of."""
        return self.content, self.mask

    @property
    def adds_in_order(self) -> bool:
        """Whether sums add floats in the order of the elements: they do not depend on other operations of a
        kernel then, or on elements that are not selected.
        """
        return False

    # -- attributes, named as those of NumPy arrays ----------------------------------------------------------

    @property
    def ndim(self) -> int:
        return self.inner + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.gather()

    @property
    def size(self) -> int:
        return math.prod(self.gather())

    def expanded_mask(self) -> Any:
        """Return the mask, expanded by dimensions of extent 1 for those of one element."""
        return with_dimensions(self.mask, self.inner)

    # -- operations that do not need the extent --------------------------------------------------------------

    def has_mask(self, mask: Any) -> bool:
        """Whether `mask` is known to select the same elements."""
        if mask.shape != self.mask.shape or thread.trace is not self.trace:
            return False
        return _are_same(self.trace, value_of(self.trace, mask), value_of(self.trace, self.mask))

    def selects_as(self, other: Selection) -> bool:
        """Whether `other` is known to select the same elements of its content."""
        return self.has_mask(other.mask)

    def contents(self, operands: Sequence[Any]) -> list[Any] | None:
        """Replace selections by their full content; None if elements of operands may not correspond."""
        contents: list[Any] = []
        for x in operands:
            other = selection_of(x)
            if other is not None:
                is_same = other is self or (other.inner == self.inner and self.selects_as(other))
                contents.append(other.content if is_same else None)
            elif isinstance(x, ArrayCore):
                contents.append(self._masked_operand(x) if self._broadcasts(x) else None)
            else:
                contents.append(None if isinstance(x, Value) else x)
        return None if any(x is None for x in contents) else contents

    def _broadcasts(self, x: Any) -> bool:
        """Whether an array broadcasts along the selected elements for any number of them."""
        return x.ndim <= self.inner or (x.ndim == self.inner + 1 and x.shape[0] == 1)

    def _masked_operand(self, x: Any) -> Any:
        return filled(self.expanded_mask(), x) if thread.tapes else x

    def applied(self, call: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """Return ``call(*operands)``, which is elementwise, as a selection.

        If that needs the extent, count the selected elements and return None.
        """
        contents = self.contents(operands)
        if contents is None:
            gather_all(operands)
            return None
        result = call(*contents)
        if isinstance(result, tuple):
            return tuple(self.with_content(each).array() for each in result)
        return self.with_content(result).array()

    def taken_from(self, x: Any) -> Any:
        """Return ``x[self]`` for integers, which are indices of the first dimension of `x`, as a selection.
        Return None if that needs the extent.
        """
        if self.inner or self.dtype.kind not in "iu" or not x.ndim or not x.shape[0] or selection_of(x):
            return None
        if thread.trace is not self.trace or x.device is not self.content.device:
            return None
        index = dispatch.cast(dispatch.apply(where, self.mask, self.content, 0), INT64)
        checked = dispatch.emit(check_index, index, extent=x.shape[0], axis=0)
        mask = with_dimensions(self.mask, x.ndim - 1)
        return self.with_content(filled(mask, dispatch.emit(gather, x, checked, axis=0))).array()

    def reduced(self, name: str, axis: Any, keepdims: bool) -> tuple[Any, tuple[int, ...], Any] | None:
        """Express a reduction as one of all elements: return the content, the axes, and the condition.

        Return None if the selected elements are an axis of the result.
        """
        axes = normalize_axes(name, axis, self.ndim)
        covered = self.mask.ndim
        if 0 not in axes or (keepdims and covered != 1):
            return None
        return self.content, (*range(covered), *(a - 1 + covered for a in axes if a)), self.expanded_mask()

    def picks(self, what: str) -> bool:
        """Whether the mask selects any element, which is a look; `what` names the look in errors."""
        counted = dispatch.emit(sum_op, dispatch.cast(self.mask, INT64), axes=axes_of(self.mask), pieces=0)
        return bool(self.trace.element(counted, what) > 0)

    # -- counting --------------------------------------------------------------------------------------------

    def gather(self) -> tuple[int, ...]:
        """Count the selected elements, which is a look, gather them, and return the shape."""
        if self._shape is None:
            if self.trace.numbers.closed:
                text = "an array that a mask picked in a traced function is used outside of it; return it"
                raise locate(ReplayError(text), user_location())
            if thread.trace is not self.trace:
                what = "what a mask picks is used where its extent cannot be counted"
                self.trace.give_up(what, "count it before: look at its shape")
            picked = self.gathered()
            self._shape = picked.shape
            storage = self._storage()
            if storage is not None:
                storage.become(picked._storage.pending, self.trace)
                self.trace.created.append(self._storage)
            self.content = self.mask = None
        return self._shape

    def gathered(self) -> Any:
        """Return a new array of the selected elements, whose number is a look."""
        content = self.content
        flattened = content.reshape((self.mask.size, *content.shape[self.mask.ndim :]))
        return dispatch.emit(gather, flattened, selected_positions(self.mask), axis=0)


def select(x: Any, mask: Any) -> Any:
    """Return ``x[mask]`` as a selection; None if no trace is recorded that can count it later."""
    trace = thread.trace
    if type(trace) is not Trace:
        return None
    mask = mask if mask.device is x.device else mask.to(x.device)
    with quiet, lock:
        mask_copy = ArrayCore.new(trace.new(value_of(trace, mask)))
    expanded_mask = with_dimensions(mask_copy, x.ndim - mask_copy.ndim)
    return Selection(trace, filled(expanded_mask, x), mask_copy).array()


def filled(mask: Any, x: Any) -> Any:
    """Replace the elements of `x` by 1 where the mask is false."""
    return dispatch.cast(dispatch.apply(where, mask, x, x.dtype.kind == "b" or 1), x.dtype)


def selection_of(x: Any) -> Selection | None:
    """Return the selection behind an array; None if the extent of the array is known."""
    if isinstance(x, ArrayCore) and type(x._storage) is Uncounted:
        return x._storage.buffer
    return None


def gather_all(operands: Sequence[Any]) -> None:
    """Count and gather all selections among operands."""
    for x in operands:
        selection = selection_of(x)
        if selection is not None:
            selection.gather()


def with_dimensions(x: Any, count: int) -> Any:
    """Append `count` dimensions of extent 1 to `x`."""
    return expanded(x, *range(x.ndim, x.ndim + count))


def axes_of(x: Any) -> tuple[int, ...]:
    """Return all axes of an array."""
    return tuple(range(x.ndim))


# -- positions -----------------------------------------------------------------------------------------------


def selected_positions(mask: Any) -> Any:
    """Return the positions (int64, in C order) that a mask selects in a traced call. Their number is a look.

    A scatter-add stores each position at its rank among the selected ones; all other positions are added to
    one extra element at the end, which is dropped.
    """
    trace = thread.trace
    with quiet, lock:
        value = value_of(trace, mask)
    known = trace.masks.places.get(mask._storage)
    if known is not None and known[0] is value:
        return known[1]
    line = dispatch.cast(mask.reshape((mask.size,)), INT64)
    total = trace.element(
        dispatch.emit(sum_op, line, axes=(0,), pieces=0), "the number of elements that a mask picks"
    )
    count = operator.index(total)
    if not count:
        selected = dispatch.full(0, (0,), INT64, mask.device)
    else:
        rank = dispatch.apply(add, dispatch.emit(cumulative_sum, line, axis=0), -1)
        target = dispatch.apply(where, mask.reshape((mask.size,)), rank, mask.size)
        position = dispatch.emit(iota, size=mask.size, device=mask.device)
        sums = dispatch.emit(scatter_add, position, target, axis=0, extent=mask.size + 1)
        selected = sliced(sums, 0, 0, count).copy()
    with quiet, lock:
        trace.masks.places[mask._storage] = value_of(trace, mask), selected
    return selected


def positions(mask: Any) -> tuple[Any, ...]:
    """Return the positions of a mask as NumPy's `nonzero` does: one array per dimension."""
    if not isinstance(mask, ArrayCore):
        return np.nonzero(mask)
    if type(thread.trace) is not Trace:
        return np.nonzero(mask.numpy())
    flat, coordinates = selected_positions(dispatch.cast(mask, BOOL)), []
    for extent in reversed(mask.shape):
        coordinates.append(flat % extent if extent else flat)
        flat = flat // extent if extent else flat
    return tuple(reversed(coordinates))


# -- equality of masks ---------------------------------------------------------------------------------------


def value_of(trace: Any, x: Any) -> Value:
    """Return the value of an array in a trace."""
    return trace.read(x._storage, x._view)


def _are_same(trace: Trace, one: Value, other: Value) -> bool:
    """Whether two values are known to be equal: computed by equal operators from equal values."""
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
    """Return the node that computes `value`, if it is among the last ones."""
    return next((node for node in reversed(trace.nodes[-LOOK_BACK:]) if value in node.outputs), None)
