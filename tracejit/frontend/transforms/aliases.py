"""Detection of memory that several arrays of a `vmap` call share while one of them is written.

In a loop over the examples, a write to one array would be visible in the other. Examples that are computed
simultaneously cannot see each other's writes, so such a call is an error, unless no element is shared:

    step(flat[:, :4], flat[:, 4:])          two mapped views of one storage, and no element in both
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import Window
from tracejit.frontend.transforms.batch import Batch
from tracejit.ir.view import View

EFFORT: Any = 1 << 14  # number of candidates tried for a common element, after which sharing is assumed
SOMEWHERE = 1 << 40  # a fictitious address, which is never read


class _Used:
    """An array used by the function: all examples of a mapped array, or an array that is not mapped."""

    def __init__(self, array: NDArray, mapped: bool, written: bool):
        self.array, self.mapped, self.written = array, mapped, written


def window_array(window: Window) -> NDArray:
    """Return the elements of a window as an array."""
    return NDArray(window.storage, View.of_shape(window.input.type.shape).moved(window.lo))


def check(batch: Batch) -> None:
    """Raise ArgumentError if a mapped array shares elements with another array and one of them is written."""
    changed = [target for target, _ in batch.written_examples()]
    used = [_Used(e.target, True, any(t is e.target for t in changed)) for e in batch.examples.values()]
    changed_windows = batch.written()
    for windows in batch.windows.values():
        used += [_Used(window_array(w), False, w in changed_windows) for w in windows]
    for one, other in itertools.combinations(used, 2):
        if (one.written or other.written) and (one.mapped or other.mapped) and _share(batch, one, other):
            shapes = f"{one.array.shape} and {other.array.shape}"
            raise locate(
                ArgumentError(
                    f"vmap: arrays of shapes {shapes} (examples first) share memory, and the function writes "
                    "to it; examples that run simultaneously cannot see each other's writes. Pass a copy"
                ),
                user_location(),
            )


def _share(batch: Batch, one: _Used, other: _Used) -> bool:
    first, second = one.array, other.array
    if first._storage is not second._storage:
        return batch.root.share(first._storage, second._storage)
    return overlap(first._view, second._view)


def overlap(one: View, other: View) -> bool:
    """Return whether two views of one storage have a common element.

    >>> overlap(View(0, (2, 2), (4, 1)), View(2, (2, 2), (4, 1)))
    False
    """
    try:
        return np.shares_memory(_bytes(one), _bytes(other), max_work=EFFORT)
    except np.exceptions.TooHardError:
        return True


class _Elements:
    """An array interface for the offsets of a view's elements, each treated as one byte."""

    def __init__(self, view: View):
        self.__array_interface__ = {
            "data": (SOMEWHERE + view.offset, True),
            "shape": view.shape,
            "strides": view.strides,
            "typestr": "|u1",
            "version": 3,
        }


def _bytes(view: View) -> np.ndarray:
    return np.asarray(_Elements(view))
