"""The time of a training step on any number of ranks: a model that computes with measured costs.

    step = Step([Work("backward", 2e-3, width=4), Work("exchange", 0, after=(0,), nbytes=4 << 20), ...])
    predict(step, ranks=64, latency=5e-5, bandwidth=1e9, cores=8).seconds

The work of a step is a list in which each item names earlier ones that it waits for. All ranks do the same at
the same speed, so one of them stands for all: what it sends arrives when what the others send arrives here.
The model has four parts.

*Cores.* The threads of a rank compute the most urgent ready work. Work is a fluid: a kernel with c chunks is
shared by up to c threads, and where there are more busy threads than cores each gets its share of them. Ranks
that share a machine each have a fraction of its cores.

*The thread of communication* begins operations and combines what has come, one thing at a time; each
operation, message and byte has its cost (`Costs`), and what arrives while it sleeps waits a little.

*The link* of a rank sends one message after the other, the most urgent first, each for its bytes over the
bandwidth, and each arrives a latency later.

*The steps before and after.* A launch begins while the one before still runs; work waits for the earlier
launch's where they use a variable that one of them writes. What is told is the time from step to step.

Left out are noise, slow ranks, the share of memory bandwidth, and switches that cannot carry all links at
once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

SMALL, PAIR = 1 << 15, 1 << 20  # as in `transport`: up to so many bytes an array is sent whole to all ranks
LAUNCHES = 8  # simulated steps; the last four are told
PIECES = 16  # a phase's messages are sent in so many pieces at most, between which urgent ones overtake
NEVER = math.inf


class Work(NamedTuple):
    """A task of a step.

    seconds:  its work, of one thread; of an exchange, that of its bytes between two ranks (0: by `Costs`).
    width:    how many threads can share it.
    after:    positions of earlier work that it waits for.
    uses:     variables, by any number; work of the next launch waits for all of this one that uses them.
    priority: of several that are ready, the highest first.
    kind:     ``"kernel"``; ``"agree"``; or ``"exchange"``, ``"all_gather"``, ``"reduce_scatter"``,
              ``"broadcast"`` of `nbytes` bytes.

    >>> Work("sum of gradients", after=(0,), kind="exchange", nbytes=4096).width
    1
    """

    name: str
    seconds: float = 0.0
    width: int = 1
    after: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()
    priority: int = 0
    kind: str = "kernel"
    nbytes: int = 0


class Costs(NamedTuple):
    """Costs of communication on a rank's thread, in seconds.

    operation: to begin and end one. message: sent and received. byte: of an array that is combined.
    wake:      to go on, twice in each phase of an operation, and four times in an exchange that is not small,
               where kernels have used the caches meanwhile.
    nap:       the longest sleep between two polls.

    >>> Costs(nap=0.0).nap
    0.0
    """

    operation: float = 1e-4
    message: float = 5e-6
    byte: float = 1.5e-10
    nap: float = 1e-3
    wake: float = 1.3e-4


WITHIN = Costs(operation=2e-5, wake=6.5e-5)
"""Costs between ranks of one machine, whose exchanges machine code begins and ends, also on an imitated link.
`Costs()` are of messages between machines, which Python sends.
"""


class Prediction(NamedTuple):
    """The times of a step on so many ranks, in seconds.

    seconds: from step to step. alone: without exchanges. link: how long the link sends.

    >>> Prediction(ranks=8, seconds=0.02, alone=0.016, link=0.01).ranks
    8
    """

    ranks: int
    seconds: float
    alone: float
    link: float

    @property
    def efficiency(self) -> float:
        """The speed of a rank as a part of its speed alone.

        >>> Prediction(8, 0.020, 0.016, 0.01).efficiency
        0.8
        """
        return self.alone / self.seconds


def predict(
    work: Sequence[Work],
    ranks: int,
    latency: float,
    bandwidth: float,
    *,
    cores: float,
    threads: int,
    costs: Costs = Costs(),  # noqa: B008  an immutable tuple
    control: float | None = None,
) -> Prediction:
    """The time of a step on so many ranks.

    cores: processors of each rank, also a fraction; threads: those that compute.
    control: latency of messages of control; None: `latency`. On an imitated network it is 0.

    >>> step = [Work("forward", 0.01), Work("exchange", after=(0,), kind="exchange", nbytes=1 << 20)]
    >>> free = Costs(0, 0, 0, 0, 0)
    >>> found = predict(step, 2, 0.0, 1e9, cores=2, threads=1, costs=free)
    >>> round(found.alone, 4), round(found.link * 1e3, 2)
    (0.01, 1.05)
    """
    alone = _Rank(work, 1, 0.0, NEVER, cores, threads, Costs(0, 0, 0, 0, 0), 0.0).run()
    if ranks == 1:
        return Prediction(1, alone, alone, 0.0)
    told = latency if control is None else control
    rank = _Rank(work, ranks, latency, bandwidth, cores, threads, costs, told)
    return Prediction(ranks, rank.run(), alone, rank.sent / bandwidth / LAUNCHES)


class _Task:
    """Work of one launch. left: seconds of work. blocks: tasks that wait for it."""

    __slots__ = ("blocks", "left", "order", "waits", "what")

    def __init__(self, what: Work, order: tuple[int, int]) -> None:
        self.what, self.left, self.order = what, what.seconds, order
        self.blocks: list[_Task] = []
        self.waits = 0


class _Chore:
    """The next work of the thread of communication."""

    __slots__ = ("left", "then")

    def __init__(self, seconds: float, then: Callable[[], None]) -> None:
        self.left, self.then = seconds, then


class _Rank:
    """One rank of many that are alike, while it runs `LAUNCHES` steps."""

    def __init__(
        self,
        work: Sequence[Work],
        ranks: int,
        latency: float,
        bandwidth: float,
        cores: float,
        threads: int,
        costs: Costs,
        control: float,
    ) -> None:
        self._ranks, self._latency, self._bandwidth = ranks, latency, bandwidth
        self._cores, self._threads, self._costs, self._control = cores, threads, costs, control
        self._now = self._idle_since = self.sent = 0.0
        self._numbers = itertools.count()
        self._ready: list[tuple[int, tuple[int, int], _Task]] = []
        self._chores: list[tuple[int, int, _Chore]] = []
        self._chore: _Chore | None = None
        self._waiting: list[tuple[int, int, float, Callable[[], None] | None]] = []
        self._free = 0.0  # when the link has sent what it is sending
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._ends = [0.0] * LAUNCHES
        self._launches = [[_Task(what, (n, i)) for i, what in enumerate(work)] for n in range(LAUNCHES)]
        for number, tasks in enumerate(self._launches):
            self._connect(tasks, self._launches[number - 1] if number else [])

    def _connect(self, tasks: list[_Task], earlier: list[_Task]) -> None:
        users: dict[int, list[_Task]] = {}
        for task in earlier:
            for variable in task.what.uses:
                users.setdefault(variable, []).append(task)
        for task in tasks:
            before = {id(tasks[i]): tasks[i] for i in task.what.after}
            for variable in task.what.uses:
                before |= {id(other): other for other in users.get(variable, ())}
            task.waits = len(before)
            for other in before.values():
                other.blocks.append(task)

    def run(self) -> float:
        """Seconds from step to step."""
        for tasks in self._launches:
            for task in tasks:
                if not task.waits:
                    self._begin(task)
        while True:
            self._send()
            if self._chore is None and self._chores:
                self._chore = heapq.heappop(self._chores)[2]
            shares = self._shares()
            busy = sum(count for _, count in shares) + (self._chore is not None)
            if not busy and not self._timed and not self._waiting:
                break
            self._advance(shares, min(1.0, self._cores / max(1, busy)))
        return (self._ends[-1] - self._ends[-5]) / 4

    def _shares(self) -> list[tuple[_Task, int]]:
        """The ready tasks that run, with their threads."""
        left, found = self._threads, []
        for _, _, task in sorted(self._ready)[: self._threads]:
            count = min(task.what.width, left)
            if count:
                found.append((task, count))
                left -= count
        return found

    def _advance(self, shares: list[tuple[_Task, int]], speed: float) -> None:
        """Go on until something ends."""
        ends = [task.left / (count * speed) for task, count in shares]
        if self._chore is not None:
            ends.append(self._chore.left / speed)
        if self._timed:
            ends.append(self._timed[0][0] - self._now)
        if self._waiting and self._free > self._now:
            ends.append(self._free - self._now)
        span = max(0.0, min(ends))
        self._now += span
        for (task, count), end in zip(shares, ends, strict=False):
            task.left -= span * count * speed
            if end <= span:
                self._ready = [entry for entry in self._ready if entry[2] is not task]
                self._end(task)
        chore = self._chore
        if chore is not None:
            chore.left -= span * speed
            if chore.left <= 1e-12:
                self._chore, self._idle_since = None, self._now
                chore.then()
        while self._timed and self._timed[0][0] <= self._now:
            heapq.heappop(self._timed)[2]()

    def _begin(self, task: _Task) -> None:
        """A task has become ready."""
        what = task.what
        if what.kind == "kernel":
            heapq.heappush(self._ready, (-what.priority, task.order, task))
        elif self._ranks == 1:
            self._end(task)
        elif what.kind == "agree":
            self._do(what, self._messages(), lambda: self._at(self._control, lambda: self._end(task)))
        else:
            phases = self._phases(what)
            self._do(what, self._messages(), lambda: self._phase(task, phases))

    def _messages(self) -> float:
        return self._costs.operation + (self._ranks - 1) * self._costs.message

    def _phases(self, what: Work) -> list[float]:
        """The bytes that a rank sends in each phase of an operation."""
        others, nbytes = self._ranks - 1, what.nbytes
        if what.kind == "exchange" and nbytes > (PAIR if self._ranks == 2 else SMALL):
            return [nbytes * others / self._ranks] * 2
        if what.kind == "reduce_scatter":
            return [nbytes * others / self._ranks]
        if what.kind == "all_gather":
            return [nbytes / self._ranks * others]
        return [float(nbytes * others)]

    def _phase(self, task: _Task, phases: list[float]) -> None:
        what = task.what
        if not phases:
            self._end(task)
            return
        rest = phases[1:]
        more = self._messages() - self._costs.operation if rest else 0.0
        large = what.kind == "exchange" and what.nbytes > SMALL
        wakes = 4 if large else 2 * len(self._phases(what))  # also of two ranks, which look as often
        after = more + (wakes * self._costs.wake + self._handling(what)) / len(self._phases(what))
        pieces = min(PIECES, self._ranks - 1)
        for number in range(pieces):
            last = (
                (lambda: self._do(what, after, lambda: self._phase(task, rest)))
                if number == pieces - 1
                else None
            )
            entry = (-what.priority, next(self._numbers), phases[0] / pieces, last)
            heapq.heappush(self._waiting, entry)

    def _handling(self, what: Work) -> float:
        """The time in which a rank's thread moves and combines the bytes of an operation.

        Of what was measured between two ranks, half is to put arrays together and apart again; the rest is
        of the bytes that a rank sends, which are at most twice as many between more.
        """
        if what.kind != "exchange" or not what.seconds:
            return self._costs.byte * what.nbytes
        return what.seconds * (0.5 + (self._ranks - 1) / self._ranks)

    def _send(self) -> None:
        """Give the link its next message."""
        while self._waiting and self._free <= self._now:
            _, _, nbytes, arrived = heapq.heappop(self._waiting)
            self._free = self._now + nbytes / self._bandwidth
            self.sent += nbytes
            if arrived is not None:
                self._at(self._free - self._now + self._latency, self._woken(arrived))

    def _woken(self, arrived: Callable[[], None]) -> Callable[[], None]:
        """Delay an arrival until the thread of communication wakes up: it sleeps longer the longer it has
        nothing to do.
        """

        def notice() -> None:
            idle = 0.0 if self._chore is not None else self._now - self._idle_since
            self._at(min(idle, self._costs.nap) / 2, arrived)

        return notice

    def _do(self, what: Work, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._chores, (-what.priority, next(self._numbers), _Chore(seconds, then)))

    def _at(self, delay: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timed, (self._now + delay, next(self._numbers), then))

    def _end(self, task: _Task) -> None:
        launch = task.order[0]
        self._ends[launch] = max(self._ends[launch], self._now)
        for other in task.blocks:
            other.waits -= 1
            if not other.waits:
                self._begin(other)
