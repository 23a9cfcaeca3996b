"""Memory for what arrives, kept for the next message.

A message into pages that the process has not touched yet costs several times one into known pages, so the
parts that ranks send each other go into the same memory again and again.

    part = scratch.take(slice)      # of its dtype and size
    ...                             # a message is received into it
    scratch.give(part)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

KEPT = 64 << 20  # bytes that are kept


class Scratch:
    """Buffers of powers of two bytes."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}
        self._lent: dict[int, np.ndarray] = {}  # by address
        self._kept = 0

    def take(self, like: np.ndarray) -> np.ndarray:
        """An array of one dimension, of the size and dtype of `like`; it holds anything."""
        nbytes = 1 << max(6, (like.nbytes - 1).bit_length())
        free = self._free.get(nbytes)
        if free:
            buffer = free.pop()
            self._kept -= nbytes
        else:
            buffer = np.empty(nbytes, np.uint8)
        self._lent[buffer.ctypes.data] = buffer
        return buffer[: like.nbytes].view(like.dtype)

    def give(self, *arrays: np.ndarray) -> None:
        """Give back arrays that `take` returned and that nobody reads or writes any more."""
        for array in arrays:
            buffer = self._lent.pop(array.ctypes.data)
            if self._kept + buffer.nbytes <= KEPT:
                self._kept += buffer.nbytes
                self._free.setdefault(buffer.nbytes, []).append(buffer)

    @contextlib.contextmanager
    def joined(self, arrays: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """The elements of arrays of one dimension behind one another. At the end the arrays hold what is
        there then; after an error they are as they were.
        """
        if len(arrays) == 1:
            yield arrays[0]
            return
        whole = self.take(np.broadcast_to(arrays[0][:1], sum(array.size for array in arrays)))
        np.concatenate(arrays, out=whole)
        yield whole
        take_apart(whole, arrays)
        self.give(whole)


def take_apart(whole: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
    """Copy the elements that lie behind one another to the arrays that they belong to."""
    start = 0
    for array in arrays:
        array[...] = whole[start : start + array.size]
        start += array.size
