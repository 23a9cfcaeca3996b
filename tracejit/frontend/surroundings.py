"""What a traced body can reach besides its arguments: globals, closures, attributes.

The body's surroundings are over-approximated by *names*: starting from the function (and objects among the
arguments), every global, closure cell and attribute whose name occurs in the code of a reachable Python
function is visited. Each visited thing is a `Place`: a Python expression that finds it again, and what it
held before the body ran.

- Arrays at a place are inputs by reference: a replay reads the place again.
- Plain values (numbers, strings, tuples of them, flags) and functions are guarded: a change retraces.
- Containers are guarded by their keys or length.
- What a place holds after the body ran tells what the body rebound; replays do the same (`rebound`).

Modules of Python itself, NumPy, Numba and this package are trusted: their functions are not followed.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.replay import Source
from tracejit.frontend.storage import Storage

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TRUSTED = frozenset(sys.stdlib_module_names) | {"numpy", "numba", "llvmlite", "tracejit", "rich", "scipy"}
PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    enum.Enum,
    np.generic,
    np.dtype,
    range,
)
ITEMS = 4096  # containers with more items are guarded by length alone and their items are not followed


@dataclass(frozen=True)
class Place:
    """Somewhere a value was found: `expression` finds it again, `path` is how people write it."""

    expression: str
    path: str
    value: Any


def trusted(module: str | None) -> bool:
    """Whether functions of `module` are taken to have no state that matters."""
    root = (module or "").partition(".")[0]
    return root in _TRUSTED and module != "__main__"


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes in a code object and the functions defined in it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def stored_attributes(code: types.CodeType) -> frozenset[str]:
    """Names of attributes that a code object (or one in it) assigns."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= stored_attributes(constant)
    return frozenset(names)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


