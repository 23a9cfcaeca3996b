"""Devices, KVStore and overlap: their costs for a step.

    python -m benchmarks.devices THREADS        one process, prints one line of JSON

two devices    seconds of a training step on one device with one thread, over those of the same step whose
               halves of the batch are on two devices
one rank       seconds of a step with `tj.distributed.all_reduce`, over those of the same step without
eager          microseconds of push and pull of one small key outside of a traced step, without the work
replay         microseconds of Python for each key that a replayed step pushes and pulls: from the difference
               between calls with 80 keys and with 16
overlap        a training step of two ranks, in which exchange and computation take equal time: seconds of the
               step minus those of the first layer's exchange, over the longer of computation and exchange
               (`python -m benchmarks.devices overlap FILE`, started by `measure`). Ranks wait for the end of
               each step, so its forward pass, during which there is no gradient yet, is not hidden: it is at
               least 1.27 here
in a row       the same for a step in a sequence of steps, each of which begins while gradients of the
               previous step are in flight
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as tj
from benchmarks.engine import median
from benchmarks.harness import Run, SideFailed
from benchmarks.peers import pin
from tracejit import engine

LAYERS, WIDTH, BATCH = 8, 512, 128
KEYS = (16, 80)
LATENCY = 1e-4
ROW = 24
"""Steps that are launched in a row."""


def measure(run: Run) -> dict[str, Any]:
    """Findings of one process, and of two ranks: without an imitated link, and with one that takes as long
    as the computation."""
    found = run.module("devices", run.threads)
    with tempfile.TemporaryDirectory() as folder:
        alone = _ranks(run, pathlib.Path(folder) / "alone.json", None)
        link = f"{LATENCY},{LAYERS * WIDTH * WIDTH * 4 / alone['step']}"
        together = _ranks(run, pathlib.Path(folder) / "together.json", link)
    first = alone["step"] / LAYERS + 2 * LATENCY  # the link takes as long as the computation of a step
    longer = max(alone["row"], alone["step"])
    return {
        **found,
        "overlap": (together["step"] - first) / alone["step"],
        "in a row": (together["row"] - first) / longer,
        "computing": alone["step"],
        "step": together["step"],
    }


def _ranks(run: Run, result: pathlib.Path, link: str | None) -> dict[str, float]:
    """Run two ranks that train; return the findings of rank 0."""
    outer = os.environ.get("TRACEJIT_LINK")
    try:
        if link is not None:
            os.environ["TRACEJIT_LINK"] = link
        given = [
            "run",
            "-n",
            "2",
            "-m",
            "benchmarks.devices",
            "overlap",
            str(result),
            "sum" if link else "none",
        ]
        launch = f"import sys; from tracejit.cli import main; sys.exit(main({given!r}))"
        run.python("-c", launch, caches=run.caches())
    finally:
        os.environ.pop("TRACEJIT_LINK", None)
        if outer is not None:
            os.environ["TRACEJIT_LINK"] = outer
    if not result.exists():
        raise SideFailed("two ranks have found nothing")
    found: dict[str, float] = json.loads(result.read_text())
    return found


def overlap(result: pathlib.Path, summed: bool) -> None:
    """Run one of two ranks; report the seconds of a step, and of a step in a sequence, of the slower rank."""
    tj.distributed.init()
    weights, x, y = _perceptron(), _tensor(BATCH, WIDTH), _tensor(BATCH, WIDTH)

    @tj.jit
    def step(x: Any, y: Any) -> None:
        gradients = tj.grad(_loss)(weights, x, y)
        if summed:
            gradients = tj.distributed.all_reduce(gradients, op="mean")
        tj.optim.sgd(weights, gradients, lr=1e-3)

    def seconds(steps: int) -> float:
        tj.wait_all()
        tj.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            step(x, y)
        tj.wait_all()
        return (time.perf_counter() - begin) / steps

    found = {
        "step": statistics.median([seconds(1) for _ in range(12)][2:]),
        "row": statistics.median([seconds(ROW) for _ in range(5)]),
    }
    slowest = tj.distributed.all_reduce(tj.asarray(list(found.values())), op="max").tolist()
    if tj.distributed.rank() == 0:
        result.write_text(json.dumps(dict(zip(found, slowest, strict=True))))


def _tensor(*shape: int, device: tj.Device | None = None) -> tj.NDArray:
    x = tj.asarray((np.random.default_rng(0).standard_normal(shape) / WIDTH**0.5).astype(np.float32))
    return x if device is None else x.to(device)


def _perceptron(device: tj.Device | None = None) -> list[tj.NDArray]:
    return [_tensor(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]


def _loss(weights: Any, x: Any, y: Any) -> Any:
    for w in weights:
        x = tj.tanh(x @ w)
    return ((x - y) ** 2).mean()


def two_devices() -> float:
    """The speedup of a step on two devices over one thread."""
    places = [tj.cpu(0), tj.cpu(1)]
    weights = _perceptron()
    x, y = _tensor(4 * BATCH, WIDTH), _tensor(4 * BATCH, WIDTH)
    sides = {}
    for name, devices in {"one": None, "two": places}.items():
        mean = tj.distributed.data_parallel(_loss, shards=2, devices=devices)
        sides[name] = tj.jit(lambda x, y, mean=mean: mean(weights, x, y)[0])

    def call(name: str) -> Callable[[], None]:
        def run() -> None:
            sides[name](x, y)
            tj.wait_all()

        return run

    engine.set_workers(0)
    alone = _best(call("one"))
    engine.set_workers(1)
    return alone / _best(call("two"))


def _best(action: Callable[[], None]) -> float:
    """Median seconds after two untimed calls."""
    action(), action()
    return median(action, 9)


def one_rank() -> float:
    """Seconds of a step with an exchange on a single rank, over those of the step without it."""
    tj.distributed.init()
    weights, x, y = _perceptron(), _tensor(BATCH, WIDTH), _tensor(BATCH, WIDTH)

    def step(x: Any, y: Any, shared: bool) -> None:
        gradients = tj.grad(_loss)(weights, x, y)
        if shared:
            gradients = tj.distributed.all_reduce(gradients, op="mean")
        tj.optim.sgd(weights, gradients, lr=1e-3)

    traced = {shared: tj.jit(lambda x, y, shared=shared: step(x, y, shared)) for shared in (True, False)}
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(25):
        for shared, function in traced.items():
            begin = time.perf_counter()
            function(x, y)
            tj.wait_all()
            times[shared].append(time.perf_counter() - begin)
    return statistics.median(times[True][2:]) / statistics.median(times[False][2:])


def eager() -> float:
    """Microseconds of a push and a pull. A group of calls is completed before the next group starts."""
    kv, value, out, times = tj.kvstore.create(), tj.ones(4), tj.zeros(4), []
    kv.init(0, tj.zeros(4))
    for _ in range(60):
        begin = time.perf_counter()
        for _ in range(20):
            kv.push(0, value)
            kv.pull(0, out)
        times.append((time.perf_counter() - begin) / 20)
        tj.wait_all()
    return statistics.median(times[10:]) * 1e6


def replay() -> float:
    """Microseconds of Python for each additional key in a replayed step."""
    return (_call(KEYS[1]) - _call(KEYS[0])) / (KEYS[1] - KEYS[0]) * 1e6


def _call(keys: int) -> float:
    kv, outs, gradient = tj.kvstore.create(), [tj.zeros(4) for _ in range(keys)], tj.ones(4)
    kv.init(list(range(keys)), outs)
    kv.set_optimizer(tj.optim.sgd, lr=0.1)

    @tj.jit
    def step(g: Any) -> None:
        for i, out in enumerate(outs):
            kv.push(i, g, priority=-i)
            kv.pull(i, out, priority=-i)

    times = []
    for _ in range(300):
        begin = time.perf_counter()
        step(gradient)
        times.append(time.perf_counter() - begin)
        tj.wait_all()
    assert abs(float(outs[-1][0]) + 30.0) < 1e-2  # 300 steps of 0.1
    return statistics.median(times[50:])


def main() -> None:
    """Measure everything and print it, or run as a rank."""
    if sys.argv[1] == "overlap":
        overlap(pathlib.Path(sys.argv[2]), sys.argv[3] == "sum")
        return
    pin(int(sys.argv[1]))
    found = {"eager": eager(), "replay": replay(), "one rank": one_rank(), "two devices": two_devices()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
