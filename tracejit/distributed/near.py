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
    EXCHANGE_COPIED,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_SEATS,
    EXCHANGE_STATE,
    EXCHANGE_SUM,
    EXCHANGE_TOLD,
    EXCHANGE_WHOLE,
    SEAT_BYTES,
    SEAT_COPIED,
    SLICES_NOWHERE,
    SUM_FLOAT32,
    SUM_FLOAT64,
    TELLING_SLICES,
)

KINDS = {(np.dtype(np.float32), "sum"): SUM_FLOAT32, (np.dtype(np.float64), "sum"): SUM_FLOAT64}
"""What machine code combines, by dtype and name."""


class Near:
    """An exchange under way: ended, or stopped where some come as messages, once its test is true."""

    __slots__ = ("_array", "_board", "_key", "_record", "_seats", "_words", "members")

    def __init__(
        self,
        board: Board,
        record: Record,
        array: np.ndarray,
        kind: int,
        members: Sequence[int],
        seats: Sequence[int],
        key: int,
        *,
        whole: bool,
    ) -> None:
        """members: numbers in the world. seats: theirs on the board, whose own is among them."""
        self._board, self._record, self._array, self.members = board, record, array, members
        self._seats, self._key, words = seats, key, record.words
        self._words = words
        words[EXCHANGE_STATE >> 3] = TELLING_SLICES
        words[EXCHANGE_KEY >> 3] = key
        words[EXCHANGE_ARRAY >> 3] = array.ctypes.data
        words[EXCHANGE_COUNT >> 3] = array.size
        words[EXCHANGE_SUM >> 3] = kind
        words[EXCHANGE_WHOLE >> 3] = whole
        words[EXCHANGE_MEMBERS >> 3] = len(members)
        words[EXCHANGE_MEMBER >> 3] = seats.index(board.seat)
        words[EXCHANGE_TOLD >> 3] = words[EXCHANGE_COPIED >> 3] = 0
        for at, seat in enumerate(seats):
            about = (EXCHANGE_SEATS + at * SEAT_BYTES) >> 3
            words[about], words[about + (SEAT_COPIED >> 3)] = seat, 0

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
        copied = [self._words[(EXCHANGE_SEATS + at * SEAT_BYTES + SEAT_COPIED) >> 3] for at in self._others()]
        return [at for at, done in zip(self._others(), copied, strict=True) if not done]

    @property
    def peers(self) -> list[int]:
        """The ranks that it waits for."""
        if self._words[EXCHANGE_STATE >> 3] <= AWAITING_SLICES:
            late = [at for at in self._others() if not self._board.has_notice(self._seats[at], self._key)]
        else:
            late = self.without_sums()
        return [self.members[at] for at in late]

    def _others(self) -> list[int]:
        return [at for at, seat in enumerate(self._seats) if seat != self._board.seat]

    def cancel(self) -> Record:
        """Forget it; its record is free."""
        self._board.cancel(self._record)
        return self._record
