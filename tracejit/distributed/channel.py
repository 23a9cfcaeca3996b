"""The data transfers of one operation, through shared memory between ranks of one machine, else as messages.

    channel.send(peer, array), channel.receive(peer, array)     # as MPI messages
    handles = channel.send_all({1: slice, 2: other})            # through shared memory where possible
    arrival = channel.expect(peer, like)                        # `arrival.array` is valid once Test() is true
    arrival.release()                                           # after it has been read

A notice with the offset announces an array in shared memory (see `window`). If there was no free block for
the array, the notice is `NOT_STORED` and the array follows as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tracejit.distributed.native_exchange import NativeExchange
from tracejit.distributed.outbox import Announcement, Handle, Outbox
from tracejit.distributed.scratch import Scratch
from tracejit.distributed.window import SharedWindow

NOT_STORED = -1


class Channel:
    """The transfers of one phase of an operation: a communicator, a tag, a key of notices and a priority.

    members: the participating ranks; a peer is an index into them.
    concurrent:  whether the operation runs concurrently with kernels, so that no thread waits for it.
    """

    __slots__ = (
        "_comm",
        "_members",
        "_outbox",
        "_priority",
        "_tag",
        "concurrent",
        "key",
        "scratch",
        "window",
    )

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
        concurrent: bool,
    ) -> None:
        self.concurrent = concurrent
        self.scratch, self.window, self.key, self._members = scratch, window, key, members
        self._outbox, self._comm, self._tag, self._priority = outbox, comm, tag, priority

    def second_phase(self) -> Channel:
        """Return the channel of the operation's second phase."""
        return self._like(self.window, 1)

    def without_shared_memory(self) -> Channel:
        """Return a channel that sends everything as messages."""
        return self._like(None, 0)

    def _like(self, window: SharedWindow | None, phase: int) -> Channel:
        tag, key = self._tag + phase, self.key + phase
        return Channel(
            self._outbox,
            self.scratch,
            window,
            self._comm,
            tag,
            key,
            self._priority,
            self._members,
            concurrent=self.concurrent,
        )

    def send(self, peer: int, array: np.ndarray) -> Handle:
        return self._outbox.add(self._comm, self._members[peer], array, self._tag, self._priority)

    def receive(self, peer: int, array: np.ndarray) -> Handle:
        buffer, source = array.view(np.uint8), self._members[peer]
        chunks = self._outbox.chunks(source, buffer)
        return Handle(source, buffer, [self._comm.Irecv(part, source, self._tag) for part in chunks])

    def send_all(self, arrays: Mapping[int, np.ndarray]) -> list[Handle | Announcement]:
        """Send each peer its array, which must not change until the tests of all handles are true."""
        window, members = self.window, self._members
        if window is None:
            return [self.send(peer, array) for peer, array in arrays.items()]
        shared_arrays = {members[p]: array for p, array in arrays.items() if members[p] in window.peers}
        offsets = window.store(shared_arrays)
        handles: list[Handle | Announcement] = []
        for rank, array in shared_arrays.items():
            offset = offsets.get(rank, NOT_STORED)
            notify = partial(window.notices.send, rank, self.key, offset)
            nbytes = 0 if offset == NOT_STORED else array.nbytes
            handles += self._outbox.announce(rank, nbytes, self._priority, notify)
        return handles + [self.send(p, array) for p, array in arrays.items() if members[p] not in offsets]

    def exchange(self, array: np.ndarray, combine: str, *, replicated: bool) -> NativeExchange | None:
        """Begin to combine an array with those of all members in native code.

        Returns None if a member does not share memory with this rank; see also `SharedWindow.exchange`.
        """
        window, members = self.window, self._members
        if window is None or not window.ranks.issuperset(members):
            return None
        return window.exchange(
            array,
            combine,
            members,
            self.key,
            self._priority,
            replicated=replicated,
            in_order=not self.concurrent,
        )

    def retire(self, exchange: NativeExchange) -> None:
        """Cancel an exchange unless it has ended, and free its record for another one."""
        assert self.window is not None
        self.window.retire(exchange)

    def expect(self, peer: int, like: np.ndarray, into: np.ndarray | None = None) -> Arrival:
        """Receive an array of the size and dtype of `like` from `peer`.

        into: the array to write; None: a temporary buffer, or the shared memory of `peer`.
        """
        return Arrival(self, peer, self._members[peer], like, into)


class Arrival:
    """An array expected from a peer: `array` is valid once `Test` is true and until `release`."""

    __slots__ = ("_channel", "_handle", "_into", "_like", "_offset", "_source", "array", "peers")

    def __init__(
        self, channel: Channel, source: int, rank: int, like: np.ndarray, into: np.ndarray | None
    ) -> None:
        """source: index of the sender among the members of the channel. rank: its rank in the world."""
        self.peers, self._source, self._channel = (rank,), source, channel
        self._like, self._into = like, into
        self.array = like
        self._offset: int | None = None
        is_shared = channel.window is not None and rank in channel.window.peers
        self._handle = None if is_shared else self._as_message()

    def _as_message(self) -> Handle:
        self.array = self._channel.scratch.acquire(self._like) if self._into is None else self._into
        return self._channel.receive(self._source, self.array)

    def Test(self) -> bool:
        """Whether the array has arrived; copies it out of shared memory if it has a destination `into`."""
        if self._handle is not None:
            return self._handle.Test()
        if self._offset is None:
            window = self._channel.window
            assert window is not None
            self._offset = window.notices.pop(self.peers[0], self._channel.key)
            if self._offset is None:
                return False
            if self._offset == NOT_STORED:
                self._handle = self._as_message()
                return self._handle.Test()
            self.array = window.view(self.peers[0], self._offset, self._like)
            if self._into is not None:
                self._into[...] = self.array
                window.mark_read(self.peers[0], self._offset)
        return True

    def release(self) -> None:
        """Free the memory of the array after it has been read; not for an array with a destination `into`."""
        if self._handle is not None:
            self._channel.scratch.release(self.array)
        else:
            assert self._channel.window is not None
            assert self._offset is not None
            self._channel.window.mark_read(self.peers[0], self._offset)
