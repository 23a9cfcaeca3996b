"""Outgoing messages: a priority queue in front of MPI, with a bounded number of messages in flight.

    handle = outbox.add(comm, peer, buffer, tag, priority)
    outbox.pump()          # passes the messages of highest priority to MPI
    handle.Test()          # whether MPI has sent the message

At most `WINDOW` messages are in flight in MPI, so an urgent message overtakes the queued ones. A long message
between machines is split into chunks, and can be overtaken after each of them. Ranks may order their messages
differently, so two full windows could wait for each other; a window that has not advanced for `STALLED`
seconds therefore admits one more message.

`TRACEJIT_LINK=latency,bandwidth` (seconds, bytes per second) emulates a slow network (see `link`): a message
passes over this rank's link before it is passed to MPI, or before its presence in shared memory is announced.
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
CHUNK = 1 << 18
"""Bytes of a chunk of a message between machines."""

_Entry = tuple[int, int, Callable[[], None]]
"""A queued message: its negated priority, a sequence number, and the function that sends it."""


class Handle:
    """A message in flight, sent or expected.

    peers:    the rank that sends or receives it.
    buffer:   its memory, kept alive.
    requests: MPI's requests, one per chunk.
    unsent:   number of chunks that have not been passed to MPI.
    """

    __slots__ = ("buffer", "peers", "requests", "unsent")

    def __init__(self, peer: int, buffer: Any, requests: Sequence[Any] = (), unsent: int = 0) -> None:
        self.peers, self.buffer, self.requests, self.unsent = (peer,), buffer, list(requests), unsent

    def Test(self) -> bool:
        """Whether an expected message has arrived, or the buffer of a sent one may be reused."""
        self.requests = [request for request in self.requests if not request.Test()]
        return not self.requests and not self.unsent


class Announcement:
    """An announcement to `peer` in flight on an emulated link."""

    __slots__ = ("_is_sent", "_send", "peers")

    def __init__(self, peer: int, send: Callable[[], None]) -> None:
        self.peers, self._send, self._is_sent = (peer,), send, False

    def send(self) -> None:
        self._send()
        self._is_sent = True

    def Test(self) -> bool:
        """Whether the announcement has arrived."""
        return self._is_sent


class Outbox:
    """The outgoing messages of this rank.

    link:        latency in seconds and bandwidth in bytes per second of an emulated link; None: no emulation.
    local_ranks: ranks on this machine, to which messages are not split.
    """

    def __init__(self, link: tuple[float, float] | None = None, local_ranks: Collection[int] = ()) -> None:
        self._local_ranks = frozenset(local_ranks)
        self.link = None if link is None else Link(*link)
        self._waiting: list[_Entry] = []
        self._in_flight: list[Any] = []  # requests
        self._numbers = itertools.count()
        self._last_progress = time.monotonic()

    def add(self, comm: Any, peer: int, array: np.ndarray, tag: int, priority: int) -> Handle:
        """Queue a contiguous array, which must not change until the test of the returned handle is true."""
        buffer = array.view(np.uint8)
        chunks = self.chunks(peer, buffer)
        handle = Handle(peer, buffer, unsent=len(chunks))

        def send(chunk: np.ndarray) -> None:
            request = comm.Isend(chunk, peer, tag)
            handle.requests.append(request)
            handle.unsent -= 1
            if self.link is None:
                self._in_flight.append(request)

        for chunk in chunks:
            if self.link is None:
                entry: _Entry = -priority, next(self._numbers), partial(send, chunk)
                heapq.heappush(self._waiting, entry)
            else:
                self.link.add(chunk.nbytes, priority, partial(send, chunk))
        return handle

    def chunks(self, peer: int, buffer: np.ndarray) -> list[np.ndarray]:
        """Split a buffer into the chunks in which it travels to or from `peer`."""
        if peer in self._local_ranks or buffer.nbytes <= CHUNK:
            return [buffer]
        return [buffer[start : start + CHUNK] for start in range(0, buffer.nbytes, CHUNK)]

    def announce(self, peer: int, nbytes: int, priority: int, send: Callable[[], None]) -> list[Announcement]:
        """Call `send`, which announces `nbytes` to `peer`: now, or once they have passed the emulated link.

        Returns the announcements in flight, for which the caller waits.
        """
        if self.link is None:
            send()
            return []
        announcement = Announcement(peer, send)
        self.link.add(nbytes, priority, announcement.send)
        return [announcement]

    def pump(self) -> bool:
        """Pass queued messages to MPI; return whether a message has arrived over an emulated link."""
        if self.link is not None:
            return self.link.pump()
        if not self._waiting:
            return False
        now = time.monotonic()
        before = len(self._in_flight)
        self._in_flight = [request for request in self._in_flight if not request.Test()]
        if len(self._in_flight) < before:
            self._last_progress = now
        while self._waiting and (len(self._in_flight) < WINDOW or now - self._last_progress > STALLED):
            heapq.heappop(self._waiting)[-1]()
            self._last_progress = now
        return False

    def due(self) -> float:
        """Seconds until the next arrival over the emulated link; infinite without one."""
        return math.inf if self.link is None else self.link.due()
