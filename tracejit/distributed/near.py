"""An exchange in shared memory that machine code moves from step to step (see `kernels.ranks.exchange`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.board import Board
from tracejit.engine.native import Record
from tracejit.kernels.ranks.layout import (
    AWAITING_LINK,
    AWAITING_READERS,
    AWAITING_SLICES,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_BEGUN,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_LOST,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_NEXT,
    EXCHANGE_PLAN,
    EXCHANGE_PRIORITY,
    EXCHANGE_SEATS,
    EXCHANGE_STATE,
    EXCHANGE_SUM,
    EXCHANGE_TASK,
    EXCHANGE_WAY,
    EXCHANGE_WHOLE,
    MESSAGE_BYTES,
    MESSAGE_STATE,
    MOVING,
    ON_LINK,
    PHASES,
    SEAT_AT,
    SEAT_BYTES,
    SEAT_COPIED,
    SEAT_MESSAGES,
    SLICES_NOWHERE,
    STAGED,
    SUM_FLOAT32,
    SUM_FLOAT64,
    TELLING_SLICES,
    exchange_bytes,
)

KINDS = {(np.dtype(np.float32), "sum"): SUM_FLOAT32, (np.dtype(np.float64), "sum"): SUM_FLOAT64}
"""Reductions in machine code, by dtype and name."""


class Near:
    """An exchange of some ranks: ended, or stopped where some come as messages, once its test is true.

    members: numbers in the world. seats: theirs on the board, whose own is among them.
    prepared: whether tasks begin it. joined: the memory in which it puts several arrays together.
    """

    __slots__ = (
        "_array",
        "_board",
        "_others",
        "_record",
        "_seats",
        "_words",
        "address",
        "joined",
        "members",
        "prepared",
    )

    def __init__(self, board: Board, members: tuple[int, ...], seats: Sequence[int]) -> None:
        self._board, self.members, self._seats = board, members, seats
        self._record = Record(exchange_bytes(len(members)))
        self._words = words = self._record.words
        self.address = self._record.address
        self.prepared = False
        self._array: np.ndarray | None = None
        self.joined: np.ndarray | None = None
        words[EXCHANGE_MEMBERS >> 3] = len(members)
        words[EXCHANGE_MEMBER >> 3] = seats.index(board.seat)
        for at, seat in enumerate(seats):
            words[(EXCHANGE_SEATS + at * SEAT_BYTES) >> 3] = seat
        self._others = [at for at, seat in enumerate(seats) if seat != board.seat]

    def begin(
        self,
        array: np.ndarray,
        kind: int,
        key: int,
        priority: int,
        *,
        whole: bool,
        way: int,
        patience: float = 0.0,
    ) -> bool:
        """Begin to combine an array (see `Window.exchange`), if there is a free block for it, or none needed.

        way: IN_BLOCKS, DIRECT or STAGED. patience: seconds to go on until nothing is under way.
        """
        self._array = array
        return self._board.begin(
            self._record, array, key, array.size, kind, whole, way, priority, int(patience * 1e9)
        )

    def prepare(
        self,
        plan: int,
        count: int,
        dtype: np.dtype,
        kind: int,
        priority: int,
        *,
        whole: bool,
        way: int,
        joined: bool,
    ) -> None:
        """Stand for exchanges of `count` elements that tasks begin by the plan at an address. joined: of
        several arrays, which are put together there.
        """
        words, self.prepared = self._words, True
        words[EXCHANGE_PLAN >> 3] = plan
        words[EXCHANGE_COUNT >> 3] = count
        words[EXCHANGE_SUM >> 3] = kind
        words[EXCHANGE_WHOLE >> 3] = whole
        words[EXCHANGE_WAY >> 3] = way
        words[EXCHANGE_PRIORITY >> 3] = priority
        if joined:
            self.joined = array = np.zeros(count, dtype)
            words[EXCHANGE_ARRAY >> 3] = array.__array_interface__["data"][0]

    @property
    def task(self) -> int:
        """The address of the task that machine code ends with it; 0 where Python has begun it, or goes on."""
        return int(self._words[EXCHANGE_TASK >> 3])

    @property
    def begun(self) -> float:
        """The time at which a task has begun it, in seconds of `time.monotonic`."""
        return self._words[EXCHANGE_BEGUN >> 3] / 1e9

    def take_over(self) -> None:
        """Have its end be noticed by Python."""
        self._words[EXCHANGE_TASK >> 3] = 0

    def note_following(self, address: int) -> None:
        """Note the next exchange of its plan that is not under way."""
        self._words[EXCHANGE_NEXT >> 3] = address

    def cancel(self) -> None:
        """Forget it, unless it has ended."""
        if not self.ended:
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
    def whole(self) -> bool:
        """Whether all ranks combine the whole array."""
        return bool(self._words[EXCHANGE_WHOLE >> 3])

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
        """The ranks that it waits for: those that have not told, or else those that have not been told."""
        lost, state = self._words[EXCHANGE_LOST >> 3], self._words[EXCHANGE_STATE >> 3]
        late: list[int] = []
        if lost:
            late = [lost - 1]
        elif state == TELLING_SLICES and self._words[EXCHANGE_WAY >> 3] == STAGED:
            late = self._others  # one of them has not taken all that is on the stage
        elif state <= AWAITING_SLICES:
            late = self._silent(0)
        elif state == MOVING:
            late = self._behind()
        elif state == AWAITING_READERS:
            late = self._silent(2)
        elif state != AWAITING_LINK and state != ENDED:
            late = self.without_sums()
        return [self.members[at] for at in late or filter(self._is_on_link, self._others)]

    def _silent(self, number: int) -> list[int]:
        """The positions of those whose notices with a key of this exchange have not come."""
        key = self._words[EXCHANGE_KEY >> 3] + number
        return [at for at in self._others if not self._board.has_notice(self._seats[at], key)]

    def _behind(self) -> list[int]:
        """The positions of those that are behind all others: these wait for them, too."""
        seen = {at: self._words[(EXCHANGE_SEATS + at * SEAT_BYTES + SEAT_AT) >> 3] for at in self._others}
        return [at for at, count in seen.items() if count == min(seen.values())]

    def _is_on_link(self, at: int) -> bool:
        """Whether a notice to a member is on an imitated link."""
        first = EXCHANGE_SEATS + at * SEAT_BYTES + SEAT_MESSAGES + MESSAGE_STATE
        return any(self._words[(first + n * MESSAGE_BYTES) >> 3] == ON_LINK for n in range(PHASES))
