"""Notices: (key, value) pairs of integers that ranks of one machine exchange through shared memory.

    notices.send(1, key, value)     # on rank 0
    notices.poll()                  # on both ranks, repeatedly
    notices.pop(0, key)             # on rank 1: the value, or None before it has arrived

Each ordered pair of ranks has a ring buffer (`kernels.ranks.notices`). The sender queues notices for which
the ring has no room. Notices with the same key keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tracejit.distributed.board import Board


class Notices:
    """The notices that one rank sends and receives.

    seats: the seat of each rank on the board.
    """

    def __init__(self, board: Board, seats: Mapping[int, int]) -> None:
        self._board, self._seats = board, seats
        self._waiting: deque[tuple[int, int, int]] = deque()  # seat, key, value

    def send(self, peer: int, key: int, value: int) -> None:
        """Send a value to `peer`, or queue it while the ring is full."""
        seat = self._seats[peer]
        if any(seat == other for other, _, _ in self._waiting) or not self._board.send_notice(
            seat, key, value
        ):
            self._waiting.append((seat, key, value))

    @property
    def has_unsent(self) -> bool:
        """Whether a notice is queued because its ring is full."""
        return bool(self._waiting)

    def poll(self, seconds: float = 0.0, thread: int = 0, votes: int = 0) -> bool:
        """Read the notices that have arrived and send queued ones; see `Board.advance`."""
        moved = self._board.advance(seconds, thread, votes)
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            full: set[int] = set()
            for seat, key, value in waiting:
                if seat in full or not self._board.send_notice(seat, key, value):
                    full.add(seat)
                    self._waiting.append((seat, key, value))
        return moved

    def has(self, peer: int, key: int) -> bool:
        """Whether a notice of `peer` with this key has arrived and has not been popped."""
        return self._board.has_notice(self._seats[peer], key)

    def pop(self, peer: int, key: int) -> int | None:
        """Consume the oldest notice of `peer` with this key and return its value, or None."""
        return self._board.next_notice(self._seats[peer], key)
