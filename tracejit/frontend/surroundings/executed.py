"""The code that a body runs, and the names in it: which of them it reads, and which it assigns.

A body can only reach by name what its code names (see `bytecode`). So these names tell which slots the body
can have read or rebound, and the line where it first names one.
"""

from __future__ import annotations

import types
from typing import Any

from tracejit.frontend.python.bytecode import Facts, Mentions, codes, facts, mention
from tracejit.frontend.signature.slots import Content, Item, Slot


class ExecutedCode:
    """The user's code that has run or is about to, and what it mentions.

    ran:      code objects, which this keeps alive.
    defined:  these, and the code of functions defined in them.
    mentions: names in the code that ran.
    names:    by the identity of a value: keys of the slots that hold it.
    """

    def __init__(self) -> None:
        self.ran: set[types.CodeType] = set()
        self.defined: set[types.CodeType] = set()
        self.mentions = Mentions()
        self.names: dict[int, set[Any]] = {}

    def add(self, code: types.CodeType) -> Facts:
        """Add code that is about to run for the first time."""
        self.ran.add(code)
        self.defined.update(codes(code))
        found = facts(code)
        self.mentions.add(found)
        return found

    def note_name(self, slot: Slot) -> None:
        """Note that a slot holds its value."""
        self.names.setdefault(id(slot.value), set()).add(slot.key)

    def names_of(self, value: Any) -> set[Any]:
        """Keys of the slots that hold this very object."""
        return self.names.get(id(value), set())

    def uses_of(self, value: Any) -> set[str]:
        """Attributes that the code reads of an object that it finds by name (see `Mentions.uses_of`)."""
        return self.mentions.uses_of(self.names_of(value))

    def assigns(self, slot: Slot) -> bool:
        """Whether the code assigns something of the slot's name."""
        if type(slot) is Item:
            named = not isinstance(slot.key, str) or slot.key in self.mentions.strings | self.mentions.stored
            return self.mentions.stores_items and named
        return slot.key in self.mentions.stored

    def stores_in(self, content: Any) -> bool:
        """Whether the code stores items of a dict by name; those that stay are then checked one by one."""
        known = self.mentions
        return known.stores_items and isinstance(content, dict) and not known.strings.isdisjoint(content)

    def line_of(self, slot: Slot) -> str | None:
        """The line where the code first names a slot, or the container of which it is the content."""
        names = self.names_of(slot.holder) if isinstance(slot, Content) else (slot.key,)
        lines = map(self.line_naming, sorted(map(str, names)))
        return next((line for line in lines if line is not None), None)

    def line_naming(self, name: str) -> str | None:
        """The line where the code first has this name."""
        return mention(self.defined, name)
