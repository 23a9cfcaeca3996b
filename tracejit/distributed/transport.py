"""The transport between ranks: operations over MPI and shared memory, advanced by the caller of `progress`.

An operation is a generator that yields the messages it waits for. `MpiTransport.progress` polls the messages
of all operations and resumes the operations whose messages have arrived, so any number of exchanges can be in
flight on one thread, the communication thread (see `engine.hosts`). MPI moves bytes only inside its calls.

*Exchange.* Rank r owns slice r of the array. Each rank sends slice j to rank j, which combines the slices in
a balanced tree and sends the result to all ranks. This moves as many bytes as a ring algorithm, and the bits
of the result depend on the values only. Small arrays are sent complete to all ranks, each of which combines
them in the same order; two ranks do so for larger arrays, too.

*Control.* Ranks notify each other of the arrays they are about to exchange, of failures, and of their end
with its reason (see `control`). So the error of a waiting rank names a rank that raised an exception, ended
early or made a different call.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.distributed.channel import Arrival, Channel
from tracejit.distributed.control import Control, Steps, Votes
from tracejit.distributed.native_exchange import NativeExchange
from tracejit.distributed.outbox import Handle, Outbox
from tracejit.distributed.plans import ExchangePlan
from tracejit.distributed.scratch import Scratch, split_into
from tracejit.distributed.window import BLOCK, SharedWindow
from tracejit.engine.hosts import (
    address_of_communication,
    communication,
    continue_in_python,
    has_communication_task,
)
from tracejit.engine.threads import Thread, computing
from tracejit.errors import PeerError, text
from tracejit.ir.graph import Node
from tracejit.kernels.ranks.layout import KEYS, NUMBERS
from tracejit.ops.communicate import Done, HasOtherWork, combined, members_of

SMALL = 1 << 15  # bytes up to which a complete array is sent to all ranks
SMALL_PAIR = 1 << 20  # the same for two ranks, concurrently with kernels: as many bytes, half of the notices
GRACE = 1.0  # seconds within which the last messages of a rank that has ended arrive
SPIN = 3e-4  # seconds of polling before the thread sleeps between polls
BUSY_SLEEP = 3e-4  # seconds of sleep after each poll while kernels run, which need the processor
SLEEPS = (20e-6, 1e-3)  # seconds: the first and the longest sleep
CHECK_INTERVAL = (
    1e-2  # seconds of waiting in native code before Python checks whether other ranks have failed
)

yield_processor = getattr(os, "sched_yield", lambda: time.sleep(0))  # a sleep uses a timer, about 50 us


@dataclass(eq=False)
class OperationInFlight:
    """An operation in flight.

    done:          called with the error, or None, when it ends.
    start_time:    time at which it began; last_progress: at which it last advanced.
    warned:        whether a warning about its waiting time has been printed.
    waiting:       the messages it waits for.
    """

    node: Node
    steps: Steps
    done: Done
    start_time: float
    last_progress: float = 0.0
    warned: bool = False
    waiting: list[Any] = field(default_factory=list)

    def missing(self) -> list[int]:
        """The ranks from which a message has not arrived, or to which one has not been sent."""
        self.waiting = [handle for handle in self.waiting if not handle.Test()]
        return sorted({peer for handle in self.waiting for peer in handle.peers})

    def describe(self) -> str:
        """Describe the operator, its operand types and the user's source line, for messages."""
        if self.node.op is ops.agree:
            return str(self.node.attrs["text"])
        operands = ", ".join(str(v.type) for v in self.node.inputs)
        location = f" at {self.node.location}" if self.node.location else ""
        return f"{self.node.op.name}({operands}){location}"


class _FairLock:
    """A lock whose holder cannot reacquire it before a thread that waits for it.

    The next owner waits for the inner lock while it holds the outer one, `_queue`.
    """

    def __init__(self) -> None:
        self._queue, self._lock = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._queue:
            self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()


