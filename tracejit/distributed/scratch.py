"""A cache of receive buffers.

Receiving a message into pages that the process has not touched before costs several times as much as into
mapped pages, so messages between ranks reuse the same buffers.

    buffer = scratch.acquire(slice)     # of the dtype and size of `slice`
    ...                                 # a message is received into it
    scratch.release(buffer)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

MAX_CACHED_BYTES = 64 << 20  # maximum bytes of free buffers


class Scratch:
    """Buffers whose sizes in bytes are powers of two."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = {}
        self._lent: dict[int, np.ndarray] = {}  # by address
        self._free_bytes = 0

    def acquire(self, like: np.ndarray) -> np.ndarray:
        """Return an uninitialised one-dimensional array of the size and dtype of `like`."""
        nbytes = 1 << max(6, (like.nbytes - 1).bit_length())
        free = self._free.get(nbytes)
        if free:
            buffer = free.pop()
            self._free_bytes -= nbytes
        else:
            buffer = np.empty(nbytes, np.uint8)
        self._lent[buffer.ctypes.data] = buffer
        return buffer[: like.nbytes].view(like.dtype)

    def release(self, *arrays: np.ndarray) -> None:
        """Release arrays that `acquire` returned and that are no longer read or written."""
        for array in arrays:
            buffer = self._lent.pop(array.ctypes.data)
            if self._free_bytes + buffer.nbytes <= MAX_CACHED_BYTES:
                self._free_bytes += buffer.nbytes
                self._free.setdefault(buffer.nbytes, []).append(buffer)

    @contextlib.contextmanager
    def joined(self, arrays: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the concatenation of one-dimensional arrays, and copy it back to the arrays at the end.

        After an error the arrays are unchanged, except that a single array is yielded itself.
        """
        if len(arrays) == 1:
            yield arrays[0]
            return
        flat = self.acquire(np.broadcast_to(arrays[0][:1], sum(array.size for array in arrays)))
        np.concatenate(arrays, out=flat)
        yield flat
        split_into(flat, arrays)
        self.release(flat)


def split_into(flat: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
    """Copy consecutive elements of a flat array to the given arrays."""
    start = 0
    for array in arrays:
        array[...] = flat[start : start + array.size]
        start += array.size
