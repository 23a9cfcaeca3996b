"""Control messages between ranks: agreement on the exchanges of a step, and notice that a rank ends, and why.

    for wait in control.agree(node, failure): ...   # raises if ranks differ or a rank has failed
    control.leave(why)                              # then `departed` of the other ranks contains this rank
    control.listen()                                # call repeatedly

Control messages are JSON texts, sent by MPI on a communicator of their own. If all ranks are on one machine,
each first sends a digest of its exchanges in a notice. Control messages follow only if digests differ or a
rank has failed, which all ranks conclude from the same notices.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tracejit.distributed.notices import Notices
from tracejit.distributed.outbox import Handle
from tracejit.errors import PeerError, locate, text
from tracejit.ir.graph import Node
from tracejit.kernels.ranks.layout import AGREEMENT
from tracejit.ops.communicate import Groups

MESSAGE_SIZE = 4096  # bytes
POLL_INTERVAL = 1e-3  # seconds between polls for control messages that no operation awaits
MUST_COMPARE = -1  # the vote of a rank that sends a control message in any case

Steps = Generator[list[Any], None, None]


class Votes:
    """The digests that all `peers` send; `numbers` is complete once `Test` is true."""

    def __init__(self, notices: Notices, peers: Sequence[int]) -> None:
        self._notices, self._all = notices, peers
        self.numbers: list[int | None] = []

    def Test(self) -> bool:
        if not self.numbers and not self._notices.has_unsent and not self.peers:
            self.numbers = [self._notices.pop(peer, AGREEMENT) for peer in self._all]
        return bool(self.numbers)

    @property
    def peers(self) -> list[int]:
        """The ranks whose votes have not arrived."""
        return [peer for peer in self._all if not self._notices.has(peer, AGREEMENT)]


class _ExpectedMessage:
    """A control message expected from `peer`."""

    def __init__(self, received: deque[Any], peer: int) -> None:
        self._received, self.peers = received, (peer,)

    def Test(self) -> bool:
        return bool(self._received)


class Control:
    """The control messages of one rank to all other ranks of a communicator.

    notices:  those of the machine if all ranks are on one machine, else None.
    departed: the ranks that have ended, each with the time and the reason (None without failure).
    """

    def __init__(self, comm: Any, notices: Notices | None) -> None:
        self._comm, self._notices, self._rank = comm, notices, comm.rank
        self.peers = [rank for rank in range(comm.size) if rank != comm.rank]
        self.departed: dict[int, tuple[float, str | None]] = {}
        self._received: dict[int, deque[Any]] = {peer: deque() for peer in self.peers}
        self._inboxes = {peer: np.zeros(MESSAGE_SIZE, np.uint8) for peer in self.peers}
        self._expected = {peer: self._expect(peer) for peer in self.peers}
        self._sent: list[Handle] = []
        self._awaiting = 0  # number of operations that await control messages
        self._next_poll = 0.0  # for control messages that no operation awaits

    def agree(self, node: Node, failure: BaseException | None) -> Steps:
        """The steps of the operation `agree`. failure: the error of this rank's launch, if it has failed.

        Raises PeerError if ranks exchange different arrays, or if another rank has failed.
        """
        if self._notices is not None:
            number = MUST_COMPARE if failure is not None or node.attrs["within"] else node.attrs["digest"]
            for peer in self.peers:
                self._notices.send(peer, AGREEMENT, number)
            votes = Votes(self._notices, self.peers)
            yield [votes]
            if number != MUST_COMPARE and all(theirs == number for theirs in votes.numbers):
                return
        self._awaiting += 1
        try:
            yield from self._compare(node, failure)
        finally:
            self._awaiting -= 1

    def _compare(self, node: Node, failure: BaseException | None) -> Steps:
        """Exchange control messages with all peers and compare them."""
        reason = None if failure is None else text(failure)[:400]
        partitions = [groups for groups, _ in node.attrs["within"]]
        mine = {
            "digest": node.attrs["digest"],
            "within": [number for _, number in node.attrs["within"]],
            "text": node.attrs["text"][:300],
            "failure": reason,
        }
        self._send(mine)
        yield [_ExpectedMessage(self._received[peer], peer) for peer in self.peers]
        theirs_by_rank = {peer: self._received[peer].popleft() for peer in self.peers}
        for peer, theirs in theirs_by_rank.items():
            if theirs["digest"] != mine["digest"] or any(
                a != b and _is_one_group(groups, self._rank, peer)
                for groups, a, b in zip(partitions, mine["within"], theirs["within"], strict=True)
            ):
                message = (
                    f"ranks exchange different arrays: rank {self._rank} {mine['text']}, rank {peer} "
                    f"{theirs['text']}; all ranks must make the same calls in the same order"
                )
                raise PeerError(message)
        for peer, theirs in theirs_by_rank.items():
            if theirs["failure"] is not None:
                error = PeerError(f"rank {peer} failed in this step: {theirs['failure']}")
                error.out_of_step = False  # all ranks fail this step
                raise locate(error, node.location)

    def leave(self, why: str | None) -> None:
        """Notify the other ranks that this rank ends. why: its failure, or None."""
        self._send({"left": why})

    def close(self) -> None:
        """Cancel the pending receives."""
        for request in self._expected.values():
            request.Cancel()
            request.Free()

    def listen(self) -> None:
        """Receive control messages. A poll of MPI takes microseconds, so it is rare unless one is awaited."""
        now = time.monotonic()
        if self._awaiting or now >= self._next_poll:
            self._next_poll = now + POLL_INTERVAL
            for peer in self.peers:
                while peer not in self.departed and self._expected[peer].Test():
                    self._read(peer, now)

    def _read(self, peer: int, now: float) -> None:
        message = json.loads(self._inboxes[peer].tobytes().rstrip(b"\0"))
        if "left" in message:
            self.departed[peer] = now, message["left"]
        else:
            self._received[peer].append(message)
        self._expected[peer] = self._expect(peer)

    def _expect(self, peer: int) -> Any:
        self._inboxes[peer].fill(0)
        return self._comm.Irecv(self._inboxes[peer], peer, 0)

    def _send(self, message: dict[str, Any]) -> None:
        """Send a control message to all peers."""
        buffer = np.frombuffer(json.dumps(message, ensure_ascii=False).encode()[:MESSAGE_SIZE], np.uint8)
        self._sent = [handle for handle in self._sent if not handle.Test()]
        for peer in self.peers:
            self._sent.append(Handle(peer, buffer, [self._comm.Isend(buffer, peer, 0)]))


def _is_one_group(groups: Groups, rank: int, peer: int) -> bool:
    return any(rank in members and peer in members for members in groups)
