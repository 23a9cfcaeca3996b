"""Descriptions of launches: what the recorded call (`perform`) and its replays (`text`) do alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tracejit.frontend.jit.exits import ExitLoop
from tracejit.frontend.jit.number_variables import Variables, operand
from tracejit.frontend.recording import check
from tracejit.frontend.recording.draws import DrawCounter, DrawKey
from tracejit.frontend.recording.operations import ADD
from tracejit.frontend.recording.origins import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.segments import Cut, PathPlace
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.expressions import Compute, Expr, Literal
from tracejit.frontend.signature.program import (
    Drawn,
    Launch,
    ReplayProgram,
    RunSegment,
    StorageAddress,
)
from tracejit.ir.graph import Graph
from tracejit.ops.loops import graph_can_fail

Arrays = Mapping[Storage, Any]
"""The variables of storages, and of the places where arrays begin, by storage."""


def names_of(program: ReplayProgram) -> tuple[str, ...]:
    """Names of the graph's inputs, for people."""
    assert program.launch is not None

    def name(word: StorageAddress | Drawn | Expr) -> str:
        if isinstance(word, StorageAddress):
            return word.storage.path or "constant"
        return "random numbers" if isinstance(word, Drawn) else getattr(word, "path", "") or "number"

    return tuple(map(name, program.launch.words))


def launch_of(
    program: ReplayProgram,
    trace: Trace,
    arguments: Arguments,
    computed: Variables,
    graph: Graph,
    schedule: Any,
) -> Launch:
    """Describe how a replay launches the `schedule` of the recorded `graph`, the last of the path."""
    draws = range(len(trace.draws.taken), len(trace.draws.totals))
    is_awaited = bool(program.effects) and graph_can_fail(graph)
    return Launch(
        call=check.launcher(schedule, graph, commits=is_awaited),
        pack=schedule.pack.pack,
        storages=tuple(arguments.storages.values()),
        words=_words(trace.bound, arguments.arrays, computed),
        draws=_draws(trace, draws, computed),
        written=tuple(arguments.arrays[window.storage][0] for window in trace.written()),
        is_awaited=is_awaited,
    )


def run_of(
    cut: Cut, place: PathPlace | None, trace: Trace, arrays: Arrays, computed: Variables
) -> RunSegment:
    """Describe how a replay launches the segment that a look ended, where arrays and numbers are in these
    variables. Later launches find what it makes.
    """
    graph, schedule = cut.segment.graph, cut.segment.schedule
    launch = Launch(
        call=check.launcher(schedule, graph),
        pack=schedule.pack.pack,
        storages=(),
        words=_words(cut.bound, arrays, computed),
        draws=_draws(trace, cut.draws, computed),
        written=(),
        is_awaited=graph_can_fail(graph),
    )
    run = RunSegment(place, launch, tuple(arrays[storage][0] for storage in cut.made), computed[cut.source])
    for var in (*run.made, run.found):
        var.bound = True
    return run


def launch_of_rounds(native: ExitLoop, arrays: Arrays, computed: Variables) -> Launch:
    """Describe how a replay launches rounds with an exit. All that they make is awaited."""

    def word(given: Any) -> StorageAddress | Drawn | Expr:
        if isinstance(given, Storage):
            return StorageAddress(*arrays[given])
        if isinstance(given, Extent | RuntimeNumber):
            return _words((given,), arrays, computed)[0]
        return Literal(given) if type(given) is int else operand(given, computed)

    return Launch(
        call=check.launcher(native.segment.schedule, native.segment.graph),
        pack=native.segment.schedule.pack.pack,
        storages=(),
        words=tuple(map(word, native.words)),
        draws=(),
        written=(),
        is_awaited=True,
    )


def _words(
    bound: Iterable[Bound], arrays: Arrays, computed: Variables
) -> tuple[StorageAddress | Drawn | Expr, ...]:
    """Words that are packed for the inputs of a graph."""

    def word(bound: Bound) -> StorageAddress | Drawn | Expr:
        if isinstance(bound, Extent):
            return StorageAddress(*arrays[bound.storage])
        assert isinstance(bound, RuntimeNumber)
        source = bound.source
        if isinstance(source, DrawKey):
            return Drawn(source.stream)
        if isinstance(source, DrawCounter):
            return Drawn(source.stream, _count(source.fixed, source.further, computed))
        return operand(source, computed)

    return tuple(map(word, bound))


def _draws(trace: Trace, indices: range, computed: Variables) -> tuple[tuple[int, Any, Expr], ...]:
    """Streams that a launch draws from, by their numbers in the call, and how much of each."""
    found = []
    for index in indices:
        stream, total = trace.draws.totals[index]
        found.append((index, stream, _count(total.fixed, total.further, computed)))
    return tuple(found)


def _count(fixed: int, further: Any, computed: Variables) -> Expr:
    """The number of random numbers drawn: a whole number, and what a run-time number says."""
    if further is None:
        return Literal(fixed)
    return Compute(ADD, computed[further], Literal(fixed), value=further.value + fixed)
