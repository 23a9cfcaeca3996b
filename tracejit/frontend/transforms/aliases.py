"""Memory that several arrays of a `vmap` call share, where one of them is written.

A loop over examples would see in one array what it has written in another. Examples that are computed at once
cannot, so this is refused, unless no element is shared:

    step(flat[:, :4], flat[:, 4:])          two mapped views of one storage, and no element in both
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import TrackedExtent
from tracejit.frontend.transforms.batch import Batch
from tracejit.ir.view import View

EFFORT: Any = 1 << 14  # the most candidates tried for a common element; beyond, views count as sharing one
SOMEWHERE = 1 << 40  # an address that nobody reads


class _Used:
    """An array that the function used: all examples of a mapped one, or what it reached otherwise."""

    def __init__(self, array: NDArray, mapped: bool, written: bool):
        self.array, self.mapped, self.written = array, mapped, written


def place_of(window: TrackedExtent) -> NDArray:
    """The elements of a window as an array."""
    return NDArray(window.storage, View.of_shape(window.input.type.shape).moved(window.lo))


def check(batch: Batch) -> None:
    """Raise ArgumentError if a mapped array shares elements with another one, and one of them is written."""
    changed = [target for target, _ in batch.written_examples()]
    used = [_Used(e.target, True, any(t is e.target for t in changed)) for e in batch.examples.values()]
    changed_windows = batch.written()
    for windows in batch.windows.values():
        used += [_Used(place_of(w), False, w in changed_windows) for w in windows]
    for one, other in itertools.combinations(used, 2):
        if (one.written or other.written) and (one.mapped or other.mapped) and _share(batch, one, other):
            shapes = f"{one.array.shape} and {other.array.shape}"
            raise locate(
                ArgumentError(
                    f"vmap: arrays of shapes {shapes} (examples first) share memory, and the function writes "
                    "to it; examples that run at once cannot see one another's writes. Pass a copy of one"
                ),
                user_location(),
            )


def _share(batch: Batch, one: _Used, other: _Used) -> bool:
    first, second = one.array, other.array
    if first._storage is not second._storage:
        return batch.root.share(first._storage, second._storage)
    return overlap(first._view, second._view)


def overlap(one: View, other: View) -> bool:
    """Whether two views of one storage have a common element.

    >>> overlap(View(0, (2, 2), (4, 1)), View(2, (2, 2), (4, 1)))
    False
    """
    try:
        return np.shares_memory(_bytes(one), _bytes(other), max_work=EFFORT)
    except np.exceptions.TooHardError:
        return True


class _Elements:
    """The places of elements, as if each were one byte."""

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
