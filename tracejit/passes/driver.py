"""The pass driver: runs the passes in order, and is the only module that verifies, prints and times them.

A pass is a function from graph to graph that leaves the graph valid. Settings (see `tracejit.config`):

- `config.verify` runs the verifier on the recording and after every pass;
- `config.dump` names the passes whose results are printed to standard error (``record`` is the input);
- `config.disable` names passes to skip, for bisection.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tracejit.config import config
from tracejit.ir.graph import Graph
from tracejit.ir.printer import print_graph
from tracejit.ir.verify import verify
from tracejit.passes.attend import attend
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.fusion.fuse import MissedFusion, fuse
from tracejit.passes.fusion.prepare import prepare
from tracejit.passes.recompute import recompute
from tracejit.passes.remask import remask
from tracejit.passes.rolling.roll import roll
from tracejit.passes.simplify import simplify
from tracejit.passes.stack import stack
from tracejit.passes.weight_sums import weight_sums
from tracejit.passes.widen import widen
from tracejit.passes.winograd import winograd

Pass = Callable[[Graph], Graph]

CLEANING: dict[str, Pass] = {"attend": attend, "simplify": simplify, "cse": cse, "dce": dce}
"""The passes, in order, that leave only the operators that the results need."""

FORMING: dict[str, Pass] = {
    "stack": stack,
    "winograd": winograd,
    "weight_sums": weight_sums,
    "remask": remask,
    "recompute": recompute,
    "prepare": prepare,
    "dce": dce,
}
"""The passes, in order, that replace operators by faster ones, and by those that kernels compute."""


def rolling(notes: dict[str, Any] | None = None) -> dict[str, Pass]:
    """The passes, in order, that roll the loops of a recording, before the `CLEANING` passes. `stack` comes
    first: it turns sums along a loop into stores, which the iterations of a rolled loop can make. `notes`:
    see `roll`.
    """
    return {"stack": stack, "roll": functools.partial(roll, notes=notes)}


def optimize(graph: Graph) -> Graph:
    """Run all passes on a recording: `form_kernels` after `clean`."""
    return form_kernels(clean(graph))


def clean(
    graph: Graph,
    times: dict[str, float] | None = None,
    notes: dict[str, Any] | None = None,
    *,
    rolls: bool = True,
) -> Graph:
    """Run `widen`, which kernels require, then the `rolling` and the `CLEANING` passes.

    times: the seconds of each pass are added to it. notes: see `roll`. rolls: False for the body of a loop,
    in which nested loops have been rolled already.
    """
    check("record", graph)
    return _run({**(rolling(notes) if rolls else {}), **CLEANING}, widen(graph), times)


def form_kernels(
    graph: Graph, times: dict[str, float] | None = None, missed: list[MissedFusion] | None = None
) -> Graph:
    """Run the `FORMING` passes and `fuse` on a clean graph. Missed fusions are appended to `missed`."""
    return _run({**FORMING, "fuse": functools.partial(fuse, missed=missed)}, graph, times)


def _run(passes: Mapping[str, Pass], graph: Graph, times: dict[str, float] | None) -> Graph:
    for name, transform in passes.items():
        graph = run_pass(name, transform, graph, times)
    return graph


def run_pass(name: str, transform: Pass, graph: Graph, times: dict[str, float] | None = None) -> Graph:
    """Run one pass, unless it is disabled; then verify and print its result as the settings require."""
    if name in config.disable:
        return graph
    with timed({} if times is None else times, name):
        graph = transform(graph)
    check(name, graph)
    return graph


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of the block, in seconds, to that of the stage `name`."""
    start = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - start


def check(name: str, graph: Graph) -> None:
    """Verify and print `graph`, the result of the stage `name`, as the settings require."""
    if config.verify:
        verify(graph)
    if name in config.dump:
        print(f"# after {name}\n{print_graph(graph, locations=True)}", file=sys.stderr)
