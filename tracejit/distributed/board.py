"""The native side of memory that ranks of one machine share: notices, blocks, and exchanges under way there.

The functions are machine code (`tracejit.kernels.ranks`), which comes from the kernel store like kernels. One
thread at a time uses a board.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.codegen.objects.loader import Kernel, Recipe, load
from tracejit.engine.machine import processors
from tracejit.engine.native import ENGINE, LANES, Record, function
from tracejit.kernels.executor.layout import COMMUNICATION, ENGINE_ACTIVE, LANE_READY
from tracejit.kernels.ranks import layout

MODULE = "tracejit.kernels.ranks.exchange"
RECIPE = Recipe("ranks", ("ranks",), lambda: f"from {MODULE} import RANKS\n", entries=(MODULE, "RANKS"))

ALONE, CROWDED = 200, 16
"""Looks until others may run, where each rank has a processor and where they share them."""


class _Calls(NamedTuple):
    """The entry points; the kernel that they are part of stays in memory with them."""

    begin: Callable[[int, int], int]
    cancel: Callable[[int, int], None]
    advance: Callable[[int, int], int]
    tell: Callable[[int, int, int, int], int]
    next_notice: Callable[[int, int, int], int]
    has_notice: Callable[[int, int, int], int]
    lend: Callable[[int], int]
    expect: Callable[[int, int, int], None]
    leave: Callable[[int, int, int], None]
    kernel: Kernel


@functools.cache
def _calls() -> _Calls:
    ((kernel, _),) = load([RECIPE])

    def quick(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=True)

    def long(name: str, arity: int) -> Callable[..., Any]:
        return function(kernel.addresses, f"ranks_{name}", arity, holds_gil=False)

    return _Calls(
        begin=long("begin", 2),
        cancel=quick("cancel", 2),
        advance=long("advance", 2),
        tell=quick("tell", 4),
        next_notice=quick("next_notice", 3),
        has_notice=quick("has_notice", 3),
        lend=quick("lend", 1),
        expect=quick("expect", 3),
        leave=quick("leave", 3),
        kernel=kernel,
    )


class Board:
    """The view that the rank at `seat` has of the `parts` of memory of all seats, which are zero at first.

    start, size, head: bytes before the first block, from block to block, and of a block's head.
    turn:              blocks that are lent in turn, as long as they are enough.
    """

    def __init__(self, parts: Sequence[np.ndarray], seat: int, start: int, size: int, turn: int) -> None:
        seats, blocks = len(parts), (len(parts[seat]) - start) // size
        self.seat, self._keep = seat, parts
        self._calls = _calls()
        self._record, self._lent = Record(layout.board_bytes(seats)), Record(8 * max(1, blocks))
        self._scratch, self._heard = Record(layout.scratch_bytes(seats)), Record(64 * layout.HEARD_BYTES)
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
            (layout.BOARD_LOOKS, ALONE if seats <= processors() else CROWDED),
            (layout.BOARD_READY, LANES[COMMUNICATION].address + LANE_READY),
            (layout.BOARD_ACTIVE, ENGINE.address + ENGINE_ACTIVE),
        ):
            self._words[place >> 3] = word
        for number, part in enumerate(parts):
            peer = layout.BOARD_PEERS + number * layout.PEER_BYTES
            self._words[(peer + layout.PEER_PART) >> 3] = part.ctypes.data
        self.blocks = blocks

    def advance(self, seconds: float = 0.0) -> bool:
        """Take what steps the exchanges can take, and note what has come; go on for so long, or until an
        exchange ends or the engine needs this thread or its processor. Returns whether there was something.
        """
        moved = self._calls.advance(self._address, int(seconds * 1e9))
        while moved == layout.FULL:
            self._grow()
            moved = self._calls.advance(self._address, 0) or 1
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

    def lend(self) -> int | None:
        """The offset of a block that nobody reads any more, or None."""
        return self._calls.lend(self._address) or None

    def expect(self, block: int, seat: int) -> None:
        """Note that `seat` will read a block."""
        self._calls.expect(self._address, block, seat)

    def leave(self, seat: int, place: int) -> None:
        """Note that this rank has read what lies in the part of `seat` at a place."""
        self._calls.leave(self._address, seat, place)

    def begin(self, exchange: Record) -> bool:
        """Begin an exchange, if there is a free block for it."""
        return bool(self._calls.begin(self._address, exchange.address))

    def cancel(self, exchange: Record) -> None:
        """Forget an exchange that is under way, if it is."""
        self._calls.cancel(self._address, exchange.address)
