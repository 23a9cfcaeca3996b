"""The messages of one operation: between ranks of one machine through memory that they share.

    channel.send(peer, array), channel.receive(peer, array)     # as messages
    handles = channel.give({1: slice, 2: other})                # through shared memory where there is some
    arrival = channel.take(peer, like)                          # `arrival.array` once its test is true
    arrival.release()                                           # when it has been read

What lies in shared memory is announced by a notice with its place (see `window`), and one that has found no
place there by a notice that says so: the array then comes as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tracejit.distributed.outbox import Handle, Outbox, Told
from tracejit.distributed.scratch import Scratch
from tracejit.distributed.window import Window

NOWHERE = -1
PHASES = 2
"""Tags that one operation takes."""


class Channel:
    """The messages of one phase of an operation: a communicator and a tag, the key of notices, a priority."""

    __slots__ = ("_comm", "_outbox", "_priority", "_tag", "key", "scratch", "window")

    def __init__(
        self,
        outbox: Outbox,
        scratch: Scratch,
        window: Window | None,
        comm: Any,
        tag: int,
        key: int,
        priority: int,
    ) -> None:
        self.scratch, self.window, self.key = scratch, window, key
        self._outbox, self._comm, self._tag, self._priority = outbox, comm, tag, priority

    def next(self) -> Channel:
        """The channel of the operation's second phase."""
        tag, key = self._tag + 1, self.key + 1
        return Channel(self._outbox, self.scratch, self.window, self._comm, tag, key, self._priority)

    def apart(self) -> Channel:
        """The same without shared memory."""
        return Channel(self._outbox, self.scratch, None, self._comm, self._tag, self.key, self._priority)

    def shares(self, peer: int) -> bool:
        """Whether `peer` reads this rank's memory."""
        return self.window is not None and peer in self.window.peers

    def send(self, peer: int, array: np.ndarray) -> Handle:
        return self._outbox.add(self._comm, peer, array, self._tag, self._priority)

    def receive(self, peer: int, array: np.ndarray) -> Handle:
        buffer = array.view(np.uint8)
        return Handle(peer, buffer, self._comm.Irecv(buffer, peer, self._tag))

    def give(self, arrays: Mapping[int, np.ndarray]) -> list[Handle | Told]:
        """Give each rank its array, which stays as it is until all handles' tests are true."""
        window = self.window
        if window is None:
            return [self.send(peer, array) for peer, array in arrays.items()]
        near = {peer: array for peer, array in arrays.items() if peer in window.peers}
        places = window.store(near)
        handles: list[Handle | Told] = []
        for peer, array in near.items():
            place = places.get(peer, NOWHERE)
            tell = partial(window.notices.tell, peer, self.key, place)
            nbytes = 0 if place == NOWHERE else array.nbytes
            handles += self._outbox.tell(peer, nbytes, self._priority, tell)
        return handles + [self.send(peer, array) for peer, array in arrays.items() if peer not in places]

    def take(self, peer: int, like: np.ndarray, into: np.ndarray | None = None) -> Arrival:
        """What `peer` gives: of the size and dtype of `like`; written `into` an array, or anywhere."""
        return Arrival(self, peer, like, into)


class Arrival:
    """An array that is expected from `peer`: in `array` once the test is true, until it is released."""

    __slots__ = ("_channel", "_handle", "_into", "_like", "_place", "array", "peer")

    def __init__(self, channel: Channel, peer: int, like: np.ndarray, into: np.ndarray | None) -> None:
        self.peer, self._channel, self._like, self._into = peer, channel, like, into
        self.array = like
        self._place: int | None = None
        self._handle = None if channel.shares(peer) else self._as_message()

    def _as_message(self) -> Handle:
        self.array = self._channel.scratch.take(self._like) if self._into is None else self._into
        return self._channel.receive(self.peer, self.array)

    def Test(self) -> bool:
        """Whether it has come. Where it lies in shared memory and shall be elsewhere, this copies it."""
        if self._handle is not None:
            return self._handle.Test()
        if self._place is None:
            window = self._channel.window
            assert window is not None
            self._place = window.notices.next_of(self.peer, self._channel.key)
            if self._place is None:
                return False
            if self._place == NOWHERE:
                self._handle = self._as_message()
                return self._handle.Test()
            self.array = window.look(self.peer, self._place, self._like)
            if self._into is not None:
                self._into[...] = self.array
                window.leave(self.peer, self._place)
        return True

    def release(self) -> None:
        """Note that the array has been read; not for one that was written into another."""
        if self._handle is not None:
            self._channel.scratch.give(self.array)
        else:
            assert self._channel.window is not None
            assert self._place is not None
            self._channel.window.leave(self.peer, self._place)
