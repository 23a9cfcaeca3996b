"""Measurement of the costs of a step in a single process that emulates one of several ranks.

    with pretending():
        step(x, y)                    # exchanges end immediately: all ranks have the arrays of this one
    tj.distributed.measure(step, x, y).predict(ranks=64, latency=5e-5, bandwidth=1e9)

The tasks of the step, their dependencies and their messages are those of the replayed program. The time of a
task is its minimum over all replays in a profile, as disturbances only add time. `simulation` computes
predictions from these costs.
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

EMULATED_RANKS = 2  # number of ranks while costs are measured


class _IdenticalRanks:
    """A transport to emulated ranks that have the same arrays as this one: every operation ends immediately.

    An exchange moves as many bytes of memory as one between two ranks, so that it takes as long.
    """

    rank, size, broken = 0, EMULATED_RANKS, None

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
        """Concatenate a bucket, copy it like a sent and received message, combine, and split it."""
        with self._scratch.joined(outs) as bucket:
            received = self._scratch.acquire(bucket)
            received[...] = bucket
            COMBINE[combine](bucket, received, out=bucket)
            self._scratch.release(received)

    def agree(self, node: Node, failure: BaseException | None, done: Done) -> None:
        done(None)

    def progress(self, wanted: Callable[[], bool]) -> None:
        pass

    def plan(self, node: Node) -> None:
        """Python runs all operations."""

    def resume(self, node: Node, begun: object, results: Sequence[np.ndarray], tag: int, done: Done) -> None:
        raise NotImplementedError("native code begins no exchanges here")


@contextlib.contextmanager
def pretending() -> Iterator[None]:
    """A context in which this process is one of two ranks; the other one is emulated with the same arrays.

    Raises EngineError in a process that is one of several ranks.
    """
    if world.size() > 1:
        raise EngineError(
            "costs are measured in a single process without launcher; this is one of several ranks"
        )
    engine.wait_all()
    saved_transports, was_started, transport = communicate._transports[:], world._started, _IdenticalRanks()
    world._transport, world._started = transport, True  # type: ignore[assignment]
    communicate.set_transport(transport)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            engine.wait_all()
        world._transport, world._started = None, was_started
        communicate._transports[:] = saved_transports


class Step:
    """The measured work of a step, as returned by `tj.distributed.measure`.

    name: of the measured function.
    work: its tasks in a topological order.

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
        """The total bytes of the exchanged arrays.

        >>> Step("by hand", [Work("gradients", kind="exchange", nbytes=800)]).nbytes
        800
        """
        return sum(work.nbytes for work in self.work)

    @property
    def seconds(self) -> float:
        """The time of all kernels and Python tasks on one thread.

        >>> Step("by hand", [Work("kernel", 0.002)]).seconds
        0.002
        """
        return sum(work.seconds for work in self.work if work.kind == "kernel")

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
        """Predict the time of the step on a number of ranks, each with a batch like the measured one.

        latency, bandwidth: of the network for each rank, in seconds and bytes per second.
        cores:              processors of each rank, fractional if ranks share them. None: all processors of
                            this machine.
        costs:              processor time of communication. None: the costs of this release between machines.
        control:            latency of control messages in seconds. None: `latency`.
        Raises ArgumentError unless all of these are positive; a latency may be 0.

        >>> import tracejit as tj
        >>> w = tj.zeros(3)
        >>> @tj.jit
        ... def step(x):
        ...     w.__isub__(tj.distributed.all_reduce(x.sum(axis=0)))
        >>> step = tj.distributed.measure(step, tj.ones((4, 3)))
        >>> prediction = step.predict(8, latency=1e-4, bandwidth=1e9)
        >>> prediction.seconds > prediction.alone
        True
        """
        n_cores = float(engine.processors()) if cores is None else cores
        if type(ranks) is not int or ranks < 1 or not n_cores > 0 or not bandwidth > 0 or not latency >= 0:
            message = (
                f"predict: ranks={ranks!r}, latency={latency!r}, bandwidth={bandwidth!r}, cores={cores!r}"
            )
            raise locate(ArgumentError(f"{message}; all are positive"), user_location())
        return simulation.predict(
            self.work,
            ranks,
            latency,
            bandwidth,
            cores=n_cores,
            threads=max(1, math.ceil(n_cores)),
            costs=costs or Costs(),
            control=control,
        )


