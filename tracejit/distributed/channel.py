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

from tracejit.distributed.near import Near
from tracejit.distributed.outbox import Handle, Outbox, Told
from tracejit.distributed.scratch import Scratch
from tracejit.distributed.window import SharedWindow

NOWHERE = -1


class Channel:
    """The messages of one phase of an operation: a communicator and a tag, the key of notices, a priority.

    members: who takes part; a peer is a position among them.
    beside:  whether the operation goes on beside kernels; no thread waits for it.
    """

    __slots__ = ("_comm", "_members", "_outbox", "_priority", "_tag", "beside", "key", "scratch", "window")

    def __init__(
        self,
        outbox: Outbox,
        scratch: Scratch,
        window: SharedWindow | None,
        comm: Any,
        tag: int,
        key: int,
        priority: int,
        members: tuple[int, ...],
        *,
        beside: bool,
    ) -> None:
        self.beside = beside
        self.scratch, self.window, self.key, self._members = scratch, window, key, members
        self._outbox, self._comm, self._tag, self._priority = outbox, comm, tag, priority

    def next(self) -> Channel:
        """The channel of the operation's second phase."""
        return self._like(self.window, 1)

    def apart(self) -> Channel:
        """The channel without shared memory."""
        return self._like(None, 0)

    def _like(self, window: SharedWindow | None, later: int) -> Channel:
        tag, key = self._tag + later, self.key + later
        return Channel(
            self._outbox,
            self.scratch,
            window,
            self._comm,
            tag,
            key,
            self._priority,
            self._members,
            beside=self.beside,
        )

    def send(self, peer: int, array: np.ndarray) -> Handle:
        return self._outbox.add(self._comm, self._members[peer], array, self._tag, self._priority)

    def receive(self, peer: int, array: np.ndarray) -> Handle:
        buffer, source = array.view(np.uint8), self._members[peer]
        parts = self._outbox.pieces(source, buffer)
        return Handle(source, buffer, [self._comm.Irecv(part, source, self._tag) for part in parts])

    def give(self, arrays: Mapping[int, np.ndarray]) -> list[Handle | Told]:
        """Give each peer its array, which stays as it is until all handles' tests are true."""
        window, members = self.window, self._members
        if window is None:
            return [self.send(peer, array) for peer, array in arrays.items()]
        near = {members[p]: array for p, array in arrays.items() if members[p] in window.peers}
        places = window.store(near)
        handles: list[Handle | Told] = []
        for rank, array in near.items():
            place = places.get(rank, NOWHERE)
            tell = partial(window.notices.tell, rank, self.key, place)
            nbytes = 0 if place == NOWHERE else array.nbytes
            handles += self._outbox.tell(rank, nbytes, self._priority, tell)
        return handles + [self.send(p, array) for p, array in arrays.items() if members[p] not in places]

    def exchange(self, array: np.ndarray, combine: str, *, whole: bool) -> Near | None:
        """Begin to combine an array with those of all members by machine code; None where it cannot. See
        `Window.exchange`.
        """
        window, members = self.window, self._members
        if window is None or not window.ranks.issuperset(members):
            return None
        return window.exchange(
            array, combine, members, self.key, self._priority, whole=whole, in_order=not self.beside
        )

    def forget(self, near: Near) -> None:
        """Cancel an exchange, unless it has ended."""
        assert self.window is not None
        self.window.forget(near)

    def take(self, peer: int, like: np.ndarray, into: np.ndarray | None = None) -> Arrival:
        """Receive an array from `peer`, of the size and dtype of `like`; `into` an array, or anywhere."""
        return Arrival(self, peer, self._members[peer], like, into)


class Arrival:
    """An array that is expected from rank `peer`: in `array` once the test is true, until it is released."""

    __slots__ = ("_channel", "_from", "_handle", "_into", "_like", "_place", "array", "peers")

    def __init__(
        self, channel: Channel, source: int, rank: int, like: np.ndarray, into: np.ndarray | None
    ) -> None:
        """source: among the members of the channel, where it has the number `rank` in the world."""
        self.peers, self._from, self._channel, self._like, self._into = (rank,), source, channel, like, into
        self.array = like
        self._place: int | None = None
        near = channel.window is not None and rank in channel.window.peers
        self._handle = None if near else self._as_message()

    def _as_message(self) -> Handle:
        self.array = self._channel.scratch.take(self._like) if self._into is None else self._into
        return self._channel.receive(self._from, self.array)

    def Test(self) -> bool:
        """Whether it has come. Where it lies in shared memory and shall be elsewhere, this copies it."""
        if self._handle is not None:
            return self._handle.Test()
        if self._place is None:
            window = self._channel.window
            assert window is not None
            self._place = window.notices.next_of(self.peers[0], self._channel.key)
            if self._place is None:
                return False
            if self._place == NOWHERE:
                self._handle = self._as_message()
                return self._handle.Test()
            self.array = window.look(self.peers[0], self._place, self._like)
            if self._into is not None:
                self._into[...] = self.array
                window.leave(self.peers[0], self._place)
        return True

    def release(self) -> None:
        """Note that the array has been read; not for one that was written into another."""
        if self._handle is not None:
            self._channel.scratch.give(self.array)
        else:
            assert self._channel.window is not None
            assert self._place is not None
            self._channel.window.leave(self.peers[0], self._place)
