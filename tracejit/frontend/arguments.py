"""The arguments of a traced call: what the body gets to see, and the checks by which a replay recognises them
again.

`Arguments.bring` walks the arguments once. For each it emits lines of the replay function (see
`frontend.replay`) and gives what the body is called with: containers are rebuilt (so that rebinding can be
seen, and undone when the body raises), numbers become proxies, NumPy arrays are copied in, arrays and other
objects are passed as themselves. An array that views a part of its storage is passed as a *window*: an array
of its own on the same memory, so that its offset is a run-time value.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import numpy as np

from tracejit.frontend import trees
from tracejit.frontend.ndarray import NDArray
from tracejit.frontend.number import NumberProxy
from tracejit.frontend.replay import Source, release
from tracejit.frontend.storage import Storage
from tracejit.frontend.trace import Trace
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View

PLAIN = (bool, str, bytes, type(None), type(Ellipsis), enum.Enum, np.bool_, np.dtype)
BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class Arguments:
    """What the trace knows of its call's arguments.

    arrays:     storage the trace sees -> name of the replay's variable for its storage, and its offset in
                elements.
    handles:    id of an array passed on -> replay variable holding the caller's array.
    callers:    id of an array passed on -> the caller's array.
    containers: id of a rebuilt container -> (rebuilt, original, replay variable).
    given:      id of an original container -> its keys, and what the body got for its children.
    objects:    replay variable and object, for those passed as themselves.
    facts:      path -> what was required of it, for people.
    """

    def __init__(self, trace: Trace, source: Source, whole: set[Storage]):
        self.trace, self.source, self.whole = trace, source, whole
        self.arrays: dict[Storage, tuple[str, str]] = {}
        self.types: dict[Storage, ArrayType] = {}
        self.handles: dict[int, tuple[Any, str]] = {}
        self.callers: dict[int, NDArray] = {}
        self.given: dict[int, tuple[tuple[Any, ...], list[Any]]] = {}
        self.containers: dict[int, tuple[Any, Any, str]] = {}
        self.rebuilt: dict[int, tuple[Any, str]] = {}  # id of an original container -> rebuilt, variable
        self.objects: list[tuple[str, str, Any]] = []
        self.storages: list[tuple[Storage, str]] = []  # storages of the caller, in order
        self.facts: dict[str, str] = {}

    def bring(self, value: Any, expression: str, path: str) -> Any:
        """What the body sees for `value`, which the replay finds at `expression`."""
        kind = type(value)
        if kind is NumberProxy:
            value = value._look()
            kind = type(value)
        if isinstance(value, NDArray):
            return self._array(value, self.source.bind(expression), path)
        if isinstance(value, PLAIN):
            self.source.same(self.source.bind(expression), value)
            self.facts[path] = repr(value)
            return value
        if isinstance(value, (int, float, np.number)):
            variable = self.source.bind(expression, "n")
            self.source.require(f"type({variable}) is {self.source.constant(kind)}")
            self.facts[path] = kind.__name__
            return self.trace.proxy(value, variable)
        if isinstance(value, np.ndarray):
            return self._numpy(value, self.source.bind(expression), path)
        found = trees.children_of(value)
        if found is not None:
            return self._container(value, found, self.source.bind(expression), path)
        variable = self.source.bind(expression)
        if isinstance(value, BY_IDENTITY):
            self.source.require(f"{variable} is {self.source.constant(value)}")
            self.facts[path] = f"{getattr(value, '__name__', value)!r}"
        else:
            self.source.require(f"type({variable}) is {self.source.constant(kind)}")
            self.facts[path] = kind.__name__
        self.objects.append((variable, path, value))
        return value

    def _container(self, value: Any, found: Any, variable: str, path: str) -> Any:
        seen = self.rebuilt.get(id(value))
        if seen is not None:
            self.source.require(f"{variable} is {seen[1]}")
            return seen[0]
        kind, keys, children = found
        self.source.require(f"type({variable}) is {self.source.constant(kind)}")
        if issubclass(kind, dict):
            self.source.require(f"tuple({variable}) == {self.source.constant(keys)}")
        elif kind in (list, tuple):
            self.source.require(f"len({variable}) == {len(keys)}")
        self.facts[path] = f"{kind.__name__} of {len(keys)}"
        brought = []
        for key, child in zip(keys, children, strict=True):
            step = trees.step(kind, key)
            code = f"[{self.source.constant(key)}]" if issubclass(kind, dict) else step
            brought.append(self.bring(child, variable + code, path + step))
        again = trees.build(kind, keys, brought)
        self.given[id(value)] = (keys, brought)
        self.containers[id(again)] = (again, value, variable)
        self.rebuilt[id(value)] = (again, variable)
        return again

    def _array(self, array: NDArray, variable: str, path: str) -> NDArray:
        storage, view = array._storage, array._view
        release(storage)
        known = next((v for s, v in self.storages if s is storage), None)
        part = not view.is_whole(storage.type.shape) and storage not in self.whole
        self.facts[path] = f"{array.dtype}[{','.join(map(str, array.shape))}]" + (
            "" if view.is_contiguous() else f" with strides {view.strides}"
        )
        name = self.source.array(variable, storage.type, view, window=part)
        if known is not None:
            self.source.require(f"{name} is {known}")
            self.facts[path] += " sharing memory with another argument"
        else:
            self.storages.append((storage, name))
        if not part:
            self.arrays.setdefault(storage, (name, "0"))
            self.handles[id(array)] = (array, variable)
            self.callers[id(array)] = array
            return array
        return self._window(array, variable, name)

    def _window(self, array: NDArray, variable: str, name: str) -> NDArray:
        storage, view = array._storage, array._view
        low, high = view.span()
        item = storage.type.dtype.itemsize
        shape = view.shape if view.is_contiguous() else (high - low,)
        window = Storage(
            ArrayType(shape, storage.type.dtype, storage.type.device), storage.buffer, storage.variable
        )
        window.address = storage.address + low * item
        self.trace.parents[window] = storage
        offset = self.source.bind(f"{variable}._view.offset - {view.offset - low}", "o")
        self.arrays[window] = (name, offset)
        passed = NDArray(window, View(view.offset - low, view.shape, view.strides))
        self.handles[id(passed)] = (passed, variable)
        self.callers[id(passed)] = array
        return passed

    def _numpy(self, array: np.ndarray, variable: str, path: str) -> NDArray:
        source = self.source
        source.require(f"type({variable}) is ndarray")
        source.require(f"{variable}.shape == {source.constant(array.shape)}")
        source.require(f"{variable}.dtype == {source.constant(array.dtype)}")
        self.facts[path] = f"numpy {array.dtype}{list(array.shape)}"
        brought = NDArray.from_numpy(array)
        source.names["from_numpy"] = NDArray.from_numpy
        name = source.bind(f"from_numpy({variable})._storage", "s")
        self.arrays[brought._storage] = (name, "0")
        self.trace.read_only[brought._storage] = path
        self.handles[id(brought)] = (brought, variable)
        return brought


def shared_storages(args: Any, kwargs: Any) -> set[Storage]:
    """Storages that several arrays among the arguments share: these enter the trace whole."""
    seen: dict[int, Storage] = {}
    shared: set[Storage] = set()
    for leaf in trees.leaves((args, kwargs)):
        if isinstance(leaf, NDArray):
            if id(leaf._storage) in seen:
                shared.add(leaf._storage)
            seen[id(leaf._storage)] = leaf._storage
    return shared
