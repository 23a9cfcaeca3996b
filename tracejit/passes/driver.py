"""The pass driver: runs the list of passes, and is the only place that verifies, prints and times them.

A pass is a plain function from graph to graph that leaves the graph valid. Settings (see `tracejit.config`):

- `config.verify` runs the verifier on the recording and after every pass;
- `config.dump` names the passes whose result is printed on standard error (``record`` is what goes in);
- `config.disable` names passes to leave out, for bisection.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable

from tracejit.config import config
from tracejit.errors import ArgumentError
from tracejit.ir.graph import Graph
from tracejit.ir.printer import print_graph
from tracejit.ir.verify import verify
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.fusion.fuse import Missed, fuse
from tracejit.passes.remask import remask
from tracejit.passes.simplify import simplify

Pass = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {"simplify": simplify, "cse": cse, "dce": dce, "remask": remask, "fuse": fuse}
"""The passes, in the order in which they run."""


def optimize(
    graph: Graph,
    stop_after: str | None = None,
    times: dict[str, float] | None = None,
    *,
    start_after: str | None = None,
    missed: list[Missed] | None = None,
) -> Graph:
    """Run the passes after `start_after`, up to and including `stop_after` (None: the first, the last).

    Seconds for each are added to `times`, fusions that could not be made are appended to `missed`.
    """
    for name in (start_after, stop_after):
        if name is not None and name not in PASSES:
            raise ArgumentError(f"optimize: there is no pass {name!r}; the passes are {', '.join(PASSES)}")
    names = list(PASSES)
    if start_after is None:
        check("record", graph)
    else:
        names = names[names.index(start_after) + 1 :]
    for name in names:
        transform = functools.partial(fuse, missed=missed) if name == "fuse" else PASSES[name]
        graph = run_pass(name, transform, graph, times)
        if name == stop_after:
            break
    return graph


def run_pass(name: str, transform: Pass, graph: Graph, times: dict[str, float] | None = None) -> Graph:
    """Run one pass, unless it is disabled; then verify and print its result if the settings say so."""
    if name in config.disable:
        return graph
    start = time.perf_counter()
    graph = transform(graph)
    if times is not None:
        times[name] = times.get(name, 0.0) + time.perf_counter() - start
    check(name, graph)
    return graph


def check(name: str, graph: Graph) -> None:
    """Verify and print `graph`, the result of the stage `name`, as the settings say."""
    if config.verify:
        verify(graph)
    if name in config.dump:
        print(f"# after {name}\n{print_graph(graph, locations=True)}", file=sys.stderr)
