"""The part of a replay function that checks the surroundings: one line for each slot that matters.

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

from tracejit.frontend.bytecode import facts, loads, mention
from tracejit.frontend.captured import read_part
from tracejit.frontend.content import GONE, Attributes, content_of, is_plain, looks_up_plainly, same_items
from tracejit.frontend.kinds import IDENTITY, PLAIN
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.purity import REMEDY, impure, opens
from tracejit.frontend.replay import Source
from tracejit.frontend.seen import QUIET, Seen, SeenClass, SeenFunction, SeenModule
from tracejit.frontend.slots import Attribute, Cell, Global, Slot, Whole
from tracejit.frontend.surroundings import Surroundings

EMPTY = types.CellType()
"""Equal to what captured variables lie in as long as they hold nothing."""


class Refused(Exception):
    """A slot that matters and cannot be checked: reason, remedy, user line."""

    def __init__(self, reason: str, remedy: str, line: str | None):
        super().__init__(reason)
        self.reason, self.remedy, self.line = reason, remedy, line


class Guards:
    """Writes the checks of the surroundings into `source`, and what they required into `described`."""

    def __init__(self, surroundings: Surroundings, source: Source, described: dict[str, str]):
        self.surroundings, self.source, self.described = surroundings, source, described
        self.bound: set[str] = set()  # variables that are bound by now
        self.attributes: set[str] = set()  # names of attributes that were read
        self.arrays: list[Slot] = []

    def _found(self, slot: Slot) -> bool:
        """Whether what holds the slot is bound."""
        base = root_of(slot.expression)
        return not base.startswith("h") or base in self.bound

    def variable_of(self, value: Any) -> str | None:
        """The variable by which a replay finds this very object, if it was checked."""
        variable = self.surroundings.variable_of(value)
        return variable if variable in self.bound else None

    def emit(self) -> None:
        """Check everything but arrays, which are collected in `arrays`."""
        surroundings = self.surroundings
        self.attributes = surroundings.attributes_read()
        left = [slot for slot in surroundings.slots.values() if self._was_read(slot)]
        found = [slot for slot in left if self._found(slot)]
        while found:  # the same object may be held by code that was not executed, too, and found there first
            for slot in left:
                if self._found(slot):
                    self._check(slot)
                    found.append(slot)
            checked = set(map(id, found))
            left = [slot for slot in left if id(slot) not in checked]
            found = [slot for slot in left if self._found(slot)]
        handed = {name for code in surroundings.executed for name in facts(code).handed}
        for holder, names, code in surroundings.shadows:
            missing = names & surroundings.variables_read(code)
            for name in missing & handed & vars(builtins).keys():
                self._refuse_impure(vars(builtins)[name], name)
            if missing:
                self.source.require(f"{holder}.keys().isdisjoint({self.source.constant(frozenset(missing))})")
        self._check_quiet()
        uses = {use for code in surroundings.executed for use in facts(code).uses}
        for seen in surroundings.seen:
            known = not seen.variable.startswith("h") or seen.variable in self.bound
            if surroundings.lists and known and not isinstance(seen, SeenFunction):
                self._check_names(seen)
            missing = seen.absent if surroundings.dynamic else seen.absent & self.attributes
            if isinstance(seen, SeenFunction):
                missing &= self._asked_of(seen.value, uses)
            if missing and known and hasattr(seen.value, "__dict__"):
                absent = self.source.constant(frozenset(missing))
                self.source.require(f"{self._namespace(seen)}.keys().isdisjoint({absent})")
            if isinstance(seen, SeenClass) and known and len(order := seen.value.__mro__) > 2:
                self.source.require(f"{seen.variable}.__mro__ == {self.source.constant(order)}")

    def _namespace(self, seen: Seen) -> str:
        """The expression for what an object holds by name."""
        plain = isinstance(seen.value, type | types.ModuleType) or looks_up_plainly(type(seen.value))
        if plain:
            return f"{seen.variable}.__dict__"
        return f"{self.source.inside(Attributes, seen.variable)}.namespace()"

    def _check_names(self, seen: Seen) -> None:
        """The body may ask which attributes there are."""
        is_module = isinstance(seen, SeenModule)
        is_opened = not is_module or seen.path.rpartition(".")[2] in self.surroundings.opened
        if is_opened and hasattr(seen.value, "__dict__"):
            self.source.require(f"tuple({self._namespace(seen)}) == {self.source.constant(seen.at_first)}")

    def _check_quiet(self) -> None:
        """Special methods that ran, though nobody named them, must be the same."""
        for seen in self.surroundings.seen:
            if isinstance(seen, SeenClass):
                for name in QUIET:
                    held = inspect.getattr_static(seen.value, name, None)
                    held = getattr(held, "__func__", held)  # `__new__` is a static method
                    if getattr(held, "__code__", None) in self.surroundings.executed:
                        cls = self.source.constant(seen.value)
                        self.source.require(f"{cls}.{name} is {self.source.constant(held)}")

    def _asked_of(self, function: Any, uses: Set[tuple[str, str]]) -> set[str]:
        """Names of attributes that code may look for on a function: it is rarely asked for any."""
        surroundings, name = self.surroundings, getattr(function, "__name__", "")
        return surroundings.stored | surroundings.strings | {asked for base, asked in uses if base == name}

    def _was_read(self, slot: Slot) -> bool:
        return self.surroundings.was_read(slot, self.attributes)

    def flags(self) -> list[str]:
        """Checks of the globals that are flags, for calls that run piecewise as long as these stay."""
        return [
            f"{slot.expression} is {slot.value}"
            for slot in self.surroundings.slots.values()
            if isinstance(slot, Global) and type(slot.value) is bool and self._was_read(slot)
        ]

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
            raise Refused(what, REMEDY, mention(self.surroundings.codes, path))

    def _line_of(self, slot: Slot) -> str | None:
        return mention(self.surroundings.codes, str(slot.key))

    def _check(self, slot: Slot) -> None:
        value, source, expression = slot.value, self.source, slot.expression
        if isinstance(slot, Attribute) and value is GONE:
            inside = source.inside(Attributes, root_of(expression))
            source.names["GONE"] = GONE
            source.require(f"{inside}.get({slot.key!r}) is GONE")
        if isinstance(slot, Cell) and value is GONE and any(loads(code, slot.key) for code in slot.codes):
            source.names["EMPTY"] = EMPTY
            source.require(f"{source.constant(slot.holder)} == EMPTY")
        if value is GONE:  # a global that is only written: what it was does not matter
            return
        if slot.refusal is not None:
            raise Refused(*slot.refusal, self._line_of(slot))
        if isinstance(value, NDArray):
            self.arrays.append(slot)
            return
        if isinstance(slot, Whole):
            self._check_whole(slot)
            return
        variable = slot.alias or slot.variable
        if slot.alias in self.bound or (slot.alias is not None and not slot.alias.startswith("h")):
            source.require(f"{expression} is {slot.alias}")
            return
        if variable is not None and variable != expression:
            source.line(f"{variable} = {expression}")
            self.bound.add(variable)
            expression = variable
        if isinstance(value, types.FunctionType) and value.__code__ in self.surroundings.executed:
            holder = source.constant(value) if slot.guarded else expression
            source.require(f"{holder}.__code__ is {source.constant(value.__code__)}")
        if isinstance(value, types.BuiltinFunctionType) and self._is_handed(slot):
            self._refuse_impure(value, slot.path)
        if opens(value):
            raise Refused(f"{slot.path} opens something whenever it is called", REMEDY, self._line_of(slot))
        if not slot.guarded:
            return
        self.described[slot.path] = _describe(value)
        if slot.given is not value and type(value) in (int, float):
            source.require(f"type({expression}) is {type(value).__name__}")
            self.described[slot.path] = type(value).__name__
        elif isinstance(value, PLAIN):
            source.same(expression, value)
        elif isinstance(value, IDENTITY):
            source.require(f"{expression} is {source.constant(value)}")
        elif isinstance(value, np.ndarray):
            self._check_numpy(slot, value, expression)
        else:
            source.require(f"type({expression}) is {source.constant(type(value))}")

    def _check_whole(self, slot: Whole) -> None:
        source, held, inside = self.source, slot.holder, slot.expression
        if not is_plain(type(held)):
            source.names["content_of"] = content_of
            inside = f"content_of({inside})"
        if slot.deep:
            source.names["same_items"] = same_items
            copy = frozenset(slot.value) if isinstance(held, set | frozenset) else slot.value
            source.require(f"same_items({slot.expression}, {source.constant(copy)})")
            self.described[slot.path] = f"{type(held).__name__} of {len(held)} with this content"
        elif isinstance(held, dict):
            source.keys(inside, tuple(slot.value))
            self.described[slot.path] = f"dict of {', '.join(map(repr, slot.value))}"
        else:
            source.require(f"len({inside}) == {len(slot.value)}")
            self.described[slot.path] = f"{type(held).__name__} of {len(slot.value)}"

    def _check_numpy(self, slot: Slot, array: np.ndarray, expression: str) -> None:
        held = self.surroundings.held[id(array)]
        source, text = self.source, f"numpy {array.dtype}{list(array.shape)}"
        source.require(f"type({expression}) is {source.constant(type(array))}")
        source.require(f"{expression}.shape == {array.shape} and {expression}.strides == {array.strides}")
        source.require(f"{expression}.dtype == {source.constant(array.dtype)}")
        self.described[slot.path] = text
        if not held.is_data:
            return
        assert held.content is not None, "the recording was given up when the array was used as data"
        if held.changed():
            what = f"the body changes the NumPy array {slot.path}"
            raise Refused(what, "make it an NDArray, with tj.asarray", self._line_of(slot))
        source.names["same_array"] = same_array
        source.require(f"same_array({expression}, {source.constant(held.content)})")
        self.described[slot.path] = text + " with this content"

    def copy_in(self, array: np.ndarray) -> str | None:
        """An expression for a captured NumPy array that was used as an operand, or a part of one."""
        for slot in self.surroundings.slots.values():
            held = self.surroundings.held.get(id(slot.value))
            if held is not None and slot.variable in self.bound and held.holds(array):
                part = held.part(array)
                if part == held.part(held.origin):
                    return str(slot.variable)
                self.source.names["read_part"] = read_part
                return f"read_part({slot.variable}, {part[0]}, {part[1]}, {part[2]})"
        return None


def root_of(expression: str) -> str:
    """The variable from which a slot is found: h1 of ``h1.w``, ``h1['w']``, ``Attributes(h1)['w']``."""
    head, _, rest = expression.partition("(")
    if rest and head.isidentifier():
        return rest.partition(")")[0]
    return expression.partition(".")[0].partition("[")[0]


def same_array(held: np.ndarray, copy: np.ndarray) -> bool:
    """Whether a NumPy array has the bytes of another one of its shape and dtype."""
    return held.tobytes() == copy.tobytes()


def _describe(value: Any) -> str:
    if isinstance(value, PLAIN):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, IDENTITY):
        return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__))
    return type(value).__name__
