"""Graph to schedule: the passes and the memory plan, then what the targets of its devices make of it.

    graph --optimize--> kernels as nodes --legalize--> fit for memory --plan--> places and dependencies
          --launch, with the targets' jobs--> `Schedule`

Nothing here imports Numba. Importing this module installs the engine's executor, which comes from the kernel
store, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from tracejit import collector, ops
from tracejit.assembly.copies import are_copyable
from tracejit.assembly.link import link, load_executor
from tracejit.assembly.loops import UnlikeRounds
from tracejit.assembly.schedule import Planned, Schedule
from tracejit.assembly.words import Job
from tracejit.codegen.objects.linker import anticipate
from tracejit.config import config
from tracejit.engine import native
from tracejit.ir.graph import Graph
from tracejit.passes.components import Copies, Twins
from tracejit.passes.driver import check, clean, form_kernels, timed
from tracejit.passes.fusion.fuse import Missed
from tracejit.passes.memory.agreement import with_agreement
from tracejit.passes.memory.legalize import is_legal, legalize, with_changes
from tracejit.passes.memory.plan import MemoryPlan, PlannedTask, naive_bytes, plan
from tracejit.targets import job, target_of

Aliases = Sequence[Sequence[int]]

TRIES = 3
"""The most times that loops are cut; then those whose rounds still differ are not rolled."""


@collector.at_rest()
def plan_graph(graph: Graph, aliases: Aliases = ()) -> Planned:
    """The memory plan of `graph`; `aliases`: groups of positions of inputs whose memory may overlap."""
    open_devices(graph)
    times: dict[str, float] = {}
    missed: list[Missed] = []
    with timed(times, "components"):
        twins = Twins(graph)
    needed = clean(twins.reduced, times, graph.notes)
    fused = form_kernels(needed, times, missed)
    with timed(times, "components"):
        naive = naive_bytes(needed, twins.weights(needed))

    def planned(part: MemoryPlan, copies: Copies | None, whole: Callable[[], MemoryPlan]) -> Planned:
        return Planned(part, copies, whole, naive, len(graph.nodes), tuple(missed), times)

    if twins.kinds and not aliases and is_legal(with_agreement(fused)):
        with timed(times, "plan"):
            part = plan(with_changes(fused))
        if are_copyable(part):
            whole = functools.cache(lambda: plan(_expanded(twins, fused)))
            if config.verify or config.dump:
                whole()
            return planned(part, twins.copies(fused), whole)
        legal = _expanded(twins, fused)
    else:
        with timed(times, "components"):
            expanded = twins.expanded(fused)
        check("components", expanded)
        with timed(times, "legalize"):
            legal = legalize(with_agreement(expanded), aliases)
        check("legalize", legal)
    with timed(times, "plan"):
        memory = plan(legal, aliases)
    return planned(memory, None, lambda: memory)


def _expanded(twins: Twins, fused: Graph) -> Graph:
    """The legal graph of all components: copies of what is legal are legal."""
    expanded = twins.expanded(fused)
    check("components", expanded)
    legal = with_changes(expanded)
    check("legalize", legal)
    return legal


@collector.at_rest()
def compile_graph(graph: Graph, aliases: Aliases = ()) -> Schedule:
    """The schedule of `graph`; `aliases`: groups of positions of inputs whose memory may overlap."""
    anticipate()
    for tries in itertools.count():
        planned = plan_graph(graph, aliases)
        jobs, cuts = _jobs_of_loops(planned, everywhere=tries >= TRIES)
        if not cuts:
            break
        graph.notes["cuts"] = cuts.union(graph.notes.get("cuts", ()))
    return link(planned, lambda task: jobs.get(task) or job(task))


def _jobs_of_loops(
    planned: Planned, *, everywhere: bool
) -> tuple[dict[PlannedTask, Job], set[tuple[int, int]]]:
    """The jobs of the loops, and where runs of rounds have to be cut for them, or `everywhere`."""
    jobs: dict[PlannedTask, Job] = {}
    cuts: set[tuple[int, int]] = set()
    for task in planned.part.tasks:
        if task.node.op is ops.loop:
            try:
                jobs[task] = job(task)
            except UnlikeRounds as cut:
                cuts.update(cut.everywhere if everywhere else cut.places)
    return jobs, cuts


def open_devices(graph: Graph) -> None:
    """Have the devices of a graph ready; raises `DeviceError` where one cannot be used."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    devices = {id(v.type.device): v.type.device for v in values if not v.type.on_host}  # few, often seen
    for device in devices.values():
        target_of(device).open(device.index)


native.install(load_executor)  # of the host: Python tasks need it, whatever the target
