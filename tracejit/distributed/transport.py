"""The transport between ranks: operations over MPI, advanced by whoever calls `progress`.

An operation is a generator that yields the messages it waits for. `Transport.progress` polls the messages of
all operations and resumes those whose messages are there, so any number of exchanges are under way at once
on one thread: that of communication (see `engine.hosts`). MPI itself moves bytes only inside its calls.

*Exchange.* Rank r owns slice r of the array. Each rank sends slice j to rank j, which combines the slices in
a balanced tree and sends the result to all: the bytes of a ring, and bits that depend on the values only.
Small arrays go to all ranks at once, and each combines them alike; between two ranks larger ones do, too.

*Control.* Ranks tell each other what they are about to exchange, whether they have failed, that they end, and
why (see `control`). So a rank that raises, ends early or does something else is named where the others wait
for it.

Once messages are lost, or ranks are out of step, the transport is *broken*: every further operation fails
with the first reason.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.distributed.channel import Arrival, Channel
from tracejit.distributed.control import Control, Votes
from tracejit.distributed.near import Near
from tracejit.distributed.outbox import Handle, Outbox
from tracejit.distributed.plans import ExchangePlan
from tracejit.distributed.scratch import Scratch, take_apart
from tracejit.distributed.window import BLOCK, SharedWindow
from tracejit.engine.hosts import address_of_communication, communication, communication_is_wanted, take_up
from tracejit.engine.threads import Thread, computing
from tracejit.errors import PeerError, text
from tracejit.ir.graph import Node
from tracejit.kernels.ranks.layout import KEYS, NUMBERS
from tracejit.ops.communicate import Done, Wanted, combined, members_of

SMALL = 1 << 15  # bytes up to which an array is sent whole to all ranks
PAIR = 1 << 20  # the same between two ranks beside kernels: no more bytes, and half of the notices
GRACE = 1.0  # seconds in which the last messages of a rank that has ended arrive
SPIN = 3e-4  # seconds of polling before the thread sleeps between polls
REST = 3e-4  # seconds of sleep after each poll while kernels run, whose processor a poll takes
NAPS = (20e-6, 1e-3)  # seconds: the first, and the longest
PATROL = 1e-2  # seconds of waiting in machine code before Python looks whether other ranks have failed

Steps = Generator[list[Any], None, None]

give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # a sleep takes a timer, some 50 us


@dataclass(eq=False)
class OperationUnderWay:
    """An operation under way; `waiting`: the messages without which it cannot go on."""

    node: Node
    steps: Steps
    done: Done
    begun: float
    moved: float = 0.0
    told: bool = False
    waiting: list[Any] = field(default_factory=list)

    def missing(self) -> list[int]:
        """The ranks from which a message has not come, or to which one has not gone."""
        self.waiting = [handle for handle in self.waiting if not handle.Test()]
        return sorted({peer for handle in self.waiting for peer in handle.peers})

    def describe(self) -> str:
        """The operator with its operands and the user's line."""
        if self.node.op is ops.agree:
            return str(self.node.attrs["text"])
        operands = ", ".join(str(v.type) for v in self.node.inputs)
        place = f" at {self.node.location}" if self.node.location else ""
        return f"{self.node.op.name}({operands}){place}"


class _Turns:
    """A lock that threads get in the order in which they ask for it."""

    def __init__(self) -> None:
        self._door, self._lock = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._door:
            self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()


