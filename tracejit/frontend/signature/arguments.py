"""The arguments of a traced call: what the body gets to see, and the checks by which a replay recognises them
again.

`Arguments.wrap` walks the arguments once. For each it adds steps to the program of the replay (see
`frontend.signature`) and gives what the body is called with: containers are rebuilt (so that rebinding can be
seen, and undone when the body raises), numbers become proxies, NumPy arrays are copied in, arrays and other
objects are passed as themselves. An array that views a part of its storage is passed as a *window*: an array
of its own on the same memory, so that its offset is a run-time value.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import (
    Attributes,
    factory_of,
    is_made_plainly,
    is_shadowed,
    own_attributes,
    own_items,
)
from tracejit.frontend.python.kinds import FIXED, VALUES, is_of_own_class, is_tree, is_value, trusted
from tracejit.frontend.recording.number import unproxied
from tracejit.frontend.recording.operations import SUBTRACT
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.expressions import (
    Compute,
    Const,
    Expr,
    GetItem,
    Literal,
    Result,
    Var,
    Word,
    attribute,
)
from tracejit.frontend.signature.many import are_alike
from tracejit.frontend.signature.program import ManyArrays, ReplayProgram, Rule
from tracejit.frontend.signature.runtime import release
from tracejit.ir.types import CPU, ArrayType, Device, name_of
from tracejit.ops import copy_to

NUMBERS = (np.integer, np.floating)
"""Classes of NumPy's scalars that are run-time numbers."""
SAME_OBJECTS = (types.ModuleType, type, *FIXED, *VALUES)
"""Arguments that must be the very same objects; `VALUES` among them are of classes of the user's."""

Part = tuple[type, tuple[Any, ...], list[Any]]
"""Kind, keys and children of a container."""


def parts_of(value: Any) -> Part | None:
    """Like `trees.children_of`, but with all attributes of a dataclass; None for all but containers.

    A dict or a named tuple that has attributes, or whose class finds items in its own way, is an object.
    """
    if isinstance(value, dict | tuple) and (own_items(type(value)) or Attributes(value).namespace()):
        return None
    if is_tree(value) and own_attributes(type(value)) is not None:
        return None
    if is_tree(value) and is_made_plainly(type(value)):
        held = Attributes(value)
        names = tuple(held.namespace() or (f.name for f in dataclasses.fields(value)))
        if any(is_shadowed(type(value), name) for name in names):
            return None
        return type(value), names, [held[n] for n in names]
    return trees.children_of(value)


def is_plain_slice(value: Any) -> bool:
    """Whether `value` is a slice with nothing but whole numbers."""
    return type(value) is slice and all(
        type(part) in (int, type(None)) for part in (value.start, value.stop, value.step)
    )


def described(array: NDArray) -> str:
    """Dtype and shape of an array, for people."""
    return f"{name_of(array.dtype)}[{','.join(map(str, array.shape))}]"


def is_record(kind: type) -> bool:
    """Whether the children of such a container are attributes."""
    return not issubclass(kind, (dict, list, tuple))


class Rebuilt(NamedTuple):
    """A container of the caller's of which the body gets a copy, and what it got for its parts."""

    copy: Any
    original: Any
    var: Var
    keys: tuple[Any, ...]
    parts: list[Any]


