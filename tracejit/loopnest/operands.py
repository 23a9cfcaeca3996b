"""The lowered values of serial kernels (see `serial`): scalars, arrays in memory, and short arrays."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.ir.graph import Value
from tracejit.ir.moving import Moving
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

MAX_SHORT = 16
"""The largest number of elements of an array for which a statement for each element is emitted."""

MOVES = "its offsets or extents change between the iterations of an enclosing loop"


class NotSerial(Exception):
    """A loop cannot be a serial kernel; the message says why."""


class InMemory(NamedTuple):
    """An array in memory: the elements that `view` selects, moved by the sum of `terms`, which are pairs of
    a scalar and its factor. Valid as long as the memory has this `version`.
    """

    memory: int
    version: int
    terms: tuple[tuple[int, int], ...]
    view: View


class ShortArray(NamedTuple):
    """An array of 2 to `MAX_SHORT` elements: their scalars, in C order."""

    elements: tuple[int, ...]


def selected_elements(x: InMemory, i: int, axis: int, shape: tuple[int, ...]) -> InMemory:
    """Return the elements at index `i` of an axis. `shape`: their shape, without that axis, or with extents
    of 1 instead.
    """
    view = x.view.select(axis, 0)
    for _ in range(len(shape) - len(view.shape)):
        view = view.expand(axis)
    return x._replace(terms=(*x.terms, (i, x.view.strides[axis])), view=view)


def of_elements(elements: tuple[int, ...]) -> int | ShortArray:
    """Return the lowered value with these elements."""
    return elements[0] if len(elements) == 1 else ShortArray(elements)


def check_short(size: int) -> None:
    """Raise if an array has more elements than a `ShortArray`."""
    if not 2 <= size <= MAX_SHORT:
        raise NotSerial(f"it computes {size} elements")


def positions_of(view: View) -> list[int]:
    """Return the positions of the elements of a view, in C order."""
    steps = [[i * stride for i in range(n)] for n, stride in zip(view.shape, view.strides, strict=True)]
    return [view.offset + sum(each) for each in itertools.product(*steps)]


def single_elements(x: InMemory, view: View) -> list[InMemory]:
    """Return the single elements of a view."""
    return [x._replace(view=View(position, (), ())) for position in positions_of(view)]


def is_register(type: ArrayType, operand: ArrayType, step: Any) -> bool:
    """Whether an input of a loop's body, if iterations write it, is a loop-carried scalar: it does not move,
    or cannot, because the operand has no other element.
    """
    return not type.on_host and type.size == 1 and (step == 0 or operand.size == 1)


def window_of(x: InMemory, iteration: int, start: Any, step: Any, shape: tuple[int, ...]) -> InMemory:
    """Return the window of an operand of a loop, in the shape of the body's input."""
    if not x.view.is_contiguous():
        raise NotSerial("a loop in it reads a view that is not contiguous")
    if Moving in (type(start), type(step)):
        raise NotSerial(MOVES)
    terms = ((iteration, step),) if step else ()
    return x._replace(view=View.of_shape(shape).moved(x.view.offset + start), terms=(*x.terms, *terms))


def check_same(choices: Sequence[tuple[InMemory, list[int]]], value: Value) -> None:
    """Raise unless all branches of a `case` return the same elements. `choices`: the elements that each
    branch returns, and the versions of all memories at its end.
    """
    first = choices[0][0]
    for elements, versions in choices:
        if elements._replace(version=0) != first._replace(version=0) or first.view.size != value.type.size:
            raise NotSerial("a branch chooses between two arrays")
        if versions[elements.memory] != elements.version:
            raise NotSerial("a branch overwrites elements that are read later")


@functools.cache
def _kind(dtype: np.dtype) -> str:
    if dtype.kind not in "biuf" or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise NotSerial(f"it computes {dtype}")
    return str(dtype)


def check_type(type: ArrayType) -> str:
    """Return the dtype of a type as text; raise if kernels do not support it."""
    if isinstance(type.size, Moving):
        raise NotSerial(MOVES)
    return _kind(type.dtype)
