"""The slots that a body can have read: a replay checks only these."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from tracejit.frontend.signature.slots import Attribute, ClosureCell, Slot
from tracejit.frontend.surroundings.executed import ExecutedCode

GROWS = frozenset({"append", "extend", "insert"})
"""Methods that change a list without depending on its content."""


class Reads:
    """The slots that a body can have read: nearly all, because a slot is visited only if executed code names
    it.

    logs: ids of the containers that only callbacks write.
    """

    def __init__(self, code: ExecutedCode) -> None:
        self.code = code
        self.logs: set[int] = set()

    def note_logs(self, callbacks: Iterable[Any]) -> None:
        """Note the containers that callbacks write (``losses.append``), if the body does not use them in any
        other way.
        """
        for function in callbacks:
            owner = getattr(function, "__self__", None)
            is_object = owner is not None and not isinstance(owner, types.ModuleType)
            if is_object and self.code.uses_of(owner) <= {function.__name__}:
                self.logs.add(id(owner))

    def was_read(self, slot: Slot) -> bool:
        """Return whether executed code can have read the slot."""
        if id(slot.holder) in self.logs or self._only_grows(slot.holder):
            return False
        if isinstance(slot, ClosureCell):  # it may be a variable only of an inner function that did not run
            return slot.key in self.code.mentions.variables
        is_function = isinstance(slot.value, types.FunctionType)
        if isinstance(slot, Attribute) and is_function and slot.key.startswith("__"):
            return slot.value.__code__ in self.code.ran  # called by an operator, not by its name
        return True

    def _only_grows(self, container: Any) -> bool:
        """Return whether executed code can only append to a list (``losses.append(...)``). Had the append
        run, the list would show as changed.
        """
        uses = self.code.uses_of(container) if type(container) is list else set()
        return bool(uses) and uses <= GROWS
