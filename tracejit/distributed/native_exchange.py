"""Exchanges in shared memory whose steps native code performs (see `kernels.ranks.exchange`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.board import Board
from tracejit.engine.native import Record
from tracejit.kernels.ranks.layout import (
    ANNOUNCING_SLICES,
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
    EXCHANGE_MODE,
    EXCHANGE_NEXT,
    EXCHANGE_PLAN,
    EXCHANGE_PRIORITY,
    EXCHANGE_REPLICATED,
    EXCHANGE_SEATS,
    EXCHANGE_STATE,
    EXCHANGE_SUM,
    EXCHANGE_TASK,
    MESSAGE_BYTES,
    MESSAGE_STATE,
    MOVING,
    ON_LINK,
    PHASES,
    SEAT_BYTES,
    SEAT_COPIED,
    SEAT_MESSAGES,
    SEAT_PROGRESS,
    SLICES_NOWHERE,
    STAGED,
    SUM_FLOAT32,
    SUM_FLOAT64,
    exchange_bytes,
)

KINDS = {(np.dtype(np.float32), "sum"): SUM_FLOAT32, (np.dtype(np.float64), "sum"): SUM_FLOAT64}
"""The reductions that native code implements, by dtype and name."""


class NativeExchange:
    """The record of an exchange between several ranks.

    `Test` is true once the exchange has ended, or has stopped because a member sends its array as a message.

    members:  ranks in the world. seats: their seats on the board, this rank's among them.
    prepared: whether tasks begin the exchange.
    joined:   the memory in which the exchange concatenates several arrays; None for one array.
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
        for index, seat in enumerate(seats):
            words[(EXCHANGE_SEATS + index * SEAT_BYTES) >> 3] = seat
        self._others = [index for index, seat in enumerate(seats) if seat != board.seat]

    def begin(
        self,
        array: np.ndarray,
        kind: int,
        key: int,
        priority: int,
        *,
        replicated: bool,
        mode: int,
        patience: float = 0.0,
    ) -> bool:
        """Begin to combine an array (see `SharedWindow.exchange`); return False if no block is free for it.

        mode:     transfer mode: IN_BLOCKS, DIRECT or STAGED.
        patience: seconds for which to advance all exchanges, until none is in flight.
        """
        self._array = array
        return self._board.begin(
            self._record, array, key, array.size, kind, replicated, mode, priority, int(patience * 1e9)
        )

    def prepare(
        self,
        plan: int,
        count: int,
        dtype: np.dtype,
        kind: int,
        priority: int,
        *,
        replicated: bool,
        mode: int,
        joined: bool,
    ) -> None:
        """Set this record up for exchanges of `count` elements that tasks begin, with the plan at an address.

        joined: whether several arrays are concatenated for the exchange.
        """
        words, self.prepared = self._words, True
        words[EXCHANGE_PLAN >> 3] = plan
        words[EXCHANGE_COUNT >> 3] = count
        words[EXCHANGE_SUM >> 3] = kind
        words[EXCHANGE_REPLICATED >> 3] = replicated
        words[EXCHANGE_MODE >> 3] = mode
        words[EXCHANGE_PRIORITY >> 3] = priority
        if joined:
            self.joined = array = np.zeros(count, dtype)
            words[EXCHANGE_ARRAY >> 3] = array.__array_interface__["data"][0]

    @property
    def task(self) -> int:
        """The address of the task that native code ends with the exchange; 0 if Python ends it."""
        return int(self._words[EXCHANGE_TASK >> 3])

    @property
    def start_time(self) -> float:
        """The time at which a task began the exchange, in seconds of `time.monotonic`."""
        return self._words[EXCHANGE_BEGUN >> 3] / 1e9

    def take_over(self) -> None:
        """Let Python instead of native code end the task."""
        self._words[EXCHANGE_TASK >> 3] = 0

    def set_next_free(self, address: int) -> None:
        """Set the address of the next free record in its plan's list."""
        self._words[EXCHANGE_NEXT >> 3] = address

    def cancel(self) -> None:
        """Abandon the exchange unless it has ended."""
        if not self.ended:
            self._board.cancel(self._record)
        self._array = None

    def Test(self) -> bool:
        """Whether the exchange has ended or stopped."""
        return bool(self._words[EXCHANGE_STATE >> 3] >= ENDED)

    @property
    def ended(self) -> bool:
        """Whether the exchange has ended, so that the array contains the result."""
        return bool(self._words[EXCHANGE_STATE >> 3] == ENDED)

    @property
    def is_replicated(self) -> bool:
        """Whether each rank combines the complete array, instead of its slice of it."""
        return bool(self._words[EXCHANGE_REPLICATED >> 3])

    @property
    def has_slices(self) -> bool:
        """Whether a stopped exchange has combined this rank's slice."""
        return bool(self._words[EXCHANGE_STATE >> 3] != SLICES_NOWHERE)

    def missing_sums(self) -> list[int]:
        """The indices of the members whose combined slices are not in the array."""
        copied = (EXCHANGE_SEATS + SEAT_COPIED) >> 3
        return [index for index in self._others if not self._words[copied + index * SEAT_BYTES // 8]]

    @property
    def peers(self) -> list[int]:
        """The ranks that the exchange waits for: to send a notice, or else to receive one."""
        lost, state = self._words[EXCHANGE_LOST >> 3], self._words[EXCHANGE_STATE >> 3]
        late: list[int] = []
        if lost:
            late = [lost - 1]
        elif state == ANNOUNCING_SLICES and self._words[EXCHANGE_MODE >> 3] == STAGED:
            late = self._others  # one of them has not read the complete stage
        elif state <= AWAITING_SLICES:
            late = self._missing_members(0)
        elif state == MOVING:
            late = self._slowest_members()
        elif state == AWAITING_READERS:
            late = self._missing_members(2)
        elif state != AWAITING_LINK and state != ENDED:
            late = self.missing_sums()
        return [self.members[index] for index in late or filter(self._is_on_link, self._others)]

    def _missing_members(self, phase: int) -> list[int]:
        """The indices of the members whose notices of a phase have not arrived."""
        key = self._words[EXCHANGE_KEY >> 3] + phase
        return [index for index in self._others if not self._board.has_notice(self._seats[index], key)]

    def _slowest_members(self) -> list[int]:
        """The indices of the members with the least progress: all others wait for them, too."""
        progress = {
            i: self._words[(EXCHANGE_SEATS + i * SEAT_BYTES + SEAT_PROGRESS) >> 3] for i in self._others
        }
        return [index for index, done in progress.items() if done == min(progress.values())]

    def _is_on_link(self, index: int) -> bool:
        """Whether a notice to a member is in flight on an emulated link."""
        first = EXCHANGE_SEATS + index * SEAT_BYTES + SEAT_MESSAGES + MESSAGE_STATE
        return any(self._words[(first + n * MESSAGE_BYTES) >> 3] == ON_LINK for n in range(PHASES))
