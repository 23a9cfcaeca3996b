"""What a replay does after its checks: bind, launch, write back, wait where it must.

All that will be written back is computed before the launch:

    r3 = (n1 + (1))
    launch(pack(...), (s0, t2, ))
    v0.t = r3

A launch that may fail is waited for before anything is written back.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from tracejit import engine
from tracejit.frontend.python.bytecode import facts
from tracejit.frontend.python.kinds import IDENTITY
from tracejit.frontend.recording import check
from tracejit.frontend.recording.number import Computed, source_of
from tracejit.frontend.recording.numpy_views import Held
from tracejit.frontend.recording.recording import Number, Window
from tracejit.frontend.recording.storage import interned
from tracejit.frontend.recording.trace import WORD, DrawCounter, DrawKey, Trace
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.describe import Description
from tracejit.frontend.signature.program import Const, Operand, Program, Separate, Var
from tracejit.frontend.signature.slots import Whole
from tracejit.frontend.signature.text import Writer
from tracejit.frontend.surroundings.changes import Surroundings
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait


def can_fail(graph: Graph) -> bool:
    """Whether running `graph` may find an index out of range."""
    return any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes)


# -- checks that concern several values ----------------------------------------------------------------------


def check_separate(
    program: Program, arguments: Arguments, surroundings: Surroundings, description: Description
) -> None:
    """What was apart in the recorded call must be apart in a replay: storages, shared memory, whatever is of
    a type that is written, and everything where the body compares objects.
    """
    program.steps.append(Separate(tuple(arguments.storages.values())))
    for operand, _path, value in arguments.objects:
        if type(value) in surroundings.key_kinds:
            program.require("{} is {}", operand, Const(value))
    held: list[tuple[type, Operand | None]] = [
        (type(rebuilt.original), rebuilt.var) for rebuilt in arguments.containers.values()
    ]
    held += [(type(s.holder), s.place) for s in surroundings.slots.values() if type(s) is Whole]
    held += [(type(seen.value), seen.var) for seen in surroundings.seen]
    vars = {id(s.value): s.var for s in surroundings.slots.values() if s.var is not None}
    held += [(Held, vars[id(each.origin)]) for each in surroundings.held.values()]
    compares = any(facts(code).compares for code in surroundings.executed)
    if compares:
        handles = arguments.handles.values()
        named = set(arguments.storages.values())
        if not all(arguments.arrays[array._storage][0] in named for array, _var in handles):
            held += [(type(array), var) for array, var in handles]  # storages do not tell
        _check_functions(program, arguments, surroundings)
    apart = [var for kind, var in dict.fromkeys(held) if compares or kind in description.rebinds]
    bound = [var for var in apart if isinstance(var, Var) and var.bound]
    if len(bound) > 1:
        ids = ", ".join(["id({})"] * len(bound))
        program.require(f"len({{{{{ids}}}}}) == {len(bound)}", *bound)


def _check_functions(program: Program, arguments: Arguments, surroundings: Surroundings) -> None:
    """An argument that is a function or class found by name must be so again; any other must not."""
    named = {id(s.value) for s in surroundings.slots.values() if s.guarded and isinstance(s.value, IDENTITY)}
    for operand, _path, value in arguments.objects:
        if named and isinstance(value, types.FunctionType):
            if id(value) in named:
                program.require("{} is {}", operand, Const(value))
            else:
                program.require("id({}) not in {}", operand, Const(frozenset(named)))


# -- actions -------------------------------------------------------------------------------------------------


class Actions:
    """Writes the actions of a replay of `graph` by `schedule`."""

    def __init__(
        self,
        writer: Writer,
        program: Program,
        trace: Trace,
        arguments: Arguments,
        computed: dict[Computed, Var],
    ) -> None:
        self.writer, self.program, self.trace = writer, program, trace
        self.arguments, self.computed = arguments, computed

    def write(self, graph: Graph, schedule: Any) -> None:
        """All of them, but for the return."""
        writer, program, actions = self.writer, self.program, self.writer.actions
        writer.names.update(launch=check.launcher(schedule, graph), pack=schedule.pack.pack)
        names = [writer.write(var) for var in self.arguments.storages.values()]
        actions += [f"if {name}.recording is not None: release({name})" for name in names]
        actions += [f"{writer.write(var)} = {writer.write(array)}" for var, array in program.copies]
        for storage, var in program.outputs.items():
            kind = writer.constant(interned(storage.type))
            shelf = writer.constant(engine.pool.shelf(storage.type.nbytes))
            actions.append(f"{writer.write(var)} = Storage({kind}, {shelf}.take())")
        for var, value in program.values:
            made = writer.make(value)
            actions.append(f"{writer.write(var)} = {made}")
        written = sorted({self._storage(window) for window in self.trace.written()})
        is_awaited = bool(program.effects) and can_fail(graph)
        if is_awaited:
            actions.append(f"wait({_variables(written)})")  # older failures are not this call's
        for index, (stream, total) in enumerate(self.trace.draws):
            held = writer.constant(stream)
            actions.append(f"key{index} = {held}.key; counter{index} = {held}.advance({total})")
        actions.append(self._launch())
        if is_awaited:
            outputs = [writer.write(var) for var in program.outputs.values()]
            actions.append(f"wait({_variables([*outputs, *written])})")
        actions += [writer.effect(effect) for effect in program.effects]
        if names:
            actions.append(f"if shared: wait({_variables(names)}, exclusive=True)")

    def _launch(self) -> str:
        """The call that launches the schedule, on addresses, numbers and variables of the engine."""
        values: list[str] = []
        variables: list[str] = []
        keep: list[str] = []
        for bound in self.trace.bound:
            if isinstance(bound, Window):
                name, offset = self._storage(bound), self.arguments.arrays[bound.storage][1]
                item = bound.storage.type.dtype.itemsize
                more = "" if offset is None else f" + {self.writer.write(offset)} * {item}"
                values.append(f"{name}.address{more}")
                variables.append(f"{name}.variable.address")
                keep.append(name)
            else:
                assert isinstance(bound, Number)
                values.append(self._number(bound.source))
                variables.append("0")
        for var in self.program.outputs.values():
            name = self.writer.write(var)
            values.append(f"{name}.address")
            variables.append(f"{name}.variable.address")
            keep.append(name)
        held = "".join(f"{name}, " for name in dict.fromkeys(keep))
        return f"launch(pack({', '.join(values + variables)}), ({held}))"

    def _storage(self, window: Window) -> str:
        return self.writer.write(self.arguments.arrays[window.storage][0])

    def _number(self, source: Any) -> str:
        """A number that goes into the launch."""
        if isinstance(source, DrawKey):
            return f"key{source.stream}"
        if isinstance(source, DrawCounter):
            return f"((counter{source.stream} + {source.drawn}) & {WORD - 1})"
        if isinstance(source, Computed):
            return self.writer.write(self.computed[source])
        return self.writer.write(source) if isinstance(source, Operand) else source_of(source)


def _variables(names: Iterable[str]) -> str:
    return ", ".join(f"{name}.variable" for name in names)
