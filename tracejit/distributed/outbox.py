"""Messages on their way out: the most urgent first, few at a time.

    handle = outbox.add(comm, peer, buffer, tag, priority)
    outbox.pump()          # gives the most urgent to MPI
    handle.Test()          # whether MPI has taken it

At most `WINDOW` messages are with MPI at a time, so that an urgent one overtakes those that wait. Ranks may
order their messages differently, so a full window could wait for one that waits for this rank; one that has
not moved for `STALLED` seconds lets one more through.

`TRACEJIT_LINK=latency,bandwidth` (seconds, bytes per second) imitates a slow network without using a
processor: a message takes its bytes' time on this rank's link, one after the other, and then the latency,
before MPI gets it, or others are told that it lies in shared memory.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WINDOW = 16
STALLED = 5e-3


_Entry = tuple[float, int, int, float, Callable[[], None]]
"""A message in a queue: sort key, number, bytes, the time it began to wait, the function that sends it."""


class Handle:
    """A message on its way: one to send, or one that is expected. peers: the rank that it waits for."""

    __slots__ = ("buffer", "peers", "request")

    def __init__(self, peer: int, buffer: Any, request: Any = None) -> None:
        self.peers, self.buffer, self.request = (peer,), buffer, request

    def Test(self) -> bool:
        """Whether it has arrived, or its memory may be used again."""
        return self.request is not None and bool(self.request.Test())


class Told:
    """An announcement to `peer` on its way over an imitated link."""

    __slots__ = ("_is_sent", "_send", "peers")

    def __init__(self, peer: int, send: Callable[[], None]) -> None:
        self.peers, self._send, self._is_sent = (peer,), send, False

    def send(self) -> None:
        self._send()
        self._is_sent = True

    def Test(self) -> bool:
        """Whether it has arrived."""
        return self._is_sent


class Outbox:
    """The messages that this rank has to send. `link`: seconds of latency, and bytes per second."""

    def __init__(self, link: tuple[float, float] | None = None) -> None:
        self._link = link
        self._waiting: list[_Entry] = []
        self._travelling: list[_Entry] = []  # on the imitated link, by arrival
        self._sent: list[Handle] = []
        self._numbers = itertools.count()
        self._moved = self._free = time.monotonic()

    @property
    def imitates(self) -> bool:
        """Whether there is a link to imitate."""
        return self._link is not None

    def add(self, comm: Any, peer: int, array: np.ndarray, tag: int, priority: int) -> Handle:
        """Have the contiguous `array` sent; its memory stays as it is until the handle's test is true."""
        handle = Handle(peer, array.view(np.uint8))

        def send() -> None:
            handle.request = comm.Isend(handle.buffer, peer, tag)
            self._sent.append(handle)

        self._wait(array.nbytes, priority, send)
        return handle

    def tell(self, peer: int, nbytes: int, priority: int, send: Callable[[], None]) -> list[Told]:
        """Have `send` called, which announces so many bytes to `peer`: at once where there is no link to
        imitate. Returns what there is to wait for.
        """
        if self._link is None:
            send()
            return []
        told = Told(peer, send)
        self._wait(nbytes, priority, told.send)
        return [told]

    def _wait(self, nbytes: int, priority: int, send: Callable[[], None]) -> None:
        entry = -priority, next(self._numbers), nbytes, time.monotonic(), send
        heapq.heappush(self._waiting, entry)

    def pump(self) -> None:
        """Give MPI what may go now."""
        if not self._waiting and not self._travelling:
            return
        now = time.monotonic()
        if self._link is not None:
            self._travel(now, *self._link)
            return
        before = len(self._sent)
        self._sent = [handle for handle in self._sent if not handle.Test()]
        if len(self._sent) < before:
            self._moved = now
        while self._waiting and (len(self._sent) < WINDOW or now - self._moved > STALLED):
            heapq.heappop(self._waiting)[-1]()
            self._moved = now

    def due(self) -> float:
        """Seconds until there is something to do for an imitated link; infinite without one."""
        if self._link is None:
            return math.inf
        moments = [self._free] if self._waiting else []
        moments += [arrival for arrival, *_ in self._travelling[:1]]
        return min(moments, default=math.inf) - time.monotonic()

    def _travel(self, now: float, latency: float, bandwidth: float) -> None:
        while self._waiting and self._free <= now:
            _, number, nbytes, begun, send = heapq.heappop(self._waiting)
            self._free = max(self._free, begun) + nbytes / bandwidth
            heapq.heappush(self._travelling, (self._free + latency, number, nbytes, begun, send))
        while self._travelling and self._travelling[0][0] <= now:
            heapq.heappop(self._travelling)[-1]()
        self._sent.clear()  # how many are with MPI is up to the link
