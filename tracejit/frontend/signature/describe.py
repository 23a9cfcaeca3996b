"""Results of a traced call, as records: what it returns, and what it rebound in containers and objects.

`ResultDescription.describe` walks over a recorded value and tells how it is made (see `signature.program`):

- an array made by the call: a new array on the storage of an output;
- an array of NumPy's that the body worked out: a copy of it;
- an array given to the call, or one it reached: that very array, or a view of the same storage;
- a number: the variable that holds it; constants, functions and types: themselves;
- a container the caller gave: that container, with its changes written back; a new one: made again;
- a container or object reached by name: itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import GONE, Attributes, factory_of
from tracejit.frontend.python.kinds import VALUES
from tracejit.frontend.recording import numpy_views
from tracejit.frontend.recording.number import NumberProxy, is_of, unproxied
from tracejit.frontend.recording.restart import RETURN, Unreplayable
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.arguments import Arguments, Part, Rebuilt, is_record, part_of, parts_of
from tracejit.frontend.signature.expressions import (
    Const,
    Expr,
    Literal,
    Var,
)
from tracejit.frontend.signature.program import (
    ArrayOn,
    Container,
    CopyOf,
    Known,
    Make,
    Rebind,
    Refill,
    ReplayProgram,
)
from tracejit.frontend.signature.slots import Attribute, Item, Slot
from tracejit.frontend.signature.stand_ins import known

ATOMS = (*VALUES, types.BuiltinFunctionType, types.ModuleType, type)
"""Classes of values that replays return as they are."""

KEPT = 1 << 24
"""Most bytes of a NumPy array that a signature keeps for replays to copy."""


class ResultDescription:
    """Adds to a program how recorded values are made, and what is written back.

    reached:  gives the expression for an object that was found by name, or None.
    line_of:  gives the line where the body names a slot, or None.
    computed: variables of the numbers that the body computed, or found in arrays.
    carried:  storages that hold a result of an earlier segment as it is, and the storage of that.
    kept:     older storages that the result refers to.
    rebinds:  types of the containers and objects that are written.
    """

    def __init__(
        self,
        program: ReplayProgram,
        arguments: Arguments,
        reached: Callable[[Any], Expr | None],
        line_of: Callable[[Slot], str | None],
        computed: dict[Computed | Source, Var],
    ) -> None:
        self.program, self.arguments, self.computed = program, arguments, computed
        self.reached, self.line_of = reached, line_of
        self.kept: set[Storage] = set()
        self.carried: dict[Storage, Storage] = {}
        self.rebinds: set[type] = set()
        self._uses: dict[int, int] = {}  # by identity: how often something the body made is to be given
        self._slot: Slot | None = None  # where the value is stored that is being described
        self._open: set[int] = set()
        self._numpys: list[np.ndarray] = []  # those that are given
        self._shared: dict[int, Var] = {}  # what is given more than once
        self._written: set[int] = set()
        self._objects = {id(value): operand for operand, _path, value in arguments.objects}

    # -- values ----------------------------------------------------------------------------------------------

    def describe(self, value: Any, path: str) -> Make:
        """Describe how `value` is made; changes of the caller's containers are written back."""
        if is_of(value, self.arguments.trace.numbers):
            source = value._source
            return Known(self.computed[source] if isinstance(source, Computed | Source) else source)
        value = numpy_views.original_of(unproxied(value))
        if isinstance(value, ATOMS):
            return Known(Literal(value) if isinstance(value, (bool, type(None))) else Const(value))
        found = self._known(value)
        if found is not None:
            return Known(found)
        rebuilt = self.arguments.containers.get(id(value))
        if rebuilt is not None:
            self._write_back(rebuilt, path)
            return Known(rebuilt.var)
        made = self._describe_new(value, path)
        if self._uses.get(id(value), 0) > 1:
            var = self._shared[id(value)] = self._before_launch(made)
            return Known(var)
        return made

    def _known(self, value: Any) -> Expr | None:
        """The expression for this very object in a replay; None if there is none."""
        handle = self.arguments.handles.get(id(value))
        if handle is not None:
            return handle[1]
        return self._objects.get(id(value)) or self._shared.get(id(value)) or self.reached(value)

    def _describe_new(self, value: Any, path: str) -> Make:
        """Describe how to make a value that the body made."""
        if isinstance(value, NDArray):
            return self._describe_array(value, path)
        if type(value) is np.ndarray:
            return self._describe_numpy(value, path)
        found = parts_of(value)
        if found is None:
            what = f"{path} is a {type(value).__name__}, which a replay cannot make again"
            raise self._unreplayable(what, RETURN, self._slot)
        kind, keys, children = found
        parts = [self.describe(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
        factory = None
        if isinstance(value, dict) and kind is not dict:
            if Attributes(value).namespace():
                what = f"{path} is a {kind.__name__} with attributes, which a replay cannot make"
                raise self._unreplayable(what, "return a dict", self._slot)
            factory = self.describe(factory_of(value), path)
        return Container(kind, self._keys(keys), tuple(parts), factory)

    def _describe_numpy(self, array: np.ndarray, path: str) -> Make:
        """A NumPy array that the body worked out, of nothing but what replays check: they copy it."""
        captured = self.arguments.trace.captured
        is_own = not any(held.holds(array) for held in captured) and not any(
            np.may_share_memory(array, other) for other in self._numpys
        )
        if array.nbytes > KEPT or array.dtype.kind not in "biufc" or not (array.flags.writeable and is_own):
            what = f"{path} is a {type(array).__name__}, which a replay cannot make again"
            raise self._unreplayable(what, RETURN, self._slot)
        self._numpys.append(array)
        return CopyOf(array.copy("K"))

    def _keys(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keys of a container; numbers among them have been looked at, or they had no hash."""
        return tuple(known(key, self.arguments) for key in keys)

    def _describe_array(self, array: NDArray, path: str) -> Make:
        storage, view = array._storage, array._view.known()
        carrier = self._carrier(storage)
        if carrier is not None:
            return ArrayOn(self.arguments.arrays[carrier][0], view)
        if storage.pending is not None:
            var = self.program.outputs.get(storage)
            if var is None:
                var = self.program.outputs[storage] = Var("t", storage)
            return ArrayOn(var, view)
        place = self.arguments.arrays.get(storage)
        if place is None:
            what = f"{path} is an array of unknown origin"
            raise self._unreplayable(what, "pass it as an argument", self._slot)
        self.kept.add(storage)
        return ArrayOn(place[0], view, place[1])

    def _carrier(self, storage: Storage) -> Storage | None:
        """The storage of an earlier segment that holds a new array: no other one is given that memory."""
        if storage not in self.carried:
            carrier = self.arguments.trace.carrier(storage)
            if carrier is None or carrier in self.carried.values():
                return None
            self.carried[storage] = carrier
        return self.carried[storage]

    def _before_launch(self, made: Make) -> Var:
        """A variable for what is made before the launch."""
        var = Var("r")
        self.program.values.append((var, made))
        return var

    def _unreplayable(self, what: str, remedy: str, slot: Slot | None) -> Unreplayable:
        """The error for a value that cannot be described, at the line that names the slot where it is stored.
        A result is stored nowhere, and nothing tells which `return` gave it: there is no line.
        """
        return Unreplayable(what, remedy, None if slot is None else self.line_of(slot))

    def count(self, value: Any, slot: Slot | None = None) -> None:
        """Count a value that is returned, or stored in a slot: what the body made is one object, however
        often it is used.
        """
        if isinstance(value, ATOMS) or type(value) is NumberProxy or self._known(value) is not None:
            return
        if id(value) in self.arguments.containers:
            return
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        found = None if self._uses[id(value)] > 1 else parts_of(value)
        if id(value) in self._open:
            what = f"a {type(value).__name__} that holds itself cannot be made again by a replay"
            raise self._unreplayable(what, RETURN, slot)
        if found is not None:
            self._open.add(id(value))
            for child in found[2]:
                self.count(child, slot)
            self._open.remove(id(value))

    def count_changes(self) -> None:
        """Count the values that the body put into the caller's containers."""
        for rebuilt in self.arguments.containers.values():
            before = set(map(id, rebuilt.parts))
            kind, keys, children = self._parts_again(rebuilt)
            for key, child in zip(keys, children, strict=True):
                if id(child) not in before:
                    self.count(child, _slot(rebuilt, kind, key, rebuilt.var.path))

    # -- effects ---------------------------------------------------------------------------------------------

    def write_back(self) -> None:
        """Describe what the body changed in the caller's containers."""
        for rebuilt in list(self.arguments.containers.values()):
            self._write_back(rebuilt, rebuilt.var.path)

    def _write_back(self, rebuilt: Rebuilt, path: str) -> None:
        if id(rebuilt.original) in self._written:
            return
        self._written.add(id(rebuilt.original))
        kind, keys, children = self._parts_again(rebuilt)
        if issubclass(kind, tuple):
            return
        if keys != rebuilt.keys and not is_record(kind):
            slots = [_slot(rebuilt, kind, key, path) for key in keys]
            parts = [self._describe_in(slot, child) for slot, child in zip(slots, children, strict=True)]
            self.rebinds.add(kind)
            whole = Container(dict if issubclass(kind, dict) else list, self._keys(keys), tuple(parts))
            self.program.effects.append(Refill(rebuilt.var, Known(self._before_launch(whole))))
            return
        before = dict(zip(rebuilt.keys, rebuilt.parts, strict=True))
        kept = set(keys)
        for key in rebuilt.keys:
            if key not in kept:
                self.rebind(_slot(rebuilt, kind, key, path), GONE)
        for key, child in zip(keys, children, strict=True):
            if key not in before or child is not before[key]:
                self.rebind(_slot(rebuilt, kind, key, path), child)

    def rebind(self, slot: Slot, value: Any) -> None:
        """Describe that a slot holds `value` after the call."""
        self.rebinds.add(type(slot.holder))
        made: Any = GONE
        if value is not GONE:
            made = self._describe_in(slot, value)
            if not (isinstance(made, Known) and isinstance(made.operand, (Var, Const, Literal))):
                made = Known(self._before_launch(made))
        self.program.effects.append(Rebind(slot, made))

    def _describe_in(self, slot: Slot, value: Any) -> Make:
        """Describe how the value is made that is stored in a slot."""
        outer, self._slot = self._slot, slot
        made = self.describe(value, slot.path)
        self._slot = outer
        return made

    def _parts_again(self, rebuilt: Rebuilt) -> Part:
        """The parts of a container that was rebuilt for the body."""
        found = parts_of(rebuilt.copy)
        if found is None:
            what = f"the body gives a {type(rebuilt.copy).__name__} attributes, which a replay cannot"
            added = sorted(Attributes(rebuilt.copy).namespace())
            slot = _slot(rebuilt, object, added[0], rebuilt.var.path) if added else None
            raise self._unreplayable(what, "store them outside of the function", slot)
        return found


def _slot(rebuilt: Rebuilt, kind: type, key: Any, path: str) -> Slot:
    """A part of a container of the caller's."""
    place = part_of(rebuilt.var, kind, key)
    slot = Attribute if is_record(kind) else Item
    return slot(rebuilt.original, key, place, path + trees.step(kind, key), GONE)
