"""The engine by itself: cost of a native task, of parallel branches, of a pushed Python task, and of a
replay.

    python -m benchmarks.engine THREADS

prints its findings as one line of JSON. Kernels that count or spin are compiled here, outside the
store.

chain       nanoseconds per task in a launch of 1,000 counting tasks, each dependent on the previous one,
including the wait branches    seconds of two tasks in sequence, over seconds of the same two in parallel
push        microseconds of `push` of a Python function, without running it replay      microseconds of a
replayed call with 12 tiny arrays and 2 numbers, including the wait python      the same without the native
launch: the cost of Python
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64

import tracejit as tj
from benchmarks.peers import pin
from tracejit import engine
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import load, store
from tracejit.kernels.executor.layout import FINISHED

CHAIN = 1000
SPINS = 1_000_000  # about 2 ms
SPIN_COST = 20_000_000  # as the engine estimates costs: in 0.1 ns


def count(block, lo, hi, scratch):
    """A kernel that adds one to the number at the address in its block."""
    number = load(block, int64)
    store(number, load(number, int64) + 1)
    return 0


def spin(block, lo, hi, scratch):
    """A kernel that computes for a while, in registers; the status depends on it but is always 0."""
    state = block + lo + 1
    for _ in range(SPINS):
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
    return 0 if state != 0 else 1


def median(action: Callable[[], Any], repeats: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _program(function: int, after: list[tuple[int, ...]], cost: int, address: int = 0) -> Callable[[], None]:
    tasks = [
        engine.Task(f"task {i}", None, function, block=0, units=1, chunk=1, after=before, cost=cost)
        for i, before in enumerate(after)
    ]
    program = engine.Program(tasks, [address])

    def launch() -> None:
        program.launch(b"", ())
        engine.wait_all()

    return launch


def chain(function: int) -> float:
    """Nanoseconds per task, after checking that every task has run."""
    number = np.zeros(1, np.int64)
    launch = _program(function, [(), *[(i,) for i in range(CHAIN - 1)]], 0, number.ctypes.data)
    launch()
    assert number[0] == CHAIN
    return median(launch, 200) / CHAIN * 1e9


def branches(function: int) -> float:
    """The speedup of two parallel tasks."""
    in_turn = _program(function, [(), (0,)], cost=SPIN_COST)
    side_by_side = _program(function, [(), ()], cost=SPIN_COST)
    in_turn(), side_by_side()
    found = [median(in_turn, 1) / median(side_by_side, 1) for _ in range(51)]
    return statistics.median(found)


def push() -> float:
    """Microseconds of a push. A group of tasks is completed before the next group starts."""
    variable, times = engine.Variable(), []
    for _ in range(50):
        for _ in range(20):
            start = time.perf_counter()
            engine.push(_nothing, writes=[variable])
            times.append(time.perf_counter() - start)
        engine.wait_all()
    return statistics.median(times) * 1e6


def _nothing() -> None:
    pass


def replay() -> tuple[float, float]:
    """Microseconds of a tiny replayed call including the wait, and of its Python part."""

    @tj.jit
    def step(params, gradients, rate, decay):
        for name, gradient in gradients.items():
            params[name] -= rate * (gradient + decay * params[name])

    params = {f"p{i}": tj.asarray(np.ones(4, np.float32)) for i in range(6)}
    gradients = {name: tj.asarray(np.ones(4, np.float32)) for name in params}

    def call() -> None:
        step(params, gradients, 1e-3, 1e-4)
        engine.wait_all()

    def changed() -> bool:
        before = params["p0"].tolist()
        call()
        return params["p0"].tolist() != before

    for _ in range(100):
        call()
    assert changed()
    complete = median(call, 5000)
    # The native entry point is removed from the launch; nothing is computed from here on.
    step.schedules()[0].program._launch = lambda instance, packed, thread, started: FINISHED
    assert not changed()
    python = median(lambda: step(params, gradients, 1e-3, 1e-4), 5000)
    return complete * 1e6, python * 1e6


def main() -> None:
    """Measure everything and print it."""
    pin(int(sys.argv[1]))
    entries = [EntryPoint("count", count), EntryPoint("spin", spin)]
    addresses = link("benchmark", build_object(entries).object_code, ["count", "spin"])
    complete, python = replay()
    findings = {
        "chain": chain(addresses["count"]),
        "branches": branches(addresses["spin"]),
        "push": push(),
        "replay": complete,
        "python": python,
    }
    print(json.dumps(findings))


if __name__ == "__main__":
    main()
