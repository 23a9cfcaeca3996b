"""Stand-ins that a traced body finds in slots: run-time numbers, views of NumPy arrays, modules.

They are installed in newly discovered slots, before the code that names these slots runs, and removed after
the body has run.
"""

from __future__ import annotations

import importlib
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
from tracejit.frontend.surroundings.module_stand_ins import StandIns
from tracejit.frontend.surroundings.numbers_found import CALLED, with_own_builtins
from tracejit.frontend.surroundings.numpy_module import NUMPY
from tracejit.frontend.surroundings.reach import Reach
from tracejit.ir.types import DTYPES

NAMED = (Global, ClosureCell, Attribute)
"""Kinds of slots whose name occurs in code wherever the code uses the slot's value."""


def generators() -> StandIns:
    """Return the stand-ins for `numpy.random`, which is imported if it is not yet."""
    module: Any = importlib.import_module("tracejit.frontend.surroundings.random_module")
    stand_ins: StandIns = module.RANDOM
    return stand_ins


class InstalledStandIns:
    """The stand-ins of one recording.

    captured:  the NumPy arrays reached by name, by identity.
    aliased:   storages of arguments that are also reached by name, and of which the body receives windows.
    functions: names of the functions that are replaced by copies.
    """

    def __init__(self, reach: Reach, arguments: Arguments) -> None:
        self.reach, self.arguments, self.numbers = reach, arguments, arguments.trace.numbers
        self.captured: dict[int, Captured] = {}
        self.aliased: set[Storage] = set()
        self.functions: set[Any] = set()

    def install(self) -> None:
        """Store stand-ins in the slots discovered since the last call: run-time numbers where code assigns
        the number, watched views of NumPy arrays, copies of functions, and modules.

        Earlier slots are left alone: the body may already have read their values.
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
        """Install the stand-in for NumPy or `math`, or for one of their functions, if the trace uses it."""
        trace, value = self.arguments.trace, slot.value
        trace.body.names_math |= MATH.stand_in(value) is not None
        is_numpy_used = trace.recorded_numpy or trace.assumed.generators
        used = (NUMPY, is_numpy_used), (self.reach.random, True), (MATH, trace.assumed.math)
        for stand_ins, is_used in used:
            stand_in = stand_ins.stand_in(value)
            if stand_in is not None and is_used and not self.numbers.concrete:
                slot.replace(stand_in)

    def _replace_function(self, slot: Slot) -> None:
        """Install a copy of a function in which `float` and similar builtins return run-time numbers, if the
        body may look at values and only calls the function.
        """
        trace, mentions = self.arguments.trace, self.reach.code.mentions
        is_only_called = slot.key not in mentions.escaping and not any(mentions.uses_of([slot.key]))
        may_look = trace.looks.segments is not None and trace.assumed.functions and not trace.numbers.concrete
        if not (may_look and is_only_called) or vars(slot.value) or trusted(slot.value.__module__):
            return
        copy = with_own_builtins(slot.value, CALLED)
        if copy is not slot.value:
            slot.replace(copy)
            self.functions.add(slot.key)

    def check_functions(self) -> None:
        """Restart without copies of functions if the body may do more with a copied function than call it."""
        mentions = self.reach.code.mentions
        if not self.functions.isdisjoint(mentions.escaping) or any(mentions.uses_of(self.functions)):
            raise Restart(functions=False)

    def _watch_array(self, slot: Slot) -> None:
        """Capture a NumPy array, and install a view that watches its use. The array counts as data if it must
        not be replaced by a stand-in, or if it is also in a slot that cannot be assigned.
        """
        array = slot.value
        captured = self.captured.get(id(array))
        if captured is None:
            captured = self.captured[id(array)] = Captured(array, slot.path)
            is_supported = type(array) is np.ndarray and array.dtype in DTYPES
            is_reached = id(array) in self.arguments.trace.assumed.reached
            captured.is_watched = is_supported and not is_reached and not self.numbers.concrete
            captured.is_data = not captured.is_watched
            if captured.is_data and captured.content is None:
                slot.refusal = captured.too_large(slot.path)
                self.reach.refused.append(slot)
        if captured.is_watched:
            if not slot.assignable:
                raise Restart(reached=array)
            slot.replace(captured.watched)

    def remove(self) -> None:
        """Restore the original values of all slots; idempotent."""
        for slot in self.reach.slots.values():
            if slot.given is not slot.value:
                slot.put(slot.value)

    def restore_arrays(self) -> None:
        """Restore the content that the captured NumPy arrays had before the body ran."""
        for captured in self.captured.values():
            captured.restore()
