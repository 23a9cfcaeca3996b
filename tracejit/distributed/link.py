"""An emulated network link between ranks of one machine, which delays messages without using a processor.

    link = Link(latency=1e-4, bandwidth=1e9)
    link.add(nbytes, priority, send)    # `send` is called when so many bytes have arrived
    link.pump()                         # calls `send` of all messages that have arrived by now
    link.due()                          # seconds until the next arrival

A link transmits one packet at a time, always of the queued message with the highest priority, so an urgent
message overtakes others after at most one packet. A message arrives one latency after its last packet.
Arrival times depend only on the times at which messages were added, not on when the link is polled.

The emulation is native code (`kernels.ranks.link`), so exchanges in shared memory put their notices on the
link without Python.
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
"""Bytes of a packet, after which a message of higher priority overtakes."""

SECOND = 1_000_000_000
MAX_SECONDS = 1e9  # seconds: upper bound of a latency and of a message's transmission


class Link:
    """The link of one rank; its latency in seconds and its bandwidth in bytes per second.

    board: address of the native board that sends the notices of exchanges when they arrive.
    """

    def __init__(self, latency: float, bandwidth: float) -> None:
        self.board = 0
        self._calls, self._bandwidth = calls(), bandwidth
        self._record = Record(LINK_BYTES)
        self.address = self._record.address
        for offset, value in (
            (LINK_LATENCY, min(latency, MAX_SECONDS) * SECOND),
            (LINK_BANDWIDTH, max(1.0, min(bandwidth, 1e18))),
            (LINK_PACKET, max(1.0, min(PACKET / bandwidth, MAX_SECONDS) * SECOND)),
        ):
            self._record.words[offset >> 3] = int(value)
        self._sending: list[tuple[Record, Callable[[], None]]] = []

    def add(self, nbytes: int, priority: int, send: Callable[[], None]) -> None:
        """Queue a message of `nbytes`; `pump` calls `send` once it has arrived."""
        message = Record(MESSAGE_BYTES)
        message.words[MESSAGE_PRIORITY >> 3] = priority
        message.words[MESSAGE_SEAT >> 3] = -1
        self._sending.append((message, send))
        seconds = min(nbytes / self._bandwidth, MAX_SECONDS)
        self._calls.add_to_link(self.address, message.address, int(seconds * SECOND))

    def pump(self) -> bool:
        """Deliver the messages that have arrived, in order of arrival; return whether there were any."""
        advanced = self._calls.arrive(self.address, self.board) > 0
        if not self._sending:
            return advanced
        arrived, remaining = [], []
        for message, send in self._sending:
            words = message.words
            if words[MESSAGE_STATE >> 3] == ARRIVED:
                arrived.append((words[MESSAGE_ARRIVAL >> 3], words[MESSAGE_NUMBER >> 3], send))
            else:
                remaining.append((message, send))
        self._sending = remaining
        for _, _, send in sorted(arrived, key=itemgetter(0, 1)):
            send()
        return advanced or bool(arrived)

    def due(self) -> float:
        """Seconds until the next arrival unless a message is added; infinite if the link is empty."""
        time = self._calls.due(self.address)
        return math.inf if time == NEVER else time / SECOND
