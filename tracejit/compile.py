"""Compilation of a graph to a schedule: the passes, the memory plan, and the jobs of the devices' targets.

    graph --clean, form_kernels--> kernels as nodes --legalize--> legal for memory
          --plan--> offsets and dependencies --link, with the targets' jobs--> `Schedule`

This module does not import Numba. Importing it installs the engine's executor, which is loaded from the
kernel store.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from tracejit import collector, ops
from tracejit.assembly.copies import are_copyable
from tracejit.assembly.link import link, load_executor
from tracejit.assembly.loops import PlansDiffer
from tracejit.assembly.schedule import Planned, Schedule
from tracejit.assembly.words import Job
from tracejit.codegen.objects.linker import anticipate
from tracejit.config import config
from tracejit.engine import native
from tracejit.ir.graph import Graph
from tracejit.passes.components import Copies, Twins
from tracejit.passes.driver import check, clean, form_kernels, timed
from tracejit.passes.fusion.fuse import MissedFusion
from tracejit.passes.memory.agreement import with_agreement
from tracejit.passes.memory.legalize import Aliases, is_legal, legalize, with_changes
from tracejit.passes.memory.plan import MemoryPlan, PlannedTask, naive_bytes, plan
from tracejit.targets import job, target_of

TRIES = 3
"""The number of attempts at cutting loops, after which loops whose iterations still differ are not rolled."""


@collector.suspended()
def plan_graph(graph: Graph, aliases: Aliases = ()) -> Planned:
    """Return the memory plan of `graph`. `aliases` has groups of indices of inputs whose memory may
    overlap.
    """
    open_devices(graph)
    times: dict[str, float] = {}
    missed: list[MissedFusion] = []
    with timed(times, "components"):
        twins = Twins(graph)
    needed = clean(twins.reduced, times, graph.notes)
    fused = form_kernels(needed, times, missed)
    with timed(times, "components"):
        naive = naive_bytes(needed, twins.weights(needed))

    def planned(
        partial_plan: MemoryPlan, copies: Copies | None, full_plan: Callable[[], MemoryPlan]
    ) -> Planned:
        return Planned(partial_plan, copies, full_plan, naive, len(graph.nodes), tuple(missed), times)

    if twins.kinds and not aliases and is_legal(with_agreement(fused)):
        with timed(times, "plan"):
            partial_plan = plan(with_changes(fused))
        if are_copyable(partial_plan):
            full_plan = functools.cache(lambda: plan(_expanded(twins, fused)))
            if config.verify or config.dump:
                full_plan()
            return planned(partial_plan, twins.copies(fused), full_plan)
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
    """Return the legal graph of all components; copies of legal nodes are legal."""
    expanded = twins.expanded(fused)
    check("components", expanded)
    legal = with_changes(expanded)
    check("legalize", legal)
    return legal


@collector.suspended()
def compile_graph(graph: Graph, aliases: Aliases = ()) -> Schedule:
    """Return the schedule of `graph`. `aliases` has groups of indices of inputs whose memory may overlap."""
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
    """Return the jobs of the loops, and the positions at which sequences of iterations must be cut because
    their iterations differ; with `everywhere`, at all positions.
    """
    jobs: dict[PlannedTask, Job] = {}
    cuts: set[tuple[int, int]] = set()
    for task in planned.reduced.tasks:
        if task.node.op is ops.loop:
            try:
                jobs[task] = job(task)
            except PlansDiffer as error:
                cuts.update(error.all_positions if everywhere else error.positions)
    return jobs, cuts


def open_devices(graph: Graph) -> None:
    """Open the devices of a graph. Raise `DeviceError` if a device cannot be used."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    devices = {id(v.type.device): v.type.device for v in values if not v.type.on_host}  # few, but frequent
    for device in devices.values():
        target_of(device).open(device.index)


native.install(load_executor)  # the host's executor: Python tasks need it for every target
