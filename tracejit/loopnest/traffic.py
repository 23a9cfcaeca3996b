"""The memory traffic of a kernel, given the caches of its target: decided here, encoded by `codegen.encode`.

    traffic(body, program, loop_schedule, sweep, operands, outputs)
    Traffic(streamed=<stores that bypass the caches>, transposed=<loads transposed by tiles>, lines=1,
    prefetch="rows")

The decisions depend on the total size of all operands: results are streamed and operands prefetched only if
they do not fit in a cache.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tracejit.ir.graph import Graph, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import LOAD, Level, LoopProgram, OutputStore, Term
from tracejit.loopnest.schedule import COLUMNS, MAP, ROWS, LoopSchedule
from tracejit.loopnest.sweep import Sweep

MIN_SIDE = 8
"""The extent below which an operand is read without transposition."""

PrefetchPattern = Literal["nothing", "sweep", "lines", "rows", "map"]
"""Prefetching strategies (see `tracejit.codegen.prefetch`)."""


class Traffic(NamedTuple):
    """Stores that bypass the caches, loads that are transposed tile by tile, the number of lines that a
    COLUMNS kernel reads side by side, and the prefetching strategy.
    """

    streamed: frozenset[OutputStore]
    transposed: frozenset[Term]
    lines: int
    prefetch: PrefetchPattern


def traffic(
    body: Graph,
    program: LoopProgram,
    loop_schedule: LoopSchedule,
    sweep: Sweep | None,
    operands: Mapping[Value, int],
    outputs: Sequence[int],
) -> Traffic:
    """Return the traffic of a kernel. `operands`, `outputs`: buffer numbers."""
    values = (*body.inputs, *body.outputs)
    size = sum(v.type.nbytes for v in values if not v.type.on_host)
    is_cached = size <= program.tuning.caches.private
    transposed = _transposed(program, loop_schedule, operands) if sweep is None else frozenset()
    return Traffic(
        _streamed(program, loop_schedule, size, {n for n in outputs if n not in operands.values()}, outputs),
        transposed,
        program.tuning.units.lines if loop_schedule.orientation is COLUMNS and not is_cached else 1,
        _prefetch(program, loop_schedule, sweep, is_cached=is_cached, is_tiled=bool(transposed)),
    )


def innermost_dimension(program: LoopProgram, loop_schedule: LoopSchedule) -> int:
    """Return the dimension of the innermost loop."""
    domain = program.domain
    return len(domain.shape if loop_schedule.orientation is ROWS else domain.kept) - 1


def _streamed(
    program: LoopProgram, loop_schedule: LoopSchedule, size: int, fresh: set[int], outputs: Sequence[int]
) -> frozenset[OutputStore]:
    """Return the stores to stream: those to new memory, in long runs and not reloaded by the kernel, if
    its operands do not fit in a cache.
    """
    if (
        loop_schedule.orientation is COLUMNS
        or program.matmul is not None
        or size <= program.tuning.caches.streamed
    ):
        return frozenset()
    innermost = innermost_dimension(program, loop_schedule)
    if program.domain.shape[innermost] < program.tuning.units.streamed_run:
        return frozenset()
    reloaded = {store for section in loop_schedule.sections for store in section.reload.values()}
    return frozenset(
        store
        for store in program.stores
        if innermost < len(store.view.strides)
        and store.view.strides[innermost] == 1
        and store.base is None
        and store not in reloaded
        and outputs[store.output] in fresh
    )


def _transposed(
    program: LoopProgram, loop_schedule: LoopSchedule, operands: Mapping[Value, int]
) -> frozenset[Term]:
    """Return the loads of the first operands that are contiguous along the last dimension but one."""
    if loop_schedule.orientation is not MAP or program.matmul is not None or len(program.domain.kept) < 2:
        return frozenset()
    transposed: set[Term] = set()
    accesses: set[tuple[int, View, Level]] = set()
    if min(program.domain.kept[-2:]) < MIN_SIDE:
        return frozenset()
    for term in (term for section in loop_schedule.sections for term in section.compute):
        if term.kind is LOAD and len(accesses) < program.tuning.units.transposed_operands:
            assert term.value is not None
            assert term.view is not None
            down, along = term.view.strides[-2:]
            if down == 1 and along not in (0, 1):
                accesses.add((operands[term.value], term.view, term.level))
                transposed.add(term)
    return frozenset(transposed)


def _prefetch(
    program: LoopProgram, loop_schedule: LoopSchedule, sweep: Sweep | None, *, is_cached: bool, is_tiled: bool
) -> PrefetchPattern:
    """Return the kernel's prefetching strategy. All but sweeps prefetch only operands that do not fit in a
    cache.
    """
    domain = program.domain
    if sweep is not None:
        return "sweep" if len(domain.kept) > 1 else "nothing"
    if is_cached or program.matmul is not None:
        return "nothing"
    if loop_schedule.orientation is COLUMNS:
        return "lines"
    if loop_schedule.orientation is ROWS:
        in_rows = bool(domain.kept) and len(domain.reduced) == 1 and not domain.pieces
        return "rows" if in_rows else "nothing"
    is_slow = any(term.expensive for term in program.terms)
    is_long = domain.kept[-1] >= program.tuning.units.streamed_run
    return "map" if is_slow and is_long and not is_tiled else "nothing"
