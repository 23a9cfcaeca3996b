"""Memory: 64-byte aligned buffers in size classes, recycled when they are collected.

A buffer is memory and the variable that orders its use, in one object: every result of a launch needs both.
A user of a buffer refers to it; a launch in flight refers to all its buffers (`keep`), so memory is recycled
only after the last reader. Sizes are rounded up to four classes per power of two, so at most a
fifth is unused; above LARGE to 32, so at most a thirtieth.

    buffer = pool.allocate(1000)      # 1000 bytes at buffer.memory; wait(buffer)
    buffer = pool.shelf(1000).take()  # the same, for many buffers of one size

An arena, the internal memory of a launch, is borrowed. Programs that do not run at the same time share one,
as executors of different batch sizes do in MXNet; a program reuses its last one if it is idle.

A block is taken and returned like the words of a variable in `variable`, for the same reason: an interrupt
loses no memory, and is not lost itself.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tracejit.engine.available_processors import populate
from tracejit.engine.launches import reap
from tracejit.engine.native import LOCK
from tracejit.engine.variable import Variable, new_place
from tracejit.errors import AllocationError, ArgumentError
from tracejit.kernels.executor.layout import VARIABLE_FAILURE, VARIABLE_HEAD, VARIABLE_POISON

ALIGNMENT = 64
PAGES = 1 << 16  # bytes from which on the pages of a new block are mapped at once, if they are not huge
LARGE = 1 << 20  # bytes above which classes are finer
HUGE = 2 << 20  # bytes of a huge page
HUGE_BLOCK = 4 * HUGE  # bytes from which on blocks begin on a huge page
COLOURS, COLOUR = 8, 33 * 1024 + 64
"""Cache colouring: the number of offsets in a huge page at which such blocks begin, and their distance in
bytes. Arrays that a kernel reads together would otherwise compete for the same cache sets.
"""

CACHE_LIMIT = 1 << 30  # unused bytes above which a further request to the system returns them first

ROOMY = 4
"""The factor by which an arena may exceed the request: a program that needs all of it may come meanwhile, and
then needs another one as large.
"""

Block = list[Any]
"""The words of a variable, their address, the aligned address of the memory, the owner of the memory and the
variable, and the function that returns the block.
"""


@functools.lru_cache(maxsize=1024)
def size_class(nbytes: int) -> int:
    """The size of the blocks that serve requests of `nbytes`: a multiple of a part of a power of two.

    >>> [size_class(n) for n in (0, 64, 65, 1000, 1025, 5_000_000)]
    [64, 64, 128, 1024, 1280, 5111808]
    """
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - (3 if nbytes <= LARGE else 6)))
    return max(ALIGNMENT, nbytes + -nbytes % step)


class ExhaustedError(AllocationError):
    """The system has no memory for a block. A caller that knows its purpose raises an error that names it."""


class Statistics(NamedTuple):
    """in_use and cached: bytes; allocations: how often memory was taken from the system."""

    in_use: int
    cached: int
    allocations: int


class Buffer(Variable):
    """Uninitialised memory at the address `memory`, and its variable. Both are recycled when it is collected.

    Recycling is one atomic step: it may happen in any thread, at any time.
    """

    __slots__ = ("_owner", "memory")
    __init__ = object.__init__  # `Shelf.take` initialises
    name = None
    memory: int
    _owner: tuple[Any, list[Any]]  # the second is a place of `variable`


class Shelf:
    """The unused blocks of one size class."""

    __slots__ = ("_next", "_pool", "blocks", "size")

    def __init__(self, pool: Pool, size: int) -> None:
        self._pool, self.size = pool, size
        self.blocks: deque[Block] = deque()
        self._next: Iterator[Block] = iter(self.blocks.pop, None)

    def __iter__(self) -> Iterator[Block]:
        """Take one block after the other, and then raise `IndexError`."""
        return self._next

    def take(self) -> Buffer:
        """A buffer of this size."""
        buffer = Buffer()
        while True:
            try:
                for buffer._words, buffer.address, buffer.memory, buffer._owner, buffer.__del__ in self._next:
                    break
            except IndexError:
                self._pool.add(self)
                continue
            words = buffer._words
            if words[VARIABLE_HEAD >> 3] == 0:
                words[VARIABLE_POISON >> 3] = 0
                words[VARIABLE_FAILURE >> 3] = 0
                return buffer
            self._pool.add(self)
            block = [words, buffer.address, buffer.memory, buffer._owner, buffer.__del__]
            del buffer.__del__
            self.blocks.appendleft(block)  # still used by a launch that did not keep it


class Arena:
    """Memory at the address `memory` that one launch at a time borrows. Each arena has its own `number`."""

    __slots__ = ("_buffer", "memory", "nbytes", "number")

    def __init__(self, buffer: Buffer, nbytes: int) -> None:
        self._buffer, self.memory, self.nbytes = buffer, buffer.memory, nbytes
        self.number = next(_numbers)


_numbers = itertools.count(1)


class Pool:
    """Buffers by size class, and arenas. `idle`: the arenas that are not borrowed, by their numbers."""

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}
        self.idle: dict[int, Arena] = {}
        self._owned = 0
        self._allocations = 0

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes."""
        return self.shelf(nbytes).take()

    def shelf(self, nbytes: int) -> Shelf:
        """The shelf of buffers of at least `nbytes` bytes."""
        if nbytes < 0:
            raise ArgumentError(f"allocate: expected a size of at least 0 bytes, got {nbytes}")
        size = size_class(nbytes)
        shelf = self._shelves.get(size)
        return self._shelves.setdefault(size, Shelf(self, size)) if shelf is None else shelf

    def borrow(self, nbytes: int) -> Arena:
        """Borrow an arena of at least `nbytes` bytes, until it is put back into `idle`.

        A new one replaces idle ones that are too small: their programs can borrow it instead.
        """
        with LOCK:
            arena = self._fitting(nbytes)
            if arena is not None:
                return arena
            self._release_smaller(nbytes)
        return Arena(self.allocate(nbytes), size_class(nbytes))

    def _fitting(self, nbytes: int) -> Arena | None:
        """Take the smallest idle arena of at least `nbytes` bytes that is not much too large."""
        for arena in sorted(self.idle.values(), key=lambda arena: arena.nbytes):
            if nbytes <= arena.nbytes <= ROOMY * nbytes:
                mine = self.idle.pop(arena.number, None)
                if mine is not None:
                    return mine
        return None

    def _release_smaller(self, nbytes: int) -> None:
        """Release the idle arenas that an arena of `nbytes` bytes can replace."""
        for arena in list(self.idle.values()):
            if arena.nbytes < nbytes <= ROOMY * arena.nbytes:
                self.idle.pop(arena.number, None)

    def add(self, shelf: Shelf) -> None:
        """Put a new block on `shelf`."""
        reap()
        size = shelf.size
        with LOCK:
            if self._cached() > CACHE_LIMIT:
                self.trim()
            address, memory = self.place(size)
            place = new_place()
            block = [*place[:2], address, (memory, place)]
            block.append(partial(shelf.blocks.append, block))
            self._owned += size
            self._allocations += 1
            shelf.blocks.append(block)

    def place(self, size: int) -> tuple[int, Any]:
        """The address of new memory, and its owner."""
        boundary, offset = ALIGNMENT, 0
        if size >= HUGE_BLOCK:
            boundary, offset = HUGE, self._allocations % COLOURS * COLOUR
        memory = self._taken(size, boundary + offset)
        start = memory.ctypes.data
        address: int = start + -start % boundary + offset
        if PAGES <= size < HUGE_BLOCK:
            populate(address, size)
        return address, memory

    def _taken(self, size: int, margin: int) -> np.ndarray:
        """Memory from the system; where it has none, unused memory is returned to it first."""
        for attempt in range(2):
            try:
                return np.empty(size + margin, np.uint8)
            except (MemoryError, OverflowError, ValueError):  # NumPy's, by the size of the request
                if attempt == 0:
                    self.trim()
        raise ExhaustedError(f"there is no memory for {size} bytes")

    def _cached(self) -> int:
        blocks = sum(size * len(shelf.blocks) for size, shelf in list(self._shelves.items()))
        return blocks + sum(arena.nbytes for arena in list(self.idle.values()))

    def trim(self) -> int:
        """Return all unused memory to the system; returns its size in bytes."""
        freed = 0
        with LOCK:
            self.idle.clear()
            for size, shelf in list(self._shelves.items()):
                try:
                    for block in shelf:
                        self._owned -= size
                        freed += size
                        _memory, place = block[3]
                        block.clear()  # it refers to itself
                        place[-1]()
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

_pools: dict[int, Pool] = {0: pool}


def add_pool(device: int, made: Pool) -> None:
    """Let this be the pool of the device with this number."""
    _pools[device] = made


def pool_of(device: int) -> Pool:
    """The memory pool of the device with this number: that of a CPU device is made at its first use.

    >>> import tracejit as tj
    >>> tj.engine.pool_of(0) is tj.engine.pool
    True
    """
    return _pools.get(device) or _pools.setdefault(device, Pool())
