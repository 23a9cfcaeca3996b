"""Changes that a traced body makes to what it reaches by name, and how they are undone.

When the body has run, `Changes.find` collects the slots that it rebound, and `Changes.undo` gives them their
old values. Slots that another thread changed meanwhile are left alone.
"""

from __future__ import annotations

from typing import Any

from tracejit.frontend.python.bytecode import Mentions
from tracejit.frontend.python.content import GONE, same_parts
from tracejit.frontend.python.kinds import VALUES
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.signature.slots import Attribute, Content, Item, Slot
from tracejit.frontend.surroundings.reach import Reach
from tracejit.frontend.surroundings.reads import Reads

CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "__setitem__", "__delitem__"})
"""Methods that change items of dicts."""


class Changes:
    """The changes of a body to the slots within its reach.

    foreseen: what an earlier recording found out to be assigned, or None; it counts as mentioned.
    """

    def __init__(self, reach: Reach, reads: Reads, foreseen: Mentions | None) -> None:
        self.reach, self.code, self.reads = reach, reach.code, reads
        self._is_foreseen = foreseen is not None
        if foreseen is not None:
            self.code.mentions.add_stores(foreseen)

    def find(self) -> list[tuple[Slot, Any]]:
        """Slots whose value the body rebound, and what they hold now."""
        found = []
        for slot in list(self.reach.slots.values()):
            if self.reads.is_log(slot.holder):
                continue
            now = slot.read()
            if now is not slot.given and not _are_equal_values(slot.given, now):
                found.append((slot, now))
        for seen in self.reach.seen:
            namespace = seen.namespace()
            added = seen.absent & namespace.keys()
            for name in [name for name in list(namespace) if name in added]:
                seen.absent.add(name)
                path = f"{seen.path}.{name}"
                found.append((Attribute(seen.value, name, seen.place(name), path, GONE), namespace[name]))
        return found

    def undo(self, changes: list[tuple[Slot, Any]]) -> None:
        """Give every slot that the body changed its old value, and every container its old content."""
        for slot, _now in changes:
            if type(slot) in (Item, Content) or self.is_ours(slot):
                slot.put(slot.value)

    def is_ours(self, slot: Slot) -> bool:
        """Whether code of the body can have changed the slot; else it was another thread, say."""
        mentions = self.code.mentions
        if type(slot) is Item and (mentions.stores_items or not CHANGES.isdisjoint(mentions.attributes)):
            return True
        return slot.assignable and (slot.value is GONE or self.code.assigns(slot))

    def foresee(self, slot: Slot) -> None:
        """Start again, now that it is known what is assigned, if the body then finds a stand-in in the slot
        that it changed, or if the container that holds the slot is then followed item by item.
        """
        if isinstance(slot, Content):
            known = slot.deep and self.code.stores_in(slot.value)
        else:
            known = self.code.assigns(slot)
        if known and not self._is_foreseen:
            raise Restart(stores=self.code.mentions)


def _are_equal_values(before: Any, after: Any) -> bool:
    """Whether two values are equal, and of a type that is compared."""
    return issubclass(type(before), VALUES) and same_parts((before,), (after,))
