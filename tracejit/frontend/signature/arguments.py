"""Arguments of a traced call: the values that the body is called with, and the checks of them in a replay.

`Arguments.read` visits each argument once. It adds steps to the replay program (see `frontend.signature`),
flushes the pending eager operations of arrays, and returns the values that the body is called with:

- a container is rebuilt, so that rebinding is detected, and undone if the body raises;
- a number becomes a proxy;
- a NumPy array is copied to an NDArray;
- an array or another object is passed as itself;
- an array that views only a subset of its storage is passed as a *window*: another array, whose storage is
  the viewed range of the same memory, so that the offset is a run-time value.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import dataclasses
import inspect
import re
import types
from collections import Counter
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
    ARGS,
    KWARGS,
    Compute,
    Const,
    Expr,
    GetItem,
    Literal,
    Result,
    Var,
    Word,
    attribute,
    item,
)
from tracejit.frontend.signature.many import are_alike
from tracejit.frontend.signature.program import ManyArrays, ReplayProgram, Rule
from tracejit.frontend.signature.runtime import release, release_all
from tracejit.ir.types import CPU, ArrayType, Device, name_of
from tracejit.ops import copy_to

NUMBERS = (np.integer, np.floating)
"""Classes of NumPy scalars that are run-time numbers."""
SAME_OBJECTS = (types.ModuleType, type, *FIXED, *VALUES)
"""Classes of arguments that replays compare by identity. Instances of `VALUES` are handled before, unless
they are of a class of the user's.
"""

Parts = tuple[type, tuple[Any, ...], list[Any]]
"""The kind, keys and children of a container."""


def parts_of(value: Any) -> Parts | None:
    """Like `trees.children_of`, but with all attributes of a dataclass; None for all but containers.

    A dict or a named tuple that has attributes, or whose class overrides access to items, is an object.
    """
    if isinstance(value, dict | tuple) and (own_items(type(value)) or Attributes(value).namespace()):
        return None
    if is_tree(value) and own_attributes(type(value)) is not None:
        return None
    if is_tree(value) and is_made_plainly(type(value)):
        attributes = Attributes(value)
        names = tuple(attributes.namespace() or (f.name for f in dataclasses.fields(value)))
        if any(is_shadowed(type(value), name) for name in names):
            return None
        return type(value), names, [attributes[n] for n in names]
    return trees.children_of(value)


def is_integer_slice(value: Any) -> bool:
    """Whether `value` is a slice whose bounds and step are integers or None."""
    return type(value) is slice and all(
        type(bound) in (int, type(None)) for bound in (value.start, value.stop, value.step)
    )


def dtype_and_shape(array: NDArray) -> str:
    """Return the dtype and shape of an array for messages: ``float32[2,3]``."""
    return f"{name_of(array.dtype)}[{','.join(map(str, array.shape))}]"


def is_record(kind: type) -> bool:
    """Whether the children of a container of this kind are attributes."""
    return not issubclass(kind, (dict, list, tuple))


class Rebuilt(NamedTuple):
    """A container of the caller, the copy that is passed to the body, and the copy's initial children."""

    copy: Any
    original: Any
    var: Var
    keys: tuple[Any, ...]
    parts: list[Any]


