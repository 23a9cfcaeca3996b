"""The native state of the memory that ranks of one machine share: notices, blocks and exchanges in flight.

The methods call native code (see `calls`). A board is not thread-safe: one thread at a time may use it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.distributed.calls import calls
from tracejit.distributed.link import Link
from tracejit.engine.available_processors import processors
from tracejit.engine.native import ENGINE, LANES, Record
from tracejit.kernels.executor.layout import COMMUNICATION
from tracejit.kernels.ranks import layout

POLLS_DEDICATED, POLLS_SHARED = 200, 16
"""Polls before the thread yields, if each rank has a processor of its own and if ranks share processors."""


class Board:
    """The record that the rank at `seat` keeps of the memory segments of all seats, which must be zeroed.

    start, size: offset of the first block in a segment, and bytes from block to block, head included.
    turn:        number of blocks that are reused in rotation as long as they suffice.
    processes:   process identifiers of all seats if they may read one another's memory; otherwise empty.
    """

    def __init__(
        self,
        segments: Sequence[np.ndarray],
        seat: int,
        start: int,
        size: int,
        turn: int,
        processes: Sequence[int] = (),
    ) -> None:
        seats, blocks = len(segments), (len(segments[seat]) - start) // size
        self.seat, self._keep = seat, segments
        self._calls = calls()
        self._record, self._lent = Record(layout.board_bytes(seats)), Record(8 * max(1, blocks))
        self._scratch, self._received = Record(layout.scratch_bytes(seats)), Record(64 * layout.NOTICE_BYTES)
        self._rows = Record(layout.rows_bytes(seats) if processes else 0)
        self._address, self._words = self._record.address, self._record.words
        for offset, value in (
            (layout.BOARD_SEATS, seats),
            (layout.BOARD_SEAT, seat),
            (layout.BOARD_START, start),
            (layout.BOARD_SIZE, size),
            (layout.BOARD_HEAD, layout.head_bytes(seats)),
            (layout.BOARD_BLOCKS, blocks),
            (layout.BOARD_ROTATION, max(1, min(turn, blocks))),
            (layout.BOARD_LENT, self._lent.address),
            (layout.BOARD_NOTICES, self._received.address),
            (layout.BOARD_NOTICE_CAPACITY, 64),
            (layout.BOARD_SCRATCH, self._scratch.address),
            (layout.BOARD_ROWS, self._rows.address),
            (layout.BOARD_COUNTS, layout.counts_at(seats)),
            (layout.BOARD_POLLS, POLLS_DEDICATED if seats <= processors() else POLLS_SHARED),
            (layout.BOARD_ENGINE, ENGINE.address),
            (layout.BOARD_LANE, LANES[COMMUNICATION].address),
        ):
            self._words[offset >> 3] = value
        for index, segment in enumerate(segments):
            peer = layout.BOARD_PEERS + index * layout.PEER_BYTES
            self._words[(peer + layout.PEER_SEGMENT) >> 3] = segment.ctypes.data
            self._words[(peer + layout.PEER_PROCESS) >> 3] = processes[index] if processes else 0
        self.blocks = blocks

    def attach_link(self, link: Link) -> None:
        """Route the notices of exchanges that begin from now on over an emulated link."""
        self._words[layout.BOARD_LINK >> 3] = link.address
        link.board = self._address

    def advance(self, seconds: float = 0.0, thread: int = 0, votes: int = 0) -> bool:
        """Advance the exchanges and receive notices, for up to `seconds` or until an exchange ends.

        thread: address of this thread's record if it is the communication thread, whose next task then ends
                the wait; otherwise 0.
        votes:  number of agreement notices that end the wait; 0 if none are awaited.
        Returns whether anything has advanced or arrived.
        """
        self._words[layout.BOARD_VOTES >> 3] = votes
        moved = self._calls.advance(self._address, thread, int(seconds * 1e9))
        while moved == layout.FULL:
            self._grow()
            moved = self._calls.advance(self._address, 0, 0) or 1
        return moved > 0

    def _grow(self) -> None:
        """Double the capacity for received notices that have not been consumed."""
        smaller, capacity = self._received, self._words[layout.BOARD_NOTICE_CAPACITY >> 3]
        self._received = Record(2 * capacity * layout.NOTICE_BYTES)
        self._received.words[: len(smaller.words)] = smaller.words
        self._words[layout.BOARD_NOTICES >> 3] = self._received.address
        self._words[layout.BOARD_NOTICE_CAPACITY >> 3] = 2 * capacity

    def send_notice(self, seat: int, key: int, value: int) -> bool:
        """Send a notice to the rank at `seat`; return False if its ring is full."""
        return bool(self._calls.post_notice(self._address, seat, key, value))

    def next_notice(self, seat: int, key: int) -> int | None:
        """Consume the oldest notice of `seat` with this key and return its value, or None."""
        value = self._calls.next_notice(self._address, seat, key)
        return None if value == layout.NOTHING else value

    def has_notice(self, seat: int, key: int) -> bool:
        """Whether a notice of `seat` with this key has arrived and has not been consumed."""
        return bool(self._calls.has_notice(self._address, seat, key))

    def read(self, seat: int, target: int, source: int, nbytes: int) -> bool:
        """Copy bytes from address `source` of the process at `seat` to address `target` of this process.

        Returns whether the operating system permitted it.
        """
        return bool(self._calls.read(self._address, seat, target, source, nbytes))

    def acquire_block(self) -> int | None:
        """Reserve a block that all its readers have read; return its offset, or None if none is free."""
        return self._calls.lend_block(self._address) or None

    def add_reader(self, block: int, seat: int) -> None:
        """Register `seat` as a reader of a block, which is not reused before it has read the block."""
        self._calls.expect_reader(self._address, block, seat)

    def mark_read(self, seat: int, offset: int) -> None:
        """Note that this rank has read the data at an offset in the segment of `seat`."""
        self._calls.mark_location_read(self._address, seat, offset)

    def begin(self, exchange: Record, array: np.ndarray, *arguments: int) -> bool:
        """Begin an exchange of an array; return False if it needs a block and none is free.

        arguments: key, number of elements, reduction, whether members combine the complete array, mode,
        priority, and nanoseconds for which to advance all exchanges, as `advance` does.
        """
        return bool(self._calls.begin(self._address, exchange.address, array.__array_struct__, *arguments))

    @property
    def is_busy(self) -> bool:
        """Whether an exchange is in flight, or one that a task began has stopped."""
        words = self._words
        return bool(words[layout.BOARD_EXCHANGES >> 3] or words[layout.BOARD_STOPPED >> 3])

    def begin_in_python(self) -> None:
        """Stop native code from beginning tasks; Python begins all tasks from now on."""
        self._words[layout.BOARD_PYTHON >> 3] = 1

    def take_over(self, deadline: float) -> int:
        """Hand over to Python the next exchange of a task that has stopped, or was begun before `deadline`.

        deadline: in seconds of the monotonic clock.
        Returns the address of the exchange, or 0 if there is none.
        """
        return self._calls.take_over(self._address, min(int(min(deadline, 1e9) * 1e9), layout.NEVER))

    def cancel(self, exchange: Record) -> None:
        """Abandon an exchange if it is in flight."""
        self._calls.cancel(self._address, exchange.address)
