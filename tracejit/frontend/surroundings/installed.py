"""Stand-ins that a traced body finds in slots: run-time numbers, views of NumPy arrays, modules.

They are installed in slots just found, before code runs that names them, and removed when the body has run.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tracejit.frontend.python.kinds import trusted
from tracejit.frontend.recording.numpy_views import Captured
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.expressions import Var
from tracejit.frontend.signature.slots import Attribute, ClosureCell, Global, Slot
from tracejit.frontend.surroundings.math_module import MATH
from tracejit.frontend.surroundings.numbers_found import CALLED, with_own_builtins
from tracejit.frontend.surroundings.numpy_module import NUMPY
from tracejit.frontend.surroundings.reach import Reach
from tracejit.ir.types import DTYPES

NAMED = (Global, ClosureCell, Attribute)
"""Slots whose names code mentions where it uses what they hold."""


class InstalledStandIns:
    """The stand-ins of one recording.

    captured: by identity: NumPy arrays that were found.
    aliased:  storages of arguments that are also found by name, and of which the body gets windows.
    functions: names of functions of which the body calls copies.
    """

    def __init__(self, reach: Reach, arguments: Arguments) -> None:
        self.reach, self.arguments, self.numbers = reach, arguments, arguments.trace.numbers
        self.captured: dict[int, Captured] = {}
        self.aliased: set[Storage] = set()
        self.functions: set[Any] = set()

    def install(self) -> None:
        """Give the body run-time numbers where some code assigns them, and watched views of NumPy arrays.

        Only in slots found just now: what the body may have read already must stay what it was.
        """
        for slot in self.reach.take_fresh():
            if isinstance(slot.value, np.ndarray):
                self._watch_array(slot)
            elif id(slot.value) in self.arguments.windows:
                self.aliased.add(self.arguments.windows[id(slot.value)])
            elif not slot.assignable:
                continue
            elif type(slot.value) in (int, float):
                if self.reach.code.assigns(slot) and not self.numbers.concrete:
                    slot.var = Var("n", slot.value, slot.path)
                    slot.replace(self.numbers.argument(slot.value, slot.var))
            elif type(slot.value) is types.FunctionType and isinstance(slot, NAMED):
                self._replace_function(slot)
            elif isinstance(slot, Global | ClosureCell):
                self._replace_module(slot)
        self.arguments.trace.captured = list(self.captured.values())

    def _replace_module(self, slot: Slot) -> None:
        """Install the stand-in for NumPy or `math`, or a function of theirs, if the trace uses it."""
        trace, value = self.arguments.trace, slot.value
        trace.body.names_math |= MATH.stand_in(value) is not None
        for module, is_used in ((NUMPY, trace.recorded_numpy), (MATH, trace.assumed.math)):
            made = module.stand_in(value)
            if made is not None and is_used and not self.numbers.concrete:
                slot.replace(made)

    def _replace_function(self, slot: Slot) -> None:
        """Install a copy of a function in which `float` and the like give run-time numbers, if the body may
        look at values and does nothing with the function but call it.
        """
        trace, mentions = self.arguments.trace, self.reach.code.mentions
        is_only_called = slot.key not in mentions.handed and not any(mentions.uses_of([slot.key]))
        may_look = trace.looks.segments is not None and trace.assumed.functions and not trace.numbers.concrete
        if not (may_look and is_only_called) or vars(slot.value) or trusted(slot.value.__module__):
            return
        copy = with_own_builtins(slot.value, CALLED)
        if copy is not slot.value:
            slot.replace(copy)
            self.functions.add(slot.key)

    def check_functions(self) -> None:
        """Record again without copies of functions if one of them may be used for more than calls."""
        mentions = self.reach.code.mentions
        if not self.functions.isdisjoint(mentions.handed) or any(mentions.uses_of(self.functions)):
            raise Restart(functions=False)

    def _watch_array(self, slot: Slot) -> None:
        """Capture a NumPy array, and install a view that watches its use. An array counts as data if there
        must be no stand-in for it, or if it is also found in a slot that cannot be assigned.
        """
        array = slot.value
        found = self.captured.get(id(array))
        if found is None:
            found = self.captured[id(array)] = Captured(array, slot.path)
            known = type(array) is np.ndarray and array.dtype in DTYPES
            found.is_watched = known and id(array) not in self.arguments.reached and not self.numbers.concrete
            found.is_data = not found.is_watched
            if found.is_data and found.content is None:
                slot.refusal = found.too_large(slot.path)
                self.reach.refused.append(slot)
        if found.is_watched:
            if not slot.assignable:
                raise Restart(reached=array)
            slot.replace(found.watched)

    def remove(self) -> None:
        """Put the originals back; this may be done twice."""
        for slot in self.reach.slots.values():
            if slot.given is not slot.value:
                slot.put(slot.value)

    def restore_arrays(self) -> None:
        """Give NumPy arrays the content that they had before the body ran."""
        for found in self.captured.values():
            found.restore()
