"""Slots that a body can have read: a replay checks these and no others."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from tracejit.frontend.signature.slots import Attribute, ClosureCell, Slot
from tracejit.frontend.surroundings.executed import ExecutedCode

GROWS = frozenset({"append", "extend", "insert"})
"""Methods of lists that change them in the same way whatever they hold."""


class Reads:
    """Slots that a body can have read. Most slots were visited because code that ran names them."""

    def __init__(self, code: ExecutedCode) -> None:
        self.code = code
        self._logs: set[int] = set()

    def note_logs(self, callbacks: Iterable[Any]) -> None:
        """Note the containers into which callbacks write (``losses.append``), if the body uses them for
        nothing else.
        """
        for function in callbacks:
            owner = getattr(function, "__self__", None)
            is_object = owner is not None and not isinstance(owner, types.ModuleType)
            if is_object and self.code.uses_of(owner) <= {function.__name__}:
                self._logs.add(id(owner))

    def is_log(self, container: Any) -> bool:
        """Whether only callbacks write into a container."""
        return id(container) in self._logs

    def was_read(self, slot: Slot) -> bool:
        """Whether code that ran can have read the slot."""
        if self.is_log(slot.holder) or self._only_grows(slot.holder):
            return False
        if isinstance(slot, ClosureCell):  # another function may name the variable, which this one defines
            return slot.key in self.code.mentions.variables
        is_function = isinstance(slot.value, types.FunctionType)
        if isinstance(slot, Attribute) and is_function and slot.key.startswith("__"):
            return slot.value.__code__ in self.code.ran  # called by an operator, not by its name
        return True

    def _only_grows(self, container: Any) -> bool:
        """Whether code that ran can do nothing with a list but make it longer (``losses.append(...)``). A
        branch that was taken would show as a change, so it was not taken.
        """
        uses = self.code.uses_of(container) if type(container) is list else set()
        return bool(uses) and uses <= GROWS
