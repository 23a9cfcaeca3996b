"""The checks of the surroundings: one for each slot that matters.

Only what executed code mentions is checked, so a function that is merely named (handed to `tj.callback`, kept
for another mode) costs nothing and may change.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Set
from typing import Any

import numpy as np

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.bytecode import facts, loads, mention
from tracejit.frontend.python.content import GONE
from tracejit.frontend.python.kinds import IDENTITY, PLAIN
from tracejit.frontend.python.purity import REMEDY, impure, opens
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.restart import Unreplayable
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import Const, Expr, Form, Literal, ReplayProgram, Separate, Var
from tracejit.frontend.signature.slots import Attribute, Cell, Slot, Whole
from tracejit.frontend.surroundings.changes import Surroundings
from tracejit.frontend.surroundings.members import QUIET, Seen, SeenClass, SeenFunction, SeenObject


class Guards:
    """Appends the checks of the surroundings to `program`."""

    def __init__(self, surroundings: Surroundings, program: ReplayProgram):
        self.surroundings, self.program = surroundings, program
        self.attributes: set[str] = set()  # names of attributes that were read
        self.arrays: list[Slot] = []

    def var_of(self, value: Any) -> Expr | None:
        """The variable for this very object in a replay, if it was checked."""
        var = self.surroundings.var_of(value)
        return var if isinstance(var, Var) and var.bound else None

    def path_of(self, array: np.ndarray) -> str | None:
        """The path of the NumPy array, found by name, of which `array` is (a part)."""
        for slot in self.surroundings.slots.values():
            held = self.surroundings.captured.get(id(slot.value))
            if held is not None and held.holds(array):
                return slot.path
        return None

    def emit(self) -> None:
        """Check everything but arrays, which are collected in `arrays`."""
        surroundings, program = self.surroundings, self.program
        self.attributes = surroundings.attributes_read()
        left = [slot for slot in surroundings.slots.values() if self._was_read(slot)]
        found = [slot for slot in left if _is_found(slot)]
        while found:  # the same object may be held by code that was not executed, too, and found there first
            for slot in left:
                if _is_found(slot):
                    self._check(slot)
                    found.append(slot)
            checked = set(map(id, found))
            left = [slot for slot in left if id(slot) not in checked]
            found = [slot for slot in left if _is_found(slot)]
        handed = {name for code in surroundings.executed for name in facts(code).handed}
        for holder, names, code in surroundings.shadows:
            missing = names & surroundings.variables_read(code)
            for name in missing & handed & vars(builtins).keys():
                self._refuse_impure(vars(builtins)[name], name)
            if missing:
                program.require("{}.keys().isdisjoint({})", holder, Const(frozenset(missing)))
        self._check_quiet()
        uses = {use for code in surroundings.executed for use in facts(code).uses}
        for seen in surroundings.seen:
            if not seen.var.is_bound:
                continue
            missing = seen.absent & self.attributes
            if isinstance(seen, SeenFunction):
                missing &= self._asked_of(seen.value, uses)
            if missing and hasattr(seen.value, "__dict__"):
                program.require("{}.keys().isdisjoint({})", _namespace(seen), Const(frozenset(missing)))
            if isinstance(seen, SeenObject) and seen.walked is not None:
                program.require("tuple({}) == {}", _namespace(seen), Const(seen.walked))
            if isinstance(seen, SeenClass) and len(order := seen.value.__mro__) > 2:
                program.require("{}.__mro__ == {}", seen.var, Const(order))

    def _check_quiet(self) -> None:
        """Special methods that ran, though nobody named them, must be the same."""
        for seen in self.surroundings.seen:
            if isinstance(seen, SeenClass):
                for name in QUIET:
                    held = inspect.getattr_static(seen.value, name, None)
                    held = getattr(held, "__func__", held)  # `__new__` is a static method
                    if getattr(held, "__code__", None) in self.surroundings.executed:
                        self.program.require(f"{{}}.{name} is {{}}", Const(seen.value), Const(held))

    def _asked_of(self, function: Any, uses: Set[tuple[str, str]]) -> set[str]:
        """Names of attributes that code may look for on a function: it is rarely asked for any."""
        surroundings, name = self.surroundings, getattr(function, "__name__", "")
        return surroundings.stored | surroundings.strings | {asked for base, asked in uses if base == name}

    def _was_read(self, slot: Slot) -> bool:
        return self.surroundings.was_read(slot, self.attributes)

    def _is_handed(self, slot: Slot) -> bool:
        """Whether library code may call what a slot holds: nobody reports what C code calls."""
        if type(slot) is Slot and not isinstance(slot.holder, types.ModuleType):
            return not slot.codes
        return any(slot.key in facts(code).handed for code in self.surroundings.executed)

    def _refuse_impure(self, function: Any, path: str) -> None:
        """Refuse a function that has effects and may have been called: had the body done so itself, it would
        have been seen.
        """
        name = impure(function) if isinstance(function, types.BuiltinFunctionType) else None
        if name is not None:
            what = f"{path} is handed on: {name}() may have an effect or give another result on every call"
            raise Unreplayable(what, REMEDY, mention(self.surroundings.codes, path))

    def _line_of(self, slot: Slot) -> str | None:
        return mention(self.surroundings.codes, str(slot.key))

    def _check(self, slot: Slot) -> None:
        value, program, place = slot.value, self.program, slot.place
        if value is GONE:
            self._check_absent(slot)
            return
        if slot.refusal is not None:
            raise Unreplayable(*slot.refusal, self._line_of(slot))
        if isinstance(value, NDArray):
            self.arrays.append(slot)
            return
        if isinstance(slot, Whole):
            self._check_whole(slot)
            return
        if slot.alias is not None and slot.alias.is_bound:
            program.require("{} is {}", place, slot.alias)
            return
        var = slot.alias or slot.var
        if isinstance(var, Var) and var is not place:
            place = program.define(var, place)
        if isinstance(value, types.FunctionType) and value.__code__ in self.surroundings.executed:
            holder = Const(value) if slot.guarded else place
            program.require("{}.__code__ is {}", holder, Const(value.__code__))
        if isinstance(value, types.BuiltinFunctionType) and self._is_handed(slot):
            self._refuse_impure(value, slot.path)
        if opens(value):
            what = f"{slot.path} opens something whenever it is called"
            raise Unreplayable(what, REMEDY, self._line_of(slot))
        if slot.guarded:
            self._check_value(slot, value, place)

    def _check_absent(self, slot: Slot) -> None:
        """Require that a missing value is still missing, unless it is a global that is only written."""
        if isinstance(slot, Attribute):
            self.program.require("Attributes({}).get({}) is GONE", slot.place.root, Literal(slot.key))
        elif isinstance(slot, Cell) and any(loads(code, slot.key) for code in slot.codes):
            self.program.require("{} == EMPTY", Const(slot.holder))

    def _check_value(self, slot: Slot, value: Any, place: Expr) -> None:
        """A slot holds what it held: the same value, the same object, or one of the same type."""
        program, says = self.program, (slot.path, _describe(value))
        if slot.given is not value and type(value) in (int, float):
            name = type(value).__name__
            program.require(f"type({{}}) is {name}", place, says=(slot.path, name))
        elif isinstance(value, PLAIN):
            program.same(place, value, says)
        elif isinstance(value, IDENTITY):
            program.require("{} is {}", place, Const(value), says=says)
        elif isinstance(value, np.ndarray):
            self._check_numpy(slot, value, place)
        else:
            program.require("type({}) is {}", place, Const(type(value)), says=says)

    def _check_whole(self, slot: Whole) -> None:
        program, held, path, size = self.program, slot.holder, slot.path, len(slot.value)
        kind = type(held).__name__
        if slot.deep:
            copy = frozenset(slot.value) if isinstance(held, set | frozenset) else slot.value
            says = path, f"{kind} of {size} with this content"
            program.require("same_items({}, {})", slot.place, Const(copy), says=says)
        elif isinstance(held, dict):
            says = path, f"dict of {', '.join(map(repr, slot.value))}"
            program.keys(slot.place, tuple(slot.value), says)
        else:
            says = path, f"{kind} of {size}"
            program.require("len({}) == {}", slot.place, Literal(size), says=says)

    def _check_numpy(self, slot: Slot, array: np.ndarray, place: Expr) -> None:
        held = self.surroundings.captured[id(array)]
        program, shown = self.program, f"numpy {array.dtype}{list(array.shape)}"
        program.require("type({}) is {}", place, Const(type(array)))
        form = f"{{}}.shape == {array.shape} and {{}}.strides == {array.strides}"
        program.require(form, place, place)
        program.require("{}.dtype == {}", place, Const(array.dtype), says=(slot.path, shown))
        if not held.is_data:
            return
        assert held.content is not None, "the recording was given up when the array was used as data"
        if held.changed():
            what = f"the body changes the NumPy array {slot.path}"
            raise Unreplayable(what, "make it an NDArray, with tj.asarray", self._line_of(slot))
        says = slot.path, f"{shown} with this content"
        program.require("same_array({}, {})", place, Const(held.content), says=says)

    def copy_in(self, array: np.ndarray) -> Form | Var | None:
        """The expression for a captured NumPy array that was used as an operand, or a part of one."""
        for slot in self.surroundings.slots.values():
            held = self.surroundings.captured.get(id(slot.value))
            var = slot.var
            if held is not None and isinstance(var, Var) and var.bound and held.holds(array):
                part = held.part(array)
                if part == held.part(held.origin):
                    return var
                return Form(f"read_part({{}}, {part[0]}, {part[1]}, {part[2]})", var)
        return None


def check_separate(program: ReplayProgram, surroundings: Surroundings, rebinds: Set[type]) -> None:
    """Require distinct objects where the recorded call had distinct ones: storages, shared memory, objects of
    a type that is written (among `rebinds`), and all objects where the body compares some.
    """
    arguments = surroundings.arguments
    program.steps.append(Separate(tuple(arguments.storages.values())))
    for operand, _path, value in arguments.objects:
        if type(value) in surroundings.key_kinds:
            program.require("{} is {}", operand, Const(value))
    held: list[tuple[type, Expr | None]] = [
        (type(rebuilt.original), rebuilt.var) for rebuilt in arguments.containers.values()
    ]
    held += [(type(s.holder), s.place) for s in surroundings.slots.values() if type(s) is Whole]
    held += [(type(seen.value), seen.var) for seen in surroundings.seen]
    vars = {id(s.value): s.var for s in surroundings.slots.values() if s.var is not None}
    held += [(Captured, vars[id(each.origin)]) for each in surroundings.captured.values()]
    compares = any(facts(code).compares for code in surroundings.executed)
    if compares:
        handles = arguments.handles.values()
        named = set(arguments.storages.values())
        if not all(arguments.arrays[array._storage][0] in named for array, _var in handles):
            held += [(type(array), var) for array, var in handles]  # storages do not tell
        _check_functions(program, arguments, surroundings)
    apart = [var for kind, var in dict.fromkeys(held) if compares or kind in rebinds]
    bound = [var for var in apart if isinstance(var, Var) and var.bound]
    if len(bound) > 1:
        ids = ", ".join(["id({})"] * len(bound))
        program.require(f"len({{{{{ids}}}}}) == {len(bound)}", *bound)


def _check_functions(program: ReplayProgram, arguments: Arguments, surroundings: Surroundings) -> None:
    """An argument that is a function or class found by name must be so again; any other must not."""
    named = {id(s.value) for s in surroundings.slots.values() if s.guarded and isinstance(s.value, IDENTITY)}
    for operand, _path, value in arguments.objects:
        if named and isinstance(value, types.FunctionType):
            if id(value) in named:
                program.require("{} is {}", operand, Const(value))
            else:
                program.require("id({}) not in {}", operand, Const(frozenset(named)))


def _is_found(slot: Slot) -> bool:
    """Whether what holds the slot is bound."""
    return slot.place.root.is_bound


def _namespace(seen: Seen) -> Expr:
    """The namespace of an object."""
    return Form("{}.__dict__", seen.var)


def _describe(value: Any) -> str:
    if isinstance(value, PLAIN):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, IDENTITY):
        return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__))
    return type(value).__name__
