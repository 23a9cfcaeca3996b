"""Short notices between ranks of one machine, through memory that they share.

    notices.tell(1, key, word)      # on rank 0
    notices.poll()                  # on both, again and again
    notices.next_of(0, key)         # on rank 1: the word, or None before it has come

Each pair of ranks has a ring for each direction (`kernels.ranks.notices`). What finds the ring full waits in
the sender. Notices with the same key keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tracejit.distributed.board import Board


class Notices:
    """The notices of one rank. seats: of the ranks on the board."""

    def __init__(self, board: Board, seats: Mapping[int, int]) -> None:
        self._board, self._seats = board, seats
        self._waiting: deque[tuple[int, int, int]] = deque()  # seat, key, word

    def tell(self, peer: int, key: int, word: int) -> None:
        """Have `peer` read a word."""
        seat = self._seats[peer]
        if any(seat == other for other, _, _ in self._waiting) or not self._board.tell(seat, key, word):
            self._waiting.append((seat, key, word))

    @property
    def waits(self) -> bool:
        """Whether a notice waits for room."""
        return bool(self._waiting)

    def poll(self, seconds: float = 0.0, thread: int = 0, votes: int = 0) -> bool:
        """Read what has come, and write what waits for room; see `Board.advance`."""
        moved = self._board.advance(seconds, thread, votes)
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            full: set[int] = set()
            for seat, key, word in waiting:
                if seat in full or not self._board.tell(seat, key, word):
                    full.add(seat)
                    self._waiting.append((seat, key, word))
        return moved

    def has(self, peer: int, key: int) -> bool:
        """Whether `peer` has told a word with this key that nobody has taken."""
        return self._board.has_notice(self._seats[peer], key)

    def next_of(self, peer: int, key: int) -> int | None:
        """The next word that `peer` has told with this key, or None."""
        return self._board.next_notice(self._seats[peer], key)
