"""A kernel's memory traffic, by what the caches of its target hold: decided here, encoded elsewhere.

    traffic(body, program, plan, sweep, operands, outputs)
    Traffic(streamed=<stores that bypass the caches>, turned=<loads transposed by tiles>, lines=1,
    prefetch="rows")

Decisions depend on the bytes of all operands: results are streamed and operands prefetched only where no
cache holds them.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tracejit.ir.graph import Graph, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import LOAD, Level, LoopProgram, OutputStore, Term
from tracejit.loopnest.schedule import COLUMNS, MAP, ROWS, LoopSchedule
from tracejit.loopnest.sweep import Sweep

LEAST_SIDE = 8
"""Extents below which a transposed operand is read as it lies."""

Prefetch = Literal["nothing", "sweep", "lines", "rows", "map"]
"""Ways of prefetching (see `tracejit.codegen.prefetch`)."""


class Traffic(NamedTuple):
    """Stores that bypass the caches, loads that are transposed tile by tile, how many lines a COLUMNS kernel
    reads side by side, and what is prefetched.
    """

    streamed: frozenset[OutputStore]
    turned: frozenset[Term]
    lines: int
    prefetch: Prefetch


def traffic(
    body: Graph,
    program: LoopProgram,
    plan: LoopSchedule,
    sweep: Sweep | None,
    operands: Mapping[Value, int],
    outputs: Sequence[int],
) -> Traffic:
    """The traffic of a kernel. `operands`, `outputs`: numbers of the buffers."""
    values = (*body.inputs, *body.outputs)
    size = sum(v.type.nbytes for v in values if not v.type.on_host)
    is_cached = size <= program.tuning.caches.private
    turned = _turned(program, plan, operands) if sweep is None else frozenset()
    return Traffic(
        _streamed(program, plan, size, {n for n in outputs if n not in operands.values()}, outputs),
        turned,
        program.tuning.units.lines if plan.orientation is COLUMNS and not is_cached else 1,
        _prefetch(program, plan, sweep, is_cached=is_cached, is_tiled=bool(turned)),
    )


def lane_of(program: LoopProgram, plan: LoopSchedule) -> int:
    """The dimension of the innermost loop."""
    domain = program.domain
    return len(domain.shape if plan.orientation is ROWS else domain.kept) - 1


def _streamed(
    program: LoopProgram, plan: LoopSchedule, size: int, fresh: set[int], outputs: Sequence[int]
) -> frozenset[OutputStore]:
    """New memory, written in long runs and not read again here, by a kernel whose operands no cache holds."""
    if plan.orientation is COLUMNS or program.matmul is not None or size <= program.tuning.caches.streamed:
        return frozenset()
    lane = lane_of(program, plan)
    if program.domain.shape[lane] < program.tuning.units.run:
        return frozenset()
    reloaded = {store for section in plan.sections for store in section.reload.values()}
    return frozenset(
        store
        for store in program.stores
        if lane < len(store.view.strides)
        and store.view.strides[lane] == 1
        and store.base is None
        and store not in reloaded
        and outputs[store.output] in fresh
    )


def _turned(program: LoopProgram, plan: LoopSchedule, operands: Mapping[Value, int]) -> frozenset[Term]:
    """Loads of the first operands that lie across the kernel's last two dimensions."""
    if plan.orientation is not MAP or program.matmul is not None or len(program.domain.kept) < 2:
        return frozenset()
    found: set[Term] = set()
    places: set[tuple[int, View, Level]] = set()
    if min(program.domain.kept[-2:]) < LEAST_SIDE:
        return frozenset()
    for term in (term for section in plan.sections for term in section.compute):
        if term.kind is LOAD and len(places) < program.tuning.units.tiles:
            assert term.value is not None
            assert term.view is not None
            down, along = term.view.strides[-2:]
            if down == 1 and along not in (0, 1):
                places.add((operands[term.value], term.view, term.level))
                found.add(term)
    return frozenset(found)


def _prefetch(
    program: LoopProgram, plan: LoopSchedule, sweep: Sweep | None, *, is_cached: bool, is_tiled: bool
) -> Prefetch:
    """The kernel's way of prefetching; all but sweeps prefetch only operands that no cache holds."""
    domain = program.domain
    if sweep is not None:
        return "sweep" if len(domain.kept) > 1 else "nothing"
    if is_cached or program.matmul is not None:
        return "nothing"
    if plan.orientation is COLUMNS:
        return "lines"
    if plan.orientation is ROWS:
        in_rows = bool(domain.kept) and len(domain.reduced) == 1 and not domain.pieces
        return "rows" if in_rows else "nothing"
    is_slow = any(term.expensive for term in program.terms)
    is_long = domain.kept[-1] >= program.tuning.units.run
    return "map" if is_slow and is_long and not is_tiled else "nothing"
