"""An imitated network between ranks of one machine: it delays messages, and takes no processor.

    link = Link(latency=1e-4, bandwidth=1e9)
    link.add(nbytes, priority, send)    # `send` is called when so many bytes have arrived
    link.pump()                         # calls what has arrived by now
    link.due()                          # seconds until the next one arrives

A link carries one packet after the other, each of the most urgent message that waits, so that an urgent one
overtakes within a packet; a message arrives a latency after its last packet. What the link does is told by
the times at which messages were added, not by those at which somebody looks.

Machine code does this (`kernels.ranks.link`): exchanges in shared memory put their notices on the link
without Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter

from tracejit.distributed.calls import calls
from tracejit.engine.native import Record
from tracejit.kernels.ranks.layout import (
    ARRIVED,
    LINK_BANDWIDTH,
    LINK_BYTES,
    LINK_LATENCY,
    LINK_PACKET,
    MESSAGE_ARRIVAL,
    MESSAGE_BYTES,
    MESSAGE_NUMBER,
    MESSAGE_PRIORITY,
    MESSAGE_SEAT,
    MESSAGE_STATE,
    NEVER,
)

PACKET = 1 << 16
"""Bytes between which an urgent message overtakes."""

SECOND = 1_000_000_000
LONGEST = 1e9  # seconds, of a latency or a message


class Link:
    """The link of one rank: seconds of latency, and bytes per second.

    board: address of the native record by which notices are told that exchanges put on the link.
    """

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.board = 0
        self._calls, self._bandwidth = calls(), bandwidth
        self._record = Record(LINK_BYTES)
        self.address = self._record.address
        for place, word in (
            (LINK_LATENCY, min(latency, LONGEST) * SECOND),
            (LINK_BANDWIDTH, max(1.0, min(bandwidth, 1e18))),
            (LINK_PACKET, max(1.0, min(PACKET / bandwidth, LONGEST) * SECOND)),
        ):
            self._record.words[place >> 3] = int(word)
        self._sending: list[tuple[Record, Callable[[], None]]] = []

    def add(self, nbytes: int, priority: int, send: Callable[[], None]) -> None:
        """Have `send` called when so many bytes have gone over the link."""
        message = Record(MESSAGE_BYTES)
        message.words[MESSAGE_PRIORITY >> 3] = priority
        message.words[MESSAGE_SEAT >> 3] = -1
        self._sending.append((message, send))
        seconds = min(nbytes / self._bandwidth, LONGEST)
        self._calls.add_to_link(self.address, message.address, int(seconds * SECOND))

    def pump(self) -> bool:
        """Call what has arrived; return whether there was something."""
        moved = self._calls.arrive(self.address, self.board) > 0
        if not self._sending:
            return moved
        arrived, left = [], []
        for message, send in self._sending:
            words = message.words
            if words[MESSAGE_STATE >> 3] == ARRIVED:
                arrived.append((words[MESSAGE_ARRIVAL >> 3], words[MESSAGE_NUMBER >> 3], send))
            else:
                left.append((message, send))
        self._sending = left
        for _, _, send in sorted(arrived, key=itemgetter(0, 1)):
            send()
        return moved or bool(arrived)

    def due(self) -> float:
        """Seconds until something arrives, if nothing is added; infinite if nothing will."""
        time = self._calls.due(self.address)
        return math.inf if time == NEVER else time / SECOND