class Arguments:
    """The arguments of a call that is being traced.

    arrays:     storage the trace sees -> variable of its storage, and its offset in elements, if that is a
                run-time value.
    handles:    id of an array passed on -> that array, and the caller's array as the replay finds it.
    windows:    id of a caller's array of which the body gets a window -> its storage.
    containers: id of a copy of a container -> the container (see `Rebuilt`).
    originals:  id of a container -> the same.
    numbers:    variables of numbers, in order.
    objects:    operand, path and object, for those passed as themselves.
    storages:   storages of the caller, in order, and their variables.
    place:      where the body has NumPy arrays (see `Survey`).
    placed:     storages of those that were copied there.
    """

    def __init__(
        self,
        trace: Trace,
        program: ReplayProgram,
        aliased: set[Storage],
        reached: set[int],
        place: Device = CPU,
    ):
        self.trace, self.program, self.aliased, self.reached = trace, program, aliased, reached
        self.place = place
        self.placed: set[Storage] = set()
        self.arrays: dict[Storage, tuple[Var, Var | None]] = {}
        self.handles: dict[int, tuple[NDArray, Var]] = {}
        self.windows: dict[int, Storage] = {}
        self.containers: dict[int, Rebuilt] = {}
        self.originals: dict[int, Rebuilt] = {}
        self.numbers: list[Var] = []
        self.objects: list[tuple[Expr, str, Any]] = []
        self.storages: dict[Storage, Var] = {}
        self._open: set[int] = set()  # ids of containers that are being wrapped
        self._views: dict[Storage, list[tuple[NDArray, Var]]] = {}  # the arrays given, by storage

    def wrap(self, value: Any, place: Expr, path: str) -> Any:
        """Return the value that the body sees for `value`, which the replay finds at `place`."""
        value = unproxied(value)
        kind, program = type(value), self.program
        if kind in (int, float) or isinstance(value, NUMBERS):
            return self._number(value, program.bind(place, "n", seen=value, path=path), path)
        var = program.bind(place, seen=value, path=path)
        if isinstance(value, NDArray):
            return self._array(value, var, path)
        if is_plain_slice(value) or (isinstance(value, VALUES) and not is_of_own_class(value)):
            program.same(var, value, (path, repr(value)))
            return value
        if isinstance(value, np.ndarray):
            return self._numpy(value, var, path)
        found = parts_of(value)
        has_keys = found is None or not issubclass(found[0], dict) or all(map(is_value, found[1]))
        if found is not None and has_keys and id(value) not in self.reached:
            return self._container(value, found, var, path)
        return self._object(value, var, path)

    def _number(self, value: Any, var: Var, path: str) -> Any:
        program = self.program
        self.numbers.append(var)
        program.require(Rule.TYPE, var, Const(type(value)), says=(path, type(value).__name__))
        if self.trace.numbers.concrete:
            program.same(var, value, (path, repr(value)))
            return value
        return self.trace.numbers.argument(value, var)

    def _object(self, value: Any, var: Var, path: str) -> Any:
        program, kind = self.program, type(value)
        says = path, kind.__name__
        if isinstance(value, SAME_OBJECTS):
            says = path, getattr(value, "__name__", None) or repr(value)
            rule = Rule.EQUAL if kind is re.Pattern else Rule.IS
            program.require(rule, var, Const(value), says=says)
        else:
            program.require(Rule.TYPE, var, Const(kind), says=says)
        if kind is types.FunctionType:  # made anew for each call, maybe; what it captured is guarded
            program.require(
                Rule.FUNCTION,
                *(var, Const(value.__code__), Const(value.__globals__)),
                Const((value.__name__, value.__qualname__)),
                says=(path, f"function {value.__qualname__}"),
            )
        self.objects.append((var, path, value))
        return value

    def _container(self, value: Any, found: Part, var: Var, path: str) -> Any:
        program = self.program
        seen = self.originals.get(id(value))
        if seen is not None:
            program.require(Rule.IS, var, seen.var)
            return seen.copy
        if id(value) in self._open:
            raise Restart(reached=value)
        self._open.add(id(value))
        kind, keys, children = found
        parts = ", ".join(map(str, keys)) if is_record(kind) else len(keys)
        says = path, f"{kind.__name__} of {parts}"
        program.require(Rule.TYPE, var, Const(kind), says=says)
        if issubclass(kind, dict):
            program.keys(var, keys, says)
            if factory_of(value) is not None:
                name, place = f"{path}.default_factory", attribute(var, "default_factory")
                self._object(factory_of(value), program.bind(place, seen=factory_of(value), path=name), name)
        elif kind in (list, tuple):
            program.require(Rule.LENGTH, var, Literal(len(keys)))
        elif is_record(kind) and hasattr(value, "__dict__"):
            program.require(Rule.KEYS, attribute(var, "__dict__"), Const(keys))
        paths = [path + trees.step(kind, key) for key in keys]
        if kind in (dict, list, tuple) and are_alike(children, self._views):
            wrapped = self._arrays(children, var, paths)
        else:
            wrapped = [
                self.wrap(child, part_of(var, kind, key), name)
                for key, child, name in zip(keys, children, paths, strict=True)
            ]
        again = trees.rebuilt(value, kind, keys, wrapped)
        if not is_record(kind) and hasattr(value, "__dict__"):
            program.require(Rule.EMPTY, attribute(var, "__dict__"))
        if not trusted(kind.__module__):
            self.objects.append((Const(kind), kind.__name__, kind))
        rebuilt = Rebuilt(again, value, var, keys, wrapped)
        self.containers[id(again)] = self.originals[id(value)] = rebuilt
        return again

    def _array(self, array: NDArray, var: Var, path: str) -> NDArray:
        storage, view, program = array._storage, array._view, self.program
        release(storage)
        known = self.storages.get(storage)
        part = not view.is_whole(storage.type.shape) and storage not in self.aliased
        shown = described(array) + ("" if view.is_contiguous() else f" with strides {view.strides}")
        found = program.array(var, storage, view, window=part, says=(path, shown))
        if known is not None:
            says = path, f"{shown} sharing memory with another argument"
            program.require(Rule.IS, found, known, says=says)
        else:
            self.storages[storage] = found
        self.tell_apart(array, var)
        if part:
            return self._window(array, var, found)
        self.arrays.setdefault(storage, (found, None))
        self.handles.setdefault(id(array), (array, var))
        return array

    def _arrays(self, arrays: list[NDArray], container: Var, paths: list[str]) -> list[NDArray]:
        """Wrap arrays that are alike (see `many`)."""
        vars, places = [], []
        for array, path in zip(arrays, paths, strict=True):
            storage = array._storage
            var, place = Var("v", array, path), Var("s", storage, path)
            var.bound = place.bound = True
            vars.append(var)
            places.append(place)
            self.storages[storage] = place
            self.arrays[storage] = place, None
            self.handles[id(array)] = array, var
            self._views[storage] = [(array, var)]
        first = arrays[0]
        kind, view, shown = first._storage.type, first._view, described(first)
        self.program.steps.append(ManyArrays(container, tuple(vars), tuple(places), kind, view, shown))
        return arrays

    def tell_apart(self, array: NDArray, var: Var) -> None:
        """Require that arrays on one storage are the same object, or different ones, as they were."""
        others = self._views.setdefault(array._storage, [])
        for other, known in others:
            self.program.require(Rule.IS if other is array else Rule.IS_NOT, var, known)
        others.append((array, var))

    def _window(self, array: NDArray, var: Var, found: Var) -> NDArray:
        storage, view = array._storage, array._view
        low, high = view.span()
        item = storage.type.dtype.itemsize
        shape = view.shape if view.is_contiguous() else (high - low,)
        type = ArrayType(shape, storage.type.dtype, storage.type.device)
        window = Storage.at(storage.address + low * item, type, storage.buffer, storage.variable)
        window.shared = storage.shared
        self.trace.parents[window] = storage
        start = Compute(SUBTRACT, attribute(var, "_view", "offset"), Literal(view.offset - low))
        self.arrays[window] = (found, self.program.bind(start, "o", seen=low))
        passed = NDArray(window, view.moved(-low))
        self.handles[id(passed)] = (passed, var)
        self.windows[id(array)] = storage
        return passed

    def _numpy(self, array: np.ndarray, var: Var, path: str) -> NDArray:
        program = self.program
        program.require(Rule.TYPE, var, Const(type(array)))
        says = path, f"numpy {array.dtype}{list(array.shape)}"
        program.require(Rule.SHAPE_AND_DTYPE, var, Literal(array.shape), Const(array.dtype), says=says)
        wrapped = NDArray.from_numpy(array)
        self.trace.read_only[wrapped._storage] = path
        self.copy_in(wrapped._storage, var)
        if self.place.is_addressable:
            return wrapped
        value = self.trace.read(wrapped._storage, wrapped._view)
        there: NDArray = NDArray.new(
            self.trace.new(self.trace.emit(copy_to, value, device=self.place, priority=0))
        )
        self.trace.read_only[there._storage] = path
        self.placed.add(there._storage)
        return there

    def copy_in(self, storage: Storage, array: Expr) -> None:
        """The replay makes `storage` anew from the NumPy array at `array`."""
        var = Var("s", storage, getattr(array, "path", ""))
        var.bound = True
        self.program.copies.append((var, attribute(Result(Word("from_numpy"), array), "_storage")))
        self.arrays[storage] = (var, None)


