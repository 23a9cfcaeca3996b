"""Functions that replay functions call (see `text`), and their results for calls that they cannot serve."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.engine.variable import mark_committed, wait_uncommitted
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import GONE, Attributes, fill, same_items, same_parts
from tracejit.frontend.recording.numpy_views import read_part
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View


class _Miss:
    """The type of `MISS`, which a replay function returns when the call is not of its signature."""

    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()


class _Piecewise:
    """The type of `PIECEWISE`, which a replay function returns when its signature is not replayable."""

    def __repr__(self) -> str:
        return "PIECEWISE"


PIECEWISE = _Piecewise()
CLOCK = itertools.count(1)
"""Numbers the uses of entries, to determine the least recently used one."""
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that a check may raise when a call is not of the signature."""


# -- storages ------------------------------------------------------------------------------------------------


def release(storage: Storage) -> None:
    """Flush the eager recording that has an operation on `storage`."""
    recording = storage.recording
    if recording is not None:
        recording.release(storage)


def adopt_type(storage: Storage, type: ArrayType) -> bool:
    """Set the type of `storage` to `type` if its block has the same size, dtype and device; return whether
    it has.

    Views are offsets and strides in elements of the block, so they do not depend on its shape.
    """
    present = storage.type
    if present.dtype != type.dtype or present.size != type.size or present.device != type.device:
        return False
    storage.type = type
    return True


def storages(kind: ArrayType, view: View, *arrays: Any) -> list[Storage]:
    """Return the storages of arrays. Raises TypeError unless each is an NDArray with this view of a block of
    type `kind`.
    """
    result = []
    for array in arrays:
        if type(array) is not NDArray:
            raise TypeError("not an array")
        storage = array._storage
        if storage.type is not kind and not adopt_type(storage, kind):
            raise TypeError("another type")
        if array._view is not view:
            if array._view != view:
                raise TypeError("another view")
            array._view = view
        result.append(storage)
    return result


def release_all(storages: Iterable[Storage]) -> None:
    """`release` each storage."""
    for storage in storages:
        if storage.recording is not None:
            release(storage)


def any_shared(storages: Iterable[Storage]) -> bool:
    """Whether Python can see the memory of any of the storages."""
    return any(storage.shared for storage in storages)


def addresses(storages: Iterable[Storage]) -> list[int]:
    """Return the addresses of storages."""
    return [storage.address for storage in storages]


def variables(storages: Iterable[Storage]) -> list[Any]:
    """Return the engine's variables of storages."""
    return [storage.variable for storage in storages]


def variable_addresses(storages: Iterable[Storage]) -> list[int]:
    """Return the addresses of the engine's variables of storages."""
    return [storage.variable.address for storage in storages]


def disjoint(*storages: Storage) -> bool:
    """Whether no two of the storages whose memory Python can see overlap."""
    ranges = sorted((s.address, s.address + s.type.nbytes) for s in storages if s.shared)
    return all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


def same_array(array: np.ndarray, copy: np.ndarray) -> bool:
    """Whether two NumPy arrays of one shape and dtype have the same bytes."""
    return array.tobytes() == copy.tobytes()


def has_values(values: Sequence[Any], known: Mapping[int, Any]) -> bool:
    """Whether storages and numbers have known values, by their positions."""
    for position, value in known.items():
        found = values[position]
        if found is not value and (type(found) is Storage or repr(found) != repr(value)):
            return False
    return True


# -- looks ---------------------------------------------------------------------------------------------------


