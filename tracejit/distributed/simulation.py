"""A performance model: the predicted time of a training step on any number of ranks from measured costs.

    step = Step([Work("backward", 2e-3, width=4), Work("exchange", 0, after=(0,), nbytes=4 << 20), ...])
    predict(step, ranks=64, latency=5e-5, bandwidth=1e9, cores=8).seconds

The work of a step is a list of items, each with the indices of the earlier items it depends on. All ranks do
the same work at the same speed, so the simulation of one rank represents all: a message that it sends arrives
at the same time as the corresponding messages of the others arrive here. The model has four components.

*Cores.* The threads of a rank compute the ready work of highest priority. Work is divisible: a kernel with c
chunks is shared by up to c threads, and if more threads are busy than there are cores, the cores are divided
evenly. Ranks that share a machine each have a fraction of its cores.

*The communication thread* begins operations and combines received arrays, one at a time. Each operation,
message and byte has its cost (`Costs`). A message that arrives while the thread sleeps waits until it wakes.

*The link* of a rank transmits one message at a time, the one of highest priority first. Transmission takes
the bytes divided by the bandwidth; the message arrives one latency later.

*Consecutive steps.* A launch begins while the previous one still runs. Work waits for work of the previous
launch if both use a variable that one of them writes. The predicted time is that from step to step.

The model ignores noise, slow ranks, contention for memory bandwidth, and switches that cannot serve all links
simultaneously.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

SMALL, SMALL_PAIR = (
    1 << 15,
    1 << 20,
)  # as in `transport`: up to these sizes complete arrays are sent to all ranks
LAUNCHES = 8  # simulated steps; the result is the mean of the last four
MAX_CHUNKS = 16  # maximum number of chunks of a phase's messages, after each of which urgent ones overtake
NEVER = math.inf


class Work(NamedTuple):
    """A task of a step.

    seconds:  its time on one thread; for an exchange, the time to process its bytes between two ranks, where
              0 means an estimate from `Costs`.
    width:    the number of threads that can share it.
    after:    indices of earlier work that it depends on.
    uses:     variables it uses, as arbitrary integers; work of the next launch that uses one of them waits.
    priority: among ready work the highest is first.
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
    """Costs of communication on a rank's communication thread, in seconds.

    operation: to begin and end an operation.
    message:   per message that is sent and received.
    byte:      per byte of an array that is combined.
    nap:       the longest sleep between two polls.
    wake:      to resume, twice in each phase of an operation and four times in a large exchange, because
               kernels have evicted the caches in the meantime.

    >>> Costs(nap=0.0).nap
    0.0
    """

    operation: float = 1e-4
    message: float = 5e-6
    byte: float = 1.5e-10
    nap: float = 1e-3
    wake: float = 1.3e-4


WITHIN = Costs(operation=2e-5, wake=6.5e-5)
"""Costs between ranks of one machine, whose exchanges native code begins and ends, also on an emulated link.
The default `Costs()` apply to messages between machines, which Python sends.
"""


