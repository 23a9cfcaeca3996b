"""Exchanges between ranks of one machine, against mpi4py's Allreduce and torch's Gloo.

    python -m benchmarks.exchange RANKS MIB...      starts the ranks, prints one line of JSON

Each side in turn sums an array of ones over the ranks, in place. The time of a call is that of the slowest
rank. By ranks and MiB:

exchange, mpi, gloo    microseconds, the minimum of all rounds
step                   the same in a traced step that keeps its operand: a copy, the exchange, the agreement

The array is filled with ones before each call, so that every sum can be checked. Gloo is omitted if torch is
not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Run
from tracejit.launcher import run as start_ranks

RANKS = (2, 4)
SIZES = (1, 4, 16, 64)  # MiB
ROUNDS = {1: 40, 4: 20, 16: 8, 64: 5}


def measure(run: Run) -> dict[str, Any]:
    """Findings by number of ranks and MiB."""
    sizes = SIZES[:1] if run.quick else SIZES
    return {str(ranks): run.module("exchange", ranks, *sizes) for ranks in RANKS}


def start(ranks: int, sizes: list[str]) -> dict[str, Any]:
    """Run the ranks; return the findings of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "found.json"
        with contextlib.redirect_stdout(sys.stderr):
            status = start_ranks(["-m", "benchmarks.exchange", str(result), *sizes], ranks, timeout=300)
        if status:
            raise SystemExit(f"the job of {ranks} ranks ended with status {status}")
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def rank(result: pathlib.Path, sizes: list[int]) -> None:
    """Run one rank; rank 0 writes the findings."""
    import tracejit as tj  # the process that starts the ranks is not a rank

    tj.distributed.init()
    from mpi4py import MPI  # after init, which starts MPI

    world = MPI.COMM_WORLD
    gloo = _gloo(world, result.parent)
    found = {}
    for mib in sizes:
        array = np.ones(mib << 18, np.float32)
        sides = _sides(tj, MPI, world, array)
        if gloo is not None:
            sides["gloo"] = gloo(array)
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(ROUNDS.get(mib, 5)):
            for name, call in sides.items():
                array.fill(1)
                world.Barrier()
                begin = time.perf_counter()
                total = call()
                seconds = world.allreduce(time.perf_counter() - begin, MPI.MAX)
                best[name] = min(best[name], seconds)
                if total[0] != world.size or total[-1] != world.size:
                    raise AssertionError(f"{name}: the sum over {world.size} ranks is {total[0]}")
        found[str(mib)] = {name: seconds * 1e6 for name, seconds in best.items()}
    if world.rank == 0:
        result.write_text(json.dumps(found))


def _sides(tj: Any, mpi: Any, world: Any, array: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    from tracejit.ir.graph import Node
    from tracejit.ops.communicate import exchange, transport

    node = Node(exchange, (), (), {"combine": "sum", "priority": 0, "token": None})
    operand = tj.ones(array.shape)
    traced = tj.jit(lambda x: tj.distributed.all_reduce(x))

    def alone() -> np.ndarray:
        transport().run(node, [array], [array])
        return array

    def library() -> np.ndarray:
        world.Allreduce(mpi.IN_PLACE, array)
        return array

    def step() -> np.ndarray:
        total: np.ndarray = traced(operand).numpy()
        return total

    return {"exchange": alone, "mpi": library, "step": step}


def _gloo(world: Any, folder: pathlib.Path) -> Callable[[np.ndarray], Callable[[], np.ndarray]] | None:
    """A factory of Gloo's call for an array; None if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    meeting = world.bcast(str(folder / "gloo"))
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=world.rank, world_size=world.size
    )

    def call_for(array: np.ndarray) -> Callable[[], np.ndarray]:
        tensor = torch.from_numpy(array)

        def call() -> np.ndarray:
            torch.distributed.all_reduce(tensor)
            return array

        return call

    return call_for


def main() -> None:
    """Start the ranks, or run as one."""
    first, *sizes = sys.argv[1:]
    if first.isdigit():
        print(json.dumps(start(int(first), sizes)))
    else:
        rank(pathlib.Path(first), list(map(int, sizes)))


if __name__ == "__main__":
    main()
