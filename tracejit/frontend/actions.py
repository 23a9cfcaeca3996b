"""What a replay does after its checks: bind, launch, wait where it must, write back."""

from __future__ import annotations

from typing import Any

from tracejit import engine
from tracejit.frontend import check
from tracejit.frontend.arguments import Arguments
from tracejit.frontend.bytecode import facts
from tracejit.frontend.recording import Number, Window
from tracejit.frontend.replay import Source, disjoint, release
from tracejit.frontend.results import Results
from tracejit.frontend.slots import Whole
from tracejit.frontend.surroundings import Surroundings
from tracejit.frontend.trace import Trace
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait


def can_fail(graph: Graph) -> bool:
    """Whether running `graph` may find an index out of range."""
    return any(node.op.has(Trait.CAN_FAIL) for node in graph.nodes)


def emit(
    trace: Trace,
    arguments: Arguments,
    surroundings: Surroundings,
    results: Results,
    graph: Graph,
    schedule: Any,
) -> None:
    """Append the actions of a replay, but for its return."""
    source, actions = arguments.source, arguments.source.actions
    names = [name for _storage, name in arguments.storages]
    _check_distinct(names, arguments, surroundings, results)
    source.names.update(
        allocate=engine.pool.allocate, Variable=engine.Variable, wait=engine.wait, release=release,
        launch=check.launcher(schedule, graph), pack=schedule.pack.pack,
    )  # fmt: skip
    actions += [f"if {name}.recording is not None: release({name})" for name in names]
    actions += [f"{name} = {expression}" for name, expression in arguments.copies]
    for index, (stream, total) in enumerate(trace.draws):
        held = source.constant(stream)
        actions.append(f"key{index} = {held}.key; counter{index} = {held}.advance({total})")
    for storage, name in results.names.items():
        kind = source.constant(storage.type)
        actions.append(f"{name} = Storage({kind}, allocate({storage.type.nbytes}), Variable())")
    values, variables, keep = _bindings(trace, arguments, results)
    held = "".join(f"{k}, " for k in keep)
    actions.append(f"launch(pack({', '.join(values + variables)}), ({held}))")
    if names:
        shared = " or ".join(f"{n}.shared" for n in names)
        waits = "; ".join(f"wait({n}.variable, exclusive=True)" for n in names)
        actions.append(f"if {shared}: {waits}")
    if results.lines and can_fail(graph):
        written = {arguments.arrays[w.storage][0] for w in trace.written()}
        actions += [f"wait({n}.variable)" for n in (*results.names.values(), *sorted(written))]
    actions += results.lines


def _check_distinct(
    names: list[str], arguments: Arguments, surroundings: Surroundings, results: Results
) -> None:
    """What was apart in the recorded call must be apart in a replay: storages, shared memory, whatever is of
    a type that is written, and everything where the body compares objects."""
    source = arguments.source
    if len(names) > 1:
        source.require(f"len({{{', '.join(names)}}}) == {len(names)}")
        source.names["disjoint"] = disjoint
        shared = " or ".join(f"{n}.shared" for n in names)
        source.lines.append(f"if ({shared}) and not disjoint({', '.join(names)}): return MISS")
    held = [(type(original), v) for _rebuilt, original, v in arguments.containers.values()]
    held += [(type(s.holder), s.expression) for s in surroundings.slots.values() if type(s) is Whole]
    held += [(type(seen.value), seen.variable) for seen in surroundings.seen]
    everything = any(facts(code).compares for code in surroundings.executed)
    apart = [v for kind, v in dict.fromkeys(held) if everything or kind in results.rebinds]
    apart = [v for v in apart if _is_bound(source, v)]
    if len(apart) > 1:
        source.require(f"len({{{', '.join(f'id({v})' for v in apart)}}}) == {len(apart)}")


def _is_bound(source: Source, variable: str) -> bool:
    return any(line.startswith(f"{variable} = ") for line in source.lines)


def _bindings(trace: Trace, arguments: Arguments, results: Results) -> tuple[list[str], list[str], list[str]]:
    values: list[str] = []
    variables: list[str] = []
    keep: list[str] = []
    for bound in trace.bound:
        if isinstance(bound, Window):
            name, offset = arguments.arrays[bound.storage]
            item = bound.storage.type.dtype.itemsize
            values.append(f"{name}.address" if offset == "0" else f"{name}.address + {offset} * {item}")
            variables.append(f"{name}.variable.address")
            keep.append(name)
        else:
            assert isinstance(bound, Number)
            values.append(str(bound.source))
            variables.append("0")
    for storage in results.outputs:
        name = results.names[storage]
        values.append(f"{name}.address")
        variables.append(f"{name}.variable.address")
        keep.append(name)
    return values, variables, list(dict.fromkeys(keep))
