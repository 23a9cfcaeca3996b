"""Changes that a traced body makes to what it reaches by name: numbers, and rebound values.

`Surroundings` gives the body stand-ins for numbers that some code assigns, and watched views of NumPy
arrays. When the body has run, `changes` tells what it rebound, and `undo` takes that back; what another
thread changed meanwhile is left alone.
"""

from __future__ import annotations

import types
from collections.abc import Set
from typing import Any

import numpy as np

from tracejit.frontend.python.bytecode import (
    codes,
    computed_access,
    facts,
    is_made_by_dataclass,
    mention,
    own,
)
from tracejit.frontend.python.content import GONE
from tracejit.frontend.python.kinds import FUNCTIONS, PLAIN, is_seen_as_tree, is_tree
from tracejit.frontend.python.purity import runs_library_code
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import Var
from tracejit.frontend.signature.slots import Attribute, Cell, ClassItem, Global, Item, Slot, Whole
from tracejit.frontend.surroundings import numpy_module
from tracejit.frontend.surroundings.math_module import MATH
from tracejit.frontend.surroundings.numpy_module import NUMPY
from tracejit.frontend.surroundings.reach import Visitor
from tracejit.ir.types import DTYPES

INNER = frozenset(
    {"__globals__", "__closure__", "cell_contents", "__code__", "__defaults__", "__kwdefaults__", "__bases__"}
    | {"f_globals", "f_locals", "f_builtins", "getclosurevars"}
    | {"__dict__", "__slots__", "__getattribute__", "__setattr__", "__delattr__"}
    | {"attrgetter", "methodcaller", "getmembers", "getattr_static"}
)
"""Attributes by which functions, frames, classes and objects show what lies behind them."""


