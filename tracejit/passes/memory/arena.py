"""Allocation of buffers in one arena: best fit, where memory is reused only along dependencies.

Buffers are allocated in the order of their first writers. A range of the arena whose last buffer is dead may
be reused for a new buffer only if the first writer of the new buffer *knows* that every task that accessed
the range is done; the tasks that it has to wait for are part of the result. Sets of tasks are integers used
as bit sets (bit t represents task t).

>>> arena = ArenaLayout()
>>> a, _ = arena.allocate(0, 100, known=0)            # first written by task 0
>>> arena.release(a, 100, users=0b011, until=9)       # accessed by tasks 0 and 1
>>> arena.allocate(2, 64, known=0b001), arena.size    # task 1 may still run: new memory
((128, 0), 192)
>>> arena.allocate(3, 64, known=0b011), arena.size    # runs after both: reuses the memory
((0, 3), 192)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

ALIGNMENT = 64
"""The alignment of buffers in bytes: a cache line, and the alignment of the widest vector loads."""

SEARCH_COST_RATIO = 8
"""The factor by which a search of holes by their tasks is slower, per hole, than one in order of offsets."""


class Hole(NamedTuple):
    """A free range of bytes, the tasks that accessed it (`users`), and the last task that may reuse it."""

    offset: int
    size: int
    users: int
    until: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class ArenaLayout:
    """An arena of `size` bytes, which grows as needed, and its holes.

    Holes are indexed by offset, by size, because most buffers of a long graph have the same size, and by the
    last task that accessed them, because a task of a graph with many independent components knows few of
    these tasks.
    """

    def __init__(self) -> None:
        self.size = 0
        self._holes: list[Hole] = []
        self._by_size: defaultdict[int, list[Hole]] = defaultdict(list)
        self._by_last: defaultdict[int, list[Hole]] = defaultdict(list)
        self._lasts = 0  # the tasks that are keys of `_by_last`

    def allocate(self, task: int, nbytes: int, known: int) -> tuple[int, int]:
        """Allocate `nbytes` for a buffer whose first writer is `task`; return (offset, users).

        users: the tasks that accessed this memory before. known: the tasks that are done when `task` starts,
        or for which it can wait.
        """
        size = _aligned(nbytes)
        if size == 0:
            return 0, 0
        holes = self._fit(size, task, known)
        offset = holes[0].offset if holes else self.size
        end = offset + size
        self.size = max(self.size, end)
        if holes:
            self._remove(holes)
            if holes[-1].end > end:  # the remainder of the last hole
                self._add(Hole(end, holes[-1].end - end, holes[-1].users, holes[-1].until))
        return offset, functools.reduce(lambda users, hole: users | hole.users, holes, 0)

    def release(self, offset: int, nbytes: int, users: int, until: int) -> None:
        """Free the buffer of `nbytes` at `offset`; `users` are all tasks that accessed it.

        `until` is the last task that may know that they are done, and that writes a new buffer. No later task
        can reuse the memory, so the hole is then discarded, which keeps the search fast.
        """
        if nbytes:
            self._add(Hole(offset, _aligned(nbytes), users, until))

    def _add(self, hole: Hole) -> None:
        bisect.insort(self._holes, hole)
        bisect.insort(self._by_size[hole.size], hole)
        last = _last(hole)
        self._by_last[last].append(hole)
        self._lasts |= 1 << last

    def _remove(self, holes: list[Hole]) -> None:
        """Remove adjacent holes."""
        start = bisect.bisect_left(self._holes, holes[0])
        del self._holes[start : start + len(holes)]
        for hole in holes:
            same = self._by_size[hole.size]
            del same[bisect.bisect_left(same, hole)]
            last = _last(hole)
            self._by_last[last].remove(hole)
            if not self._by_last[last]:
                self._lasts ^= 1 << last

    def _fit(self, size: int, task: int, known: int) -> list[Hole]:
        """The adjacent holes for a buffer of this size that `task` may reuse, or an empty list."""
        unknown = ~known
        lasts = self._lasts & known
        if SEARCH_COST_RATIO * lasts.bit_count() < len(self._holes):
            candidates = [hole for last in tasks_of(lasts) for hole in self._by_last[last]]
            usable = [hole for hole in candidates if not hole.users & unknown and hole.until >= task]
            return self._best_fit(size, sorted(usable))
        for hole in self._by_size[size]:
            if not hole.users & unknown and hole.until >= task:
                return [hole]
        for hole in [hole for hole in self._holes if hole.until < task]:
            self._remove([hole])
        return self._best_fit(size, [hole for hole in self._holes if not hole.users & unknown])

    def _best_fit(self, size: int, holes: list[Hole]) -> list[Hole]:
        """The smallest run of adjacent holes that fits, or else the run at the end, which can grow."""
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
    """The last task that accessed a hole."""
    return hole.users.bit_length() - 1


def tasks_of(bits: int) -> Iterator[int]:
    """Yield the tasks in a bit set.

    >>> list(tasks_of(0b1101))
    [0, 2, 3]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