class MpiTransport:
    """Operations between the ranks of `world`, a communicator of mpi4py.

    deadline: seconds after which an operation fails; after a while it says on whom it waits.
    """

    def __init__(
        self,
        world: Any,
        deadline: float,
        link: tuple[float, float] | None = None,
        window: SharedWindow | None = None,
    ) -> None:
        self.rank, self.size = world.rank, world.size
        self.broken: BaseException | None = None
        self._deadline, self._note = deadline, min(60.0, deadline / 2)
        self._data, self._alone, self._pairs = (world.Dup() for _ in range(3))
        self._peers = [r for r in range(self.size) if r != self.rank]
        self._members = tuple(range(self.size))
        near = () if window is None else window.peers
        self._outbox, self._scratch, self._window = Outbox(link, near), Scratch(), window
        if window is not None and self._outbox.link is not None:
            window.imitate(self._outbox.link)
        self._lock = _Turns()
        self._active: list[OperationUnderWay] = []
        self._together = window is not None and len(window.ranks) == self.size
        self._control = Control(world.Dup(), window.notices if window and self._together else None)
        self._lockstep = 0
        self._process = os.getpid()

    # -- what the operators call -----------------------------------------------------------------------------

    def post(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        """Begin an operation (see `ops.communicate.Transport`)."""
        self._begin(node, self._steps(node, operands, results, self._data, tag), done)

    def plan(self, node: Node) -> ExchangePlan | None:
        """See `ops.communicate.Transport`."""
        members = members_of(node, self.rank) or self._members
        types = [value.type for value in node.outputs]
        if self._window is None or node.op is not ops.exchange or len(members) == 1:
            return None
        sizes, dtypes = [type.size for type in types], {type.dtype for type in types}
        if len(dtypes) > 1 or not all(isinstance(size, int) for size in sizes) or not all(sizes):
            return None
        (dtype,), count = dtypes, len(types)
        whole = _is_whole(sum(sizes) * dtype.itemsize, len(members), beside=True)
        combine, priority = node.attrs["combine"], node.attrs["priority"]
        return self._window.plan(sizes, dtype, combine, members, priority, count, 2 * count, whole=whole)

    def resume(self, node: Node, near: Near, results: Sequence[np.ndarray], tag: int, done: Done) -> None:
        """Go on with an exchange that machine code has begun for a task."""
        steps = self._resumed(node, near, results, self._data, tag)
        with self._lock:
            waiting = next(steps)  # from now on the exchange is forgotten when it fails
        self._begin(node, steps, done, near.begun, waiting)

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        """Begin the operation `agree`."""
        self._begin(node, self._control.agree(node, failure), done)

    def run(self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """An operation on the calling thread."""
        self._lockstep += 1
        near = self._run_ahead(node, results)
        if near is None:
            steps, waiting = self._steps(node, operands, results, self._alone, self._lockstep), []
        elif near.ended:
            return
        else:
            steps = self._resumed(node, near, results, self._alone, self._lockstep)
            with self._lock:
                waiting = next(steps)
        failures: list[BaseException | None] = []
        self._begin(node, steps, failures.append, waiting=waiting)

        def ended(seconds: float = 0.0) -> bool:
            if seconds > 0:
                time.sleep(seconds)
            return bool(failures)

        self.progress(ended)
        if failures[0] is not None:
            raise failures[0]

    def _run_ahead(self, node: Node, results: Sequence[np.ndarray]) -> Near | None:
        """Have machine code run an exchange of one array while nothing else is under way. Returns the
        exchange, which may have stopped, or wait for long; None for what machine code does not begin.
        """
        window, members = self._window, members_of(node, self.rank) or self._members
        if window is None or node.op is not ops.exchange or len(results) > 1 or len(members) == 1:
            return None
        if not (self._together or window.ranks.issuperset(members)):
            return None
        (array,), attrs = results, node.attrs
        with self._lock:
            if self._active or self.broken or window.notices.waits or os.getpid() != self._process:
                return None
            near = window.exchange(
                array,
                attrs["combine"],
                members,
                self._key(self._alone, self._lockstep),
                attrs["priority"],
                whole=_is_whole(array.nbytes, len(members), beside=False),
                in_order=True,
                patience=PATROL,
            )
            if near is not None and near.ended:
                window.forget(near)
        return near

    def progress(self, wanted: Wanted) -> None:
        """Move bytes until all operations have ended, or there is other work."""
        moving, nap = time.monotonic(), NAPS[0]
        thread = address_of_communication()
        while True:
            if thread:
                self._take_over()
            with self._lock:
                ended, moved = self._advance()
            for operation, error in ended:
                operation.done(error)
            if not self._active or wanted():
                return
            if moved or ended:
                moving, nap = time.monotonic(), NAPS[0]
            elif self._wait_near(thread):
                pass
            elif computing():
                if wanted(min(REST, max(self._outbox.due(), NAPS[0]))):
                    return
            elif time.monotonic() - moving < SPIN:
                give_way()
            elif wanted(min(nap, self._outbox.due())):
                return
            else:
                nap = min(2 * nap, NAPS[1])

    def serve(self) -> None:
        """Have the thread of communication begin and end exchanges of tasks in machine code, where it can."""
        if self._window is not None:
            communication.take, communication.begun = self._take, self._window.tasks

    def _take(self, thread: Thread, patience: int) -> int:
        """Move exchanges of tasks until there is a task for Python, whose address is returned; or until none
        is under way, and no task is ready within so many nanoseconds.
        """
        window = self._window
        if window is None or os.getpid() != self._process:
            return communication.take_next(thread, patience)
        if not (window.is_busy or self._active or communication.await_ready(thread, patience)):
            return 0
        while True:
            with self._lock:
                window.notices.poll(0.0 if self._active else PATROL, thread.address)
            self._take_over()
            if self._active:
                self.progress(communication_is_wanted)
            if communication.is_wanted():
                return communication.poll(thread)
            if not window.is_busy:
                return 0

    def _take_over(self) -> None:
        """Take over exchanges of tasks that have stopped or wait for long; all if a rank has failed."""
        if self._window is None or not self._window.is_busy:
            return
        found: list[tuple[int, Near]] = []
        with self._lock:
            self._control.listen()
            failed = self.broken is not None or bool(self._control.left)
            if failed:
                self._window.begin_in_python()
            before = math.inf if failed else time.monotonic() - self._note
            while (each := self._window.take_over(before)) is not None:
                found.append(each)
        for task, near in found:
            run = take_up(task)
            function: Any = run.call.function
            function.resume(near, *run.call.arguments, run)

    def leave(self, why: str | None, patience: float) -> bool:
        """Tell the others that this rank ends, and wait until all have; return whether they did in time."""
        with self._lock:
            self._control.leave(why)
        end = time.monotonic() + patience
        while len(self._control.left) < len(self._peers) and time.monotonic() < end:
            with self._lock:
                self._control.listen()
            time.sleep(NAPS[1])
        with self._lock:
            self._control.close()
        return len(self._control.left) == len(self._peers)

    # -- operations ------------------------------------------------------------------------------------------

    def _begin(
        self, node: Node, steps: Steps, done: Done, begun: float | None = None, waiting: Sequence[Any] = ()
    ) -> None:
        operation = OperationUnderWay(node, steps, done, begun or time.monotonic(), waiting=list(waiting))
        operation.moved = operation.begun
        if os.getpid() != self._process:
            done(PeerError("a process that a rank has forked is no rank; exchange in the rank itself"))
            return
        with self._lock:
            self._active.append(operation)

    def _advance(self) -> tuple[list[tuple[OperationUnderWay, BaseException | None]], bool]:
        """Move what can be moved; return the operations that have ended, and whether any has moved."""
        ended: list[tuple[OperationUnderWay, BaseException | None]] = []
        moved = False
        try:
            self._control.listen()
            moved = self._outbox.pump()
            if self._window is not None:
                self._window.notices.poll()
        except Exception as error:
            self.broken = self.broken or error
        now = time.monotonic()
        for operation in self._active:
            try:
                if self.broken is not None:
                    raise _renewed(self.broken)
                if self._step(operation):
                    operation.moved, moved = now, True
                elif self._control.left or now - operation.moved > self._note:
                    self._check_time(operation, now)
            except StopIteration:
                ended.append((operation, None))
            except Exception as error:
                operation.steps.close()
                ended.append((operation, self._failed(error)))
        if ended:
            self._active = [o for o in self._active if all(o is not e for e, _ in ended)]
        return ended, moved

    def _failed(self, error: Exception) -> PeerError:
        """The error of an operation that has failed; the transport may be broken from now on."""
        found = error if isinstance(error, PeerError) else _renewed(error)
        if found.out_of_step and self.broken is None:
            self.broken = found
        return found

    def _wait_near(self, thread: int) -> bool:
        """Have machine code wait, and take the steps of exchanges, if all that is awaited is told by notices;
        returns whether it is. thread: see `Board.advance`.
        """
        if self._window is None:
            return False
        with self._lock:
            awaited = [each for operation in self._active for each in operation.waiting]
            if not all(type(each) in (Near, Votes) for each in awaited) or self._window.notices.waits:
                return False
            votes = len(self._peers) * any(type(each) is Votes for each in awaited)
            self._window.notices.poll(PATROL, thread, votes)
        return True

    def _step(self, operation: OperationUnderWay) -> bool:
        """Resume an operation as long as its messages are there; return whether there was one."""
        moved = False
        while True:
            left = [handle for handle in operation.waiting if not handle.Test()]
            moved = moved or len(left) < len(operation.waiting)
            operation.waiting = left
            if left:
                return moved
            operation.waiting = next(operation.steps)
            self._outbox.pump()

    def _check_time(self, operation: OperationUnderWay, now: float) -> None:
        """Fail an operation that waits for a rank that has ended, or for too long."""
        missing = operation.missing()
        if not missing:
            return
        for peer in missing:
            if peer in self._control.left:
                when, why = self._control.left[peer]
                if operation.node.op is ops.agree or now - max(when, operation.moved) > GRACE:
                    reason = f"failed: {why}" if why else "has ended its program"
                    raise self._error(operation, f"rank {peer} {reason}")
        waited = now - operation.moved
        names = ", ".join(map(str, missing))
        if waited > self._deadline:
            raise self._error(operation, f"nothing came from rank {names} for {waited:.0f} s")
        if waited > self._note and not operation.told:
            operation.told = True
            what = f"tracejit: rank {self.rank} has waited {waited:.0f} s for rank {names} in"
            print(what, operation.describe(), file=sys.stderr, flush=True)

    def _error(self, operation: OperationUnderWay, what: str) -> PeerError:
        return PeerError(f"{what}; rank {self.rank} waits for it in {operation.describe()}")

    def _steps(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], comm: Any, tag: int
    ) -> Steps:
        """The steps of an operator."""
        members = members_of(node, self._members[self.rank])
        if members not in (None, self._members):
            return self._within(members)._steps(node, operands, results, comm, tag)
        if self.size == 1:
            return _copied(operands, results)
        channel = self._channel(comm, tag, node.attrs["priority"])
        outs = [array.reshape(-1) for array in results]
        if node.op is ops.exchange:
            return self._exchange(channel, outs, node.attrs["combine"])
        if node.op is ops.broadcast:
            return self._broadcast(channel, outs, node.attrs["root"])
        (given,) = (array.reshape(-1) for array in operands)
        if node.op is ops.all_gather:
            return self._gather(channel, given, outs[0])
        if node.op is ops.reduce_scatter:
            return self._all_combine(channel, np.split(given, self.size), outs[0], node.attrs["combine"])
        pair = self._channel(self._pairs, 0, node.attrs["priority"])
        if node.op is ops.send:
            return self._message(pair.send, node.attrs["rank"], given)
        return self._message(pair.receive, node.attrs["rank"], outs[0])

    def _channel(self, comm: Any, number: int, priority: int) -> Channel:
        tag, key, beside = KEYS * (number % NUMBERS), self._key(comm, number), comm is not self._alone
        return Channel(
            self._outbox, self._scratch, self._window, comm, tag, key, priority, self._members, beside=beside
        )

    def _key(self, comm: Any, number: int) -> int:
        """The first key of the notices of an operation."""
        return KEYS * (number % NUMBERS + NUMBERS * (comm is self._alone))

    def _within(self, members: tuple[int, ...]) -> MpiTransport:
        """This transport for some of the ranks, which are counted from 0 on."""
        inner = copy.copy(self)
        inner.rank, inner.size, inner._members = members.index(self.rank), len(members), members
        inner._peers = [r for r in range(inner.size) if r != inner.rank]
        return inner

    def _exchange(self, channel: Channel, outs: list[np.ndarray], combine: str) -> Steps:
        with self._scratch.joined(outs) as flat:
            whole = _is_whole(flat.nbytes, self.size, beside=channel.beside)
            near = channel.exchange(flat, combine, whole=whole)
            if near is not None:
                yield from self._near(channel, near, flat, combine, whole=whole)
            elif whole:
                yield from self._all_combine(channel, [flat] * self.size, flat, combine)
            else:
                yield from self._by_slices(channel, flat, combine)

    def _near(self, channel: Channel, near: Near, flat: np.ndarray, combine: str, *, whole: bool) -> Steps:
        """An exchange that has begun in shared memory, and what comes as messages because others had no
        place there.
        """
        try:
            yield [near]
            if near.ended:
                return
            back, late = channel.next(), near.without_sums()
            slices = [flat] * self.size if whole else self._slices(flat)
            if near.has_slices:
                yield [back.take(peer, slices[peer], into=slices[peer]) for peer in late]
                return
            arrivals = [channel.take(peer, slices[self.rank]) for peer in self._peers]
            yield list(arrivals)
            self._combine(slices[self.rank], arrivals, combine, slices[self.rank])
            if not whole:
                yield self._spread(back, slices[self.rank], slices)
        finally:
            channel.forget(near)

    def _resumed(self, node: Node, near: Near, results: Sequence[np.ndarray], comm: Any, tag: int) -> Steps:
        """The rest of an exchange that machine code has begun."""
        inner = self if near.members == self._members else self._within(near.members)
        channel = inner._channel(comm, tag, node.attrs["priority"])
        outs = [array.reshape(-1) for array in results]
        flat = outs[0] if near.joined is None else near.joined
        yield from inner._near(channel, near, flat, node.attrs["combine"], whole=near.whole)
        if near.joined is not None:
            take_apart(near.joined, outs)

    def _by_slices(self, channel: Channel, flat: np.ndarray, combine: str) -> Steps:
        """A block at a time: while the sums of one travel, so do the slices of the next."""
        if flat.nbytes > BLOCK:
            channel = channel.apart()  # messages take fewer copies, and less of the caches
        back, step = channel.next(), max(1, BLOCK // flat.itemsize)
        spreading: list[Any] = []
        for start in range(0, flat.size, step):
            slices = self._slices(flat[start : start + step])
            given, arrivals = self._scatter(channel, slices)
            yield [*arrivals, *given, *spreading]
            mine = slices[self.rank]
            self._combine(mine, arrivals, combine, mine)
            spreading = self._spread(back, mine, slices)
        yield spreading

    def _slices(self, array: np.ndarray) -> list[np.ndarray]:
        ends = [array.size * r // self.size for r in range(self.size + 1)]
        return [array[a:b] for a, b in itertools.pairwise(ends)]

    def _scatter(self, channel: Channel, slices: Sequence[np.ndarray]) -> tuple[list[Any], list[Arrival]]:
        """Begin to give each rank its slice, and to take what they give this one."""
        given = channel.give({peer: slices[peer] for peer in self._peers})
        return given, [channel.take(peer, slices[self.rank]) for peer in self._peers]

    def _combine(self, mine: np.ndarray, arrivals: Sequence[Arrival], combine: str, out: np.ndarray) -> None:
        """Combine what has come with this rank's own into `out`."""
        parts = [arrival.array for arrival in arrivals]
        parts.insert(self.rank, mine)
        combined(parts, combine, out)
        for arrival in arrivals:
            arrival.release()

    def _spread(self, channel: Channel, mine: np.ndarray, slices: Sequence[np.ndarray]) -> list[Any]:
        """Begin to give this rank's slice to all, and to take theirs."""
        return [
            *channel.give(dict.fromkeys(self._peers, mine)),
            *(channel.take(peer, slices[peer], into=slices[peer]) for peer in self._peers),
        ]

    def _gather(self, channel: Channel, given: np.ndarray, out: np.ndarray) -> Steps:
        slices = np.split(out, self.size)
        slices[self.rank][...] = given
        yield self._spread(channel, given, slices)

    def _all_combine(
        self, channel: Channel, slices: Sequence[np.ndarray], out: np.ndarray, combine: str
    ) -> Steps:
        """Each rank's slice of all arrays, combined into its `out`."""
        given, arrivals = self._scatter(channel, slices)
        yield [*arrivals, *given]
        self._combine(slices[self.rank], arrivals, combine, out)

    def _message(self, move: Callable[[int, np.ndarray], Handle], peer: int, array: np.ndarray) -> Steps:
        yield [move(peer, array)]

    def _broadcast(self, channel: Channel, outs: list[np.ndarray], root: int) -> Steps:
        if self.rank == root:
            yield [handle for out in outs for handle in channel.give(dict.fromkeys(self._peers, out))]
        else:
            for out in outs:
                yield [channel.take(root, out, into=out)]


def _is_whole(nbytes: int, ranks: int, *, beside: bool) -> bool:
    """Whether an array is sent whole to all ranks, each of which combines them."""
    return nbytes <= (PAIR if ranks == 2 and beside else SMALL)


def _copied(operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Steps:
    """The steps of an operator of one rank alone."""
    for given, out in zip(operands, results, strict=True):
        out.reshape(-1)[...] = given.reshape(-1)
    yield []


def _renewed(error: BaseException) -> PeerError:
    """The error for an operation that fails because of this one."""
    if isinstance(error, PeerError):
        return PeerError(f"an earlier exchange has failed: {error}")
    return PeerError(f"the connection to the other ranks is broken: {text(error)}")