class MpiTransport:
    """Operations between the ranks of `world`, a communicator of mpi4py.

    deadline: seconds without progress after which an operation fails. After a minute, or half of a shorter
              deadline, a warning names the ranks that it waits for.
    link:     latency in seconds and bandwidth in bytes per second of an emulated link; None: no emulation.
    window:   the shared memory of the ranks of this machine, if there is any.
    broken:   the first error after which no further operation can succeed.
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
        self._deadline, self._warn_after = deadline, min(60.0, deadline / 2)
        self._data_comm, self._lockstep_comm, self._pair_comm = (world.Dup() for _ in range(3))
        self._peers = [r for r in range(self.size) if r != self.rank]
        self._members = tuple(range(self.size))
        local_ranks = () if window is None else window.peers
        self._outbox, self._scratch, self._window = Outbox(link, local_ranks), Scratch(), window
        if window is not None and self._outbox.link is not None:
            window.attach_link(self._outbox.link)
        self._lock = _FairLock()
        self._active: list[OperationInFlight] = []
        self._is_single_machine = window is not None and len(window.ranks) == self.size
        self._control = Control(world.Dup(), window.notices if window and self._is_single_machine else None)
        self._lockstep = 0
        self._process = os.getpid()

    # -- interface of the operators --------------------------------------------------------------------------

    def post(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        """Begin an operation (see `ops.communicate.Transport`)."""
        self._begin(node, self._steps(node, operands, results, self._data_comm, tag), done)

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
        replicated = _is_replicated(sum(sizes) * dtype.itemsize, len(members), concurrent=True)
        combine, priority = node.attrs["combine"], node.attrs["priority"]
        return self._window.plan(
            sizes, dtype, combine, members, priority, count, 2 * count, replicated=replicated
        )

    def resume(
        self, node: Node, exchange: NativeExchange, results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        """Continue an exchange that native code has begun for a task."""
        steps = self._remaining_steps(node, exchange, results, self._data_comm, tag)
        with self._lock:
            waiting = next(steps)  # enters its try block, which retires the exchange on failure
        self._begin(node, steps, done, exchange.start_time, waiting)

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        """Begin the operation `agree`."""
        self._begin(node, self._control.agree(node, failure), done)

    def run(self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Run an operation to its end on the calling thread; raise its error."""
        self._lockstep += 1
        exchange = self._run_natively(node, results)
        if exchange is None:
            steps, waiting = self._steps(node, operands, results, self._lockstep_comm, self._lockstep), []
        elif exchange.ended:
            return
        else:
            steps = self._remaining_steps(node, exchange, results, self._lockstep_comm, self._lockstep)
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

    def _run_natively(self, node: Node, results: Sequence[np.ndarray]) -> NativeExchange | None:
        """Let native code run an exchange of one array while no other operation is in flight.

        Returns the exchange, which may have ended, have stopped or still be waiting; None if native code
        cannot run the operation.
        """
        window, members = self._window, members_of(node, self.rank) or self._members
        if window is None or node.op is not ops.exchange or len(results) > 1 or len(members) == 1:
            return None
        if not (self._is_single_machine or window.ranks.issuperset(members)):
            return None
        (array,), attrs = results, node.attrs
        with self._lock:
            if self._active or self.broken or window.notices.has_unsent or os.getpid() != self._process:
                return None
            exchange = window.exchange(
                array,
                attrs["combine"],
                members,
                self._key(self._lockstep_comm, self._lockstep),
                attrs["priority"],
                replicated=_is_replicated(array.nbytes, len(members), concurrent=False),
                in_order=True,
                patience=CHECK_INTERVAL,
            )
            if exchange is not None and exchange.ended:
                window.retire(exchange)
        return exchange

    def progress(self, has_other_work: HasOtherWork) -> None:
        """Advance the operations until all have ended, or `has_other_work` reports other work."""
        last_progress, sleep = time.monotonic(), SLEEPS[0]
        thread = address_of_communication()
        while True:
            if thread:
                self._take_over()
            with self._lock:
                ended, moved = self._advance()
            for operation, error in ended:
                operation.done(error)
            if not self._active or has_other_work():
                return
            if moved or ended:
                last_progress, sleep = time.monotonic(), SLEEPS[0]
            elif self._wait_natively(thread):
                pass
            elif computing():
                if has_other_work(min(BUSY_SLEEP, max(self._outbox.due(), SLEEPS[0]))):
                    return
            elif time.monotonic() - last_progress < SPIN:
                yield_processor()
            elif has_other_work(min(sleep, self._outbox.due())):
                return
            else:
                sleep = min(2 * sleep, SLEEPS[1])

    def serve(self) -> None:
        """Let the communication thread begin and end exchanges of tasks in native code where possible."""
        if self._window is not None:
            communication.take, communication.begun = self._next_python_task, self._window.tasks

    def _next_python_task(self, thread: Thread, patience: int) -> int:
        """Advance exchanges of tasks until a task for Python is ready, whose address is returned.

        Returns 0 when no exchange is in flight and no task has become ready within `patience` nanoseconds.
        """
        window = self._window
        if window is None or os.getpid() != self._process:
            return communication.take_next(thread, patience)
        if not (window.is_busy or self._active or communication.await_ready(thread, patience)):
            return 0
        while True:
            with self._lock:
                window.notices.poll(0.0 if self._active else CHECK_INTERVAL, thread.address)
            self._take_over()
            if self._active:
                self.progress(has_communication_task)
            if communication.has_ready_task():
                return communication.poll(thread)
            if not window.is_busy:
                return 0

    def _take_over(self) -> None:
        """Take over the exchanges of tasks that have stopped or waited for long; all if a rank has failed."""
        if self._window is None or not self._window.is_busy:
            return
        taken_over: list[tuple[int, NativeExchange]] = []
        with self._lock:
            self._control.listen()
            failed = self.broken is not None or bool(self._control.departed)
            if failed:
                self._window.begin_in_python()
            deadline = math.inf if failed else time.monotonic() - self._warn_after
            while (overdue := self._window.take_over(deadline)) is not None:
                taken_over.append(overdue)
        for task, exchange in taken_over:
            run = continue_in_python(task)
            function: Any = run.call.function
            function.resume(exchange, *run.call.arguments, run)

    def leave(self, why: str | None, patience: float) -> bool:
        """Notify the other ranks that this one ends, and wait up to `patience` seconds until all end, too.

        Returns whether all have.
        """
        with self._lock:
            self._control.leave(why)
        end = time.monotonic() + patience
        while len(self._control.departed) < len(self._peers) and time.monotonic() < end:
            with self._lock:
                self._control.listen()
            time.sleep(SLEEPS[1])
        with self._lock:
            self._control.close()
        return len(self._control.departed) == len(self._peers)

    # -- operations ------------------------------------------------------------------------------------------

    def _begin(
        self,
        node: Node,
        steps: Steps,
        done: Done,
        start_time: float | None = None,
        waiting: Sequence[Any] = (),
    ) -> None:
        operation = OperationInFlight(
            node, steps, done, start_time or time.monotonic(), waiting=list(waiting)
        )
        operation.last_progress = operation.start_time
        if os.getpid() != self._process:
            done(PeerError("a process that a rank has forked is no rank; exchange in the rank itself"))
            return
        with self._lock:
            self._active.append(operation)

    def _advance(self) -> tuple[list[tuple[OperationInFlight, BaseException | None]], bool]:
        """Advance all operations; return those that have ended, with errors, and whether any has advanced."""
        ended: list[tuple[OperationInFlight, BaseException | None]] = []
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
                    raise _follow_up_error(self.broken)
                if self._step(operation):
                    operation.last_progress, moved = now, True
                elif self._control.departed or now - operation.last_progress > self._warn_after:
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
        """Return the error of a failed operation, and mark the transport broken if ranks are out of step."""
        peer_error = error if isinstance(error, PeerError) else _follow_up_error(error)
        if peer_error.out_of_step and self.broken is None:
            self.broken = peer_error
        return peer_error

    def _wait_natively(self, thread: int) -> bool:
        """Wait in native code, which advances exchanges, if all operations wait for notices only.

        thread: see `Board.advance`. Returns whether that was possible.
        """
        if self._window is None:
            return False
        with self._lock:
            awaited = [awaited_object for operation in self._active for awaited_object in operation.waiting]
            if (
                not all(type(awaited_object) in (NativeExchange, Votes) for awaited_object in awaited)
                or self._window.notices.has_unsent
            ):
                return False
            votes = len(self._peers) * any(type(awaited_object) is Votes for awaited_object in awaited)
            self._window.notices.poll(CHECK_INTERVAL, thread, votes)
        return True

    def _step(self, operation: OperationInFlight) -> bool:
        """Resume an operation while its messages have arrived; return whether any message has."""
        moved = False
        while True:
            waiting = [handle for handle in operation.waiting if not handle.Test()]
            moved = moved or len(waiting) < len(operation.waiting)
            operation.waiting = waiting
            if waiting:
                return moved
            operation.waiting = next(operation.steps)
            self._outbox.pump()

    def _check_time(self, operation: OperationInFlight, now: float) -> None:
        """Raise PeerError if an operation waits for a rank that has ended, or beyond the deadline."""
        missing = operation.missing()
        if not missing:
            return
        for peer in missing:
            if peer in self._control.departed:
                when, why = self._control.departed[peer]
                if operation.node.op is ops.agree or now - max(when, operation.last_progress) > GRACE:
                    reason = f"failed: {why}" if why else "has ended its program"
                    raise self._error(operation, f"rank {peer} {reason}")
        waited = now - operation.last_progress
        names = ", ".join(map(str, missing))
        if waited > self._deadline:
            raise self._error(operation, f"nothing came from rank {names} for {waited:.0f} s")
        if waited > self._warn_after and not operation.warned:
            operation.warned = True
            what = f"tracejit: rank {self.rank} has waited {waited:.0f} s for rank {names} in"
            print(what, operation.describe(), file=sys.stderr, flush=True)

    def _error(self, operation: OperationInFlight, reason: str) -> PeerError:
        return PeerError(f"{reason}; rank {self.rank} waits for it in {operation.describe()}")

    def _steps(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], comm: Any, tag: int
    ) -> Steps:
        """The generator of the steps of an operator."""
        members = members_of(node, self._members[self.rank])
        if members not in (None, self._members):
            return self._for_group(members)._steps(node, operands, results, comm, tag)
        if self.size == 1:
            return _copied(operands, results)
        channel = self._channel(comm, tag, node.attrs["priority"])
        outs = [array.reshape(-1) for array in results]
        if node.op is ops.exchange:
            return self._exchange(channel, outs, node.attrs["combine"])
        if node.op is ops.broadcast:
            return self._broadcast(channel, outs, node.attrs["root"])
        (operand,) = (array.reshape(-1) for array in operands)
        if node.op is ops.all_gather:
            return self._gather(channel, operand, outs[0])
        if node.op is ops.reduce_scatter:
            return self._all_combine(channel, np.split(operand, self.size), outs[0], node.attrs["combine"])
        pair = self._channel(self._pair_comm, 0, node.attrs["priority"])
        if node.op is ops.send:
            return self._message(pair.send, node.attrs["rank"], operand)
        return self._message(pair.receive, node.attrs["rank"], outs[0])

    def _channel(self, comm: Any, number: int, priority: int) -> Channel:
        tag, key, concurrent = (
            KEYS * (number % NUMBERS),
            self._key(comm, number),
            comm is not self._lockstep_comm,
        )
        return Channel(
            self._outbox,
            self._scratch,
            self._window,
            comm,
            tag,
            key,
            priority,
            self._members,
            concurrent=concurrent,
        )

    def _key(self, comm: Any, number: int) -> int:
        """The key of the notices of an operation's first phase."""
        return KEYS * (number % NUMBERS + NUMBERS * (comm is self._lockstep_comm))

    def _for_group(self, members: tuple[int, ...]) -> MpiTransport:
        """Return a view of this transport for a group of ranks, which are renumbered from 0."""
        inner = copy.copy(self)
        inner.rank, inner.size, inner._members = members.index(self.rank), len(members), members
        inner._peers = [r for r in range(inner.size) if r != inner.rank]
        return inner

    def _exchange(self, channel: Channel, outs: list[np.ndarray], combine: str) -> Steps:
        with self._scratch.joined(outs) as flat:
            replicated = _is_replicated(flat.nbytes, self.size, concurrent=channel.concurrent)
            exchange = channel.exchange(flat, combine, replicated=replicated)
            if exchange is not None:
                yield from self._finish_native(channel, exchange, flat, combine, replicated=replicated)
            elif replicated:
                yield from self._all_combine(channel, [flat] * self.size, flat, combine)
            else:
                yield from self._exchange_by_blocks(channel, flat, combine)

    def _finish_native(
        self, channel: Channel, exchange: NativeExchange, flat: np.ndarray, combine: str, *, replicated: bool
    ) -> Steps:
        """Wait for an exchange in shared memory; receive the messages of members that had no free block."""
        try:
            yield [exchange]
            if exchange.ended:
                return
            back, late = channel.second_phase(), exchange.missing_sums()
            slices = [flat] * self.size if replicated else self._slices(flat)
            if exchange.has_slices:
                yield [back.expect(peer, slices[peer], into=slices[peer]) for peer in late]
                return
            arrivals = [channel.expect(peer, slices[self.rank]) for peer in self._peers]
            yield list(arrivals)
            self._combine(slices[self.rank], arrivals, combine, slices[self.rank])
            if not replicated:
                yield self._send_slice_to_all(back, slices[self.rank], slices)
        finally:
            channel.retire(exchange)

    def _remaining_steps(
        self, node: Node, exchange: NativeExchange, results: Sequence[np.ndarray], comm: Any, tag: int
    ) -> Steps:
        """The remaining steps of an exchange that native code has begun."""
        inner = self if exchange.members == self._members else self._for_group(exchange.members)
        channel = inner._channel(comm, tag, node.attrs["priority"])
        outs = [array.reshape(-1) for array in results]
        flat = outs[0] if exchange.joined is None else exchange.joined
        yield from inner._finish_native(
            channel, exchange, flat, node.attrs["combine"], replicated=exchange.is_replicated
        )
        if exchange.joined is not None:
            split_into(exchange.joined, outs)

    def _exchange_by_blocks(self, channel: Channel, flat: np.ndarray, combine: str) -> Steps:
        """Exchange an array block by block: the sums of a block travel while the next block is scattered."""
        if flat.nbytes > BLOCK:
            channel = channel.without_shared_memory()  # messages need fewer copies and less cache
        back, step = channel.second_phase(), max(1, BLOCK // flat.itemsize)
        spreading: list[Any] = []
        for start in range(0, flat.size, step):
            slices = self._slices(flat[start : start + step])
            sends, arrivals = self._scatter(channel, slices)
            yield [*arrivals, *sends, *spreading]
            own_slice = slices[self.rank]
            self._combine(own_slice, arrivals, combine, own_slice)
            spreading = self._send_slice_to_all(back, own_slice, slices)
        yield spreading

    def _slices(self, array: np.ndarray) -> list[np.ndarray]:
        ends = [array.size * r // self.size for r in range(self.size + 1)]
        return [array[a:b] for a, b in itertools.pairwise(ends)]

    def _scatter(self, channel: Channel, slices: Sequence[np.ndarray]) -> tuple[list[Any], list[Arrival]]:
        """Begin to send each rank its slice, and to receive this rank's slice from all."""
        sends = channel.send_all({peer: slices[peer] for peer in self._peers})
        return sends, [channel.expect(peer, slices[self.rank]) for peer in self._peers]

    def _combine(self, own: np.ndarray, arrivals: Sequence[Arrival], combine: str, out: np.ndarray) -> None:
        """Combine the arrays that have arrived and this rank's own, in order of rank, into `out`."""
        arrays = [arrival.array for arrival in arrivals]
        arrays.insert(self.rank, own)
        combined(arrays, combine, out)
        for arrival in arrivals:
            arrival.release()

    def _send_slice_to_all(
        self, channel: Channel, own: np.ndarray, slices: Sequence[np.ndarray]
    ) -> list[Any]:
        """Begin to send this rank's slice to all ranks, and to receive theirs."""
        return [
            *channel.send_all(dict.fromkeys(self._peers, own)),
            *(channel.expect(peer, slices[peer], into=slices[peer]) for peer in self._peers),
        ]

    def _gather(self, channel: Channel, operand: np.ndarray, out: np.ndarray) -> Steps:
        slices = np.split(out, self.size)
        slices[self.rank][...] = operand
        yield self._send_slice_to_all(channel, operand, slices)

    def _all_combine(
        self, channel: Channel, slices: Sequence[np.ndarray], out: np.ndarray, combine: str
    ) -> Steps:
        """Combine this rank's slices of the arrays of all ranks into `out`."""
        sends, arrivals = self._scatter(channel, slices)
        yield [*arrivals, *sends]
        self._combine(slices[self.rank], arrivals, combine, out)

    def _message(self, move: Callable[[int, np.ndarray], Handle], peer: int, array: np.ndarray) -> Steps:
        yield [move(peer, array)]

    def _broadcast(self, channel: Channel, outs: list[np.ndarray], root: int) -> Steps:
        if self.rank == root:
            yield [handle for out in outs for handle in channel.send_all(dict.fromkeys(self._peers, out))]
        else:
            for out in outs:
                yield [channel.expect(root, out, into=out)]


def _is_replicated(nbytes: int, ranks: int, *, concurrent: bool) -> bool:
    """Whether complete arrays are sent to all ranks, each of which combines them redundantly."""
    return nbytes <= (SMALL_PAIR if ranks == 2 and concurrent else SMALL)


def _copied(operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Steps:
    """The steps of any operator in a group of one rank."""
    for operand, out in zip(operands, results, strict=True):
        out.reshape(-1)[...] = operand.reshape(-1)
    yield []


def _follow_up_error(error: BaseException) -> PeerError:
    """Return the error of an operation that fails because of an earlier error."""
    if isinstance(error, PeerError):
        return PeerError(f"an earlier exchange has failed: {error}")
    return PeerError(f"the connection to the other ranks is broken: {text(error)}")