class Arguments:
    """The arguments of a call that is being traced, and the other arrays that its body accesses.

    program:      the replay program of the call; the arguments are its first steps.
    arrays:       storage in the trace -> the variable of the caller's storage, and the variable of the offset
                  in elements if that is a run-time value.
    handles:      id of an array that the body gets -> that array, and the variable of the caller's array.
    windows:      id of a caller's array that is passed as a window -> its storage.
    containers:   id of the copy of a container -> the container (see `Rebuilt`).
    originals:    id of a container -> the same.
    numbers:      variables of numbers, in order.
    objects:      expression, path and object, for each object passed as itself.
    storages:     storages of the caller, in order, and their variables.
    numpy_device: the device on which the body has NumPy arrays.
    transferred:  storages of the NumPy arrays that are copied to that device.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.program = trace, ReplayProgram()
        self.numpy_device = CPU
        self.transferred: set[Storage] = set()
        self.arrays: dict[Storage, tuple[Var, Var | None]] = {}
        self.handles: dict[int, tuple[NDArray, Var]] = {}
        self.windows: dict[int, Storage] = {}
        self.containers: dict[int, Rebuilt] = {}
        self.originals: dict[int, Rebuilt] = {}
        self.numbers: list[Var] = []
        self.objects: list[tuple[Expr, str, Any]] = []
        self.storages: dict[Storage, Var] = {}
        self._entire: set[Storage] = set()  # storages that enter the trace in full instead of as windows
        self._in_progress: set[int] = set()  # ids of containers that are being wrapped
        self._views: dict[Storage, list[tuple[NDArray, Var]]] = {}  # the caller's arrays, by storage

    def read(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the steps that read and check the arguments of a call of `function`. Return the arguments that
        the body gets.
        """
        assumed, program = self.trace.assumed, self.program
        arrays = arrays_in(args, kwargs)
        uses = Counter(array._storage for array in arrays)
        self._entire = assumed.aliased | {storage for storage, count in uses.items() if count > 1}
        self.numpy_device = assumed.place or device_of(arrays)
        program.require(Rule.LENGTH, ARGS, Literal(len(args)))
        if not kwargs:
            program.require(Rule.EMPTY, KWARGS)
        elif shows_keywords(function):
            program.require(Rule.KEYS, KWARGS, Const(tuple(kwargs)))
        else:
            program.require(Rule.KEYS_IN_ANY_ORDER, KWARGS, Const(frozenset(kwargs)))
        names = parameter_names(function, len(args))
        return (
            [self._wrap(args[i], item(ARGS, i), name) for i, name in enumerate(names)],
            {name: self._wrap(value, item(KWARGS, name), name) for name, value in kwargs.items()},
        )

    def _wrap(self, value: Any, expr: Expr, path: str) -> Any:
        """Return the value that is passed to the body for `value`, which a replay reads as `expr`."""
        value = unproxied(value)
        kind, program = type(value), self.program
        if kind in (int, float) or isinstance(value, NUMBERS):
            return self._number(value, program.bind(expr, "n", seen=value, path=path), path)
        var = program.bind(expr, seen=value, path=path)
        if isinstance(value, NDArray):
            return self._array(value, var, path)
        if is_integer_slice(value) or (isinstance(value, VALUES) and not is_of_own_class(value)):
            program.same(var, value, (path, repr(value)))
            return value
        if isinstance(value, np.ndarray):
            return self._numpy(value, var, path)
        parts = parts_of(value)
        has_comparable_keys = parts is None or not issubclass(parts[0], dict) or all(map(is_value, parts[1]))
        if parts is not None and has_comparable_keys and id(value) not in self.trace.assumed.reached:
            return self._container(value, parts, var, path)
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
        if kind is types.FunctionType:  # perhaps created for each call; its captured variables are guarded
            program.require(
                Rule.FUNCTION,
                *(var, Const(value.__code__), Const(value.__globals__)),
                Const((value.__name__, value.__qualname__)),
                says=(path, f"function {value.__qualname__}"),
            )
        self.objects.append((var, path, value))
        return value

    def _container(self, value: Any, parts: Parts, var: Var, path: str) -> Any:
        program = self.program
        seen = self.originals.get(id(value))
        if seen is not None:
            program.require(Rule.IS, var, seen.var)
            return seen.copy
        if id(value) in self._in_progress:
            raise Restart(reached=value)
        self._in_progress.add(id(value))
        kind, keys, children = parts
        shown = ", ".join(map(str, keys)) if is_record(kind) else len(keys)
        says = path, f"{kind.__name__} of {shown}"
        program.require(Rule.TYPE, var, Const(kind), says=says)
        if issubclass(kind, dict):
            program.keys(var, keys, says)
            if factory_of(value) is not None:
                name, expr = f"{path}.default_factory", attribute(var, "default_factory")
                self._object(factory_of(value), program.bind(expr, seen=factory_of(value), path=name), name)
        elif kind in (list, tuple):
            program.require(Rule.LENGTH, var, Literal(len(keys)))
        elif is_record(kind) and hasattr(value, "__dict__"):
            program.require(Rule.KEYS, attribute(var, "__dict__"), Const(keys))
        paths = [path + trees.step(kind, key) for key in keys]
        if kind in (dict, list, tuple) and are_alike(children, self._views):
            wrapped = self._arrays(children, var, paths)
        else:
            wrapped = [
                self._wrap(child, part_of(var, kind, key), name)
                for key, child, name in zip(keys, children, paths, strict=True)
            ]
        copy = trees.rebuilt(value, kind, keys, wrapped)
        if not is_record(kind) and hasattr(value, "__dict__"):
            program.require(Rule.EMPTY, attribute(var, "__dict__"))
        if not trusted(kind.__module__):
            self.objects.append((Const(kind), kind.__name__, kind))
        rebuilt = Rebuilt(copy, value, var, keys, wrapped)
        self.containers[id(copy)] = self.originals[id(value)] = rebuilt
        return copy

    def _array(self, array: NDArray, var: Var, path: str) -> NDArray:
        storage, view, program = array._storage, array._view, self.program
        release(storage)
        known = self.storages.get(storage)
        is_window = not view.is_identity(storage.type.shape) and storage not in self._entire
        shown = dtype_and_shape(array) + ("" if view.is_contiguous() else f" with strides {view.strides}")
        storage_var = program.array(var, storage, view, window=is_window, says=(path, shown))
        if known is not None:
            says = path, f"{shown} sharing memory with another argument"
            program.require(Rule.IS, storage_var, known, says=says)
        else:
            self.storages[storage] = storage_var
        self._require_identities(array, var)
        if is_window:
            return self._window(array, var, storage_var)
        self.arrays.setdefault(storage, (storage_var, None))
        self.handles.setdefault(id(array), (array, var))
        return array

    def _arrays(self, arrays: list[NDArray], container: Var, paths: list[str]) -> list[NDArray]:
        """Wrap the arrays of a container that satisfy `many.are_alike`."""
        vars, storage_vars = [], []
        release_all(array._storage for array in arrays)
        for array, path in zip(arrays, paths, strict=True):
            storage = array._storage
            var, storage_var = Var("v", array, path), Var("s", storage, path)
            var.bound = storage_var.bound = True
            vars.append(var)
            storage_vars.append(storage_var)
            self.storages[storage] = storage_var
            self.arrays[storage] = storage_var, None
            self.handles[id(array)] = array, var
            self._views[storage] = [(array, var)]
        first = arrays[0]
        kind, view, shown = first._storage.type, first._view, dtype_and_shape(first)
        self.program.steps.append(ManyArrays(container, tuple(vars), tuple(storage_vars), kind, view, shown))
        return arrays

    def add_named(self, array: NDArray, expr: Expr, path: str) -> None:
        """Add the steps that read and check an array that the body accesses by name."""
        storage, view, program = array._storage, array._view, self.program
        release(storage)
        var = program.bind(expr, seen=array, path=path)
        known, says = self.arrays.get(storage), (path, dtype_and_shape(array))
        if known is not None:
            program.require(Rule.STORAGE, var, known[0], says=says)
            program.require(Rule.VIEW, var, Const(view))
        else:
            storage_var = program.array(var, storage, view, window=False, says=says)
            self.arrays[storage] = storage_var, None
            if storage in self.trace.windows:
                self.storages[storage] = storage_var
        self._require_identities(array, var)
        self.handles.setdefault(id(array), (array, var))

    def _require_identities(self, array: NDArray, var: Var) -> None:
        """Require that an array and each earlier array on its storage are the same object, or different
        objects, as in this call.
        """
        others = self._views.setdefault(array._storage, [])
        for other, known in others:
            self.program.require(Rule.IS if other is array else Rule.IS_NOT, var, known)
        others.append((array, var))

    def _window(self, array: NDArray, var: Var, storage_var: Var) -> NDArray:
        """Return a window on an array, and bind the variable of its offset."""
        storage, view = array._storage, array._view
        low, high = view.span()
        shape = view.shape if view.is_contiguous() else (high - low,)
        type = ArrayType(shape, storage.type.dtype, storage.type.device)
        address = storage.address + low * type.dtype.itemsize
        window = Storage.at(address, type, storage.buffer, storage.variable)
        window.shared = storage.shared
        self.trace.parents[window] = storage
        start = Compute(SUBTRACT, attribute(var, "_view", "offset"), Literal(view.offset - low))
        self.arrays[window] = (storage_var, self.program.bind(start, "o", seen=low))
        passed = NDArray(window, view.moved(-low))
        self.handles[id(passed)] = (passed, var)
        self.windows[id(array)] = storage
        return passed

    def _numpy(self, array: np.ndarray, var: Var, path: str) -> NDArray:
        program = self.program
        program.require(Rule.TYPE, var, Const(type(array)))
        says = path, f"numpy {array.dtype}{list(array.shape)}"
        program.require(Rule.SHAPE_AND_DTYPE, var, Literal(array.shape), Const(array.dtype), says=says)
        self.trace.has_numbers = True
        wrapped = NDArray.from_numpy(array)
        self.trace.read_only[wrapped._storage] = path
        self.copy_in(wrapped._storage, var)
        if self.numpy_device.is_addressable:
            return wrapped
        value = self.trace.read(wrapped._storage, wrapped._view)
        transferred: NDArray = NDArray.new(
            self.trace.new(self.trace.emit(copy_to, value, device=self.numpy_device, priority=0))
        )
        self.trace.read_only[transferred._storage] = path
        self.transferred.add(transferred._storage)
        return transferred

    def copy_in(self, storage: Storage, array: Expr) -> None:
        """Let each replay create `storage` as a copy of the NumPy array that `array` refers to."""
        var = Var("s", storage, getattr(array, "path", ""))
        var.bound = True
        self.program.copies.append((var, attribute(Result(Word("from_numpy"), array), "_storage")))
        self.arrays[storage] = (var, None)


