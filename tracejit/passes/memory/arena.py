"""Packing of buffers into one arena: best fit, where memory is reused only along dependencies.

Buffers come in the order of their first writers. A piece of the arena whose last owner is dead may be reused
for a new buffer only if the new buffer's first writer *knows* that every task that touched it is done; the
tasks it has to wait for are part of the result. Sets of tasks are integers used as bit sets (bit t: task t).

>>> arena = ArenaLayout()
>>> a, _ = arena.allocate(0, 100, known=0)            # first written by task 0
>>> arena.release(a, 100, users=0b011, until=9)       # touched by tasks 0 and 1
>>> arena.allocate(2, 64, known=0b001), arena.size    # knows nothing of task 1: new memory
((128, 0), 192)
>>> arena.allocate(3, 64, known=0b011), arena.size    # comes after both: the old memory
((0, 3), 192)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import bisect
import functools
from typing import NamedTuple

ALIGNMENT = 64
"""Bytes: a cache line, and the alignment of the widest vector loads."""


class Hole(NamedTuple):
    """A free range of bytes; the tasks that touched it last; the last task that may reuse it."""

    offset: int
    size: int
    users: int
    until: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class ArenaLayout:
    """Memory of `size` bytes, which grows; its holes are in order of their offsets."""

    def __init__(self) -> None:
        self.size = 0
        self._holes: list[Hole] = []

    def allocate(self, task: int, nbytes: int, known: int) -> tuple[int, int]:
        """(offset, users): a place for `nbytes` that `task` writes first, and the tasks that touched it
        before.

        `known`: the tasks that are done when `task` starts, or that it can wait for.
        """
        size = _aligned(nbytes)
        if size == 0:
            return 0, 0
        self._holes = [hole for hole in self._holes if hole.until >= task]
        start, stop = self._best_fit(size, ~known)
        found = self._holes[start:stop]
        offset = found[0].offset if found else self.size
        end = offset + size
        self.size = max(self.size, end)
        rest = []
        if found and found[-1].end > end:  # the rest of the last hole
            rest.append(Hole(end, found[-1].end - end, found[-1].users, found[-1].until))
        self._holes[start:stop] = rest
        return offset, functools.reduce(lambda users, hole: users | hole.users, found, 0)

    def release(self, offset: int, nbytes: int, users: int, until: int) -> None:
        """Free the buffer of `nbytes` at `offset`; `users` are all tasks that touched it.

        `until` is the last task that may know of them and writes a new buffer: after it no task can reuse
        this memory, and searching it would make planning slow.
        """
        if nbytes:
            hole = Hole(offset, _aligned(nbytes), users, until)
            bisect.insort(self._holes, hole, key=lambda hole: hole.offset)

    def _best_fit(self, size: int, others: int) -> tuple[int, int]:
        """The holes to use: the smallest run of neighbours that fits, else what can grow at the end."""
        best, best_size = None, 0
        start, total, end = 0, 0, 0
        for position, hole in enumerate(self._holes):
            if hole.users & others:
                start, total = position + 1, 0
                continue
            if hole.offset != end:
                start, total = position, 0
            total, end = total + hole.size, hole.end
            while total - self._holes[start].size >= size:
                total -= self._holes[start].size
                start += 1
            if total >= size and (best is None or total < best_size):
                best, best_size = (start, position + 1), total
                if total == size:
                    break
        grows = start < len(self._holes) and end == self.size
        return best or ((start, len(self._holes)) if grows else (len(self._holes),) * 2)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