class Surroundings(Visitor):
    """The surroundings of a function, and its changes to them.

    captured: by identity: NumPy arrays of which the body gets watched views.
    met:      storages of arguments that are also found by name, and of which the body gets windows.
    logs:     ids of containers that only callbacks write.
    touched:  ids of containers of which the body called a method, or that it gave to a library function.
    touches:  whether C functions may change containers: they were given one, or a method of one.
    """

    def __init__(self, function: Any, arguments: Arguments):
        super().__init__(function, arguments.trace.numbers, arguments.originals)
        self.arguments = arguments
        self.met: set[Storage] = set()
        self.captured: dict[int, Captured] = {}
        self.logs: set[int] = set()
        self.touched: set[int] = set()

    def enter(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """A Python function is about to run for the first time: visit what it names, and give up if that
        cannot be replayed.
        """
        trace = self.arguments.trace
        is_known = self.visit_code(code, namespace)
        self.install()
        trace.captured = list(self.captured.values())
        trace.body.makes_arrays |= numpy_module.makes_arrays(code, namespace)
        if trace.recorded_numpy and (teller := numpy_module.tells(code)):
            what = f"{teller} may tell the arrays that NumPy would make from recorded ones"
            trace.give_up(what, "make them with functions of tj instead of NumPy's")
        if self.met and any(facts(each).compares for each in self.executed):
            raise Restart(whole=self.met)
        is_generated = is_made_by_dataclass(code)
        if not is_generated:
            self._refuse_names(code)
        self._refuse_slots()
        if not is_known and not is_generated:
            trace.give_up(
                f"{code.co_qualname} is a closure that was not found by name, so what it captured cannot be "
                "watched",
                "call it by a global or local name of the traced function",
            )

    def install(self) -> None:
        """Give the body run-time numbers where some code assigns them, and watched views of NumPy arrays.

        Only in slots found just now: what the body may have read already must stay what it was.
        """
        fresh, self.fresh = self.fresh, []
        for slot in fresh:
            if isinstance(slot.value, np.ndarray):
                self._hold(slot)
            elif id(slot.value) in self.arguments.windows:
                self.met.add(self.arguments.windows[id(slot.value)])
            elif not slot.assignable:
                continue
            elif type(slot.value) in (int, float):
                if self._assigned(slot) and not self.numbers.plain:
                    slot.var = Var("n", slot.value, slot.path)
                    slot.replace(self.numbers.argument(slot.value, slot.var))
            elif isinstance(slot, Global | Cell):
                self._replace_module(slot)

    def _replace_module(self, slot: Slot) -> None:
        """Put a stand-in there for NumPy or `math`, or a function of theirs, if the trace uses it."""
        trace, value = self.arguments.trace, slot.value
        trace.body.names_math |= MATH.stand_in(value) is not None
        for module, is_used in ((NUMPY, trace.recorded_numpy), (MATH, trace.assumed.math)):
            made = module.stand_in(value)
            if made is not None and is_used and not self.numbers.plain:
                slot.replace(made)

    def _hold(self, slot: Slot) -> None:
        """Note what a NumPy array holds, and watch its use, unless there must be no stand-in for it: then it
        counts as data. So it does everywhere if it is also found where nothing can be put in its place.
        """
        array = slot.value
        held = self.captured.get(id(array))
        if held is None:
            held = self.captured[id(array)] = Captured(array, slot.path)
            known = type(array) is np.ndarray and array.dtype in DTYPES
            held.is_watched = known and id(array) not in self.arguments.reached and not self.numbers.plain
            held.is_data = not held.is_watched
            if held.is_data and held.content is None:
                self.refuse(slot, *held.too_large(slot.path))
        if held.is_watched:
            if not slot.assignable:
                raise Restart(reached=array)
            slot.replace(held.watched)

    def _assigned(self, slot: Slot) -> bool:
        if type(slot) is Item:
            named = not isinstance(slot.key, str) or slot.key in self.strings or slot.key in self.stored
            return self.stores_items and named
        return (slot.path if isinstance(slot, Cell) else slot.key) in self.stored

    # -- what the body changed -------------------------------------------------------------------------------

    def changes(self) -> list[tuple[Slot, Any]]:
        """Slots whose value the body rebound, and what they hold now."""
        found = []
        for slot in list(self.slots.values()):
            if id(slot.holder) in self.logs:
                continue
            now = slot.read()
            if now is not slot.given and not _same_plain(slot.given, now):
                found.append((slot, now))
        for seen in self.seen:
            namespace = seen.namespace()
            added = seen.absent & namespace.keys()
            for name in [name for name in list(namespace) if name in added]:
                seen.absent.add(name)
                path = f"{seen.path}.{name}"
                found.append((Attribute(seen.value, name, seen.place(name), path, GONE), namespace[name]))
        return found

    def undo(self, changes: list[tuple[Slot, Any]]) -> None:
        """Every slot that the body changed holds again what it held before."""
        for slot, _now in changes:
            if self.is_ours(slot):
                slot.put(slot.value)
        for slot in self.slots.values():
            if slot.given is not slot.value:
                slot.put(slot.value)

    def is_ours(self, slot: Slot) -> bool:
        """Whether code of the body can have changed the slot; else it was another thread, say."""
        stores = self.stores_items or self.touches or id(slot.holder) in self.touched
        if stores and isinstance(slot, Item | Whole):
            return True
        return slot.assignable and (slot.value is GONE or self._assigned(slot))

    def restore_contents(self) -> None:
        """NumPy arrays hold again what they held before the body ran."""
        for held in self.captured.values():
            held.restore()

    def note_logs(self, callbacks: list[Any]) -> None:
        """Objects into which callbacks write (``losses.append``), if the body uses them for nothing else."""
        for function in callbacks:
            owner = getattr(function, "__self__", None)
            if owner is not None and not isinstance(owner, types.ModuleType):
                names = {s.key for s in self.slots.values() if s.value is owner}
                uses = {u for code in self.executed for u in facts(code).uses if u[0] in names}
                if {attribute for _name, attribute in uses} <= {function.__name__}:
                    self.logs.add(id(owner))

    def variables_read(self, code: types.CodeType) -> set[str]:
        """Globals and cells that this code, or functions defined in it, read while the body ran."""
        return {name for each in codes(code) if each in self.executed for name in own(each)[0]}

    def attributes_read(self) -> set[str]:
        """Names of attributes that were read or written while the body ran; strings may be such names."""
        found = set(self.matched)
        for code in self.executed:
            found |= own(code)[1] | facts(code).strings
        return found

    # -- what was read ---------------------------------------------------------------------------------------

    def was_read(self, slot: Slot, attributes: Set[str]) -> bool:
        """Whether what ran can have read the slot: a variable, by its code; an attribute, by its name, which
        is then among the `attributes` read.
        """
        if id(slot.holder) in self.logs or self._is_untouched(slot):
            return False
        if slot.codes:
            if not isinstance(slot, Global | Cell):
                return not slot.codes.isdisjoint(self.executed)
            return any(slot.key in self.variables_read(code) for code in slot.codes)
        if (
            not isinstance(slot, Attribute | ClassItem)
            or is_tree(slot.holder)
            or is_seen_as_tree(slot.holder)
        ):
            return True
        if runs_library_code(type(slot.holder)) and not isinstance(
            slot.holder, (type, types.ModuleType, *FUNCTIONS)
        ):
            return True
        if slot.key.startswith("__") and isinstance(slot.value, types.FunctionType):
            return slot.value.__code__ in self.executed  # called by an operator, not by its name
        return slot.key in attributes

    def _is_untouched(self, slot: Slot) -> bool:
        """Whether a slot belongs to a container of which what ran names methods only, and called none:
        ``losses.append(...)`` in a branch that was not taken.
        """
        holder = slot.holder
        if not isinstance(slot, Whole | Item) or isinstance(slot, Global):
            return False
        if self.touches or id(holder) in self.touched:
            return False
        names = {s.key for s in self.slots.values() if s.value is holder}
        uses = {attribute for code in self.executed for name, attribute in facts(code).uses if name in names}
        return bool(uses) and all(attribute and hasattr(holder, attribute) for attribute in uses)

    def _refuse_names(self, code: types.CodeType) -> None:
        """Give up if `code`, which is about to run, reaches values in a way that names do not tell."""
        remedy = "use what is found there by its own name"
        if inner := (own(code)[1] | facts(code).strings) & INNER or self.stored & {"__class__"}:
            name = min(inner)
            what = f"the body uses {name}, which a replay cannot follow"
            self.arguments.trace.give_up(what, remedy, line=mention(self.codes, name))
        if accessor := computed_access(code):
            what = f"{accessor} looks up names that the body computes, which a replay cannot follow"
            self.arguments.trace.give_up(what, remedy, line=mention({code}, accessor))

    def _refuse_slots(self) -> None:
        """Give up if code that runs reads something that a replay cannot check."""
        attributes = self.attributes_read()
        for slot in self.refused:
            if slot.refusal is not None and self.was_read(slot, attributes):
                self.arguments.trace.give_up(*slot.refusal, line=mention(self.codes, str(slot.key)))


def _same_plain(before: Any, after: Any) -> bool:
    return (
        type(before) is type(after)
        and issubclass(type(before), PLAIN)
        and (before == after if before == before and before != 0 else repr(before) == repr(after))
    )
