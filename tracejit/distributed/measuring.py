"""The costs of a step, measured on one process that pretends to be one of several ranks.

    with pretending():
        step(x, y)                    # exchanges end at once: every other rank has what this one has
    tj.distributed.measure(step, x, y).predict(ranks=64, latency=5e-5, bandwidth=1e9)

The tasks of the step, what they wait for and what they send are those of the program that is replayed;
their times are the shortest of all replays in a profile, as what disturbs them only adds. What follows
from them is computed in `simulation`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracejit import engine, ops
from tracejit.distributed import simulation, world
from tracejit.distributed.scratch import Scratch
from tracejit.distributed.simulation import Costs, Prediction, Work
from tracejit.engine.instance import LABEL
from tracejit.errors import ArgumentError, EngineError, locate
from tracejit.frontend.jit.jit import Jitted, jit
from tracejit.frontend.recording.location import user_location
from tracejit.ir.graph import Node
from tracejit.ops import communicate
from tracejit.ops.communicate import COLLECTIVE, COMBINE, Done, agree

PRETENDED = 2  # ranks, while costs are measured


class _Twins:
    """A transport to ranks that have what this one has: every operation ends at once.

    An exchange moves as many bytes of memory as one between two ranks, so that it takes as long.
    """

    rank, size, broken = 0, PRETENDED, None

    def __init__(self) -> None:
        self._scratch = Scratch()

    def post(
        self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray], tag: int, done: Done
    ) -> None:
        self.run(node, operands, results)
        done(None)

    def run(self, node: Node, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        if node.op is ops.exchange:
            self._exchange([result.reshape(-1) for result in results], node.attrs["combine"])
        elif node.op is ops.all_gather:
            results[0][...] = operands[0]
        elif node.op is ops.reduce_scatter:
            mine = operands[0][: len(results[0])]
            COMBINE[node.attrs["combine"]](mine, mine, out=results[0])

    def _exchange(self, outs: list[np.ndarray], combine: str) -> None:
        """Put a bucket together, send and receive it, combine, and take it apart."""
        with self._scratch.joined(outs) as bucket:
            other = self._scratch.take(bucket)
            other[...] = bucket
            COMBINE[combine](bucket, other, out=bucket)
            self._scratch.give(other)

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        done(None)

    def progress(self, wanted: Callable[[], bool]) -> None:
        pass

    def plan(self, node: Node) -> None:
        """Python runs all."""

    def resume(self, node: Node, begun: object, results: Sequence[np.ndarray], tag: int, done: Done) -> None:
        raise NotImplementedError("machine code begins nothing here")


@contextlib.contextmanager
def pretending() -> Iterator[None]:
    """Make this process one of two ranks while it is open; the other has the same arrays.

    Raises EngineError in a process that is one of several ranks.
    """
    if world.size() > 1:
        raise EngineError(
            "costs are measured in a process that was started alone; this is one of several ranks"
        )
    engine.wait_all()
    outer, before, twins = communicate._transports[:], world._started, _Twins()
    world._transport, world._started = twins, True  # type: ignore[assignment]
    communicate.set_transport(twins)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            engine.wait_all()
        world._transport, world._started = None, before
        communicate._transports[:] = outer


class Step:
    """The measured work of a step; made by `tj.distributed.measure`.

    work: its tasks, in an order in which they could run. name: of the function that was measured.

    >>> import tracejit as tj
    >>> kernel = tj.distributed.Work("kernel", 0.002)
    >>> gradients = tj.distributed.Work("gradients", after=(0,), kind="exchange", nbytes=800)
    >>> step = tj.distributed.Step("by hand", [kernel, gradients])
    >>> step.predict(2, latency=1e-4, bandwidth=1e9).ranks
    2
    """

    def __init__(self, name: str, work: Sequence[Work]) -> None:
        self.name, self.work = name, tuple(work)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that are exchanged.

        >>> Step("by hand", [Work("gradients", kind="exchange", nbytes=800)]).nbytes
        800
        """
        return sum(what.nbytes for what in self.work)

    @property
    def seconds(self) -> float:
        """The work of all kernels and Python tasks, of one thread.

        >>> Step("by hand", [Work("kernel", 0.002)]).seconds
        0.002
        """
        return sum(what.seconds for what in self.work if what.kind == "kernel")

    def predict(
        self,
        ranks: int,
        latency: float,
        bandwidth: float,
        *,
        cores: float | None = None,
        costs: Costs | None = None,
        control: float | None = None,
    ) -> Prediction:
        """The time of the step on so many ranks, each with a batch like the one that was measured.

        latency, bandwidth: of the network, in seconds and bytes per second, for each rank.
        cores:              processors of each rank, a fraction where ranks share them; None: all of this
                            machine.
        costs:              of communication, in processor time; None: those of this release between machines.
        control:            seconds that messages of control take; None: `latency`.
        Raises ArgumentError for no ranks, cores or bandwidth.

        >>> import tracejit as tj
        >>> w = tj.zeros(3)
        >>> @tj.jit
        ... def step(x):
        ...     w.__isub__(tj.distributed.all_reduce(x.sum(axis=0)))
        >>> step = tj.distributed.measure(step, tj.ones((4, 3)))
        >>> found = step.predict(8, latency=1e-4, bandwidth=1e9)
        >>> found.seconds > found.alone
        True
        """
        have = float(engine.processors()) if cores is None else cores
        if type(ranks) is not int or ranks < 1 or not have > 0 or not bandwidth > 0 or not latency >= 0:
            what = f"predict: ranks={ranks!r}, latency={latency!r}, bandwidth={bandwidth!r}, cores={cores!r}"
            raise locate(ArgumentError(f"{what}; all are positive"), user_location())
        return simulation.predict(
            self.work,
            ranks,
            latency,
            bandwidth,
            cores=have,
            threads=max(1, math.ceil(have)),
            costs=costs or Costs(),
            control=control,
        )


