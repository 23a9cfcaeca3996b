"""An exchange in shared memory that machine code moves from step to step (see `kernels.ranks.exchange`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.board import Board
from tracejit.engine.native import Record
from tracejit.kernels.ranks.layout import (
    AWAITING_SLICES,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_SEATS,
    EXCHANGE_STATE,
    EXCHANGE_SUM,
    EXCHANGE_WHOLE,
    SEAT_BYTES,
    SEAT_COPIED,
    SLICES_NOWHERE,
    SUM_FLOAT32,
    SUM_FLOAT64,
    exchange_bytes,
)

KINDS = {(np.dtype(np.float32), "sum"): SUM_FLOAT32, (np.dtype(np.float64), "sum"): SUM_FLOAT64}
"""Reductions in machine code, by dtype and name."""


class Near:
    """An exchange of some ranks: ended, or stopped where some come as messages, once its test is true.

    members: numbers in the world. seats: theirs on the board, whose own is among them.
    """

    __slots__ = ("_array", "_board", "_key", "_others", "_record", "_seats", "_words", "members")

    def __init__(self, board: Board, members: tuple[int, ...], seats: Sequence[int]) -> None:
        self._board, self.members, self._seats = board, members, seats
        self._record = Record(exchange_bytes(len(members)))
        self._words = words = self._record.words
        words[EXCHANGE_MEMBERS >> 3] = len(members)
        words[EXCHANGE_MEMBER >> 3] = seats.index(board.seat)
        for at, seat in enumerate(seats):
            words[(EXCHANGE_SEATS + at * SEAT_BYTES) >> 3] = seat
        self._others = [at for at, seat in enumerate(seats) if seat != board.seat]

    def begin(self, array: np.ndarray, kind: int, key: int, *, whole: bool) -> bool:
        """Begin to combine an array (see `Window.exchange`), if there is a free block for it."""
        words, self._key = self._words, key
        self._array: np.ndarray | None = array
        words[EXCHANGE_KEY >> 3] = key
        words[EXCHANGE_ARRAY >> 3] = array.__array_interface__["data"][0]
        words[EXCHANGE_COUNT >> 3] = array.size
        words[EXCHANGE_SUM >> 3] = kind
        words[EXCHANGE_WHOLE >> 3] = whole
        return self._board.begin(self._record)

    def cancel(self) -> None:
        """Forget it, unless it has ended."""
        if not self.Test():
            self._board.cancel(self._record)
        self._array = None

    def Test(self) -> bool:
        """Whether it has ended or stopped."""
        return bool(self._words[EXCHANGE_STATE >> 3] >= ENDED)

    @property
    def ended(self) -> bool:
        """Whether the array holds the result."""
        return bool(self._words[EXCHANGE_STATE >> 3] == ENDED)

    @property
    def has_slices(self) -> bool:
        """Whether it has stopped after this rank's slice was combined."""
        return bool(self._words[EXCHANGE_STATE >> 3] != SLICES_NOWHERE)

    def without_sums(self) -> list[int]:
        """The positions among the members of those whose sums are not in the array."""
        copied = (EXCHANGE_SEATS + SEAT_COPIED) >> 3
        return [at for at in self._others if not self._words[copied + at * SEAT_BYTES // 8]]

    @property
    def peers(self) -> list[int]:
        """The ranks that it waits for."""
        if self._words[EXCHANGE_STATE >> 3] <= AWAITING_SLICES:
            late = [at for at in self._others if not self._board.has_notice(self._seats[at], self._key)]
        else:
            late = self.without_sums()
        return [self.members[at] for at in late]
