"""Memory: 64-byte aligned buffers in size classes, recycled when they are collected.

Whoever still needs a buffer refers to it; a launch in flight refers to all its buffers (`keep`), so memory
goes back only after the last reader. Sizes are rounded up to four classes per power of two, so at most a
fifth is unused; above LARGE to 32, so at most a thirtieth.

    buffer = pool.allocate(1000)      # buffer.address, buffer.nbytes == 1000

A block is taken and given back as `variable` does it with the words of a variable, and for the same reason:
an interrupt loses no memory, nor does it get lost itself.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tracejit.engine.launches import reap
from tracejit.engine.machine import populate
from tracejit.engine.native import LOCK
from tracejit.errors import ArgumentError

ALIGNMENT = 64
PAGES = 1 << 16  # bytes from which on the pages of a new block are provided at once, if they are not huge
LARGE = 1 << 20  # bytes above which few arrays have sizes that differ a little
HUGE = 2 << 20  # bytes of a huge page
FAR = 4 * HUGE  # bytes from which on blocks begin with one
COLOURS, COLOUR = 8, 33 * 1024 + 64
"""Those blocks begin at this many different places of a huge page, so many bytes apart: arrays that a kernel
walks together would otherwise compete for the same few lines of the caches.
"""

CACHE_LIMIT = (
    1 << 30
)  # bytes that may lie unused before a further request to the system gives them back first

Block = list[Any]
"""An aligned address, the array that owns the memory, and what gives the block back."""


@functools.lru_cache(maxsize=1024)
def size_class(nbytes: int) -> int:
    """The size of the blocks that serve requests of `nbytes`: a multiple of a part of a power of two.

    >>> [size_class(n) for n in (0, 64, 65, 1000, 1025, 5_000_000)]
    [64, 64, 128, 1024, 1280, 5111808]
    """
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - (3 if nbytes <= LARGE else 6)))
    return max(ALIGNMENT, nbytes + -nbytes % step)


@dataclass(frozen=True)
class Statistics:
    """in_use and cached: bytes; allocations: how often memory was taken from the system."""

    in_use: int
    cached: int
    allocations: int


class Buffer:
    """Uninitialised memory at `address`; returns to its pool when it is collected.

    That is one atomic step: it may happen in any thread, in the middle of anything.
    """

    __slots__ = ("__del__", "__weakref__", "_memory", "address", "nbytes")
    __del__: Callable[[], None]
    _memory: np.ndarray
    address: int

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Shelf:
    """The unused blocks of one size class; `take` gives one after the other, or raises `IndexError`."""

    __slots__ = ("blocks", "take")

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.take: Iterator[Block] = iter(self.blocks.pop, None)


class Pool:
    """Buffers by size class."""

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}
        self._owned = 0
        self._allocations = 0

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes."""
        if nbytes < 0:
            raise ArgumentError(f"allocate: expected a size of at least 0 bytes, got {nbytes}")
        size = size_class(nbytes)
        shelf = self._shelves.get(size)
        if shelf is None:
            shelf = self._shelves.setdefault(size, Shelf())
        buffer = Buffer(nbytes)
        while True:
            try:
                for buffer.address, buffer._memory, buffer.__del__ in shelf.take:
                    break
                return buffer
            except IndexError:
                self._add(size, shelf)

    def _add(self, size: int, shelf: Shelf) -> None:
        reap()
        with LOCK:
            if self._cached() > CACHE_LIMIT:
                self.trim()
            boundary, offset = ALIGNMENT, 0
            if size >= FAR:
                boundary, offset = HUGE, self._allocations % COLOURS * COLOUR
            try:
                memory = np.empty(size + boundary + offset, np.uint8)
            except MemoryError:
                self.trim()
                memory = np.empty(size + boundary + offset, np.uint8)
            start = memory.ctypes.data
            address: int = start + -start % boundary + offset
            if PAGES <= size < FAR:
                populate(address, size)
            block = [address, memory]
            block.append(partial(shelf.blocks.append, block))
            self._owned += size
            self._allocations += 1
            shelf.blocks.append(block)

    def _cached(self) -> int:
        return sum(size * len(shelf.blocks) for size, shelf in list(self._shelves.items()))

    def trim(self) -> int:
        """Give all unused memory back to the system; how many bytes that were."""
        freed = 0
        with LOCK:
            for size, shelf in list(self._shelves.items()):
                try:
                    for block in shelf.take:
                        self._owned -= size
                        freed += size
                        block.clear()  # it refers to itself
                except IndexError:
                    continue  # nothing is left on this shelf
        return freed

    def statistics(self) -> Statistics:
        """Bytes in use, bytes cached, and how often memory was taken from the system."""
        reap()
        with LOCK:
            cached = self._cached()
            return Statistics(self._owned - cached, cached, self._allocations)


pool = Pool()
"""The pool of ``cpu:0``."""