def measure(step: Jitted[..., Any], *args: Any, repeats: int = 20, **kwargs: Any) -> Step:
    """The measured costs of a jitted function with exchanges between ranks, on this process alone.

    The function is recorded as on one of several ranks and called ``repeats + 1`` times, as if the other
    ranks had the same arguments; what it changes is changed.
    Raises ArgumentError for what is not jitted, runs piecewise, exchanges nothing, or calls `send` or
    `receive`, as ranks are not alike then; EngineError in a process that is one of several ranks.

    >>> import tracejit as tj
    >>> mean = tj.jit(lambda x: tj.distributed.all_reduce(x * x, op="mean"))
    >>> tj.distributed.measure(mean, tj.ones(1000)).nbytes
    4000
    """
    if not isinstance(step, Jitted):
        what = f"measure: expected a jitted function, got {type(step).__name__}"
        raise locate(ArgumentError(what), user_location())
    fresh: Jitted[..., Any] = jit(step.__wrapped__)
    with pretending():
        fresh(*args, **kwargs)
        with engine.profile() as profile:
            for _ in range(repeats):
                fresh(*args, **kwargs)
    steps = steps_of(profile, step.__name__)
    if not steps:
        what = f"measure: {step.__name__} exchanges nothing between ranks in one recorded step"
        raise locate(ArgumentError(what), user_location())
    return steps[0]


def measure_program(command: Sequence[str]) -> Step:
    """The costs of the step on which a program of Python spends most; it runs as one of several ranks.

    command: a file, or ``-m`` and a module, or ``-c`` and a text, and arguments, as after ``python``.
    Raises ArgumentError where there is no such program, or no recorded step exchanges anything.
    """
    outer = sys.argv, sys.path[:]
    try:
        with pretending(), engine.profile() as profile:
            name = _run_as_main(command)
    finally:
        sys.argv, sys.path[:] = outer
    steps = steps_of(profile, name)
    if not steps:
        raise ArgumentError(f"simulate: no recorded step of {name} exchanges anything between ranks")
    return steps[0]


def _run_as_main(command: Sequence[str]) -> str:
    """Run a program as Python's command line would; returns its name."""
    first, *rest = command
    if first in ("-m", "-c") and not rest:
        raise ArgumentError(f"simulate: expected a {'module' if first == '-m' else 'text'} after {first}")
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
        return "the text"
    if first == "-m":
        name = rest[0]
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        if importlib.util.find_spec(name) is None:
            raise ArgumentError(f"simulate: there is no module {name}")
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return name
    if not os.path.isfile(first):
        raise ArgumentError(f"simulate: there is no program {first}")
    sys.argv = list(command)
    sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
    runpy.run_path(first, run_name="__main__")
    return first


def steps_of(profile: engine.Profile, name: str) -> list[Step]:
    """The programs with exchanges of a profile, the one that took longest first.

    Raises ArgumentError where ranks send to single ones, so that they are not alike.
    """
    spent: dict[int, dict[int, dict[int, float]]] = {}  # of a program: a launch: a task: seconds
    for event in profile.events:
        number, task = divmod(event.label, LABEL)
        seconds = spent.setdefault(number, {}).setdefault(event.launch, {})
        seconds[task] = seconds.get(task, 0.0) + (event.end - event.start) / 1e9
    found = []
    for number, program in profile.programs.items():
        assert isinstance(program, engine.Program)
        between = {node.op for task in program.tasks if (node := _node(task)) is not None}
        if between & COLLECTIVE:
            if between & {ops.send, ops.receive}:
                what = f"{name}: what single ranks send is not simulated; expected the same work on all ranks"
                raise ArgumentError(what)
            if any("groups" in node.attrs for task in program.tasks if (node := _node(task)) is not None):
                raise ArgumentError(f"{name}: exchanges in groups of ranks are not simulated")
            launches = list(spent[number].values())
            whole = sum(sum(launch.values()) for launch in launches)
            found.append((whole, Step(name, _work(program, launches))))
    return [step for _, step in sorted(found, key=lambda pair: -pair[0])]


def _node(task: engine.Task) -> Any:
    """The operator between ranks that a task begins; None: another task."""
    return getattr(task.callable, "node", None)


def _work(program: engine.Program, launches: Sequence[dict[int, float]]) -> list[Work]:
    written = (engine.WRITE, engine.OVERWRITE)
    found = []
    for number, task in enumerate(program.tasks):
        node = _node(task)
        times = [launch[number] for launch in launches if number in launch]
        found.append(
            Work(
                task.name,
                seconds=0.0 if node is not None and node.op is not ops.exchange else min(times, default=0.0),
                width=max(1, task.chunks),
                after=tuple(task.after),
                uses=tuple(a for a in task.uses if program.arguments[a] in written),
                priority=task.priority,
                kind="kernel" if node is None else "agree" if node.op is agree else node.op.name,
                nbytes=0 if node is None else _bytes(node),
            )
        )
    return found


def _bytes(node: Node) -> int:
    """Bytes of the whole array of an operator: of `all_gather`, of the result."""
    values = node.outputs if node.op is ops.all_gather else node.inputs
    return sum(v.type.nbytes for v in values)
