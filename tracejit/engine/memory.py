"""Memory: 64-byte aligned buffers in size classes, which are recycled when they are garbage-collected.

A buffer combines memory with the variable that orders its use, because every result of a launch needs both.
Users of a buffer refer to it, and a launch in flight refers to all its buffers (`keep`), so memory is
recycled only after the last reader. Sizes are rounded up to four classes per power of two, so at most a fifth
is unused; above `FINE_CLASSES` bytes to 32 classes, so at most a thirtieth.

    buffer = pool.allocate(1000)      # 1000 bytes at buffer.memory; wait(buffer)
    buffer = pool.shelf(1000).take()  # the same, for many buffers of one size

An arena, the temporary memory of a launch, is borrowed. Programs that do not run concurrently share one, as
executors of different batch sizes do in MXNet; a program prefers its previous arena if that is idle.

A block is taken and returned like the slot of a variable (see `variable`), for the same reason: an interrupt
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
from tracejit.engine.variable import Variable, new_slot
from tracejit.errors import AllocationError, ArgumentError
from tracejit.kernels.executor.layout import VARIABLE_FAILURE, VARIABLE_HEAD, VARIABLE_POISON

ALIGNMENT = 64
POPULATE_BYTES = 1 << 16  # minimum size of a block whose pages are mapped in a single call, if not huge
FINE_CLASSES = 1 << 20  # bytes above which size classes are finer
HUGE = 2 << 20  # bytes of a huge page
HUGE_BLOCK = 4 * HUGE  # minimum size of blocks that are aligned to huge pages
COLOURS, COLOUR = 8, 33 * 1024 + 64
"""Cache colouring: the number of different offsets of such blocks in a huge page, and their distance in
bytes. Otherwise arrays that a kernel reads together would compete for the same cache sets.
"""

MAX_CACHED_BYTES = 1 << 30  # unused bytes above which they are freed before more memory is requested

MAX_ARENA_RATIO = 4
"""The maximum ratio of an arena's size to the request. If a small launch occupied a large arena, a concurrent
program that needs all of it would have to allocate another one of that size.
"""

Block = list[Any]
"""The words of a variable, their address, the aligned address of the memory, the owners of the memory and of
the variable's slot, and the function that returns the block to its shelf.
"""


@functools.lru_cache(maxsize=1024)
def size_class(nbytes: int) -> int:
    """The size of the blocks that serve requests of `nbytes`: a multiple of a fraction of a power of two.

    >>> [size_class(n) for n in (0, 64, 65, 1000, 1025, 5_000_000)]
    [64, 64, 128, 1024, 1280, 5111808]
    """
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - (3 if nbytes <= FINE_CLASSES else 6)))
    return max(ALIGNMENT, nbytes + -nbytes % step)


class ExhaustedError(AllocationError):
    """The system has no memory for a block. Callers that know its purpose raise an error that names it."""


class Statistics(NamedTuple):
    """Memory statistics: bytes in use, bytes cached, and the number of allocations from the system."""

    in_use: int
    cached: int
    allocations: int


class Buffer(Variable):
    """Uninitialised memory at the address `memory`, and its variable; recycled when the buffer is collected.

    Recycling is a single atomic step, which may occur in any thread at any time.
    """

    __slots__ = ("_owner", "memory")
    __init__ = object.__init__  # `Shelf.take` initialises
    name = None
    memory: int
    _owner: tuple[Any, list[Any]]  # the owner of the memory, and the slot of the variable


class Shelf:
    """The unused blocks of one size class."""

    __slots__ = ("_next", "_pool", "blocks", "size")

    def __init__(self, pool: Pool, size: int) -> None:
        self._pool, self.size = pool, size
        self.blocks: deque[Block] = deque()
        self._next: Iterator[Block] = iter(self.blocks.pop, None)

    def __iter__(self) -> Iterator[Block]:
        """Iterate over the blocks, removing them; raises `IndexError` when the shelf is empty."""
        return self._next

    def take(self) -> Buffer:
        """Return a buffer of this size, from the shelf or newly allocated."""
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
            self.blocks.appendleft(block)  # a launch that did not keep it alive still uses it


class Arena:
    """Memory at the address `memory` that one launch at a time borrows. Arenas have unique numbers."""

    __slots__ = ("_buffer", "memory", "nbytes", "number")

    def __init__(self, buffer: Buffer, nbytes: int) -> None:
        self._buffer, self.memory, self.nbytes = buffer, buffer.memory, nbytes
        self.number = next(_numbers)


_numbers = itertools.count(1)


class Pool:
    """The buffers of a device by size class, and its arenas.

    idle: the arenas that are not borrowed, by number.
    """

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}
        self.idle: dict[int, Arena] = {}
        self._owned = 0
        self._allocations = 0

    def allocate(self, nbytes: int) -> Buffer:
        """Return a buffer of at least `nbytes` bytes."""
        return self.shelf(nbytes).take()

    def shelf(self, nbytes: int) -> Shelf:
        """Return the shelf of buffers of at least `nbytes` bytes."""
        if nbytes < 0:
            raise ArgumentError(f"allocate: expected a size of at least 0 bytes, got {nbytes}")
        size = size_class(nbytes)
        shelf = self._shelves.get(size)
        return self._shelves.setdefault(size, Shelf(self, size)) if shelf is None else shelf

    def borrow(self, nbytes: int) -> Arena:
        """Borrow an arena of at least `nbytes` bytes until it is put back into `idle`.

        A new arena replaces idle ones that are too small; their programs can borrow it instead.
        """
        with LOCK:
            arena = self._fitting(nbytes)
            if arena is not None:
                return arena
            self._release_smaller(nbytes)
        return Arena(self.allocate(nbytes), size_class(nbytes))

    def _fitting(self, nbytes: int) -> Arena | None:
        """Remove and return the smallest sufficient idle arena, unless it exceeds `MAX_ARENA_RATIO`."""
        for arena in sorted(self.idle.values(), key=lambda arena: arena.nbytes):
            if nbytes <= arena.nbytes <= MAX_ARENA_RATIO * nbytes:
                fitting = self.idle.pop(arena.number, None)
                if fitting is not None:
                    return fitting
        return None

    def _release_smaller(self, nbytes: int) -> None:
        """Drop the idle arenas that an arena of `nbytes` bytes can replace."""
        for arena in list(self.idle.values()):
            if arena.nbytes < nbytes <= MAX_ARENA_RATIO * arena.nbytes:
                self.idle.pop(arena.number, None)

    def add(self, shelf: Shelf) -> None:
        """Allocate a new block for `shelf`."""
        reap()
        size = shelf.size
        with LOCK:
            if self._cached() > MAX_CACHED_BYTES:
                self.trim()
            address, memory = self.allocate_block(size)
            slot = new_slot()
            block = [*slot[:2], address, (memory, slot)]
            block.append(partial(shelf.blocks.append, block))
            self._owned += size
            self._allocations += 1
            shelf.blocks.append(block)

    def allocate_block(self, size: int) -> tuple[int, Any]:
        """Allocate memory from the system; return its aligned address and its owner."""
        boundary, offset = ALIGNMENT, 0
        if size >= HUGE_BLOCK:
            boundary, offset = HUGE, self._allocations % COLOURS * COLOUR
        memory = self._request(size, boundary + offset)
        unaligned = memory.ctypes.data
        address: int = unaligned + -unaligned % boundary + offset
        if POPULATE_BYTES <= size < HUGE_BLOCK:
            populate(address, size)
        return address, memory

    def _request(self, size: int, margin: int) -> np.ndarray:
        """Request memory from the system; if that fails, free unused memory and retry."""
        for attempt in range(2):
            try:
                return np.empty(size + margin, np.uint8)
            except (
                MemoryError,
                OverflowError,
                ValueError,
            ):  # NumPy raises one of them, depending on the size
                if attempt == 0:
                    self.trim()
        raise ExhaustedError(f"there is no memory for {size} bytes")

    def _cached(self) -> int:
        blocks = sum(size * len(shelf.blocks) for size, shelf in list(self._shelves.items()))
        return blocks + sum(arena.nbytes for arena in list(self.idle.values()))

    def trim(self) -> int:
        """Return all unused memory to the system; return its size in bytes."""
        freed = 0
        with LOCK:
            self.idle.clear()
            for size, shelf in list(self._shelves.items()):
                try:
                    for block in shelf:
                        self._owned -= size
                        freed += size
                        _memory, slot = block[3]
                        block.clear()  # breaks a reference cycle
                        slot[-1]()
                except IndexError:
                    continue  # this shelf is empty
        return freed

    def statistics(self) -> Statistics:
        """Return the bytes in use, the bytes cached, and the number of allocations from the system."""
        reap()
        with LOCK:
            cached = self._cached()
            return Statistics(self._owned - cached, cached, self._allocations)


pool = Pool()
"""The pool of ``cpu:0``."""

_pools: dict[int, Pool] = {0: pool}


def add_pool(device: int, new_pool: Pool) -> None:
    """Register the pool of the device with this number."""
    _pools[device] = new_pool


def pool_of(device: int) -> Pool:
    """The memory pool of the device with this number; that of a CPU device is created at its first use.

    >>> import tracejit as tj
    >>> tj.engine.pool_of(0) is tj.engine.pool
    True
    """
    return _pools.get(device) or _pools.setdefault(device, Pool())
