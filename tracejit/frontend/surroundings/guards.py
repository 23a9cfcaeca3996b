"""The guards of the surroundings: one check for each slot that the body can have read.

Only slots mentioned by executed code are checked. A function that is merely named (passed to `tj.callback`,
or kept for another mode) costs nothing and may change.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Set
from typing import Any

import numpy as np

from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import GONE
from tracejit.frontend.python.kinds import IDENTITY, VALUES
from tracejit.frontend.python.purity import REMEDY, impure
from tracejit.frontend.recording.restart import Unreplayable
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.expressions import (
    Const,
    Expr,
    Literal,
    Result,
    Var,
    Word,
    attribute,
)
from tracejit.frontend.signature.program import (
    Distinct,
    ReplayProgram,
    Rule,
    Separate,
)
from tracejit.frontend.signature.slots import Attribute, Content, Slot
from tracejit.frontend.surroundings.reach import Reach
from tracejit.frontend.surroundings.surroundings import Surroundings


class Guards:
    """Append the checks of the surroundings to `program`.

    arrays: slots that contain an NDArray; they are collected by `emit`, which does not check them.
    """

    def __init__(self, surroundings: Surroundings, program: ReplayProgram):
        self.surroundings, self.program = surroundings, program
        self.arrays: list[Slot] = []

    def var_of(self, value: Any) -> Expr | None:
        """Return the variable bound to this very object in a replay, or None if the object is not checked."""
        var = self.surroundings.reach.var_of(value)
        return var if isinstance(var, Var) and var.bound else None

    def emit(self) -> None:
        """Check every slot that was read except those of arrays, which are collected in `arrays`."""
        code, reach, program = self.surroundings.code, self.surroundings.reach, self.program
        unbound = [slot for slot in reach.slots.values() if self.surroundings.reads.was_read(slot)]
        pending: list[Slot] = []
        while len(pending) != len(unbound):  # the holder of a slot may be bound by a later slot
            pending, unbound = unbound, []
            for slot in pending:
                if slot.place.root.is_bound:
                    self._check(slot)
                else:
                    unbound.append(slot)
        for holder, missing in reach.shadows:
            for name in missing & code.mentions.escaping & vars(builtins).keys():
                self._refuse_impure(vars(builtins)[name], name)
            program.require(Rule.NONE_OF_KEYS, holder, Const(frozenset(missing)))
        for followed in reach.followed:
            if followed.var.is_bound:
                followed.check(code, program)

    def _escapes(self, slot: Slot) -> bool:
        """Return whether library code may call the value of a slot. Calls from C code are not reported."""
        if type(slot) is Slot and not isinstance(slot.holder, types.ModuleType | types.FunctionType):
            return True
        return slot.key in self.surroundings.code.mentions.escaping

    def _refuse_impure(self, function: Any, path: str) -> None:
        """Refuse a function with side effects that library code may have called. A call by the body itself
        would have been reported.
        """
        name = impure(function) if isinstance(function, types.BuiltinFunctionType) else None
        if name is not None:
            what = (
                f"{path} is passed to code that may call it: {name}() may have an effect or return another "
                f"result on every call"
            )
            raise Unreplayable(what, REMEDY, self.surroundings.code.line_naming(path))

    def _check(self, slot: Slot) -> None:
        value, program, expression = slot.value, self.program, slot.place
        if value is GONE:  # the body only writes the slot, a new global for example
            if isinstance(slot, Attribute):
                program.require(Rule.NO_ATTRIBUTE, expression.root, Literal(slot.key))
            return
        if slot.refusal is not None:
            raise Unreplayable(*slot.refusal, self.surroundings.code.line_of(slot))
        if isinstance(value, NDArray):
            self.arrays.append(slot)
            return
        if isinstance(slot, Content):
            self._check_content(slot)
            return
        if slot.alias is not None and slot.alias.is_bound:
            program.require(Rule.IS, expression, slot.alias)
            return
        var = slot.alias or slot.var
        if isinstance(var, Var) and var is not expression:
            expression = program.define(var, expression)
        if isinstance(value, types.FunctionType) and value.__code__ in self.surroundings.code.ran:
            holder = Const(value) if slot.guarded else expression
            program.require(Rule.IS, attribute(holder, "__code__"), Const(value.__code__))
        if isinstance(value, types.BuiltinFunctionType) and self._escapes(slot):
            self._refuse_impure(value, slot.path)
        if slot.guarded:
            self._check_value(slot, value, expression)

    def _check_value(self, slot: Slot, value: Any, expression: Expr) -> None:
        """Require that the slot contains an equal value, the same object, or an object of the same type."""
        program, says = self.program, (slot.path, _describe(value))
        if slot.given is not value and type(value) in (int, float):
            name = type(value).__name__
            program.require(Rule.TYPE, expression, Word(name), says=(slot.path, name))
        elif isinstance(value, VALUES):
            program.same(expression, value, says)
        elif isinstance(value, IDENTITY):
            program.require(Rule.IS, expression, Const(value), says=says)
        elif isinstance(value, np.ndarray):
            self._check_numpy(slot, value, expression)
        else:
            program.require(Rule.TYPE, expression, Const(type(value)), says=says)

    def _check_content(self, slot: Content) -> None:
        program, holder, path, size = self.program, slot.holder, slot.path, len(slot.value)
        kind_name = type(holder).__name__
        if slot.deep:
            copy = frozenset(slot.value) if isinstance(holder, set | frozenset) else slot.value
            says = path, f"{kind_name} of {size} with this content"
            program.require(Rule.SAME_ITEMS, slot.place, Const(copy), says=says)
        elif isinstance(holder, dict):
            says = path, f"dict of {', '.join(map(repr, slot.value))}"
            program.keys(slot.place, tuple(slot.value), says)
        else:
            says = path, f"{kind_name} of {size}"
            program.require(Rule.LENGTH, slot.place, Literal(size), says=says)

    def _check_numpy(self, slot: Slot, array: np.ndarray, expression: Expr) -> None:
        captured = self.surroundings.stand_ins.captured[id(array)]
        program, shown = self.program, f"numpy {array.dtype}{list(array.shape)}"
        program.require(Rule.TYPE, expression, Const(type(array)))
        program.require(Rule.SHAPE_AND_STRIDES, expression, Literal(array.shape), Literal(array.strides))
        program.require(
            Rule.EQUAL, attribute(expression, "dtype"), Const(array.dtype), says=(slot.path, shown)
        )
        if not captured.is_data:
            return
        assert captured.content is not None, "the recording was aborted when the array was used as data"
        if captured.changed():
            line = self.surroundings.code.line_of(slot)
            what = f"the body changes the NumPy array {slot.path}"
            raise Unreplayable(what, "make it an NDArray, with tj.asarray", line)
        says = slot.path, f"{shown} with this content"
        program.require(Rule.SAME_ARRAY, expression, Const(captured.content), says=says)

    def slot_of(self, array: np.ndarray) -> Slot | None:
        """Return the slot of the captured NumPy array that contains the memory of `array`, or None."""
        captured = self.surroundings.stand_ins.captured
        slots = (s for s in self.surroundings.reach.slots.values() if id(s.value) in captured)
        return next((slot for slot in slots if captured[id(slot.value)].holds(array)), None)

    def copy_in(self, array: np.ndarray) -> Expr | None:
        """Return the expression for an operand that is a captured NumPy array or a view into one, or None."""
        slot = self.slot_of(array)
        var = None if slot is None else self.var_of(slot.value)
        if slot is None or not isinstance(var, Var):
            return None
        captured = self.surroundings.stand_ins.captured[id(slot.value)]
        view = captured.part(array)
        if view == captured.part(captured.origin):
            return var
        return Result(Word("read_part"), var, *map(Literal, view))


def check_separate(program: ReplayProgram, surroundings: Surroundings, rebinds: Set[type]) -> None:
    """Require distinct objects where the recorded call had distinct objects: storages, shared memory, objects
    of a type that the body writes (`rebinds`), and all objects if the body compares any by identity.
    """
    arguments = surroundings.arguments
    program.steps.append(Separate(tuple(arguments.storages.values())))
    objects = [(type(rebuilt.original), rebuilt.var) for rebuilt in arguments.containers.values()]
    objects += surroundings.reach.objects()
    compares = surroundings.code.mentions.compares
    if compares:
        handles = arguments.handles.values()
        storages = set(arguments.storages.values())
        if not all(arguments.arrays[array._storage][0] in storages for array, _var in handles):
            objects += [(type(array), var) for array, var in handles]  # some share a storage
        _check_functions(program, arguments, surroundings.reach)
    distinct = list(
        dict.fromkeys(var for kind, var in objects if (compares or kind in rebinds) and var.bound)
    )
    if len(distinct) > 1:
        program.steps.append(Distinct(tuple(distinct)))


def _check_functions(program: ReplayProgram, arguments: Arguments, reach: Reach) -> None:
    """Require of each function passed as an argument that it is the same object again, if the body also
    reaches it by name, and otherwise that it is none of the functions and classes reached by name.
    """
    reached = {id(s.value) for s in reach.slots.values() if s.guarded and isinstance(s.value, IDENTITY)}
    for operand, _path, value in arguments.objects:
        if reached and isinstance(value, types.FunctionType):
            if id(value) in reached:
                program.require(Rule.IS, operand, Const(value))
            else:
                program.require(Rule.NOT_AMONG, operand, Const(frozenset(reached)))


def _describe(value: Any) -> str:
    if isinstance(value, VALUES):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, IDENTITY):
        return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__))
    return type(value).__name__
