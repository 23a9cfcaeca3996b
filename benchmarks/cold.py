"""Cold starts, each in new processes: the import, first calls from stores in several states, and a new
batch size.

    python -m benchmarks.cold NAME

is the process that measures a new batch size; it prints its findings as one line of JSON.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness import Run
from benchmarks.workload import OURS
from benchmarks.workloads import WORKLOADS, loops, mlp, rounds

STEP = "mlp-momentum-128x784x512"
BATCHES = (96, 100, 64, 160, 50)
IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def measure(run: Run) -> dict[str, Any]:
    """All findings, in seconds; medians over several processes."""
    repeats = 1 if run.quick else 5
    filled = run.caches()
    found: dict[str, Any] = {
        f"import {module}": _imported(run, module, repeats, filled) for module in ("numpy", "tracejit")
    }
    found["empty"] = _first(run, STEP, [run.caches(executor=False) for _ in range(repeats)])
    many = [workload.name for workload in (*loops.WORKLOADS, *rounds.WORKLOADS)]
    for name in (STEP, "lstm", "transformer", *many):
        found[f"executor {name}"] = _first(run, name, [run.caches() for _ in range(repeats)])
    _first(run, STEP, [filled])
    found["filled"] = _first(run, STEP, [filled] * repeats)
    found["new batch"] = run.module("cold", STEP, caches=filled)
    return found


def _imported(run: Run, module: str, repeats: int, caches: pathlib.Path) -> float:
    program = IMPORT.format(module)
    run.python("-c", program, caches=caches)  # writes bytecode
    return statistics.median(float(run.python("-c", program, caches=caches)) for _ in range(repeats))


def _first(run: Run, workload: str, caches: list[pathlib.Path]) -> dict[str, float]:
    """The median of each part of the first call, over processes with the given caches."""
    calls = []
    for folder in caches:
        worker = run.worker(WORKLOADS[workload], OURS, folder)
        try:
            calls.append(worker.ask("first"))
        finally:
            worker.stop()
    return {name: statistics.median(call[name] for call in calls) for name in calls[0]}


def new_batches(workload: str) -> dict[str, float]:
    """Median seconds of the first call with a batch size not seen before, and the number of
    kernels that it compiled."""
    import tracejit as tj  # timed elsewhere; here after NumPy, as in the other processes

    data = WORKLOADS[workload].data()
    side = mlp.in_tracejit(tj, data, optimizer="momentum")
    side.step()
    tj.wait_all()
    assert side.arguments is not None
    params, state, _x, _y, rate = side.arguments()
    before, times = side.function.cache_info().kernels_compiled, []
    for batch in BATCHES:
        x = tj.asarray(np.resize(data["x"], (batch, data["x"].shape[1])))
        y = tj.asarray(np.resize(data["y"], batch))
        tj.wait_all()
        start = time.perf_counter()
        side.function(params, state, x, y, rate)
        tj.wait_all()
        times.append(time.perf_counter() - start)
    compiled = side.function.cache_info().kernels_compiled - before
    return {"seconds": statistics.median(times), "compiled": compiled}


if __name__ == "__main__":
    print(json.dumps(new_batches(sys.argv[1])))
