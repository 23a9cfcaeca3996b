"""The process of one side: imports its peer, prepares the workload, and then executes commands.

    python -m benchmarks.worker WORKLOAD SIDE THREADS

Started by `benchmarks.harness`. Commands are JSON lines on standard input, answers JSON lines on standard
output (anything that a peer prints goes to standard error):

    {"do": "first"}                     import, create the side, call it once: seconds of each
    {"do": "step", "count": 2}          call it again
    {"do": "read", "path": "a.npz"}     write the results
    {"do": "burst", "count": 10, "warm": 1}    nanoseconds of ten calls, after one untimed call
    {"do": "watch", "count": 20}        page faults, system allocations and peak memory during calls
    {"do": "memory"}                    the compiled function's report of its memory
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import PEERS, peer_of, pin
from benchmarks.workload import OURS, Side
from benchmarks.workloads import WORKLOADS

PAUSE = 0.002  # seconds before a burst, in which threads of the other sides stop spinning


def resident(key: str) -> int:
    """Bytes of resident memory of this process: "VmRSS" is the current value, "VmHWM" the
    maximum since the last reset."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise LookupError(key)


class Worker:
    """The side, and the commands that it executes."""

    side: Side
    finish: Callable[[Any], Any]
    module: Any
    after_import: int

    def __init__(self, workload: str, side: str) -> None:
        self.workload = WORKLOADS[workload]
        self.name = side
        self.peer = PEERS[peer_of(side)]

    def first(self) -> dict[str, Any]:
        """Import the peer, convert the data, call once."""
        data = self.workload.data()
        start = time.perf_counter()
        self.module = importlib.import_module(self.peer.name)
        imported = time.perf_counter()
        self.after_import = resident("VmRSS")
        self.finish = self.peer.finish(self.module)
        self.side = self.workload.sides[self.name](self.module, data)
        ready = time.perf_counter()
        self.finish(self.side.step())
        done = time.perf_counter()
        answer: dict[str, Any] = {"import": imported - start, "first": done - ready}
        if self.peer.name == OURS and self.side.function is not None:
            answer |= _timing(self.side.function)
        return answer

    def step(self, count: int) -> dict[str, Any]:
        """Call it `count` times."""
        for _ in range(count):
            self.finish(self.side.step())
        return {}

    def read(self, path: str) -> dict[str, Any]:
        """Write the results."""
        np.savez(path, **self.side.read())
        return {}

    def burst(self, count: int, warm: int) -> dict[str, Any]:
        """Nanoseconds of each of `count` calls."""
        clock, step, finish, times = time.perf_counter_ns, self.side.step, self.finish, [0] * count
        time.sleep(PAUSE)
        gc.disable()
        for _ in range(warm):
            finish(step())
        for index in range(count):
            start = clock()
            finish(step())
            times[index] = clock() - start
        gc.enable()
        return {"times": times}

    def watch(self, count: int) -> dict[str, Any]:
        """The system resources of `count` calls, and the peak of resident memory since the import."""
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # peak := now
        before, allocated = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, self._allocations()
        self.step(count)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return {
            "faults": after - before,
            "allocations": None if allocated is None else self._allocations() - allocated,
            "peak": resident("VmHWM") - self.after_import,
        }

    def _allocations(self) -> Any:
        pool = self.module.engine.pool if self.peer.name == OURS else None
        return None if pool is None else pool.statistics().allocations

    def memory(self) -> dict[str, Any]:
        """Bytes of the step as the compiler planned them."""
        function, arguments = self.side.function, self.side.arguments
        if self.peer.name == OURS:
            schedules, engine = function.schedules(), self.module.engine
            scratch = sum(t.scratch.words.nbytes for t in list(engine.threads.THREADS.values()) if t.scratch)
            return {
                "planned": sum(s.planned_bytes for s in schedules),
                "naive": sum(s.naive_bytes for s in schedules),
                "scratch": scratch,
                "step": engine.pool.statistics().in_use + scratch,
            }
        assert self.peer.name == "jax"
        assert arguments is not None
        analysis = function.lower(*arguments()).compile().memory_analysis()
        fresh = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        return {
            "planned": analysis.temp_size_in_bytes,
            "step": analysis.argument_size_in_bytes + fresh + analysis.temp_size_in_bytes,
        }


def _timing(function: Any) -> dict[str, Any]:
    """The parts of the first call, and the origin of its kernels."""
    timing, info = function.first_call(), function.cache_info()
    return {
        "record": timing.record,
        "compile": timing.compile,
        "run": timing.run,
        "compiled": info.kernels_compiled,
        "loaded": info.kernels_loaded,
    }


def main() -> None:
    """Answer commands until standard input ends."""
    workload, side, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pin(int(threads))
    worker = Worker(workload, side)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(worker, command.pop("do"))(**command)
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