def measure(step: Jitted[..., Any], *args: Any, repeats: int = 20, **kwargs: Any) -> Step:
    """Measure the costs of a jitted function with exchanges between ranks, in this process only.

    The function is recorded as on one of several ranks and called ``repeats + 1`` times, as if the other
    ranks passed the same arguments. Its side effects remain.
    Raises ArgumentError if the function is not jitted, runs piecewise, exchanges nothing, or calls `send` or
    `receive`, because ranks are not alike then. Raises EngineError in a process that is one of several ranks.

    >>> import tracejit as tj
    >>> mean = tj.jit(lambda x: tj.distributed.all_reduce(x * x, op="mean"))
    >>> tj.distributed.measure(mean, tj.ones(1000)).nbytes
    4000
    """
    if not isinstance(step, Jitted):
        message = f"measure: expected a jitted function, got {type(step).__name__}"
        raise locate(ArgumentError(message), user_location())
    traced: Jitted[..., Any] = jit(step.__wrapped__)
    with pretending():
        traced(*args, **kwargs)
        with engine.profile() as profile:
            for _ in range(repeats):
                traced(*args, **kwargs)
    steps = steps_of(profile, step.__name__)
    if not steps:
        message = f"measure: {step.__name__} exchanges nothing between ranks in one recorded step"
        raise locate(ArgumentError(message), user_location())
    return steps[0]


def measure_program(command: Sequence[str]) -> Step:
    """Run a Python program as one of several emulated ranks; return the step on which it spends most time.

    command: the arguments after ``python``: a file, ``-m`` and a module, or ``-c`` and a program text,
             followed by the program's arguments.
    Raises ArgumentError if there is no such program, or no recorded step exchanges anything.
    """
    saved = sys.argv, sys.path[:]
    try:
        with pretending(), engine.profile() as profile:
            name = _run_as_main(command)
    finally:
        sys.argv, sys.path[:] = saved
    steps = steps_of(profile, name)
    if not steps:
        raise ArgumentError(f"simulate: no recorded step of {name} exchanges anything between ranks")
    return steps[0]


def _run_as_main(command: Sequence[str]) -> str:
    """Run a program like the command line of Python; return its name."""
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
    """Return the steps with exchanges of a profile, in decreasing order of their total time.

    Raises ArgumentError for point-to-point messages or groups, with which ranks are not alike.
    """
    seconds_of: dict[int, dict[int, dict[int, float]]] = {}  # by program, launch and task
    for event in profile.events:
        number, task = divmod(event.label, LABEL)
        seconds = seconds_of.setdefault(number, {}).setdefault(event.launch, {})
        seconds[task] = seconds.get(task, 0.0) + (event.end - event.start) / 1e9
    steps = []
    for number, program in profile.programs.items():
        assert isinstance(program, engine.Program)
        operators = {node.op for task in program.tasks if (node := _node(task)) is not None}
        if operators & COLLECTIVE:
            if operators & {ops.send, ops.receive}:
                message = f"{name}: send and receive are not simulated; expected the same work on all ranks"
                raise ArgumentError(message)
            if any("groups" in node.attrs for task in program.tasks if (node := _node(task)) is not None):
                raise ArgumentError(f"{name}: exchanges in groups of ranks are not simulated")
            launches = list(seconds_of[number].values())
            total = sum(sum(launch.values()) for launch in launches)
            steps.append((total, Step(name, _work(program, launches))))
    return [step for _, step in sorted(steps, key=lambda pair: -pair[0])]


def _node(task: engine.Task) -> Any:
    """The node of the operator between ranks that a task begins, or None."""
    return getattr(task.callable, "node", None)


def _work(program: engine.Program, launches: Sequence[dict[int, float]]) -> list[Work]:
    written = (engine.WRITE, engine.OVERWRITE)
    result = []
    for index, task in enumerate(program.tasks):
        node = _node(task)
        times = [launch[index] for launch in launches if index in launch]
        result.append(
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
    return result


def _bytes(node: Node) -> int:
    """Total bytes of the arrays of an operator: the result of `all_gather`, otherwise the operands."""
    values = node.outputs if node.op is ops.all_gather else node.inputs
    return sum(v.type.nbytes for v in values)
