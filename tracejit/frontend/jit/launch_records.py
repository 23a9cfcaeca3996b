"""Descriptions of launches, which the recorded call (`perform`) and its replays (`text`) share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tracejit.frontend.jit.number_variables import Variables, operand
from tracejit.frontend.recording import check
from tracejit.frontend.recording.draws import DrawCounter, DrawKey, Total
from tracejit.frontend.recording.operations import ADD
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.segments import Cut, Segment, TreeNode
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.expressions import Compute, Expr, Literal
from tracejit.frontend.signature.program import Drawn, Launch, ReplayProgram, RunSegment, StorageAddress
from tracejit.ir.graph import Graph
from tracejit.ops.loops import graph_can_fail

Arrays = Mapping[Storage, Any]
"""By storage: its replay variable, and the variable of the offset at which its array begins, if any."""


def names_of(program: ReplayProgram) -> tuple[str, ...]:
    """Return the names of the graph's inputs, as users know them."""
    assert program.launch is not None

    def name(word: StorageAddress | Drawn | Expr) -> str:
        if isinstance(word, StorageAddress):
            return word.storage.path or "constant"
        return "random numbers" if isinstance(word, Drawn) else getattr(word, "path", "") or "number"

    return tuple(map(name, program.launch.words))


def launch_of(arguments: Arguments, computed: Variables, graph: Graph, schedule: Any) -> Launch:
    """Describe how a replay launches the last graph of a path."""
    trace = arguments.trace
    first = len(trace.draws.taken)
    written = dict.fromkeys(arguments.arrays[window.storage][0] for window in trace.written())
    is_awaited = bool(arguments.program.effects) and graph_can_fail(graph)
    return Launch(
        call=check.launcher(schedule, graph, commits=is_awaited),
        pack=schedule.pack.pack,
        words=_words(trace.origins, arguments.arrays, computed),
        is_awaited=is_awaited,
        is_empty=not (schedule.tasks or graph.outputs),
        draws=_draws(first, trace.draws.totals[first:], computed),
        storages=tuple(arguments.storages.values()),
        written=tuple(written),
    )


def run_of(cut: Cut, node: TreeNode | None, arrays: Arrays, computed: Variables) -> RunSegment:
    """Describe how a replay launches the segment that a look ended, given the variables of arrays and
    numbers. Binds the variables of its results.
    """
    graph, schedule = cut.segment.graph, cut.segment.schedule
    launch = Launch(
        call=check.launcher(schedule, graph),
        pack=schedule.pack.pack,
        words=_words(cut.origins, arrays, computed),
        is_awaited=graph_can_fail(graph),
        draws=_draws(cut.draws.start, cut.totals, computed),
    )
    run = RunSegment(node, launch, tuple(arrays[storage][0] for storage in cut.results), computed[cut.source])
    for var in (*run.results, run.number):
        var.bound = True
    return run


def launch_of_loop(
    segment: Segment,
    inputs: Iterable[Any],
    draws: Iterable[tuple[Any, int]],
    arrays: Arrays,
    computed: Variables,
) -> Launch:
    """Describe how a replay launches a native loop, given what each input of its graph stands for: a
    storage, a number, or the origin of an input. The replay waits for all results. `draws`: the random
    streams, and the largest number of words that it draws from each.
    """

    def word(stands_for: Any) -> StorageAddress | Drawn | Expr:
        if isinstance(stands_for, Storage):
            return StorageAddress(*arrays[stands_for])
        if isinstance(stands_for, StorageRange | RuntimeNumber):
            return _words((stands_for,), arrays, computed)[0]
        return Literal(stands_for) if type(stands_for) is int else operand(stands_for, computed)

    return Launch(
        call=check.launcher(segment.schedule, segment.graph),
        pack=segment.schedule.pack.pack,
        words=tuple(map(word, inputs)),
        is_awaited=True,
        draws=tuple((index, stream, Literal(most)) for index, (stream, most) in enumerate(draws)),
    )


def _words(
    origins: Iterable[InputOrigin], arrays: Arrays, computed: Variables
) -> tuple[StorageAddress | Drawn | Expr, ...]:
    """Return the words that are packed for the inputs of a graph."""

    def word(origin: InputOrigin) -> StorageAddress | Drawn | Expr:
        if isinstance(origin, StorageRange):
            return StorageAddress(*arrays[origin.storage])
        assert isinstance(origin, RuntimeNumber)
        source = origin.source
        if isinstance(source, DrawKey):
            return Drawn(source.stream)
        if isinstance(source, DrawCounter):
            return Drawn(source.stream, _count(source.fixed, source.further, computed))
        return operand(source, computed)

    return tuple(map(word, origins))


def _draws(
    first: int, totals: Iterable[tuple[Any, Total]], computed: Variables
) -> tuple[tuple[int, Any, Expr], ...]:
    """Return the random streams that a launch draws from: position in the call, stream, number of words."""
    return tuple(
        (index, stream, _count(total.fixed, total.further, computed))
        for index, (stream, total) in enumerate(totals, first)
    )


def _count(fixed: int, further: Any, computed: Variables) -> Expr:
    """Return the number of random words drawn: a constant, plus a run-time number if there is one."""
    if further is None:
        return Literal(fixed)
    return Compute(ADD, computed[further], Literal(fixed), value=further.value + fixed)
