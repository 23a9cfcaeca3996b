"""Changes that a traced body makes to what it reaches by name: numbers, and rebound values.

`Surroundings` gives the body stand-ins for numbers that some code assigns, and watched views of NumPy
arrays. When the body has run, `changes` tells what it rebound, and `undo` takes that back; what another
thread changed meanwhile is left alone.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tracejit.frontend.python.bytecode import Mentions, computed_access, facts, is_made_by_dataclass, mention
from tracejit.frontend.python.content import GONE, same_parts
from tracejit.frontend.python.kinds import VALUES
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import Var
from tracejit.frontend.signature.slots import Attribute, ClosureCell, Content, Global, Item, Slot
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


CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "__setitem__", "__delitem__"})
"""Methods that change items of dicts."""

GROWS = frozenset({"append", "extend", "insert"})
"""Methods of lists that change them in the same way whatever they hold."""


class Surroundings(Visitor):
    """The surroundings of a function, and its changes to them.

    captured: by identity: NumPy arrays of which the body gets watched views.
    aliased:  storages of arguments that are also found by name, and of which the body gets windows.
    logs:     ids of containers that only callbacks write.
    """

    def __init__(self, arguments: Arguments, foreseen: Mentions | None):
        super().__init__(arguments.trace.numbers, arguments.originals)
        self.is_foreseen = foreseen is not None
        if foreseen is not None:
            self.mentions.add_stores(foreseen)
        self.arguments = arguments
        self.aliased: set[Storage] = set()
        self.captured: dict[int, Captured] = {}
        self.logs: set[int] = set()

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
        if self.aliased and self.mentions.compares:
            raise Restart(aliased=self.aliased)
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
                self.aliased.add(self.arguments.windows[id(slot.value)])
            elif not slot.assignable:
                continue
            elif type(slot.value) in (int, float):
                if self._assigned(slot) and not self.numbers.concrete:
                    slot.var = Var("n", slot.value, slot.path)
                    slot.replace(self.numbers.argument(slot.value, slot.var))
            elif isinstance(slot, Global | ClosureCell):
                self._replace_module(slot)

    def _replace_module(self, slot: Slot) -> None:
        """Put a stand-in there for NumPy or `math`, or a function of theirs, if the trace uses it."""
        trace, value = self.arguments.trace, slot.value
        trace.body.names_math |= MATH.stand_in(value) is not None
        for module, is_used in ((NUMPY, trace.recorded_numpy), (MATH, trace.assumed.math)):
            made = module.stand_in(value)
            if made is not None and is_used and not self.numbers.concrete:
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
            held.is_watched = known and id(array) not in self.arguments.reached and not self.numbers.concrete
            held.is_data = not held.is_watched
            if held.is_data and held.content is None:
                slot.refusal = held.too_large(slot.path)
                self.refused.append(slot)
        if held.is_watched:
            if not slot.assignable:
                raise Restart(reached=array)
            slot.replace(held.watched)

    def _assigned(self, slot: Slot) -> bool:
        if type(slot) is Item:
            named = not isinstance(slot.key, str) or slot.key in self.mentions.strings | self.mentions.stored
            return self.mentions.stores_items and named
        return slot.key in self.mentions.stored

    def foresee(self, slot: Slot) -> None:
        """Start again with what is known now to be assigned, if the body would have found a stand-in then for
        what it changed, or the container that holds it would have been followed item by item.
        """
        known = (
            slot.deep and self.stores_in(slot.value) if isinstance(slot, Content) else self._assigned(slot)
        )
        if known and not self.is_foreseen:
            raise Restart(stores=self.mentions)

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
        """Every slot that the body changed holds again what it held before; so does every container."""
        for slot, _now in changes:
            if type(slot) in (Item, Content) or self.is_ours(slot):
                slot.put(slot.value)
        for slot in self.slots.values():
            if slot.given is not slot.value:
                slot.put(slot.value)

    def is_ours(self, slot: Slot) -> bool:
        """Whether code of the body can have changed the slot; else it was another thread, say."""
        if type(slot) is Item and (
            self.mentions.stores_items or not CHANGES.isdisjoint(self.mentions.attributes)
        ):
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
            is_object = owner is not None and not isinstance(owner, types.ModuleType)
            if is_object and self._uses_of(owner) <= {function.__name__}:
                self.logs.add(id(owner))

    def _uses_of(self, value: Any) -> set[str]:
        """Attributes that code that ran reads of an object that it finds by name (see `Mentions.uses_of`)."""
        return self.mentions.uses_of(self.keys.get(id(value), ()))

    # -- what was read ---------------------------------------------------------------------------------------

    def was_read(self, slot: Slot) -> bool:
        """Whether what ran can have read the slot. Most were visited since code that ran names them."""
        if id(slot.holder) in self.logs or self._is_untouched(slot):
            return False
        if isinstance(
            slot, ClosureCell
        ):  # of a function: maybe another one, that it defines, names the variable
            return slot.key in self.mentions.variables
        is_function = isinstance(slot.value, types.FunctionType)
        if isinstance(slot, Attribute) and is_function and slot.key.startswith("__"):
            return slot.value.__code__ in self.executed  # called by an operator, not by its name
        return True

    def _is_untouched(self, slot: Slot) -> bool:
        """Whether a slot belongs to a list that what ran can only make longer, ``losses.append(...)``: maybe
        in a branch that was not taken, as it would show otherwise.
        """
        uses = self._uses_of(slot.holder) if type(slot.holder) is list else set()
        return bool(uses) and uses <= GROWS

    def line_of(self, slot: Slot) -> str | None:
        """The line where code that ran first names a slot, or the container of which it is the content."""
        names = self.keys.get(id(slot.holder), ()) if isinstance(slot, Content) else (slot.key,)
        lines = [mention(self.codes, name) for name in sorted(map(str, names))]
        return next((line for line in lines if line is not None), None)

    def _refuse_names(self, code: types.CodeType) -> None:
        """Give up if `code`, which is about to run, reaches values in a way that names do not tell."""
        remedy = "use what is found there by its own name"
        trace, found = self.arguments.trace, facts(code)
        if inner := found.attributes & INNER or found.stored & {"__class__"}:
            name = min(inner)
            what = f"the body uses {name}, which a replay cannot follow"
            trace.give_up(what, remedy, line=mention({code}, name))
        if "random" in found.attributes:
            names = self.keys.get(id(np), ())
            if (0, "numpy") in found.imports or any((name, "random") in found.uses for name in names):
                what = "numpy.random gives other numbers on every call"
                trace.give_up(what, "use tj.random", line=mention({code}, "random"))
        if accessor := computed_access(code):
            what = f"{accessor} looks up names that the body computes, which a replay cannot follow"
            trace.give_up(what, remedy, line=mention({code}, accessor))

    def _refuse_slots(self) -> None:
        """Give up if code that runs reads something that a replay cannot check."""
        for slot in self.refused:
            if slot.refusal is not None and self.was_read(slot):
                self.arguments.trace.give_up(*slot.refusal, line=self.line_of(slot))


def _same_plain(before: Any, after: Any) -> bool:
    """Whether two plain values are equal."""
    return issubclass(type(before), VALUES) and same_parts((before,), (after,))
