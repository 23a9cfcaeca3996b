"""What a traced body does to what it reaches by name: numbers that change, and what it rebound.

`Surroundings` gives the body stand-ins for numbers that some code assigns, and watched views of NumPy
arrays. When the body has run, `changes` tells what it rebound, and `undo` takes that back; what another
thread changed meanwhile is left alone.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tracejit.frontend.arguments import Arguments
from tracejit.frontend.bytecode import HASH, codes, facts, read_at, shown
from tracejit.frontend.captured import Held
from tracejit.frontend.content import GONE
from tracejit.frontend.kinds import PLAIN, has_address, has_hash
from tracejit.frontend.seen import SeenClass
from tracejit.frontend.slots import Attribute, Cell, Item, Slot, Whole
from tracejit.frontend.storage import Storage
from tracejit.frontend.trace import Restart
from tracejit.frontend.visiting import Visitor
from tracejit.ir.types import DTYPES


class Surroundings(Visitor):
    """What a function can reach, and what it did to that.

    executed: code that ran, and its lines (empty: all of them).
    held:     by identity: NumPy arrays of which the body gets watched views.
    met:      storages of arguments that are also found by name, and of which the body gets windows.
    logs:     ids of containers that only callbacks write.
    touched:  ids of containers of which the body called a method, or that it gave to a library function.
    touches:  whether C functions may change containers: they were given one, or a method of one.
    """

    def __init__(self, function: Any, arguments: Arguments):
        super().__init__(function, arguments.source, arguments.trace.numbers, arguments.rebuilt)
        self.arguments = arguments
        self.met: set[Storage] = set()
        self.executed: dict[types.CodeType, set[int]] = {}
        self.held: dict[int, Held] = {}
        self.logs: set[int] = set()
        self.touched: set[int] = set()

    def enter(self, code: types.CodeType, namespace: dict[str, Any]) -> bool:
        """A Python function is about to run for the first time; whether what it captured is known."""
        known = super().enter(code, namespace)
        self.install()
        if self.met and any(facts(each).compares for each in self.entered):
            raise Restart(aliased=self.met)
        names = {name for each in codes(code) for found in shown(each).values() for name in found}
        for _rebuilt, original, _variable in self.arguments.containers.values() if names else ():
            if (has_hash(original) and HASH in names) or (has_address(original) and names != {HASH}):
                raise Restart(original)
        return known

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
            elif type(slot.value) in (int, float) and self._assigned(slot) and not self.numbers.plain:
                slot.variable = self.source.name("n")
                slot.give(self.numbers.argument(slot.value, slot.variable, slot.path))

    def _hold(self, slot: Slot) -> None:
        """Note what a NumPy array holds, and watch its use, unless there must be no stand-in for it: then it
        counts as data. So it does everywhere if it is also found where nothing can be put in its place.
        """
        array = slot.value
        held = self.held.get(id(array))
        if held is None:
            held = self.held[id(array)] = Held(array)
            known = type(array) is np.ndarray and array.dtype in DTYPES
            held.is_watched = known and id(array) not in self.arguments.reached and not self.numbers.plain
            held.is_data = not held.is_watched
        if held.is_watched:
            if not slot.assignable:
                raise Restart(array)
            slot.give(held.watched)

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
            if self.dynamic and not seen.is_library:
                added |= {n for n in namespace.keys() - set(seen.at_first) if not n.startswith("__")}
            for name in [name for name in list(namespace) if name in added]:
                seen.absent.add(name)
                expression, path = seen.expression(name, self.source), f"{seen.path}.{name}"
                found.append((Attribute(seen.value, name, expression, path, GONE), namespace[name]))
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
        return slot.assignable and (self.dynamic or slot.value is GONE or self._assigned(slot))

    def can_be_taken_back(self) -> bool:
        """Whether all can that the body may have changed. What is refused and has a name it has not met."""
        if self.refused:
            named = {
                n for c in self.codes for n in (*c.co_names, *c.co_varnames, *c.co_freevars, *c.co_cellvars)
            }
            if self.dynamic or not all(name in named for _, name in self.refused):
                return False
        return not (
            any(held.content is None and (held.is_data or self.stores_items) for held in self.held.values())
            or any(isinstance(slot.value, BaseException) for slot in self.slots.values())
            or any(isinstance(seen, SeenClass) and hasattr(seen.value, "__del__") for seen in self.seen)
            or not self.cached.isdisjoint(self.executed)
        )

    def restore_contents(self) -> None:
        """NumPy arrays and bytes hold again what they held before the body ran."""
        for held in self.held.values():
            held.restore()
        for value, content in self.bytes.values():
            if value != content:
                value[:] = content

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
        inside = [each for each in codes(code) if each in self.executed]
        return {name for each in inside for name in read_at(each, self.executed[each])[0]}

    def names_shown(self) -> set[str]:
        """Names of what was written as text while the body ran, and `HASH` if hashes count."""
        found = [(lines, shown(code)) for code, lines in self.executed.items()]
        return {
            name
            for lines, shows in found
            for line in shows
            if not lines or line in lines
            for name in shows[line]
        }

    def attributes_read(self) -> set[str]:
        """Names of attributes that were read or written while the body ran; strings may be such names."""
        found = set(self.getters)
        for code, lines in self.executed.items():
            found |= read_at(code, lines)[1] | facts(code).strings
        return found


def _same_plain(before: Any, after: Any) -> bool:
    return (
        type(before) is type(after)
        and issubclass(type(before), PLAIN)
        and (before == after if before == before and before != 0 else repr(before) == repr(after))
    )
