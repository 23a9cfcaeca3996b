"""Messages on their way out: the most urgent first, few at a time.

    handle = outbox.add(comm, peer, buffer, tag, priority)
    outbox.pump()          # gives the most urgent to MPI
    handle.Test()          # whether MPI has taken it

At most `WINDOW` messages are with MPI at a time, so that an urgent one overtakes those that wait. Ranks may
order their messages differently, so a full window could wait for one that waits for this rank; one that has
not moved for `STALLED` seconds lets one more through.

`TRACEJIT_LINK=latency,bandwidth` (seconds, bytes per second) imitates a slow network without using a
processor: a message takes its bytes' time on this rank's link, one after the other, and then the latency,
before MPI gets it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from typing import Any

import numpy as np

WINDOW = 16
STALLED = 5e-3


class Handle:
    """A message on its way: one to send, or one that is expected from `peer`."""

    __slots__ = ("begun", "buffer", "peer", "request")

    def __init__(self, peer: int, buffer: Any, request: Any = None) -> None:
        self.peer, self.buffer, self.request = peer, buffer, request
        self.begun = time.monotonic()

    def Test(self) -> bool:
        """Whether it has arrived, or its memory may be used again."""
        return self.request is not None and bool(self.request.Test())


class Outbox:
    """The messages that this rank has to send. `link`: seconds of latency, and bytes per second."""

    def __init__(self, link: tuple[float, float] | None = None) -> None:
        self._link = link
        self._waiting: list[tuple[int, int, Handle, Any]] = []
        self._travelling: list[tuple[float, int, Handle, Any]] = []  # on the imitated link, by arrival
        self._sent: list[Handle] = []
        self._numbers = itertools.count()
        self._moved = self._free = time.monotonic()

    def add(self, comm: Any, peer: int, array: np.ndarray, tag: int, priority: int) -> Handle:
        """Have the contiguous `array` sent; its memory stays as it is until the handle's test is true."""
        handle = Handle(peer, array.view(np.uint8))
        heapq.heappush(self._waiting, (-priority, next(self._numbers), handle, (comm, tag)))
        return handle

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
            _, _, handle, (comm, tag) = heapq.heappop(self._waiting)
            self._send(handle, comm, tag)
            self._sent.append(handle)
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
            _, number, handle, route = heapq.heappop(self._waiting)
            self._free = max(self._free, handle.begun) + handle.buffer.nbytes / bandwidth
            heapq.heappush(self._travelling, (self._free + latency, number, handle, route))
        while self._travelling and self._travelling[0][0] <= now:
            _, _, handle, (comm, tag) = heapq.heappop(self._travelling)
            self._send(handle, comm, tag)

    def _send(self, handle: Handle, comm: Any, tag: int) -> None:
        handle.request = comm.Isend(handle.buffer, handle.peer, tag)
