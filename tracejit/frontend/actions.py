"""What a replay does after its checks: bind, launch, write back, wait where it must.

A call happens wholly or not at all, whenever an interrupt (Ctrl-C) comes. All that will be written back is
computed before the launch, so what follows it may be done twice; `started` tells whether it was made:

    r3 = n1 + 1
    started = []
    try:
        launch(pack(...), (s0, t2, ), started)
        v0.t = r3
    except BaseException:
        if started:
            v0.t = r3
        raise
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
from tracejit.frontend.replay import Source, disjoint, release
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
        launch=check.launcher(schedule, graph), pack=schedule.pack.pack, succeeded=engine.succeeded,
        FINISHED=engine.FINISHED,
    )  # fmt: skip
    actions += [f"if {name}.recording is not None: release({name})" for name in names]
    actions += [f"{name} = {expression}" for name, expression in arguments.copies]
    for storage, name in results.names.items():
        kind, shelf = source.constant(interned(storage.type)), engine.pool.shelf(storage.type.nbytes)
        actions.append(f"{name} = Storage({kind}, {source.constant(shelf)}.take())")
    actions += results.values
    values, variables, keep = _bindings(trace, arguments, results)
    packed, held = f"pack({', '.join(values + variables)})", "".join(f"{k}, " for k in keep)
    fallible: list[str] = []  # what the launch writes, if it may fail and is then not to be written back
    if results.lines and can_fail(graph):
        written = sorted({arguments.arrays[w.storage][0] for w in trace.written()})
        fallible = [*results.names.values(), *written]
        actions.append(f"wait({_variables(written)})")  # older failures are not this call's
    after = _write_back(results.lines, fallible, names)
    take, give_back = _draws(trace, source)
    if not after and not take:
        actions.append(f"launch({packed}, ({held}))")
        return
    actions += [f"counter{index} = None" for index in range(len(take))]
    actions += ["started = []", "try:", *_indented(take)]
    actions += [f"    launch({packed}, ({held}), started)", *_indented(after), "except BaseException:"]
    actions += ["    if started:", *_indented(_indented(_again(after) or ["pass"]))]
    actions += [*(["    else:"] if take else []), *_indented(_indented(give_back)), "    raise"]
    if names:
        actions.append(f"if shared: wait({_variables(names)}, exclusive=True)")
    if fallible:
        actions.append(f"if FINISHED not in started: wait({_variables(fallible)})")


def _draws(trace: Trace, source: Source) -> tuple[list[str], list[str]]:
    """Statements that take random numbers from their streams, and that give them back."""
    take, give_back = [], []
    for index, (stream, total) in enumerate(trace.draws):
        held = source.constant(stream)
        take.append(f"key{index} = {held}.key; counter{index} = {held}.advance({total})")
        give_back.append(f"if counter{index} is not None: {held}.give_back(counter{index}, {total})")
    return take, give_back


def _write_back(lines: list[str], fallible: list[str], names: list[str]) -> list[str]:
    """What follows a launch: write back, and wait for memory that Python can see."""
    after = list(lines)
    if fallible:
        after = [f"if FINISHED in started or succeeded({_variables(fallible)}):", *_indented(lines)]
    if names:
        after.append(f"if shared: succeeded({_variables(names)}, exclusive=True)")
    return after


def _variables(names: Iterable[str]) -> str:
    return ", ".join(f"{name}.variable" for name in names)


def _again(lines: list[str]) -> list[str]:
    """Statements of `_write_back` for the second time: what was to be deleted may be gone."""
    again = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        gone = [f"{indent}try: {line.lstrip()}", f"{indent}except MISFITS: pass"]
        again += gone if line.lstrip().startswith("del ") else [line]
    return again


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


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
