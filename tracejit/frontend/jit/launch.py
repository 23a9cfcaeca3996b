"""The launch of what was recorded: once for the recorded call, and as a record for all replays."""

from __future__ import annotations

from typing import Any

from tracejit import engine
from tracejit.frontend.recording import check, eager
from tracejit.frontend.recording.number import Computed, source_of
from tracejit.frontend.recording.recording import RuntimeNumber, Window
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import DrawCounter, DrawKey, Trace
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import (
    Bind,
    Drawn,
    Expr,
    Form,
    Launch,
    ReplayProgram,
    StorageAddress,
    Var,
)
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait


def can_fail(graph: Graph) -> bool:
    """Whether running `graph` may find an index out of range."""
    return any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes)


def launch(trace: Trace, graph: Graph, schedule: Any, outputs: list[Storage], *, awaited: bool) -> None:
    """Compute the recorded `graph` into `outputs`.

    awaited: it may fail, and what depends on its success follows: wait for it, and raise its failure.
    """
    written = [window.storage for window in trace.written()] if awaited else []
    engine.wait(*(storage.variable for storage in written))  # older failures are not this call's
    trace.take_draws()
    eager.run(graph, trace.bound, outputs, schedule)
    if awaited:
        engine.wait(*(storage.variable for storage in (*outputs, *written)))


def names_of(program: ReplayProgram) -> tuple[str, ...]:
    """What people call the inputs of the graph."""
    assert program.launch is not None
    paths = {
        step.var: step.value.operands[0].path
        for step in program.steps
        if isinstance(step, Bind) and isinstance(step.value, Form) and step.value.form == "{}._storage"
        if isinstance(step.value.operands[0], Var)
    }
    names = []
    for word in program.launch.words:
        if isinstance(word, StorageAddress):
            names.append(paths.get(word.storage) or "constant")
        elif isinstance(word, Drawn):
            names.append("random numbers")
        else:
            names.append(getattr(word, "path", "") or "number")
    return tuple(names)


def launch_of(
    program: ReplayProgram,
    trace: Trace,
    arguments: Arguments,
    computed: dict[Computed, Var],
    graph: Graph,
    schedule: Any,
) -> Launch:
    """Describe how a replay launches the `schedule` of the recorded `graph`."""

    def word(bound: Any) -> StorageAddress | Drawn | Expr:
        if isinstance(bound, Window):
            return StorageAddress(*arguments.arrays[bound.storage])
        assert isinstance(bound, RuntimeNumber)
        source = bound.source
        if isinstance(source, DrawKey):
            return Drawn(source.stream)
        if isinstance(source, DrawCounter):
            return Drawn(source.stream, source.drawn)
        if isinstance(source, Computed):
            return computed[source]
        return source if isinstance(source, Expr) else Form(source_of(source))

    return Launch(
        call=check.launcher(schedule, graph),
        pack=schedule.pack.pack,
        storages=tuple(arguments.storages.values()),
        words=tuple(map(word, trace.bound)),
        draws=tuple(trace.draws),
        written=tuple(arguments.arrays[window.storage][0] for window in trace.written()),
        is_awaited=bool(program.effects) and can_fail(graph),
    )
