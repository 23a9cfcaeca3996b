"""Memory: the plan against one buffer per result, and the step's footprint against JAX's.

planned, naive  bytes of intermediate results, for training steps and forward passes
scratch         bytes of the scratch memory of all threads
step            bytes of arguments, results and intermediate results together, and of tracejit's scratch;
                JAX's as reported by its compiler, which excludes memory of its threads and products
peak            peak resident memory in twenty steps (complete nets: three), minus that after the import; for
                complete nets in a process that loads its kernels from the store
faults          page faults in these steps
allocations     number of times tracejit allocated memory from the system in these steps
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.harness import Run, SideFailed
from benchmarks.peers import PEERS, peer_of
from benchmarks.workload import OURS
from benchmarks.workloads import WORKLOADS

TRAINING = ("mlp-8-training", "lstm", "transformer")
FORWARD = ("mlp-8-forward", "lstm-forward", "transformer-forward")
WHOLE = ("resnet18", "resnet50", "mobilenetv2", "gpt-128", "gpt-1024", "u-net")
"""Training steps of whole nets, of which resident memory is compared with torch's."""

WEIGHED = (OURS, "jax")
"""Peers whose compilers say what a step takes."""
NETS = ("AlexNet", "VGG-16", "GoogLeNet", "ResNet-50")
"""Planned from shapes, with a batch of 64, and not run: see `benchmarks.nets.plan`."""

STEPS, STEPS_OF_NETS = 20, 3


def measure(run: Run, peers: Iterable[str]) -> dict[str, Any]:
    """Findings by workload and side; for a side that fails, the reason."""
    wanted = {OURS, *peers}
    found: dict[str, Any] = {}
    for name in (*TRAINING, *FORWARD, *WHOLE):
        peers, steps = ((OURS, "torch"), STEPS_OF_NETS) if name in WHOLE else (WEIGHED, STEPS)
        sides = [
            side
            for side in WORKLOADS[name].sides
            if peer_of(side) in peers and peer_of(side) in wanted and side != f"{OURS}:eager"
        ]
        found[name] = {side: _weigh(run, name, side, steps) for side in sides}
    for name, net in run.module("nets.plan", *NETS).items() if NETS else ():
        found[name], found[forward_of(name)] = {OURS: net["training"]}, {OURS: net["forward"]}
    return found


def forward_of(net: str) -> str:
    """The name of the forward pass of a net."""
    return f"{net}-forward"


def _weigh(run: Run, name: str, side: str, steps: int) -> dict[str, Any]:
    if PEERS[peer_of(side)].missing():
        return {"status": "missing: not installed here"}
    caches = run.caches(executor=peer_of(side) == OURS)
    worker = run.worker(WORKLOADS[name], side, caches)
    try:
        if name in WHOLE and peer_of(side) == OURS:  # compiled by another process, as in later runs
            worker.ask("first")
            worker.stop()
            worker = run.worker(WORKLOADS[name], side, caches)
        worker.ask("first")
        worker.ask("step", count=2)
        watched = worker.ask("watch", count=steps)
        told = worker.ask("memory") if peer_of(side) in WEIGHED else {}
        return {"status": "ok", **watched, **told}
    except SideFailed as failure:
        return {"status": f"failed: {failure}"}
    finally:
        worker.stop()
