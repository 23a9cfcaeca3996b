"""Results of a traced call, as records: the value that it returns, and its changes to containers and objects.

`ResultDescription.describe` visits a recorded value, and describes how a replay creates it (see
`signature.program`):

- an array that the call computed: a new array on the storage of an output;
- a NumPy array that the body created: a copy of it;
- an array that the call was passed, or accessed by name: that object, or a view of the same storage;
- a number: its variable; a constant, function or type: itself;
- a container of the caller: itself, with its changes written back; a new container: a new one;
- a container or object accessed by name: itself.
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
from tracejit.frontend.signature.arguments import Arguments, Parts, Rebuilt, is_record, part_of, parts_of
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var
from tracejit.frontend.signature.program import ArrayOn, Container, CopyOf, Known, Make, Rebind, Refill
from tracejit.frontend.signature.slots import Attribute, Item, Slot
from tracejit.frontend.signature.stand_ins import callers_value

ATOMS = (*VALUES, types.BuiltinFunctionType, types.ModuleType, type)
"""Classes of values that replays return as they are."""

MAX_COPY_BYTES = 1 << 24
"""The largest size of a NumPy array, in bytes, that a signature stores for replays to copy."""


class ResultDescription:
    """Adds to a program how a replay creates values of the result, and what it writes back.

    named_expr:      returns the expression for an object that the body accessed by name, or None.
    line_of:         returns the line where the body names a slot, or None.
    computed:        variables of the numbers that the body computed, or read from arrays.
    segment_results: new storages that are an unchanged result of an earlier segment -> the storage of the
                     latter.
    referenced:      older storages that the result refers to.
    rebinds:         types of the containers and objects that are written.
    """

    def __init__(
        self,
        arguments: Arguments,
        named_expr: Callable[[Any], Expr | None],
        line_of: Callable[[Slot], str | None],
        computed: dict[Computed | Source, Var],
    ) -> None:
        self.program, self.arguments, self.computed = arguments.program, arguments, computed
        self.named_expr, self.line_of = named_expr, line_of
        self.referenced: set[Storage] = set()
        self.segment_results: dict[Storage, Storage] = {}
        self.rebinds: set[type] = set()
        self._uses: dict[int, int] = {}  # by id: the number of uses of a value that the body created
        self._slot: Slot | None = None  # the slot of the value that is being described
        self._in_progress: set[int] = set()  # ids of containers whose children are being counted
        self._copied: list[np.ndarray] = []  # NumPy arrays of which replays return copies
        self._shared: dict[int, Var] = {}  # by id: variables of values with several uses
        self._written: set[int] = set()
        self._objects = {id(value): operand for operand, _path, value in arguments.objects}

    # -- values ----------------------------------------------------------------------------------------------

    def describe(self, value: Any, path: str) -> Make:
        """Describe how a replay creates `value`. Changes to a container of the caller are written back."""
        if is_of(value, self.arguments.trace.numbers):
            source = value._source
            return Known(self.computed[source] if isinstance(source, Computed | Source) else source)
        value = numpy_views.original_of(unproxied(value))
        if isinstance(value, ATOMS):
            return Known(Literal(value) if isinstance(value, (bool, type(None))) else Const(value))
        existing = self._existing(value)
        if existing is not None:
            return Known(existing)
        rebuilt = self.arguments.containers.get(id(value))
        if rebuilt is not None:
            self._write_back(rebuilt, path)
            return Known(rebuilt.var)
        make = self._describe_new(value, path)
        if self._uses.get(id(value), 0) > 1:
            var = self._shared[id(value)] = self._before_launch(make)
            return Known(var)
        return make

    def _existing(self, value: Any) -> Expr | None:
        """Return the expression for this object in a replay; None if a replay must create it."""
        handle = self.arguments.handles.get(id(value))
        if handle is not None:
            return handle[1]
        return self._objects.get(id(value)) or self._shared.get(id(value)) or self.named_expr(value)

    def _describe_new(self, value: Any, path: str) -> Make:
        """Describe how a replay creates a value that the body created. Raises `Unreplayable` if it cannot."""
        if isinstance(value, NDArray):
            return self._describe_array(value, path)
        if type(value) is np.ndarray:
            return self._describe_numpy(value, path)
        parts = parts_of(value)
        if parts is None:
            what = f"{path} is a {type(value).__name__}, which a replay cannot make again"
            raise self._unreplayable(what, RETURN, self._slot)
        kind, keys, children = parts
        makes = [self.describe(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
        factory = None
        if isinstance(value, dict) and kind is not dict:
            if Attributes(value).namespace():
                what = f"{path} is a {kind.__name__} with attributes, which a replay cannot make"
                raise self._unreplayable(what, "return a dict", self._slot)
            factory = self.describe(factory_of(value), path)
        return Container(kind, self._keys(keys), tuple(makes), factory)

    def _describe_numpy(self, array: np.ndarray, path: str) -> Make:
        """Describe a NumPy array that the body created. Its content depends only on values that the signature
        requires, so a replay copies it. Raises `Unreplayable` if it is large, or shares memory.
        """
        captured = self.arguments.trace.captured
        is_unshared = not any(source.holds(array) for source in captured) and not any(
            np.may_share_memory(array, other) for other in self._copied
        )
        if (
            array.nbytes > MAX_COPY_BYTES
            or array.dtype.kind not in "biufc"
            or not (array.flags.writeable and is_unshared)
        ):
            what = f"{path} is a {type(array).__name__}, which a replay cannot make again"
            raise self._unreplayable(what, RETURN, self._slot)
        self._copied.append(array)
        return CopyOf(array.copy("K"))

    def _keys(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the keys of a container without stand-ins. Run-time numbers among them have been looked at,
        since hashing a number is a look.
        """
        return tuple(callers_value(key, self.arguments) for key in keys)

    def _describe_array(self, array: NDArray, path: str) -> Make:
        storage, view = array._storage, array._view.known()
        result = self._segment_result(storage)
        if result is not None:
            return ArrayOn(self.arguments.arrays[result][0], view)
        if storage.pending is not None:
            var = self.program.outputs.get(storage)
            if var is None:
                var = self.program.outputs[storage] = Var("t", storage)
            return ArrayOn(var, view)
        variables = self.arguments.arrays.get(storage)
        if variables is None:
            what = f"{path} is an array of unknown origin"
            raise self._unreplayable(what, "pass it as an argument", self._slot)
        self.referenced.add(storage)
        return ArrayOn(variables[0], view, variables[1])

    def _segment_result(self, storage: Storage) -> Storage | None:
        """Return the result of an earlier segment that contains a new array unchanged; None if there is none,
        or if another new array already uses its memory.
        """
        if storage not in self.segment_results:
            result = self.arguments.trace.carrier(storage)
            if result is None or result in self.segment_results.values():
                return None
            self.segment_results[storage] = result
        return self.segment_results[storage]

    def _before_launch(self, make: Make) -> Var:
        """Return a variable for a value that a replay creates before the launch."""
        var = Var("r")
        self.program.values.append((var, make))
        return var

    def _unreplayable(self, what: str, remedy: str, slot: Slot | None) -> Unreplayable:
        """Return the error for a value that cannot be described, at the line that names its slot. A returned
        value has no slot, and the `return` statement is not known, so its error has no line.
        """
        return Unreplayable(what, remedy, None if slot is None else self.line_of(slot))

    def count_uses(self, value: Any, slot: Slot | None = None) -> None:
        """Count a use of a value that is returned, or stored in a slot, and of its children. A replay creates
        one object for a value with several uses.
        """
        if isinstance(value, ATOMS) or type(value) is NumberProxy or self._existing(value) is not None:
            return
        if id(value) in self.arguments.containers:
            return
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        parts = None if self._uses[id(value)] > 1 else parts_of(value)
        if id(value) in self._in_progress:
            what = f"a {type(value).__name__} that holds itself cannot be made again by a replay"
            raise self._unreplayable(what, RETURN, slot)
        if parts is not None:
            self._in_progress.add(id(value))
            for child in parts[2]:
                self.count_uses(child, slot)
            self._in_progress.remove(id(value))

    def count_stored_uses(self) -> None:
        """Count the uses of values that the body stored in the caller's containers."""
        for rebuilt in self.arguments.containers.values():
            before = set(map(id, rebuilt.parts))
            kind, keys, children = self._present_parts(rebuilt)
            for key, child in zip(keys, children, strict=True):
                if id(child) not in before:
                    self.count_uses(child, _slot(rebuilt, kind, key, rebuilt.var.path))

    # -- effects ---------------------------------------------------------------------------------------------

    def write_back(self) -> None:
        """Describe the changes of the body to the caller's containers."""
        for rebuilt in list(self.arguments.containers.values()):
            self._write_back(rebuilt, rebuilt.var.path)

    def _write_back(self, rebuilt: Rebuilt, path: str) -> None:
        if id(rebuilt.original) in self._written:
            return
        self._written.add(id(rebuilt.original))
        kind, keys, children = self._present_parts(rebuilt)
        if issubclass(kind, tuple):
            return
        if keys != rebuilt.keys and not is_record(kind):
            slots = [_slot(rebuilt, kind, key, path) for key in keys]
            parts = [self._describe_in(slot, child) for slot, child in zip(slots, children, strict=True)]
            self.rebinds.add(kind)
            content = Container(dict if issubclass(kind, dict) else list, self._keys(keys), tuple(parts))
            self.program.effects.append(Refill(rebuilt.var, Known(self._before_launch(content))))
            return
        before = dict(zip(rebuilt.keys, rebuilt.parts, strict=True))
        remaining = set(keys)
        for key in rebuilt.keys:
            if key not in remaining:
                self.rebind(_slot(rebuilt, kind, key, path), GONE)
        for key, child in zip(keys, children, strict=True):
            if key not in before or child is not before[key]:
                self.rebind(_slot(rebuilt, kind, key, path), child)

    def rebind(self, slot: Slot, value: Any) -> None:
        """Describe that a slot contains `value` after the call; `GONE`: that it is deleted."""
        self.rebinds.add(type(slot.holder))
        make: Any = GONE
        if value is not GONE:
            make = self._describe_in(slot, value)
            if not (isinstance(make, Known) and isinstance(make.operand, (Var, Const, Literal))):
                make = Known(self._before_launch(make))
        self.program.effects.append(Rebind(slot, make))

    def _describe_in(self, slot: Slot, value: Any) -> Make:
        """Describe how a replay creates the value that is stored in a slot."""
        outer, self._slot = self._slot, slot
        make = self.describe(value, slot.path)
        self._slot = outer
        return make

    def _present_parts(self, rebuilt: Rebuilt) -> Parts:
        """Return the present kind, keys and children of the body's copy of a container. Raises `Unreplayable`
        if the body added attributes to it.
        """
        parts = parts_of(rebuilt.copy)
        if parts is None:
            what = f"the body gives a {type(rebuilt.copy).__name__} attributes, which a replay cannot"
            added = sorted(Attributes(rebuilt.copy).namespace())
            slot = _slot(rebuilt, object, added[0], rebuilt.var.path) if added else None
            raise self._unreplayable(what, "store them outside of the function", slot)
        return parts


def _slot(rebuilt: Rebuilt, kind: type, key: Any, path: str) -> Slot:
    """Return the slot of a child of a container of the caller."""
    expr = part_of(rebuilt.var, kind, key)
    slot = Attribute if is_record(kind) else Item
    return slot(rebuilt.original, key, expr, path + trees.step(kind, key), GONE)
