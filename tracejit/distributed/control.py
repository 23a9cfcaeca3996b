"""Control between ranks: they tell each other that they agree on a step, and that they end, and why.

    for wait in control.agree(node, failure): ...   # raises where ranks differ, or one has failed
    control.leave(why)                              # then `left` of the others knows it
    control.listen()                                # again and again

Ranks write *letters*, messages of MPI on a communicator of its own. Where all are on one machine each first
tells a number for what it exchanges in a notice, and letters are written only where numbers differ or a rank
has failed: all ranks see this alike.
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

LETTER = 4096  # bytes
PAUSE = 1e-3  # seconds between two looks for letters that nobody awaits
DOUBT = -1  # the number of a rank that writes letters in any case

Steps = Generator[list[Any], None, None]


class Votes:
    """The numbers that all `peers` tell; they are there once the test is true."""

    def __init__(self, notices: Notices, peers: Sequence[int]) -> None:
        self._notices, self._all = notices, peers
        self.numbers: list[int | None] = []

    def Test(self) -> bool:
        if not self.numbers and not self._notices.waits and not self.peers:
            self.numbers = [self._notices.next_of(peer, AGREEMENT) for peer in self._all]
        return bool(self.numbers)

    @property
    def peers(self) -> list[int]:
        """The ranks that have not told."""
        return [peer for peer in self._all if not self._notices.has(peer, AGREEMENT)]


class _Letter:
    """A letter that is expected from `peer`."""

    def __init__(self, heard: deque[Any], peer: int) -> None:
        self._heard, self.peers = heard, (peer,)

    def Test(self) -> bool:
        return bool(self._heard)


class Control:
    """The control of all ranks of a communicator. notices: where all are on one machine.

    left: ranks that have ended: when, and why.
    """

    def __init__(self, comm: Any, notices: Notices | None) -> None:
        self._comm, self._notices, self._rank = comm, notices, comm.rank
        self.peers = [rank for rank in range(comm.size) if rank != comm.rank]
        self.left: dict[int, tuple[float, str | None]] = {}
        self._heard: dict[int, deque[Any]] = {peer: deque() for peer in self.peers}
        self._inboxes = {peer: np.zeros(LETTER, np.uint8) for peer in self.peers}
        self._expected = {peer: self._expect(peer) for peer in self.peers}
        self._written: list[Handle] = []
        self._awaiting = 0  # operations that await letters
        self._next = 0.0  # when to look for letters that nobody awaits

    def agree(self, node: Node, failure: BaseException | None) -> Steps:
        """The steps of the operation `agree`; `failure`: why this rank's launch has failed."""
        if self._notices is not None:
            number = DOUBT if failure is not None or node.attrs["within"] else node.attrs["digest"]
            for peer in self.peers:
                self._notices.tell(peer, AGREEMENT, number)
            votes = Votes(self._notices, self.peers)
            yield [votes]
            if number != DOUBT and all(theirs == number for theirs in votes.numbers):
                return
        self._awaiting += 1
        try:
            yield from self._compare(node, failure)
        finally:
            self._awaiting -= 1

    def _compare(self, node: Node, failure: BaseException | None) -> Steps:
        """Write letters, and read those of the others."""
        told = None if failure is None else text(failure)[:400]
        divisions = [groups for groups, _ in node.attrs["within"]]
        mine = {
            "digest": node.attrs["digest"],
            "within": [number for _, number in node.attrs["within"]],
            "text": node.attrs["text"][:300],
            "failure": told,
        }
        self._write(mine)
        yield [_Letter(self._heard[peer], peer) for peer in self.peers]
        heard = {peer: self._heard[peer].popleft() for peer in self.peers}
        for peer, theirs in heard.items():
            if theirs["digest"] != mine["digest"] or any(
                a != b and _is_one_group(groups, self._rank, peer)
                for groups, a, b in zip(divisions, mine["within"], theirs["within"], strict=True)
            ):
                what = (
                    f"ranks exchange different arrays: rank {self._rank} {mine['text']}, rank {peer} "
                    f"{theirs['text']}; all ranks must make the same calls in the same order"
                )
                raise PeerError(what)
        for peer, theirs in heard.items():
            if theirs["failure"] is not None:
                error = PeerError(f"rank {peer} failed in this step: {theirs['failure']}")
                error.out_of_step = False  # all ranks fail this step
                raise locate(error, node.location)

    def leave(self, why: str | None) -> None:
        """Tell the others that this rank ends."""
        self._write({"left": why})

    def close(self) -> None:
        """Expect no more letters."""
        for request in self._expected.values():
            request.Cancel()
            request.Free()

    def listen(self) -> None:
        """Read the letters that have come, which takes MPI microseconds: often only if one is awaited."""
        now = time.monotonic()
        if self._awaiting or now >= self._next:
            self._next = now + PAUSE
            for peer in self.peers:
                while peer not in self.left and self._expected[peer].Test():
                    self._read(peer, now)

    def _read(self, peer: int, now: float) -> None:
        letter = json.loads(self._inboxes[peer].tobytes().rstrip(b"\0"))
        if "left" in letter:
            self.left[peer] = now, letter["left"]
        else:
            self._heard[peer].append(letter)
        self._expected[peer] = self._expect(peer)

    def _expect(self, peer: int) -> Any:
        self._inboxes[peer].fill(0)
        return self._comm.Irecv(self._inboxes[peer], peer, 0)

    def _write(self, letter: dict[str, Any]) -> None:
        """Send a letter to all others."""
        buffer = np.frombuffer(json.dumps(letter, ensure_ascii=False).encode()[:LETTER], np.uint8)
        self._written = [handle for handle in self._written if not handle.Test()]
        for peer in self.peers:
            self._written.append(Handle(peer, buffer, [self._comm.Isend(buffer, peer, 0)]))


def _is_one_group(groups: Groups, rank: int, peer: int) -> bool:
    return any(rank in members and peer in members for members in groups)
