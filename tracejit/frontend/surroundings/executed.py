"""The code that a body runs, and the names in it: the names it reads, and the names it assigns.

A body can only reach by name the values whose names occur in its code (see `bytecode`). These names
therefore determine which slots the body can have read or rebound, and the line that first mentions a slot.
"""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any

from tracejit.frontend.python.bytecode import Facts, Mentions, codes, facts, mention
from tracejit.frontend.signature.slots import Content, Item, Slot


class ExecutedCode:
    """The user code that has run or is about to run, and the names it mentions.

    ran:      its code objects, which this object keeps alive.
    defined:  `ran`, and the code objects of the functions defined in them.
    mentions: names in the code that ran.
    names:    the keys of the slots that contain a value, by the value's identity.
    """

    def __init__(self) -> None:
        self.ran: set[types.CodeType] = set()
        self.defined: set[types.CodeType] = set()
        self.mentions = Mentions()
        self.names: dict[int, set[Any]] = {}

    def add(self, code: types.CodeType) -> Facts:
        """Add code that is about to run for the first time, and return the facts about it."""
        self.ran.add(code)
        self.defined.update(codes(code))
        its_facts = facts(code)
        self.mentions.add(its_facts)
        return its_facts

    def note_name(self, slot: Slot) -> None:
        """Register the slot's key as a name of its value."""
        self.names.setdefault(id(slot.value), set()).add(slot.key)

    def names_of(self, value: Any) -> Collection[Any]:
        """Return the keys of the slots that contain this very object."""
        return self.names.get(id(value), ())

    def uses_of(self, value: Any) -> set[str]:
        """Return the attributes that the code reads of an object it reaches by name (`Mentions.uses_of`)."""
        return self.mentions.uses_of(self.names_of(value))

    def assigns(self, slot: Slot) -> bool:
        """Return whether the code assigns something with the slot's name."""
        if type(slot) is Item:
            is_named = (
                not isinstance(slot.key, str) or slot.key in self.mentions.strings | self.mentions.stored
            )
            return self.mentions.stores_items and is_named
        return slot.key in self.mentions.stored

    def stores_in(self, content: Any) -> bool:
        """Return whether the code stores items of this dict by name. The remaining items are then checked one
        by one.
        """
        mentions = self.mentions
        return (
            mentions.stores_items and isinstance(content, dict) and not mentions.strings.isdisjoint(content)
        )

    def line_of(self, slot: Slot) -> str | None:
        """Return the line where the code first names the slot, or the container whose content the slot is."""
        names = self.names_of(slot.holder) if isinstance(slot, Content) else (slot.key,)
        lines = map(self.line_naming, sorted(map(str, names)))
        return next((line for line in lines if line is not None), None)

    def line_naming(self, name: str) -> str | None:
        """Return the line where this name first occurs in the code."""
        return mention(self.defined, name)