class Prediction(NamedTuple):
    """The predicted times of a step on a number of ranks, in seconds.

    seconds: from step to step.
    alone:   from step to step on a single rank, without exchanges.
    link:    for which the link transmits.

    >>> Prediction(ranks=8, seconds=0.02, alone=0.016, link=0.01).ranks
    8
    """

    ranks: int
    seconds: float
    alone: float
    link: float

    @property
    def efficiency(self) -> float:
        """The speed of a rank relative to a single rank without exchanges.

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
    """Predict the time of a step on a number of ranks.

    cores:   processors of each rank, may be fractional.
    threads: number of threads of each rank that compute.
    control: latency of control messages. None: `latency`. On an emulated network it is 0.

    >>> step = [Work("forward", 0.01), Work("exchange", after=(0,), kind="exchange", nbytes=1 << 20)]
    >>> free = Costs(0, 0, 0, 0, 0)
    >>> prediction = predict(step, 2, 0.0, 1e9, cores=2, threads=1, costs=free)
    >>> round(prediction.alone, 4), round(prediction.link * 1e3, 2)
    (0.01, 1.05)
    """
    alone = _Rank(work, 1, 0.0, NEVER, cores, threads, Costs(0, 0, 0, 0, 0), 0.0).run()
    if ranks == 1:
        return Prediction(1, alone, alone, 0.0)
    control_latency = latency if control is None else control
    rank = _Rank(work, ranks, latency, bandwidth, cores, threads, costs, control_latency)
    return Prediction(ranks, rank.run(), alone, rank.sent / bandwidth / LAUNCHES)


class _Task:
    """An item of work in one launch.

    left: remaining seconds. blocks: tasks that depend on it. waits: number of unfinished dependencies.
    """

    __slots__ = ("blocks", "left", "order", "waits", "work")

    def __init__(self, work: Work, order: tuple[int, int]) -> None:
        self.work, self.left, self.order = work, work.seconds, order
        self.blocks: list[_Task] = []
        self.waits = 0


class _WorkItem:
    """A work item of the communication thread, with its remaining seconds and its continuation."""

    __slots__ = ("left", "then")

    def __init__(self, seconds: float, then: Callable[[], None]) -> None:
        self.left, self.then = seconds, then


class _Rank:
    """The simulation of one of several identical ranks for `LAUNCHES` steps."""

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
        self._work_items: list[tuple[int, int, _WorkItem]] = []
        self._current_item: _WorkItem | None = None
        self._waiting: list[tuple[int, int, float, Callable[[], None] | None]] = []
        self._free = 0.0  # when the current transmission of the link ends
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._ends = [0.0] * LAUNCHES
        self._launches = [[_Task(item, (n, i)) for i, item in enumerate(work)] for n in range(LAUNCHES)]
        for number, tasks in enumerate(self._launches):
            self._connect(tasks, self._launches[number - 1] if number else [])

    def _connect(self, tasks: list[_Task], earlier: list[_Task]) -> None:
        users_of: dict[int, list[_Task]] = {}
        for task in earlier:
            for variable in task.work.uses:
                users_of.setdefault(variable, []).append(task)
        for task in tasks:
            predecessors = {id(tasks[i]): tasks[i] for i in task.work.after}
            for variable in task.work.uses:
                predecessors |= {id(predecessor): predecessor for predecessor in users_of.get(variable, ())}
            task.waits = len(predecessors)
            for predecessor in predecessors.values():
                predecessor.blocks.append(task)

    def run(self) -> float:
        """Run the simulation; return the seconds from step to step."""
        for tasks in self._launches:
            for task in tasks:
                if not task.waits:
                    self._begin(task)
        while True:
            self._send()
            if self._current_item is None and self._work_items:
                self._current_item = heapq.heappop(self._work_items)[2]
            shares = self._shares()
            busy = sum(threads for _, threads in shares) + (self._current_item is not None)
            if not busy and not self._timed and not self._waiting:
                break
            self._advance(shares, min(1.0, self._cores / max(1, busy)))
        return (self._ends[-1] - self._ends[-5]) / 4

    def _shares(self) -> list[tuple[_Task, int]]:
        """The tasks that run now, by priority, with their numbers of threads."""
        free_threads, shares = self._threads, []
        for _, _, task in sorted(self._ready)[: self._threads]:
            threads = min(task.work.width, free_threads)
            if threads:
                shares.append((task, threads))
                free_threads -= threads
        return shares

    def _advance(self, shares: list[tuple[_Task, int]], speed: float) -> None:
        """Advance the time to the next event, and process it."""
        ends = [task.left / (threads * speed) for task, threads in shares]
        if self._current_item is not None:
            ends.append(self._current_item.left / speed)
        if self._timed:
            ends.append(self._timed[0][0] - self._now)
        if self._waiting and self._free > self._now:
            ends.append(self._free - self._now)
        span = max(0.0, min(ends))
        self._now += span
        for (task, threads), end in zip(shares, ends, strict=False):
            task.left -= span * threads * speed
            if end <= span:
                self._ready = [entry for entry in self._ready if entry[2] is not task]
                self._end(task)
        item = self._current_item
        if item is not None:
            item.left -= span * speed
            if item.left <= 1e-12:
                self._current_item, self._idle_since = None, self._now
                item.then()
        while self._timed and self._timed[0][0] <= self._now:
            heapq.heappop(self._timed)[2]()

    def _begin(self, task: _Task) -> None:
        """Begin a task that has become ready."""
        work = task.work
        if work.kind == "kernel":
            heapq.heappush(self._ready, (-work.priority, task.order, task))
        elif self._ranks == 1:
            self._end(task)
        elif work.kind == "agree":
            self._enqueue(
                work, self._send_cost(), lambda: self._schedule(self._control, lambda: self._end(task))
            )
        else:
            phases = self._phases(work)
            self._enqueue(work, self._send_cost(), lambda: self._phase(task, phases))

    def _send_cost(self) -> float:
        return self._costs.operation + (self._ranks - 1) * self._costs.message

    def _phases(self, work: Work) -> list[float]:
        """The number of bytes that a rank sends in each phase of an operation."""
        others, nbytes = self._ranks - 1, work.nbytes
        if work.kind == "exchange" and nbytes > (SMALL_PAIR if self._ranks == 2 else SMALL):
            return [nbytes * others / self._ranks] * 2
        if work.kind == "reduce_scatter":
            return [nbytes * others / self._ranks]
        if work.kind == "all_gather":
            return [nbytes / self._ranks * others]
        return [float(nbytes * others)]

    def _phase(self, task: _Task, phases: list[float]) -> None:
        work = task.work
        if not phases:
            self._end(task)
            return
        remaining = phases[1:]
        send_time = self._send_cost() - self._costs.operation if remaining else 0.0
        large = work.kind == "exchange" and work.nbytes > SMALL
        wakes = 4 if large else 2 * len(self._phases(work))  # also for two ranks, which have a single phase
        after = send_time + (wakes * self._costs.wake + self._processing_time(work)) / len(self._phases(work))
        chunks = min(MAX_CHUNKS, self._ranks - 1)
        for number in range(chunks):
            last = (
                (lambda: self._enqueue(work, after, lambda: self._phase(task, remaining)))
                if number == chunks - 1
                else None
            )
            entry = (-work.priority, next(self._numbers), phases[0] / chunks, last)
            heapq.heappush(self._waiting, entry)

    def _processing_time(self, work: Work) -> float:
        """The time in which the communication thread moves and combines the bytes of an operation.

        Half of the time measured for two ranks concatenates and splits the arrays. The other half is
        proportional to the bytes that a rank sends, which at most double with more ranks.
        """
        if work.kind != "exchange" or not work.seconds:
            return self._costs.byte * work.nbytes
        return work.seconds * (0.5 + (self._ranks - 1) / self._ranks)

    def _send(self) -> None:
        """Start the next transmission if the link is idle."""
        while self._waiting and self._free <= self._now:
            _, _, nbytes, arrived = heapq.heappop(self._waiting)
            self._free = self._now + nbytes / self._bandwidth
            self.sent += nbytes
            if arrived is not None:
                self._schedule(self._free - self._now + self._latency, self._after_wake_up(arrived))

    def _after_wake_up(self, arrived: Callable[[], None]) -> Callable[[], None]:
        """Delay an arrival until the communication thread wakes up, which sleeps longer when idle."""

        def notice() -> None:
            idle = 0.0 if self._current_item is not None else self._now - self._idle_since
            self._schedule(min(idle, self._costs.nap) / 2, arrived)

        return notice

    def _enqueue(self, work: Work, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._work_items, (-work.priority, next(self._numbers), _WorkItem(seconds, then)))

    def _schedule(self, delay: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timed, (self._now + delay, next(self._numbers), then))

    def _end(self, task: _Task) -> None:
        launch = task.order[0]
        self._ends[launch] = max(self._ends[launch], self._now)
        for successor in task.blocks:
            successor.waits -= 1
            if not successor.waits:
                self._begin(successor)
