"""First calls: the cost of recording, passes and assembly for each operation of a body.

    python -m benchmarks.recording THREADS REPEATS

prints its findings as one line of JSON. Three bodies on tiny arrays:

deep      a chain of 2,000 operations on one array
wide      one momentum update for each of 500 parameters, all of them arguments: 2,000 operations
looping   a Python loop of 200 iterations that call a helper with six operations

Each is recorded once to fill the kernel store and the cached analyses of the process, and then REPEATS times,
as a new function each time. Medians of these:

record     microseconds for each operation of the body: arguments, body and monitoring, without passes
passes     microseconds of all passes, from the graph to its memory plan, for each recorded node
assembly   microseconds from the plan to the schedule, with stored kernels, for each recorded node
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tracejit as tj
from benchmarks.peers import pin

DEEP, WIDE, ROUNDS = 1000, 500, 200


class Body(NamedTuple):
    """A function to record, its arguments, and the number of its array operations."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    operations: int


def _tiny() -> tj.NDArray:
    return tj.asarray(np.full(4, 0.5, np.float32))


def deep() -> Body:
    """A chain of alternating products and sums."""

    def chain(x: Any, y: Any) -> Any:
        for _ in range(DEEP):
            x = x * y
            x = x + y
        return x

    return Body(chain, (_tiny(), _tiny()), 2 * DEEP)


def wide() -> Body:
    """An update of many parameters."""

    def update(params: Any, velocities: Any, gradients: Any, rate: float) -> None:
        for p, v, g in zip(params, velocities, gradients, strict=True):
            v *= 0.9
            v += g
            p -= rate * v

    arrays = [[_tiny() for _ in range(WIDE)] for _ in range(3)]
    return Body(update, (*arrays, 1e-3), 4 * WIDE)


def looping() -> Body:
    """A recurrence whose loop body is a separate function."""

    def cell(h: Any, x: Any, w: Any) -> Any:
        candidate = tj.tanh(x * w + h)
        return h + (candidate - h) * x

    def unrolled(h: Any, x: Any, w: Any) -> Any:
        for _ in range(ROUNDS):
            h = cell(h, x, w)
        return h

    return Body(unrolled, (_tiny(), _tiny(), _tiny()), 6 * ROUNDS)


BODIES = {"deep": deep, "wide": wide, "looping": looping}


def first_call(body: Body) -> dict[str, float]:
    """Microseconds of one first call, by stage."""
    traced = tj.jit(body.function, strict=True)
    traced(*body.arguments)
    tj.wait_all()
    (schedule,) = traced.schedules()
    planned = traced.plan(*body.arguments)
    stages = schedule.times
    passes = sum(stages[name] for name in planned.times)
    assembly = sum(stages.values()) - passes
    return {
        "record": traced.first_call().record / body.operations * 1e6,
        "passes": passes / planned.operations * 1e6,
        "assembly": assembly / planned.operations * 1e6,
    }


def measure(make: Callable[[], Body], repeats: int) -> dict[str, float]:
    """Medians of `repeats` first calls after one that compiles."""
    first_call(make())
    found = [first_call(make()) for _ in range(repeats)]
    return {stage: statistics.median(each[stage] for each in found) for stage in found[0]}


def main() -> None:
    """Measure all bodies and print them."""
    pin(int(sys.argv[1]))
    repeats = int(sys.argv[2])
    print(json.dumps({name: measure(make, repeats) for name, make in BODIES.items()}))


if __name__ == "__main__":
    main()
