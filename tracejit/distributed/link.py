"""An imitated network between ranks of one machine: it delays messages, and takes no processor.

    link = Link(latency=1e-4, bandwidth=1e9)
    link.add(nbytes, priority, send)    # `send` is called when so many bytes have arrived
    link.pump()                         # calls what has arrived by now
    link.due()                          # seconds until the next one arrives

A link carries one packet after the other, each of the most urgent message that waits, so that an urgent one
overtakes within a packet; a message arrives a latency after its last packet. What the link does is told by
the times at which messages were added, not by those at which somebody looks.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

PACKET = 1 << 16
"""Bytes between which an urgent message overtakes."""


@dataclass(eq=False, slots=True)
class _Message:
    """rank: what counts first. left: seconds that the link still needs for it."""

    rank: tuple[int, int]
    left: float
    added: float
    send: Callable[[], None]


class Link:
    """The link of one rank: seconds of latency, and bytes per second."""

    def __init__(self, latency: float, bandwidth: float) -> None:
        self._latency, self._bandwidth = latency, bandwidth
        self._waiting: list[_Message] = []
        self._travelling: list[tuple[float, int, Callable[[], None]]] = []  # by arrival
        self._numbers = itertools.count()
        self._free = time.monotonic()  # the end of the last packet
        self._next = 0.0  # nothing arrives before

    def add(self, nbytes: int, priority: int, send: Callable[[], None]) -> None:
        """Have `send` called when so many bytes have gone over the link."""
        now, seconds = time.monotonic(), nbytes / self._bandwidth
        self._waiting.append(_Message((-priority, next(self._numbers)), seconds, now, send))
        self._next = min(self._next, now + seconds + self._latency)

    def pump(self) -> bool:
        """Call what has arrived; return whether there was something."""
        now = time.monotonic()
        if now < self._next:
            return False
        while self._waiting and self._free <= now:
            self._carry(now)
        sent = False
        while self._travelling and self._travelling[0][0] <= now:
            heapq.heappop(self._travelling)[-1]()
            sent = True
        self._next = now + self.due()
        return sent

    def due(self) -> float:
        """Seconds until something arrives, if nothing is added; infinite if nothing will."""
        if self._travelling:
            return self._travelling[0][0] - time.monotonic()
        if self._waiting:
            first = min(self._waiting, key=lambda message: message.rank)
            begins = max(self._free, min(message.added for message in self._waiting))
            return begins + first.left + self._latency - time.monotonic()
        return math.inf

    def _carry(self, now: float) -> None:
        """Carry packets of the most urgent message until it is over, a more urgent one came, or `now`."""
        self._free = max(self._free, min(message.added for message in self._waiting))
        first = min((m for m in self._waiting if m.added <= self._free), key=lambda m: m.rank)
        until = min((m.added for m in self._waiting if m.rank < first.rank), default=now)
        seconds, packet = first.left, PACKET / self._bandwidth
        if seconds > until - self._free:
            seconds = min(seconds, packet * (1 + (until - self._free) // packet))
        self._free += seconds
        first.left -= seconds
        if first.left <= 0:
            self._waiting.remove(first)
            arrival = self._free + self._latency
            heapq.heappush(self._travelling, (arrival, first.rank[1], first.send))
