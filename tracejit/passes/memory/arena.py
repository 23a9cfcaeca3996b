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
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

ALIGNMENT = 64
"""Bytes: a cache line, and the alignment of the widest vector loads."""

FEW = 8
"""The factor by which searching holes by their tasks is slower than searching all of them in order."""


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
    """Memory of `size` bytes, which grows, and its holes.

    They are indexed twice: by offset, and by the last of the tasks that touched them, as a task of a graph
    with many independent parts knows few of these.
    """

    def __init__(self) -> None:
        self.size = 0
        self._holes: list[Hole] = []
        self._by_last: defaultdict[int, list[Hole]] = defaultdict(list)
        self._lasts = 0  # the tasks by which there are holes

    def allocate(self, task: int, nbytes: int, known: int) -> tuple[int, int]:
        """(offset, users): a place for `nbytes` that `task` writes first, and the tasks that touched it
        before.

        `known`: the tasks that are done when `task` starts, or that it can wait for.
        """
        size = _aligned(nbytes)
        if size == 0:
            return 0, 0
        found = self._best_fit(size, self._known(task, known))
        offset = found[0].offset if found else self.size
        end = offset + size
        self.size = max(self.size, end)
        if found:
            self._remove(found)
            if found[-1].end > end:  # the rest of the last hole
                self._add(Hole(end, found[-1].end - end, found[-1].users, found[-1].until))
        return offset, functools.reduce(lambda users, hole: users | hole.users, found, 0)

    def release(self, offset: int, nbytes: int, users: int, until: int) -> None:
        """Free the buffer of `nbytes` at `offset`; `users` are all tasks that touched it.

        `until` is the last task that may know of them and writes a new buffer: after it no task can reuse
        this memory, and searching it would make planning slow.
        """
        if nbytes:
            self._add(Hole(offset, _aligned(nbytes), users, until))

    def _add(self, hole: Hole) -> None:
        bisect.insort(self._holes, hole)
        last = _last(hole)
        self._by_last[last].append(hole)
        self._lasts |= 1 << last

    def _remove(self, holes: list[Hole]) -> None:
        """Remove holes that are neighbours."""
        start = bisect.bisect_left(self._holes, holes[0])
        del self._holes[start : start + len(holes)]
        for hole in holes:
            last = _last(hole)
            self._by_last[last].remove(hole)
            if not self._by_last[last]:
                self._lasts ^= 1 << last

    def _known(self, task: int, known: int) -> list[Hole]:
        """The holes that `task` may use, in order of their offsets."""
        others = ~known
        lasts = self._lasts & known
        if FEW * lasts.bit_count() < len(self._holes):
            near = [hole for last in tasks_of(lasts) for hole in self._by_last[last]]
            return sorted([hole for hole in near if not hole.users & others and hole.until >= task])
        self._holes = [hole for hole in self._holes if hole.until >= task]
        return [hole for hole in self._holes if not hole.users & others]

    def _best_fit(self, size: int, holes: list[Hole]) -> list[Hole]:
        """The holes to use: the smallest run of neighbours that fits, else those that can grow at the end."""
        best, best_size = None, 0
        start, total, end = 0, 0, 0
        for position, hole in enumerate(holes):
            if hole.offset != end:
                start, total = position, 0
            total, end = total + hole.size, hole.end
            while total - holes[start].size >= size:
                total -= holes[start].size
                start += 1
            if total >= size and (best is None or total < best_size):
                best, best_size = holes[start : position + 1], total
                if total == size:
                    break
        return best or (holes[start:] if end == self.size else [])


def _last(hole: Hole) -> int:
    """The last of the tasks that touched a hole."""
    return hole.users.bit_length() - 1


def tasks_of(bits: int) -> Iterator[int]:
    """The tasks of a set.

    >>> list(tasks_of(0b1101))
    [0, 2, 3]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
