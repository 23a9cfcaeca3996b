"""Packing buffers into one arena: best fit, where memory is handed on only along dependencies.

Buffers come in the order of their first writers. A piece of the arena whose last owner is dead may be given
to a new buffer only if every task that touched it is an *ancestor* of the new buffer's first writer, so
that sharing memory never makes one task wait for another: independent branches stay independent. Sets of
tasks are integers used as bit sets (bit t: task t).

>>> arena = Arena()
>>> a = arena.allocate(100, ancestors=0)                # first written by task 0
>>> arena.release(a, users=0b011)                       # touched by tasks 0 and 1
>>> arena.allocate(64, ancestors=0b001), arena.size     # a branch that does not wait for task 1: new memory
(128, 192)
>>> arena.allocate(64, ancestors=0b011), arena.size     # a task after both: the old memory
(0, 192)
"""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and what the widest vector loads like."""


@dataclass(slots=True)
class Piece:
    """`size` bytes at `offset`; the tasks that touched them last; whether a buffer lives there."""

    offset: int
    size: int
    users: int
    live: bool


class Arena:
    """Pieces in order of their offsets, without gaps."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    @property
    def size(self) -> int:
        """Bytes needed."""
        return self._pieces[-1].offset + self._pieces[-1].size if self._pieces else 0

    def allocate(self, nbytes: int, ancestors: int) -> int:
        """Offset of `nbytes` for a buffer whose first writer has these `ancestors`."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        if size == 0:
            return 0
        start, stop = self._best_fit(size, ~ancestors)
        found = self._pieces[start:stop]
        offset = found[0].offset if found else self.size
        rest = sum(piece.size for piece in found) - size
        new = [Piece(offset, size, 0, True)]
        if rest > 0:  # the end of the last piece stays as it was
            new.append(Piece(offset + size, rest, found[-1].users, False))
        self._pieces[start:stop] = new
        return offset

    def release(self, offset: int, users: int) -> None:
        """The buffer at `offset` is dead; `users` are all tasks that touched it."""
        for piece in self._pieces:
            if piece.offset == offset and piece.live:
                piece.live, piece.users = False, users

    def _best_fit(self, size: int, others: int) -> tuple[int, int]:
        """The pieces to use: the smallest run of free ones that fits, else what can grow at the end."""
        best, best_size = None, 0
        start, total = 0, 0
        for position, piece in enumerate(self._pieces):
            if piece.live or piece.users & others:
                start, total = position + 1, 0
                continue
            total += piece.size
            while total - self._pieces[start].size >= size:
                total -= self._pieces[start].size
                start += 1
            if total >= size and (best is None or total < best_size):
                best, best_size = (start, position + 1), total
        return best or (start, len(self._pieces))