class Memo(dict[Any, tuple[Any, ...]]):
    """Results of the segments of a call, by trace tree node, for the paths that are tried in turn.

    last:  the last node that the most recently tried path executed before an answer differed.
    drawn: the draws of segments from random streams: the stream, the first position, the number of positions,
           and the number of segments before.
    """

    __slots__ = ("drawn", "last")

    def __init__(self) -> None:
        self.last: Any = None
        self.drawn: list[tuple[Any, int, int, int]] = []

    def draw(self, stream: Any, count: int) -> int:
        """Advance a stream by `count` positions. Return the first of these."""
        start: int = stream.advance(count)
        self.drawn.append((stream, start, count, len(self)))
        return start

    def end_draw(self, stream: Any, start: int, end: int) -> None:
        """Return to a stream the positions from `end` on of the last draw from it, which began at `start`."""
        last = next(i for i in reversed(range(len(self.drawn))) if self.drawn[i][:2] == (stream, start))
        _, _, count, position = self.drawn[last]
        self.drawn[last] = stream, start, stream.keep_until(end, start, count), position

    def state_in(self, node: Any) -> Any:
        """Return the key of the state in which another path has left a loop; None if none has run it."""
        return self[node][0] if node in self else None

    def resume(self, node: Any) -> tuple[Any, ...]:
        """Return the values of the state in which another path has left a loop, which the present one
        continues. The results of segments after it are dropped.
        """
        position = list(self).index(node)
        values: tuple[Any, ...] = self[node][1]
        self._drop_from(position + 1)
        del self[node]  # so that draws belong to it again
        return values

    def drop(self, node: Any) -> None:
        """Drop the results of a loop that another path has run, and those of the segments after it."""
        self._drop_from(list(self).index(node))

    def keep(self, nodes: Iterable[Any]) -> None:
        """Drop the results and draws of segments outside the common prefix with the next path.

        nodes: the trace tree nodes of that path, in order.
        """
        pairs = zip(self, nodes, strict=False)
        self._drop_from(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)))

    def _drop_from(self, first: int) -> None:
        """Drop the results of segments from position `first` on, and return what they drew."""
        self.give_back(first)
        while len(self) > first:
            self.popitem()

    def give_back(self, first: int = 0) -> None:
        """Return the positions that segments drew, from segment `first` on, to their streams."""
        while self.drawn and self.drawn[-1][3] >= first:
            stream, start, count, _ = self.drawn.pop()
            stream.give_back(start, count)


@functools.cache
def element_of(dtype: np.dtype) -> Callable[[Storage], Any]:
    """Return a function that reads element 0 of a storage of this dtype, as a Python number."""
    kind = CTYPES.get(dtype.str[1:])
    if kind is None:
        return lambda storage: storage.memory().reshape(-1)[0].item()
    read = kind.from_address
    return lambda storage: read(storage.address).value


def numbers_of(dtypes: tuple[np.dtype, ...]) -> Callable[[Storage], tuple[Any, ...]]:
    """Return a function that reads Python numbers of these dtypes from a storage, eight bytes for each."""
    code = "=" + "".join({"b": "?7x", "i": "q", "u": "Q", "f": "d"}[dtype.kind] for dtype in dtypes)
    unpack, size, read = struct.Struct(code).unpack, 8 * len(dtypes), ctypes.string_at
    return lambda storage: unpack(read(storage.address, size))


CTYPES: dict[str, Any] = {
    "f4": ctypes.c_float, "f8": ctypes.c_double, "b1": ctypes.c_bool,
    "i1": ctypes.c_int8, "i2": ctypes.c_int16, "i4": ctypes.c_int32, "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u2": ctypes.c_uint16, "u4": ctypes.c_uint32, "u8": ctypes.c_uint64,
}  # fmt: skip
"""The ctypes types, by dtype, whose values are the Python numbers that NumPy's ``item()`` returns."""

HELPERS: dict[str, Any] = {
    "MISS": MISS, "MISFITS": MISFITS, "NDArray": NDArray, "Storage": Storage, "View": View,
    "ndarray": np.ndarray, "disjoint": disjoint,
    "release": release, "adopt_type": adopt_type, "storages": storages, "release_all": release_all,
    "any_shared": any_shared, "addresses": addresses, "variables": variables,
    "variable_addresses": variable_addresses,
    "wait": engine.wait, "wait_uncommitted": wait_uncommitted, "mark_committed": mark_committed,
    "np": np, "math": math, "nan": math.nan, "inf": math.inf, "GONE": GONE,
    "Attributes": Attributes,
    "has_values": has_values, "fill": fill, "same_items": same_items,
    "same_parts": same_parts, "same_array": same_array, "read_part": read_part,
    "from_numpy": NDArray.from_numpy,
}  # fmt: skip
"""The objects that replay functions refer to by name."""
