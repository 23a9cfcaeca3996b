"""What a traced call leaves behind: its result, and what it rebound in containers and objects.

Both are described by the same walk over the recorded values, `Results.give`: it writes the expression that a
replay evaluates for a value, and `settle` gives the value itself for the call that was recorded.

- an array made by the call: a new array on the storage of an output;
- an array given to the call, or one it reached: that very array, or a view of the same storage;
- a number: the Python expression that computes it; constants, functions and types: themselves;
- a container the caller gave: that container, with its changes written back; a new one: rebuilt.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import numpy as np

from tracejit.frontend import trees
from tracejit.frontend.arguments import Arguments
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.storage import Storage
from tracejit.ir.view import View

ATOMS = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), enum.Enum, np.generic, np.dtype, range,
    slice,     types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type,
)  # fmt: skip


class Unreplayable(Exception):
    """A result that a replay cannot make again; the message says which and why."""


class Results:
    """Expressions for recorded values. `outputs` are the new storages the replay must make, in order."""

    def __init__(self, arguments: Arguments):
        self.arguments = arguments
        self.source = arguments.source
        self.outputs: list[Storage] = []
        self.names: dict[Storage, str] = {}
        self.lines: list[str] = []
        self._given: set[int] = set()
        self._objects = {id(value): variable for variable, _path, value in arguments.objects}

    # -- replayed calls --------------------------------------------------------------------------------------

    def give(self, value: Any, path: str) -> str:
        """The expression for `value`; statements it needs first are appended to `lines`."""
        if type(value) is NumberProxy:
            return value._source
        if isinstance(value, NDArray):
            return self._give_array(value, path)
        if id(value) in self._objects:
            return self._objects[id(value)]
        held = self.arguments.containers.get(id(value))
        if held is not None:
            return self._give_back(held, path)
        if isinstance(value, ATOMS):
            return self.source.constant(value) if not isinstance(value, (bool, type(None))) else repr(value)
        found = trees.children_of(value)
        if found is None:
            raise Unreplayable(f"{path} is a {type(value).__name__}, which a replay cannot make again")
        kind, keys, children = found
        made = [self.give(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
        return self._make(kind, keys, made)

    def _make(self, kind: type, keys: Any, made: list[str]) -> str:
        if kind is tuple:
            return f"({', '.join(made)}{',' if len(made) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(made)}]"
        if kind is dict:
            pairs = [f"{self.source.constant(k)}: {m}" for k, m in zip(keys, made, strict=True)]
            return "{" + ", ".join(pairs) + "}"
        build = self.source.constant(trees.build)
        return f"{build}({self.source.constant(kind)}, {self.source.constant(keys)}, [{', '.join(made)}])"

    def _give_array(self, array: NDArray, path: str) -> str:
        handle = self.arguments.handles.get(id(array))
        if handle is not None:
            return handle[1]
        storage, view = array._storage, array._view
        if storage.pending is not None:
            name = self.names.get(storage)
            if name is None:
                name = self.names[storage] = self.source.name("t")
                self.outputs.append(storage)
            return f"NDArray({name}, {self.source.constant(view)})"
        known = self.arguments.arrays.get(storage)
        if known is None:
            raise Unreplayable(f"{path} is an array of unknown origin")
        name, offset = known
        if offset == "0":
            return f"NDArray({name}, {self.source.constant(view)})"
        shape, strides = self.source.constant(view.shape), self.source.constant(view.strides)
        return f"NDArray({name}, View({offset} + {view.offset}, {shape}, {strides}))"

    def _give_back(self, held: tuple[Any, Any, str], path: str) -> str:
        rebuilt, original, variable = held
        if id(rebuilt) not in self._given:
            self._given.add(id(rebuilt))
            self.write_back(rebuilt, original, variable, path)
        return variable

    def write_back_all(self) -> None:
        """Statements that repeat what the body changed in the caller's containers."""
        for held in list(self.arguments.containers.values()):
            self._give_back(held, held[2])

    def write_back(self, rebuilt: Any, original: Any, variable: str, path: str) -> None:
        """Statements that make the caller's container like the rebuilt one."""
        kind, keys, children = self._children(rebuilt)
        old_keys, old = self._brought(original)
        if kind is tuple or (issubclass(kind, tuple)):
            for key, child in zip(keys, children, strict=True):
                self._visit_child(child, path + trees.step(kind, key))
            return
        if keys != old_keys:
            made = [self.give(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
            if issubclass(kind, dict):
                self.lines.append(f"{variable}_new = {self._make(dict, keys, made)}")
                self.lines.append(f"{variable}.clear(); {variable}.update({variable}_new)")
            else:
                self.lines.append(f"{variable}[:] = [{', '.join(made)}]")
            return
        for key, child, before in zip(keys, children, old, strict=True):
            where = path + trees.step(kind, key)
            if child is before:
                self._visit_child(child, where)
                continue
            expression = self.give(child, where)
            if issubclass(kind, dict):
                self.lines.append(f"{variable}[{self.source.constant(key)}] = {expression}")
            else:
                self.lines.append(f"{variable}{trees.step(kind, key)} = {expression}")

    def _visit_child(self, child: Any, path: str) -> None:
        if id(child) in self.arguments.containers:
            self.give(child, path)

    def _children(self, tree: Any) -> tuple[type, tuple[Any, ...], list[Any]]:
        found = trees.children_of(tree)
        assert found is not None
        return found

    def _brought(self, original: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """Keys of the caller's container, and what the body was given for its children."""
        return self.arguments.given[id(original)]

    # -- the recorded call -----------------------------------------------------------------------------------

    def settle(self, value: Any) -> Any:
        """`value` as the caller gets it from the recorded call itself."""
        if type(value) is NumberProxy:
            return value._value
        if isinstance(value, NDArray):
            return self._settle_array(value)
        held = self.arguments.containers.get(id(value))
        if held is not None:
            self._settle_container(held)
            return held[1]
        if type(value) in (list, tuple, dict) or isinstance(value, tuple):
            found = trees.children_of(value)
            if found is not None:
                kind, keys, children = found
                settled = [self.settle(c) for c in children]
                if all(a is b for a, b in zip(settled, children, strict=True)):
                    return value
                return trees.build(kind, keys, settled)
        return value

    def _settle_array(self, array: NDArray) -> NDArray:
        handle = self.arguments.callers.get(id(array))
        if handle is not None:
            return handle
        parent = self.arguments.trace.parents.get(array._storage)
        if parent is None:
            return array
        item = parent.type.dtype.itemsize
        offset = (array._storage.address - parent.address) // item
        view = array._view
        return NDArray(parent, View(view.offset + offset, view.shape, view.strides))

    def settle_containers(self) -> None:
        """Write into the caller's containers what the body rebound in its copies."""
        for held in list(self.arguments.containers.values()):
            self._settle_container(held)

    def _settle_container(self, held: tuple[Any, Any, str]) -> None:
        rebuilt, original, _variable = held
        if id(rebuilt) in self._given:
            return
        self._given.add(id(rebuilt))
        kind, keys, children = self._children(rebuilt)
        if issubclass(kind, tuple):
            return
        old_keys, before = self._brought(original)
        if keys == old_keys:
            for key, child, old in zip(keys, children, before, strict=True):
                if child is old:
                    continue
                if issubclass(kind, dict) or kind is list:
                    original[key] = self.settle(child)
                else:
                    setattr(original, key, self.settle(child))
        elif issubclass(kind, dict):
            settled = {k: self.settle(c) for k, c in zip(keys, children, strict=True)}
            original.clear()
            original.update(settled)
        else:
            original[:] = [self.settle(c) for c in children]