def part_of(holder: Expr, kind: type, key: Any) -> Expr:
    """The expression for a part of a container."""
    if issubclass(kind, dict):
        return GetItem(holder, Const(key))
    if issubclass(kind, (list, tuple)):
        names = getattr(kind, "_fields", None)  # a subclass may show something else under such a name
        return GetItem(holder, Literal(key if names is None else names.index(key)))
    return attribute(holder, key)


class Survey(NamedTuple):
    """Facts about all arrays among the arguments, known before the first of them is wrapped.

    shared: storages that several of them share: these enter the trace whole.
    place:  the device on which the body has NumPy arrays: the GPU where the other arguments lie; without one
            the first CPU.
    """

    shared: set[Storage]
    place: Device


def survey(args: Any, kwargs: Any) -> Survey:
    """Look through the arguments."""
    seen: set[Storage] = set()
    shared: set[Storage] = set()
    place = CPU
    for array in _arrays_in(args, kwargs):
        storage = array._storage
        (shared if storage in seen else seen).add(storage)
        if place is CPU and not storage.type.device.is_addressable:
            place = storage.type.device
    return Survey(shared, place)


def _arrays_in(args: Any, kwargs: Any) -> Iterator[NDArray]:
    """The arrays among the arguments."""
    pending, walked = [*args, *kwargs.values()], set()
    for value in pending:
        if isinstance(value, NDArray):
            yield value
        elif id(value) not in walked:  # a container may hold itself
            walked.add(id(value))
            found = trees.children_of(value)
            pending += () if found is None else found[2]


def shows_keywords(function: Any) -> bool:
    """Whether `function` may see in which order keyword arguments were given."""
    return type(function) is not types.FunctionType or bool(
        function.__code__.co_flags & inspect.CO_VARKEYWORDS
    )


def parameter_names(function: Any, count: int) -> list[str]:
    """Names of the first `count` positional arguments, for messages."""
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
