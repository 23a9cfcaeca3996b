"""What a replay does after its checks: bind, launch, write back, wait where it must.

All that will be written back is computed before the launch:

    r3 = n1 + 1
    launch(pack(...), (s0, t2, ))
    v0.t = r3

The launch is one call into native code, so arrays are written wholly or not at all, whenever an interrupt
(Ctrl-C) comes. Rebindings are as atomic as Python's own statements. A launch that may fail is waited for
before anything is written back.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from tracejit import engine
from tracejit.frontend import check
from tracejit.frontend.arguments import Arguments
from tracejit.frontend.bytecode import facts
from tracejit.frontend.captured import Held
from tracejit.frontend.kinds import IDENTITY
from tracejit.frontend.recording import Number, Window
from tracejit.frontend.replay import disjoint, release
from tracejit.frontend.results import Results
from tracejit.frontend.slots import Whole
from tracejit.frontend.storage import interned
from tracejit.frontend.surroundings import Surroundings
from tracejit.frontend.trace import Trace
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait


def can_fail(graph: Graph) -> bool:
    """Whether running `graph` may find an index out of range."""
    return any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes)


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
        wait=engine.wait, release=release,
        launch=check.launcher(schedule, graph), pack=schedule.pack.pack,
    )  # fmt: skip
    actions += [f"if {name}.recording is not None: release({name})" for name in names]
    actions += [f"{name} = {expression}" for name, expression in arguments.copies]
    for storage, name in results.names.items():
        kind, shelf = source.constant(interned(storage.type)), engine.pool.shelf(storage.type.nbytes)
        actions.append(f"{name} = Storage({kind}, {source.constant(shelf)}.take())")
    actions += results.values
    values, variables, keep = _bindings(trace, arguments, results)
    written = sorted({arguments.arrays[w.storage][0] for w in trace.written()})
    is_awaited = bool(results.lines) and can_fail(graph)
    if is_awaited:
        actions.append(f"wait({_variables(written)})")  # older failures are not this call's
    for index, (stream, total) in enumerate(trace.draws):
        held = source.constant(stream)
        actions.append(f"key{index} = {held}.key; counter{index} = {held}.advance({total})")
    actions.append(f"launch(pack({', '.join(values + variables)}), ({''.join(f'{k}, ' for k in keep)}))")
    if is_awaited:
        actions.append(f"wait({_variables([*results.names.values(), *written])})")
    actions += results.lines
    if names:
        actions.append(f"if shared: wait({_variables(names)}, exclusive=True)")


def _variables(names: Iterable[str]) -> str:
    return ", ".join(f"{name}.variable" for name in names)


def _check_distinct(
    names: list[str], arguments: Arguments, surroundings: Surroundings, results: Results
) -> None:
    """What was apart in the recorded call must be apart in a replay: storages, shared memory, whatever is of
    a type that is written, and everything where the body compares objects."""
    source = arguments.source
    if names:
        source.lines.append(f"shared = {' or '.join(f'{n}.shared' for n in names)}")
    if len(names) > 1:
        source.require(f"len({{{', '.join(names)}}}) == {len(names)}")
        source.names["disjoint"] = disjoint
        source.lines.append(f"if shared and not disjoint({', '.join(names)}): return MISS")
    for variable, _path, value in arguments.objects:
        if type(value) in surroundings.key_kinds:
            source.require(f"{variable} is {source.constant(value)}")
    held = [(type(original), v) for _rebuilt, original, v in arguments.containers.values()]
    held += [(type(s.holder), s.expression) for s in surroundings.slots.values() if type(s) is Whole]
    held += [(type(seen.value), seen.variable) for seen in surroundings.seen]
    variables = {id(s.value): s.variable for s in surroundings.slots.values() if s.variable is not None}
    held += [(Held, variables[id(each.origin)]) for each in surroundings.held.values()]
    everything = any(facts(code).compares for code in surroundings.executed)
    if everything:
        handles = arguments.handles.values()
        if not all(arguments.arrays[array._storage][0] in names for array, _variable in handles):
            held += [(type(array), variable) for array, variable in handles]  # storages do not tell
        _check_functions(arguments, surroundings)
    apart = [v for kind, v in dict.fromkeys(held) if everything or kind in results.rebinds]
    bound = {line.partition(" = ")[0] for line in source.lines}
    apart = [v for v in apart if v in bound]
    if len(apart) > 1:
        source.require(f"len({{{', '.join(f'id({v})' for v in apart)}}}) == {len(apart)}")


def _check_functions(arguments: Arguments, surroundings: Surroundings) -> None:
    """An argument that is a function or class found by name must be so again; any other must not."""
    source = arguments.source
    named = {id(s.value) for s in surroundings.slots.values() if s.guarded and isinstance(s.value, IDENTITY)}
    for variable, _path, value in arguments.objects:
        if named and isinstance(value, types.FunctionType):
            if id(value) in named:
                source.require(f"{variable} is {source.constant(value)}")
            else:
                source.require(f"id({variable}) not in {source.constant(frozenset(named))}")


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
