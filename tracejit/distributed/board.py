"""The native side of memory that ranks of one machine share: notices, blocks, and exchanges under way there.

The functions are machine code (see `calls`). One thread at a time uses a board.
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

ALONE, CROWDED = 200, 16
"""Looks until others may run, where each rank has a processor and where they share them."""


class Board:
    """The view that the rank at `seat` has of the `parts` of memory of all seats, which are zero at first.

    start, size, head: bytes before the first block, from block to block, and of a block's head.
    turn:              blocks that are lent in turn, as long as they are enough.
    processes:         numbers of the processes of all seats, where they may read one another's memory.
    """

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        seat: int,
        start: int,
        size: int,
        turn: int,
        processes: Sequence[int] = (),
    ) -> None:
        seats, blocks = len(parts), (len(parts[seat]) - start) // size
        self.seat, self._keep = seat, parts
        self._calls = calls()
        self._record, self._lent = Record(layout.board_bytes(seats)), Record(8 * max(1, blocks))
        self._scratch, self._heard = Record(layout.scratch_bytes(seats)), Record(64 * layout.HEARD_BYTES)
        self._rows = Record(layout.rows_bytes(seats) if processes else 0)
        self._address, self._words = self._record.address, self._record.words
        for place, word in (
            (layout.BOARD_SEATS, seats),
            (layout.BOARD_SEAT, seat),
            (layout.BOARD_START, start),
            (layout.BOARD_SIZE, size),
            (layout.BOARD_HEAD, layout.head_bytes(seats)),
            (layout.BOARD_BLOCKS, blocks),
            (layout.BOARD_TURN, max(1, min(turn, blocks))),
            (layout.BOARD_LENT, self._lent.address),
            (layout.BOARD_HEARD, self._heard.address),
            (layout.BOARD_HEARD_ROOM, 64),
            (layout.BOARD_SCRATCH, self._scratch.address),
            (layout.BOARD_ROWS, self._rows.address),
            (layout.BOARD_COUNTS, layout.counts_at(seats)),
            (layout.BOARD_LOOKS, ALONE if seats <= processors() else CROWDED),
            (layout.BOARD_ENGINE, ENGINE.address),
            (layout.BOARD_LANE, LANES[COMMUNICATION].address),
        ):
            self._words[place >> 3] = word
        for number, part in enumerate(parts):
            peer = layout.BOARD_PEERS + number * layout.PEER_BYTES
            self._words[(peer + layout.PEER_PART) >> 3] = part.ctypes.data
            self._words[(peer + layout.PEER_PROCESS) >> 3] = processes[number] if processes else 0
        self.blocks = blocks

    def imitate(self, link: Link) -> None:
        """Have notices of exchanges that begin from now on travel over a link."""
        self._words[layout.BOARD_LINK >> 3] = link.address
        link.board = self._address

    def advance(self, seconds: float = 0.0, thread: int = 0, votes: int = 0) -> bool:
        """Take what steps the exchanges can take, and note what has come; go on for so long, or until an
        exchange ends. Returns whether there was something.

        thread: the record of this thread, if it is that of communication; a task for it ends the wait.
        votes:  so many notices of agreements end the wait, too; 0: none are awaited.
        """
        self._words[layout.BOARD_VOTES >> 3] = votes
        moved = self._calls.advance(self._address, thread, int(seconds * 1e9))
        while moved == layout.FULL:
            self._grow()
            moved = self._calls.advance(self._address, 0, 0) or 1
        return moved > 0

    def _grow(self) -> None:
        """Have twice the room for notices that nobody has consumed."""
        before, room = self._heard, self._words[layout.BOARD_HEARD_ROOM >> 3]
        self._heard = Record(2 * room * layout.HEARD_BYTES)
        self._heard.words[: len(before.words)] = before.words
        self._words[layout.BOARD_HEARD >> 3] = self._heard.address
        self._words[layout.BOARD_HEARD_ROOM >> 3] = 2 * room

    def tell(self, seat: int, key: int, word: int) -> bool:
        """Tell the rank of `seat` a word, if there is room in its ring."""
        return bool(self._calls.tell(self._address, seat, key, word))

    def next_notice(self, seat: int, key: int) -> int | None:
        """The next word that `seat` has told with this key, or None."""
        word = self._calls.next_notice(self._address, seat, key)
        return None if word == layout.NOTHING else word

    def has_notice(self, seat: int, key: int) -> bool:
        """Whether `seat` has told a word with this key that nobody has asked for."""
        return bool(self._calls.has_notice(self._address, seat, key))

    def read(self, seat: int, target: int, source: int, nbytes: int) -> bool:
        """Copy bytes of the process of a seat, from its address `source` to this one's `target`; returns
        whether it could be done.
        """
        return bool(self._calls.read(self._address, seat, target, source, nbytes))

    def lend(self) -> int | None:
        """The offset of a block that nobody reads any more, or None."""
        return self._calls.lend(self._address) or None

    def expect(self, block: int, seat: int) -> None:
        """Note that `seat` will read a block."""
        self._calls.expect(self._address, block, seat)

    def leave(self, seat: int, place: int) -> None:
        """Note that this rank has read what lies in the part of `seat` at a place."""
        self._calls.leave(self._address, seat, place)

    def begin(self, exchange: Record, array: np.ndarray, *about: int) -> bool:
        """Begin an exchange of an array, if there is a free block for it.

        about: key, number of elements, sum, whole, way, priority, and nanoseconds for which to go on with all
        exchanges, as `advance` does.
        """
        return bool(self._calls.begin(self._address, exchange.address, array.__array_struct__, *about))

    @property
    def is_busy(self) -> bool:
        """Whether exchanges are under way, or one of a task has stopped."""
        words = self._words
        return bool(words[layout.BOARD_EXCHANGES >> 3] or words[layout.BOARD_STOPPED >> 3])

    def begin_in_python(self) -> None:
        """Have machine code begin no more tasks."""
        self._words[layout.BOARD_PYTHON >> 3] = 1

    def take_over(self, before: float) -> int:
        """The address of the next exchange of a task that has stopped, or was begun before a time in seconds;
        0 if there is none.
        """
        return self._calls.take_over(self._address, min(int(min(before, 1e9) * 1e9), layout.NEVER))

    def cancel(self, exchange: Record) -> None:
        """Forget an exchange that is under way, if it is."""
        self._calls.cancel(self._address, exchange.address)
