"""Changes of a traced body to the slots that it reaches by name, and how they are undone.

After the body has run, `Changes.find` collects the slots that the body rebound, and `Changes.undo` restores
their values. Slots that another thread changed in the meantime keep their new values.
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
"""Methods that change the items of a dict."""


class Changes:
    """The changes of a body to the slots within its reach.

    known_stores: the names that an earlier recording saw assigned, or None; they count as mentioned from
                  the start.
    """

    def __init__(self, reach: Reach, reads: Reads, known_stores: Mentions | None) -> None:
        self.reach, self.code, self.reads = reach, reach.code, reads
        self._stores_are_known = known_stores is not None
        if known_stores is not None:
            self.code.mentions.add_stores(known_stores)

    def find(self) -> list[tuple[Slot, Any]]:
        """Return the slots whose value changed while the body ran, each with its present value."""
        changes = []
        for slot in list(self.reach.slots.values()):
            if id(slot.holder) in self.reads.logs:
                continue
            present = slot.read()
            if present is not slot.given and not _are_equal_values(slot.given, present):
                changes.append((slot, present))
        for followed in self.reach.followed:
            namespace = followed.namespace()
            added = followed.absent & namespace.keys()
            for name in [name for name in list(namespace) if name in added]:
                followed.absent.add(name)
                path = f"{followed.path}.{name}"
                changes.append(
                    (
                        Attribute(followed.value, name, followed.expression_of(name), path, GONE),
                        namespace[name],
                    )
                )
        return changes

    def undo(self, changes: list[tuple[Slot, Any]]) -> None:
        """Restore the value of every slot that the body changed, and the content of every container."""
        for slot, _present in changes:
            if type(slot) in (Item, Content) or self.is_ours(slot):
                slot.put(slot.value)

    def is_ours(self, slot: Slot) -> bool:
        """Return whether code of the body can have changed the slot, rather than another thread, say."""
        mentions = self.code.mentions
        if type(slot) is Item and (mentions.stores_items or not CHANGES.isdisjoint(mentions.attributes)):
            return True
        return slot.assignable and (slot.value is GONE or self.code.assigns(slot))

    def restart_if_assigned(self, slot: Slot) -> None:
        """Restart the recording with the assigned names known from the start, if that changes how the slot is
        treated: the body then finds a stand-in in it, or its container is followed item by item.
        """
        if isinstance(slot, Content):
            is_assigned = slot.deep and self.code.stores_in(slot.value)
        else:
            is_assigned = self.code.assigns(slot)
        if is_assigned and not self._stores_are_known:
            raise Restart(stores=self.code.mentions)


def _are_equal_values(before: Any, after: Any) -> bool:
    """Return whether two values are equal, and of a type that is compared by value."""
    return issubclass(type(before), VALUES) and same_parts((before,), (after,))
