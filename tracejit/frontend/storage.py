"""What an array owns: memory once it is computed, or a value in an open recording until then.

An `NDArray` is a `Storage` plus a view of it. All views of one array share one storage, and writing through
any of them rebinds what the storage holds; its address, once it has one, never changes.

States of a storage:
- *pending*:      no buffer yet; it holds the value `pending` of the recording `recording`, which created it.
- *materialised*: a buffer and an engine variable. `recording` is the eager recording that has touched it and
                  is not flushed yet (then its newest content may be a value there), or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import engine
from tracejit.ir.types import ArrayType

if TYPE_CHECKING:
    from tracejit.frontend.recording import Recording
    from tracejit.ir.graph import Value


class Storage:
    """The content that all views of one array share. `type` describes it as one C-contiguous block."""

    __slots__ = (
        "__weakref__",
        "address",
        "buffer",
        "made_at",
        "pending",
        "recording",
        "shared",
        "type",
        "variable",
    )

    def __init__(self, type: ArrayType, buffer: Any = None, variable: Any = None):
        self.type = type
        self.buffer = buffer
        self.address: int = buffer.address if buffer is not None else 0
        self.variable = variable
        self.recording: Recording | None = None
        self.pending: Value | None = None
        self.shared = False
        self.made_at: str | None = None

    def materialise(self) -> None:
        """Give a pending storage its memory and its engine variable."""
        self.buffer = engine.pool.allocate(self.type.nbytes)
        self.address = self.buffer.address
        self.variable = engine.Variable()
        self.pending = self.recording = None

    def memory(self) -> np.ndarray:
        """The memory as a writable NumPy array of the base shape. Callers have waited for the variable."""
        return memory_at(self.address, self.type, self)


class _Memory:
    """Exposes raw memory through the array interface and keeps its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype, owner: object):
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "version": 3,
        }


def memory_at(address: int, type: ArrayType, owner: object) -> np.ndarray:
    """A NumPy array on `type.nbytes` bytes at `address`; `owner` lives as long as it."""
    if type.size == 0:
        return np.empty(type.shape, type.dtype)
    return np.asarray(_Memory(address, type.shape, type.dtype, owner))
