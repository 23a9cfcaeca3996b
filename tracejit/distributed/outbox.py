"""Messages on their way out: the most urgent first, few at a time.

    handle = outbox.add(comm, peer, buffer, tag, priority)
    outbox.pump()          # gives the most urgent to MPI
    handle.Test()          # whether MPI has taken it

At most `WINDOW` messages are with MPI at a time, so that an urgent one overtakes those that wait; a long one
between machines is cut into pieces, and overtaken between two of them. Ranks may order their messages
differently, so a full window could wait for one that waits for this rank; one that has not moved for
`STALLED` seconds lets one more through.

`TRACEJIT_LINK=latency,bandwidth` (seconds, bytes per second) imitates a slow network (see `link`): a message
goes over this rank's link before MPI gets it, or others are told that it lies in shared memory.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracejit.distributed.link import Link

WINDOW = 16
STALLED = 5e-3
PIECE = 1 << 18
"""Bytes of a message between machines that MPI gets at a time."""

_Entry = tuple[int, int, Callable[[], None]]
"""A message that waits: its priority, negative; a number; the function that sends it."""


class Handle:
    """A message on its way: one to send, or one that is expected. peers: the rank that it waits for.

    requests: MPI's, one for each piece. waiting: pieces that MPI has not got yet.
    """

    __slots__ = ("buffer", "peers", "requests", "waiting")

    def __init__(self, peer: int, buffer: Any, requests: Sequence[Any] = (), waiting: int = 0) -> None:
        self.peers, self.buffer, self.requests, self.waiting = (peer,), buffer, list(requests), waiting

    def Test(self) -> bool:
        """Whether it has arrived, or its memory may be used again."""
        self.requests = [request for request in self.requests if not request.Test()]
        return not self.requests and not self.waiting


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
    """The messages that this rank has to send.

    link: seconds of latency, and bytes per second. near: ranks on this machine, whose messages are whole.
    """

    def __init__(self, link: tuple[float, float] | None = None, near: Collection[int] = ()) -> None:
        self._near = frozenset(near)
        self.link = None if link is None else Link(*link)
        self._waiting: list[_Entry] = []
        self._sent: list[Any] = []  # requests
        self._numbers = itertools.count()
        self._moved = time.monotonic()

    def add(self, comm: Any, peer: int, array: np.ndarray, tag: int, priority: int) -> Handle:
        """Have the contiguous `array` sent; its memory stays as it is until the handle's test is true."""
        buffer = array.view(np.uint8)
        parts = self.pieces(peer, buffer)
        handle = Handle(peer, buffer, waiting=len(parts))

        def send(part: np.ndarray) -> None:
            request = comm.Isend(part, peer, tag)
            handle.requests.append(request)
            handle.waiting -= 1
            if self.link is None:
                self._sent.append(request)

        for part in parts:
            if self.link is None:
                entry: _Entry = -priority, next(self._numbers), partial(send, part)
                heapq.heappush(self._waiting, entry)
            else:
                self.link.add(part.nbytes, priority, partial(send, part))
        return handle

    def pieces(self, peer: int, buffer: np.ndarray) -> list[np.ndarray]:
        """The parts in which bytes travel to or from `peer`."""
        if peer in self._near or buffer.nbytes <= PIECE:
            return [buffer]
        return [buffer[start : start + PIECE] for start in range(0, buffer.nbytes, PIECE)]

    def tell(self, peer: int, nbytes: int, priority: int, send: Callable[[], None]) -> list[Told]:
        """Have `send` called, which announces so many bytes to `peer`: at once where there is no link to
        imitate. Returns what there is to wait for.
        """
        if self.link is None:
            send()
            return []
        told = Told(peer, send)
        self.link.add(nbytes, priority, told.send)
        return [told]

    def pump(self) -> bool:
        """Give MPI what may go now; return whether something has come over an imitated link."""
        if self.link is not None:
            return self.link.pump()
        if not self._waiting:
            return False
        now = time.monotonic()
        before = len(self._sent)
        self._sent = [request for request in self._sent if not request.Test()]
        if len(self._sent) < before:
            self._moved = now
        while self._waiting and (len(self._sent) < WINDOW or now - self._moved > STALLED):
            heapq.heappop(self._waiting)[-1]()
            self._moved = now
        return False

    def due(self) -> float:
        """Seconds until something arrives over an imitated link; infinite without one."""
        return math.inf if self.link is None else self.link.due()
