"""The arguments of a traced call: what the body gets to see, and the checks by which a replay recognises them
again.

`Arguments.bring` walks the arguments once. For each it emits lines of the replay function (see
`frontend.replay`) and gives what the body is called with: containers are rebuilt (so that rebinding can be
seen, and undone when the body raises), numbers become proxies, NumPy arrays are copied in, arrays and other
objects are passed as themselves. An array that views a part of its storage is passed as a *window*: an array
of its own on the same memory, so that its offset is a run-time value.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import re
import types
from typing import Any

import numpy as np

from tracejit.frontend import kinds, trees
from tracejit.frontend.content import (
    Attributes,
    factory_of,
    is_found_plainly,
    is_plain,
    is_stored_plainly,
    looks_up_plainly,
)
from tracejit.frontend.kinds import FIXED, NUMBERS, has_attributes, is_tree, trusted
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import settled
from tracejit.frontend.replay import Source, release
from tracejit.frontend.storage import Storage
from tracejit.frontend.trace import Restart, Trace
from tracejit.ir.types import ArrayType, name_of

PLAIN = (bool, str, bytes, complex, type(None), type(Ellipsis), enum.Enum, np.bool_, np.dtype)
BY_IDENTITY = (types.ModuleType, type, *FIXED, *kinds.PLAIN)

Part = tuple[type, tuple[Any, ...], list[Any]]
"""Kind, keys and children of a container."""


def parts_of(value: Any) -> Part | None:
    """As `trees.children_of`, but with all attributes of a dataclass; None for what is no container. So is a
    dict or a named tuple that has attributes, or whose class finds items in its own way: it is an object.
    """
    if isinstance(value, dict | tuple) and (not is_plain(type(value)) or Attributes(value).namespace()):
        return None
    if is_tree(value) and trees.is_made_plainly(type(value)):
        held = Attributes(value)
        names = tuple(held.namespace() or (f.name for f in dataclasses.fields(value)))
        return type(value), names, [held[n] for n in names]
    return trees.children_of(value)


def is_told_by_repr(value: Any) -> bool:
    """Whether a value is equal to another one of its type where both are written alike."""
    if type(value) is slice:
        return all(type(part) in (int, type(None)) for part in (value.start, value.stop, value.step))
    return isinstance(value, _WRITTEN) and trusted(type(value).__module__)


_WRITTEN = (range, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, np.generic, *NUMBERS)


def is_record(kind: type) -> bool:
    """Whether the children of such a container are attributes."""
    return not issubclass(kind, (dict, list, tuple))


class Arguments:
    """What the trace knows of its call's arguments.

    arrays:     storage the trace sees -> name of the replay's variable for its storage, and its offset in
                elements.
    handles:    id of an array passed on -> replay variable holding the caller's array.
    callers:    id of an array passed on -> the caller's array.
    windows:    id of a caller's array of which the body gets a window -> its storage.
    containers: id of a rebuilt container -> (rebuilt, original, replay variable).
    given:      id of an original container -> its keys, and what the body got for its children.
    objects:    replay variable, path and object, for those passed as themselves.
    copies:     (variable, expression) of storages that a replay makes from NumPy arrays, after its checks.
    facts:      path -> what was required of it, for people.
    """

    def __init__(self, trace: Trace, source: Source, whole: set[Storage], reached: set[int]):
        self.trace, self.source, self.whole, self.reached = trace, source, whole, reached
        self.arrays: dict[Storage, tuple[str, str]] = {}
        self.handles: dict[int, tuple[Any, str]] = {}
        self.callers: dict[int, NDArray] = {}
        self.windows: dict[int, Storage] = {}
        self.given: dict[int, tuple[tuple[Any, ...], list[Any]]] = {}
        self.containers: dict[int, tuple[Any, Any, str]] = {}
        self.rebuilt: dict[int, tuple[Any, str]] = {}  # id of an original container -> rebuilt, variable
        self.objects: list[tuple[str, str, Any]] = []
        self.storages: list[tuple[Storage, str]] = []  # storages of the caller, in order
        self.copies: list[tuple[str, str]] = []
        self.facts: dict[str, str] = {}
        self._open: set[int] = set()  # ids of containers that are being brought
        self._views: list[tuple[NDArray, str]] = []  # the arrays given, to tell equal from identical ones

    def bring(self, value: Any, expression: str, path: str) -> Any:
        """What the body sees for `value`, which the replay finds at `expression`."""
        value = settled(value)
        kind = type(value)
        if isinstance(value, NDArray):
            return self._array(value, self.source.bind(expression), path)
        if isinstance(value, PLAIN) and not has_attributes(value):
            self.source.same(self.source.bind(expression), value)
            self.facts[path] = repr(value)
            return value
        if kind in (int, float) or isinstance(value, np.number):
            variable = self.source.bind(expression, "n")
            self.source.require(f"type({variable}) is {self.source.constant(kind)}")
            if self.trace.numbers.plain:
                source_value = value
                self.source.same(variable, source_value)
                self.facts[path] = repr(value)
                return value
            self.facts[path] = kind.__name__
            return self.trace.numbers.argument(value, variable, path)
        if isinstance(value, np.ndarray):
            return self._numpy(value, self.source.bind(expression), path)
        found = parts_of(value)
        if found is not None and id(value) not in self.reached:
            return self._container(value, found, self.source.bind(expression), path)
        return self._object(value, self.source.bind(expression), path)

    def _object(self, value: Any, variable: str, path: str) -> Any:
        source, kind = self.source, type(value)
        self.facts[path] = kind.__name__
        if is_told_by_repr(value):
            source.require(
                f"type({variable}) is {source.constant(kind)} and repr({variable}) == {repr(value)!r}"
            )
            self.facts[path] = repr(value)
            return value
        if isinstance(value, BY_IDENTITY):
            equal = "==" if kind is re.Pattern else "is"
            source.require(f"{variable} {equal} {source.constant(value)}")
            self.facts[path] = getattr(value, "__name__", None) or repr(value)
        else:
            source.require(f"type({variable}) is {source.constant(kind)}")
        if kind is types.FunctionType:  # made anew for each call, maybe; what it captured is guarded
            source.require(
                f"{variable}.__code__ is {source.constant(value.__code__)} and "
                f"{variable}.__globals__ is {source.constant(value.__globals__)} and "
                f"({variable}.__name__, {variable}.__qualname__) == "
                f"{source.constant((value.__name__, value.__qualname__))}"
            )
            self.facts[path] = f"function {value.__qualname__}"
        self.objects.append((variable, path, value))
        return value

    def _container(self, value: Any, found: Part, variable: str, path: str) -> Any:
        seen = self.rebuilt.get(id(value))
        if seen is not None:
            self.source.require(f"{variable} is {seen[1]}")
            return seen[0]
        if id(value) in self._open:
            raise Restart(value)
        self._open.add(id(value))
        kind, keys, children = found
        self.source.require(f"type({variable}) is {self.source.constant(kind)}")
        if issubclass(kind, dict):
            self.source.keys(variable, keys)
            if factory_of(value) is not None:
                expression, name = f"{variable}.default_factory", f"{path}.default_factory"
                self._object(factory_of(value), self.source.bind(expression), name)
        elif kind in (list, tuple):
            self.source.require(f"len({variable}) == {len(keys)}")
        elif is_record(kind) and hasattr(value, "__dict__"):
            namespace = f"{variable}.__dict__"
            if not looks_up_plainly(kind):
                namespace = f"{self.source.inside(Attributes, variable)}.namespace()"
            self.source.require(f"tuple({namespace}) == {self.source.constant(keys)}")
        self.facts[path] = f"{kind.__name__} of {', '.join(map(str, keys)) if is_record(kind) else len(keys)}"
        brought = []
        for key, child in zip(keys, children, strict=True):
            brought.append(self.bring(child, self.part(variable, kind, key), path + trees.step(kind, key)))
        again = trees.rebuilt(value, kind, keys, brought)
        if not is_record(kind) and hasattr(value, "__dict__"):
            self.source.require(f"not {variable}.__dict__")
        if not trusted(kind.__module__):
            self.objects.append((self.source.constant(kind), kind.__name__, kind))
        self.given[id(value)] = (keys, brought)
        self.containers[id(again)] = (again, value, variable)
        self.rebuilt[id(value)] = (again, variable)
        return again

    def part(self, variable: str, kind: type, key: Any, *, stored: bool = False) -> str:
        """The expression for a part of a container, to read it or to be `stored`."""
        if issubclass(kind, dict):
            return f"{variable}[{self.source.constant(key)}]"
        if issubclass(kind, (list, tuple)):
            names = getattr(kind, "_fields", None)  # a subclass may show something else under such a name
            return f"{variable}[{key if names is None else names.index(key)}]"
        plain = is_stored_plainly if stored else is_found_plainly
        if plain(kind, key):
            return f"{variable}.{key}"
        return f"{self.source.inside(Attributes, variable)}[{key!r}]"

    def _array(self, array: NDArray, variable: str, path: str) -> NDArray:
        storage, view = array._storage, array._view
        release(storage)
        known = next((v for s, v in self.storages if s is storage), None)
        part = not view.is_whole(storage.type.shape) and storage not in self.whole
        self.facts[path] = f"{name_of(array.dtype)}[{','.join(map(str, array.shape))}]" + (
            "" if view.is_contiguous() else f" with strides {view.strides}"
        )
        name = self.source.array(variable, storage.type, view, window=part)
        if known is not None:
            self.source.require(f"{name} is {known}")
            self.facts[path] += " sharing memory with another argument"
        else:
            self.storages.append((storage, name))
        self.tell_apart(array, variable)
        if not part:
            self.arrays.setdefault(storage, (name, "0"))
            self.handles.setdefault(id(array), (array, variable))
            self.callers[id(array)] = array
            return array
        return self._window(array, variable, name)

    def tell_apart(self, array: NDArray, variable: str) -> None:
        """Require that arrays on one storage are the same object, or different ones, as they were."""
        for other, name in self._views:
            if other._storage is array._storage:
                self.source.require(f"{variable} is {'' if other is array else 'not '}{name}")
        self._views.append((array, variable))

    def _window(self, array: NDArray, variable: str, name: str) -> NDArray:
        storage, view = array._storage, array._view
        low, high = view.span()
        item = storage.type.dtype.itemsize
        shape = view.shape if view.is_contiguous() else (high - low,)
        type = ArrayType(shape, storage.type.dtype, storage.type.device)
        window = Storage.at(storage.address + low * item, type, storage.buffer, storage.variable)
        window.shared = storage.shared
        self.trace.parents[window] = storage
        offset = self.source.bind(f"{variable}._view.offset - {view.offset - low}", "o")
        self.arrays[window] = (name, offset)
        passed = NDArray(window, view.moved(-low))
        self.handles[id(passed)] = (passed, variable)
        self.callers[id(passed)] = array
        self.windows[id(array)] = storage
        return passed

    def _numpy(self, array: np.ndarray, variable: str, path: str) -> NDArray:
        source = self.source
        source.require(f"type({variable}) is {source.constant(type(array))}")
        source.require(
            f"{variable}.shape == {array.shape} and {variable}.dtype == {source.constant(array.dtype)}"
        )
        self.facts[path] = f"numpy {array.dtype}{list(array.shape)}"
        brought = NDArray.from_numpy(array)
        self.trace.read_only[brought._storage] = path
        self.copy_in(brought._storage, variable)
        return brought

    def copy_in(self, storage: Storage, expression: str) -> None:
        """The replay makes `storage` anew from the NumPy array at `expression`."""
        self.source.names["from_numpy"] = NDArray.from_numpy
        name = self.source.name("s")
        self.copies.append((name, f"from_numpy({expression})._storage"))
        self.arrays[storage] = (name, "0")


def shared_storages(args: Any, kwargs: Any) -> set[Storage]:
    """Storages that several arrays among the arguments share: these enter the trace whole."""
    seen: dict[int, Storage] = {}
    shared: set[Storage] = set()
    pending, walked = [*args, *kwargs.values()], set()
    for value in pending:
        if isinstance(value, NDArray):
            if id(value._storage) in seen:
                shared.add(value._storage)
            seen[id(value._storage)] = value._storage
        elif id(value) not in walked:  # a container may hold itself
            walked.add(id(value))
            found = trees.children_of(value)
            pending += () if found is None else found[2]
    return shared


def shows_keywords(function: Any) -> bool:
    """Whether `function` may see in which order keyword arguments were given."""
    return type(function) is not types.FunctionType or bool(
        function.__code__.co_flags & inspect.CO_VARKEYWORDS
    )


def parameter_names(function: Any, count: int) -> list[str]:
    """How people call the first `count` positional arguments."""
    if type(function) is types.FunctionType and not function.__dict__:  # nor a signature of another function
        code = function.__code__
        if count <= code.co_argcount:
            return list(code.co_varnames[:count])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names + [f"{rest}[{i}]" for i in range(count - len(names))]