class Surroundings:
    """The places a function can reach, as they were when `scan` ran."""

    def __init__(self, function: Any, source: Source):
        self.function = function
        self.source = source
        self.places: dict[str, Place] = {}
        self.codes: set[types.CodeType] = set()
        self.names: set[str] = set()
        self.objects: list[tuple[str, str, Any]] = []
        self._visited: set[int] = set()
        self._alive: list[Any] = []

    def scan(self, objects: list[tuple[str, str, Any]]) -> None:
        """Visit everything reachable from the function and from `objects` (variable, path, object)."""
        self.objects = list(objects)
        before = -1
        while before != len(self.names):  # a newly found function may name attributes of objects seen before
            before = len(self.names)
            self.places.clear()
            self._visited.clear()
            self._function(self.function, self.source.constant(self.function), self.function.__name__)
            for variable, path, value in objects:
                self._visit(value, variable, path, frozenset(self.names))

    # -- visiting --------------------------------------------------------------------------------------------

    def _first(self, value: Any) -> bool:
        if id(value) in self._visited:
            return False
        self._visited.add(id(value))
        self._alive.append(value)
        return True

    def _place(self, expression: str, path: str, value: Any) -> None:
        self.places.setdefault(expression, Place(expression, path, value))

    def _function(self, function: Any, expression: str, path: str) -> None:
        if not self._first(function):
            return
        code = function.__code__
        self.codes.update(_codes(code))
        names = names_in(code)
        self.names |= names
        self.globals(function.__globals__, names)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not yet assigned: the body would raise NameError
            self._visit(value, f"{self.source.constant(cell)}.cell_contents", variable, names)
        for index, default in enumerate(function.__defaults__ or ()):
            self._visit(default, f"{expression}.__defaults__[{index}]", f"{path} default {index}", names)
        for name, default in (function.__kwdefaults__ or {}).items():
            self._visit(default, f"{expression}.__kwdefaults__[{name!r}]", f"{path} default {name}", names)

    def globals(self, namespace: dict[str, Any], names: frozenset[str]) -> None:
        """Visit the globals that `names` mention."""
        holder = self.source.constant(namespace)
        for name in sorted(names):
            if name in namespace:
                self._visit(namespace[name], f"{holder}[{name!r}]", name, names)

    def _visit(self, value: Any, expression: str, path: str, names: frozenset[str]) -> None:
        kind = type(value)
        if isinstance(value, (NDArray, PLAIN)):
            self._place(expression, path, value)
        elif kind is types.ModuleType:
            self._module(value, expression, path, names)
        elif kind is types.FunctionType:
            self._place(expression, path, value)
            if not trusted(value.__module__):
                self._function(value, expression, path)
        elif kind is types.MethodType:
            self._visit(value.__self__, f"{expression}.__self__", f"{path}.__self__", names)
            self._visit(value.__func__, f"{expression}.__func__", path, names)
        elif kind is functools.partial:
            for part in ("func", "args", "keywords"):
                self._visit(getattr(value, part), f"{expression}.{part}", f"{path}.{part}", names)
        elif isinstance(value, (dict, list, tuple)):
            self._container(value, expression, path, names)
        elif hasattr(kind, "__wrapped_function__"):
            self._visit(value.__wrapped_function__, f"{expression}.__wrapped_function__", path, names)
        elif isinstance(value, (types.BuiltinFunctionType, type, np.ufunc)):
            self._place(expression, path, value)
            if isinstance(value, type) and not trusted(value.__module__):
                self._class(value, expression, path)
        elif isinstance(value, np.ndarray):
            self._place(expression, path, value)
        else:
            self._object(value, expression, path)

    def _module(self, module: Any, expression: str, path: str, names: frozenset[str]) -> None:
        self._place(expression, path, module)
        if trusted(module.__name__):
            return
        for name in sorted(names & set(vars(module))):
            self._visit(vars(module)[name], f"{expression}.{name}", f"{path}.{name}", names)

    def _container(self, value: Any, expression: str, path: str, names: frozenset[str]) -> None:
        self._place(expression, path, value)
        if not self._first(value) or len(value) > ITEMS:
            return
        if isinstance(value, dict):
            for key, item in value.items():
                code = repr(key) if isinstance(key, (str, int)) else self.source.constant(key)
                self._visit(item, f"{expression}[{code}]", f"{path}[{key!r}]", names)
        else:
            for index, item in enumerate(value):
                self._visit(item, f"{expression}[{index}]", f"{path}[{index}]", names)

    def _class(self, cls: type, expression: str, path: str) -> None:
        if not self._first(cls):
            return
        for name in sorted(self.names):
            for base in cls.__mro__[:-1]:
                found = vars(base).get(name)
                if found is None:
                    continue
                found = getattr(found, "__func__", found)
                found = getattr(found, "fget", found)
                if isinstance(found, types.FunctionType) and not trusted(found.__module__):
                    self._function(found, self.source.constant(found), f"{path}.{name}")
                elif isinstance(found, PLAIN):
                    self._place(f"{expression}.{name}", f"{path}.{name}", found)
                break
        for name in ("__call__", "__init__", "__getitem__", "__iter__", "__len__", "__add__", "__mul__"):
            method = getattr(cls, name, None)
            if isinstance(method, types.FunctionType) and not trusted(method.__module__):
                self._function(method, self.source.constant(method), f"{path}.{name}")

    def _object(self, value: Any, expression: str, path: str) -> None:
        self._place(expression, path, value)
        if not self._first(value):
            return
        cls = type(value)
        if trusted(cls.__module__):
            return
        self._class(cls, self.source.constant(cls), path)
        holder = getattr(value, "__dict__", {})
        slots = [n for b in cls.__mro__ for n in getattr(b, "__slots__", ()) if hasattr(value, n)]
        fields = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        for name in sorted({*holder, *slots, *fields} & self.names):
            self._visit(getattr(value, name), f"{expression}.{name}", f"{path}.{name}", frozenset(self.names))

    # -- questions -------------------------------------------------------------------------------------------

    def array_at(self, storage: Storage) -> Place | None:
        """Where an array on `storage` was found."""
        return next(
            (p for p in self.places.values() if isinstance(p.value, NDArray) and p.value._storage is storage),
            None,
        )

    def again(self) -> Surroundings:
        """The surroundings as they are now."""
        other = Surroundings(self.function, self.source)
        other.names |= self.names
        other.scan(self.objects)
        return other
