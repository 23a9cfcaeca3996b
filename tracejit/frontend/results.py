"""What a traced call leaves behind: its result, and what it rebound in containers and objects.

Both are described by the same walk over the recorded values, `Results.give`: it writes the expression that a
replay evaluates for a value, and `settle` gives the value itself for the call that was recorded.

- an array made by the call: a new array on the storage of an output;
- an array given to the call, or one it reached: that very array, or a view of the same storage;
- a number: the Python variable that holds it; constants, functions and types: themselves;
- a container the caller gave: that container, with its changes written back; a new one: rebuilt;
- a container or object reached by name: itself.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tracejit.frontend import captured, trees
from tracejit.frontend.arguments import Arguments, Part, is_record, parts_of
from tracejit.frontend.content import Attributes, base_of, content_of, factory_of, fill
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import NumberProxy, is_of, settled
from tracejit.frontend.storage import Storage

ATOMS = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), enum.Enum, np.generic, np.dtype, range,
    types.BuiltinFunctionType, types.ModuleType, type,
)  # fmt: skip


class Unreplayable(Exception):
    """A result that a replay cannot make again; the message says which and why."""


class Results:
    """Expressions for recorded values. `outputs` are the new storages the replay must make, in order.

    reached: gives the replay's variable for an object that was found by name, or None.
    """

    def __init__(self, arguments: Arguments, reached: Callable[[Any], str | None] = lambda value: None):
        self.arguments = arguments
        self.reached = reached
        self.source = arguments.source
        self.outputs: list[Storage] = []
        self.names: dict[Storage, str] = {}
        self.values: list[str] = []  # statements that compute what is written back
        self.lines: list[str] = []  # statements that write it back; they can be repeated
        self.kept: set[Storage] = set()  # older storages that the result refers to
        self.rebinds: set[type] = set()  # types of the containers and objects that are written
        self._met: dict[int, int] = {}  # by identity: how often something the body made is to be given
        self._open: set[int] = set()
        self._variables: dict[int, str] = {}  # what is given more than once
        self._given: set[int] = set()
        self._settled: dict[int, tuple[Any, Any]] = {}  # by identity: settled, and as it was
        self._objects = {id(value): variable for variable, _path, value in arguments.objects}

    # -- replayed calls --------------------------------------------------------------------------------------

    def give(self, value: Any, path: str) -> str:
        """The expression for `value`; what it changes in containers is appended to `lines`."""
        if is_of(value, self.arguments.trace.numbers):
            return str(value._source)
        value = settled(value)
        if isinstance(value, type):
            self._check_class(value, path)
        if isinstance(value, ATOMS):
            return self.source.constant(value) if not isinstance(value, (bool, type(None))) else repr(value)
        known = self._known(value)
        if known is not None:
            return known
        held = self.arguments.containers.get(id(value))
        if held is not None:
            return self._give_back(held, path)
        expression = self._give_new(value, path)
        if self._met.get(id(value), 0) > 1:
            name = self._variables[id(value)] = self.source.name("r")
            self.values.append(f"{name} = {expression}")
            return name
        return expression

    def _known(self, value: Any) -> str | None:
        """The variable that holds this very object in a replay."""
        handle = self.arguments.handles.get(id(value))
        if handle is not None:
            return handle[1]
        found = self._objects.get(id(value)) or self._variables.get(id(value))
        return self.reached(value) if found is None else found

    def _give_new(self, value: Any, path: str) -> str:
        """The expression that makes what the body made."""
        if isinstance(value, NDArray):
            return self._give_array(value, path)
        if isinstance(value, slice):
            parts = [self.give(p, path) for p in (value.start, value.stop, value.step)]
            return f"slice({', '.join(parts)})"
        if isinstance(value, types.FunctionType) and not (
            value.__closure__ or value.__defaults__ or value.__kwdefaults__
        ):
            return self.source.constant(value)
        found = parts_of(value)
        if found is None:
            raise Unreplayable(f"{path} is a {type(value).__name__}, which a replay cannot make again")
        kind, keys, children = found
        self._check_class(kind, path)
        made = [self.give(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
        if not isinstance(value, dict) or kind is dict:
            return self._make(kind, keys, made)
        if Attributes(value).namespace():
            raise Unreplayable(f"{path} is a {kind.__name__} with attributes, which a replay cannot make")
        return self._make(kind, keys, made, self.give(factory_of(value), path))

    def meet(self, value: Any) -> None:
        """Note a value that is to be given: what the body made is one object, however often it is met."""
        if isinstance(value, ATOMS) or type(value) is NumberProxy or self._known(value) is not None:
            return
        if id(value) in self.arguments.containers:
            return
        self._met[id(value)] = self._met.get(id(value), 0) + 1
        found = None if self._met[id(value)] > 1 else parts_of(value)
        if id(value) in self._open:
            raise Unreplayable(f"a {type(value).__name__} that holds itself cannot be made again by a replay")
        if found is not None:
            self._open.add(id(value))
            for child in found[2]:
                self.meet(child)
            self._open.remove(id(value))

    def meet_changes(self) -> None:
        """Note what the body put into the caller's containers."""
        for rebuilt, original, _variable in self.arguments.containers.values():
            found = _parts_again(rebuilt)
            before = set(map(id, self.arguments.given[id(original)][1]))
            for child in found[2]:
                if id(child) not in before:
                    self.meet(child)

    def _check_class(self, kind: type, path: str) -> None:
        """Each call of a body that defines a class makes another one."""
        if self.arguments.trace.makes_classes and "<locals>" in kind.__qualname__:
            raise Unreplayable(f"{path} is of the class {kind.__qualname__}, which the body defines")

    def _make(self, kind: type, keys: Any, made: list[str], factory: str = "None") -> str:
        keys = tuple(map(self.settle, keys))
        if kind is tuple:
            return f"({', '.join(made)}{',' if len(made) == 1 else ''})"
        if kind is list:
            return f"[{', '.join(made)}]"
        if kind is dict:
            pairs = [f"{self.source.constant(k)}: {m}" for k, m in zip(keys, made, strict=True)]
            return "{" + ", ".join(pairs) + "}"
        build = self.source.constant(trees.build)
        what = f"{self.source.constant(kind)}, {self.source.constant(keys)}, [{', '.join(made)}], {factory}"
        return f"{build}({what})"

    def _give_array(self, array: NDArray, path: str) -> str:
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
        self.kept.add(storage)
        name, offset = known
        if offset == "0":
            return f"NDArray({name}, {self.source.constant(view)})"
        shape, strides = self.source.constant(view.shape), self.source.constant(view.strides)
        return f"NDArray({name}, View({offset} + {view.offset}, {shape}, {strides}, {view.writable}))"

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
        kind, keys, children = _parts_again(rebuilt)
        old_keys, old = self.arguments.given[id(original)]
        if issubclass(kind, tuple):
            return
        if keys != old_keys and not is_record(kind):
            self._refill(variable, kind, keys, children, path)
            return
        before = dict(zip(old_keys, old, strict=True))
        for key in old_keys:
            if key not in keys:
                self._line(kind, f"del {self.arguments.part(variable, kind, key, stored=True)}")
        for key, child in zip(keys, children, strict=True):
            if key in before and child is before[key]:
                continue
            expression = self.give(child, path + trees.step(kind, key))
            self.rebinds.add(kind)
            self.rebind(self.arguments.part(variable, kind, key, stored=True), expression)

    def rebind(self, target: str, expression: str) -> None:
        """Let the replay make `target` what `expression` gives before the launch."""
        if not expression.isidentifier():
            value = self.source.name("r")
            self.values.append(f"{value} = {expression}")
            expression = value
        self.lines.append(f"{target} = {expression}")

    def _refill(self, variable: str, kind: type, keys: Any, children: list[Any], path: str) -> None:
        made = [self.give(c, path + trees.step(kind, k)) for k, c in zip(keys, children, strict=True)]
        if issubclass(kind, dict):
            new = self.source.name("d")
            self.values.append(f"{new} = {self._make(dict, keys, made)}")
            self.source.names["fill"] = fill
            self._line(kind, f"fill({variable}, {new})")
        else:
            self.rebinds.add(kind)
            self.rebind(f"{variable}[:]", f"[{', '.join(made)}]")

    def _line(self, kind: type, text: str) -> None:
        self.rebinds.add(kind)
        self.lines.append(text)

    # -- the recorded call -----------------------------------------------------------------------------------

    def settle(self, value: Any) -> Any:
        """`value` as the caller gets it from the recorded call: without stand-ins, with its own containers.
        What the body made stays the same object, unless that cannot change.
        """
        if type(value) is NumberProxy:
            return value._value
        if isinstance(value, np.ndarray):
            return captured.settled(value)
        held = self.arguments.containers.get(id(value))
        if held is not None:
            self._settle_container(held)
            return held[1]
        if isinstance(value, ATOMS) or id(value) in self._objects or self.reached(value) is not None:
            return value
        if id(value) not in self._settled:
            self._settled[id(value)] = value, value  # it may hold itself
            self._settled[id(value)] = self._settle_new(value), value
        return self._settled[id(value)][0]

    def settle_error(self, error: BaseException) -> None:
        """Whoever gets the error knows no stand-ins. Containers it holds are the caller's as they are now:
        what the body changed in them is taken back.
        """
        self._given.update(self.arguments.containers)
        self.settle(error)

    def _settle_new(self, value: Any) -> Any:
        """What the body made, settled: if possible, in place."""
        if isinstance(value, NDArray):
            return self._settle_array(value)
        if isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            value = self._settle_content(value)
        elif isinstance(value, types.MethodType):
            owner = self.settle(value.__self__)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        elif isinstance(value, slice):
            return slice(*map(self.settle, (value.start, value.stop, value.step)))
        elif isinstance(value, functools.partial):
            made: Any = value
            given = self.settle(value.args), self.settle(value.keywords)
            made.__setstate__((value.func, *given, vars(value) or None))
        elif isinstance(value, types.FunctionType):
            self._settle_function(value)
        elif isinstance(value, BaseException):
            self.settle(value.__cause__)
            self.settle(value.__context__)
        held = Attributes(value)
        for name in held.names():
            before = held[name]
            done = self.settle(before)
            if done is not before:
                held[name] = done
        return value

    def _settle_function(self, function: Any) -> None:
        """Its defaults, and what it captured."""
        if function.__defaults__:
            function.__defaults__ = self.settle(function.__defaults__)
        self.settle(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue  # it is empty
            done = self.settle(held)
            if done is not held:
                cell.cell_contents = done

    def _settle_content(self, value: Any) -> Any:
        content = content_of(value)
        if isinstance(content, dict):
            done: Any = {self.settle(k): self.settle(v) for k, v in content.items()}
            is_same = _all_same((*done, *done.values()), (*content, *content.values()))
        else:
            done = list(map(self.settle, content))
            is_same = _all_same(done, content)
        if is_same:
            return value
        if isinstance(value, tuple | frozenset):
            return type(value)(done) if isinstance(value, frozenset) else trees.build(type(value), (), done)
        base_of(type(value)).clear(value)  # keys that are equal to new ones would stay
        fill(value, set(done) if isinstance(value, set) else done)
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
        return NDArray(parent, array._view.moved(offset))

    def settle_containers(self) -> None:
        """Write into the caller's containers what the body rebound in its copies."""
        for held in list(self.arguments.containers.values()):
            self._settle_container(held)

    def _settle_container(self, held: tuple[Any, Any, str]) -> None:
        rebuilt, original, _variable = held
        if id(rebuilt) in self._given:
            return
        self._given.add(id(rebuilt))
        found = parts_of(rebuilt)
        if found is None:
            found = trees.children_of(rebuilt)
            for name, value in Attributes(rebuilt).namespace().items():
                Attributes(original)[name] = self.settle(value)
        assert found is not None
        kind, keys, children = found
        if issubclass(kind, tuple):
            return
        old_keys, old = self.arguments.given[id(original)]
        before = dict(zip(old_keys, old, strict=True))
        changed = [
            (k, c) for k, c in zip(keys, children, strict=True) if k not in before or c is not before[k]
        ]
        if is_record(kind):
            for key, child in changed:
                Attributes(original)[key] = self.settle(child)
            for key in set(old_keys) - set(keys):
                Attributes(original).remove(key)
        elif keys == old_keys:
            for key, child in changed:
                original[key] = self.settle(child)
        elif issubclass(kind, dict):
            fill(original, {self.settle(k): self.settle(c) for k, c in zip(keys, children, strict=True)})
        else:
            original[:] = [self.settle(c) for c in children]


def _parts_again(rebuilt: Any) -> Part:
    """The parts of a container that was rebuilt for the body."""
    found = parts_of(rebuilt)
    if found is None:
        raise Unreplayable(f"the body gives a {type(rebuilt).__name__} attributes, which a replay cannot")
    return found


def _all_same(values: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(map(operator.is_, values, others))