def part_of(holder: Expr, kind: type, key: Any) -> Expr:
    """Return the expression for the child of a container of this kind with this key."""
    if issubclass(kind, dict):
        return GetItem(holder, Const(key))
    if issubclass(kind, (list, tuple)):
        names = getattr(kind, "_fields", None)  # a subclass may redefine a field's attribute
        return GetItem(holder, Literal(key if names is None else names.index(key)))
    return attribute(holder, key)


def arrays_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[NDArray]:
    """Return the arrays among the arguments, once for each occurrence; each container is visited once."""
    arrays, pending, visited = [], [*args, *kwargs.values()], set()
    for value in pending:
        if isinstance(value, NDArray):
            arrays.append(value)
        elif id(value) not in visited:  # a container may contain itself
            visited.add(id(value))
            parts = trees.children_of(value)
            pending += () if parts is None else parts[2]
    return arrays


def device_of(arrays: list[NDArray]) -> Device:
    """Return the device on which the body has NumPy arrays, given the arrays among the arguments: that of the
    first one in memory that Python cannot address, or the first CPU if there is none.
    """
    devices = (array._storage.type.device for array in arrays)
    return next((device for device in devices if not device.is_addressable), CPU)


def shows_keywords(function: Any) -> bool:
    """Whether `function` may observe the order of its keyword arguments."""
    return type(function) is not types.FunctionType or bool(
        function.__code__.co_flags & inspect.CO_VARKEYWORDS
    )


def parameter_names(function: Any, count: int) -> list[str]:
    """Return the names of the first `count` positional arguments, for messages."""
    if type(function) is types.FunctionType and not function.__dict__:  # which may override the signature
        code = function.__code__
        if count <= code.co_argcount:
            return list(code.co_varnames[:count])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names + [f"{variadic}[{i}]" for i in range(count - len(names))]
