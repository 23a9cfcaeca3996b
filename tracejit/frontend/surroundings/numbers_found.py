"""Replacements for `float`, `int`, `min`, `max`, `range` and the like in a traced body, for run-time numbers.

``float(x)`` of an array ends a segment (`recording.segments`), and its result must be a stand-in for a
number, which Python does not accept from ``__float__``. The traced function therefore runs as a copy of
itself: with the same code, globals and closure, but with its own builtins, in which these names are
functions that return stand-ins. Applied to anything but arrays and numbers read from arrays, they behave
like Python's. The minimum or maximum of numbers of one type is a number that a replay computes; numbers of
different types are compared by Python, and the result is guarded. `range` is described in
`recording.ranges.builtin_range`, `enumerate` and `zip` of arrays in `recording.look_loops.counters`.

A name is replaced only in functions that do nothing with it but call it, or pass it as a dtype
(``np.zeros(n, int)``): `isinstance(x, float)` needs the class. Functions that the body reaches by name, and
only calls, are copied, too; functions that it defines have Python's builtins. In other threads, which may
access a copy while a body is recorded, the copy behaves like the original function.
"""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.python.bytecode import facts
from tracejit.frontend.python.code_positions import dtype_uses
from tracejit.frontend.recording.look_loops.counters import counted_arrays
from tracejit.frontend.recording.number import NumberProxy, computed_by, is_number, unproxied
from tracejit.frontend.recording.ranges.builtin_range import range_of_body, range_of_called
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.chosen_elements import choose


def _converted(kind: type, value: Any, more: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of ``kind(value)`` in a traced body."""
    trace = thread.trace
    if trace is None or more or options:
        return kind(value, *more, **options)
    if isinstance(value, ArrayCore) and value.size == 1:
        value = trace.element(value, f"{kind.__name__}()")
    if type(value) is NumberProxy:
        return value.converted(kind)
    return kind(value)


def _float(value: Any = 0.0, /, *more: Any, **options: Any) -> Any:
    return _converted(float, value, more, options)


def _int(value: Any = 0, /, *more: Any, **options: Any) -> Any:
    return _converted(int, value, more, options)


def _of_numbers(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """Return ``min(x, y)`` or ``max(x, y)`` of numbers of one type, or of array elements, in a traced
    body.
    """
    trace = thread.trace
    if trace is not None and not options and any(isinstance(value, ArrayCore) for value in values):
        chosen = choose(function, values, sys._getframe(1))
        return function(*values) if chosen is None else chosen
    is_one_type = len({type(unproxied(value)) for value in values}) == 1
    if trace is None or options or not is_one_type or not all(map(is_number, values)):
        return function(*values, **options)
    return computed_by(function, function.__name__, values, trace.numbers)


def _enumerate(items: Any, start: Any = 0) -> Any:
    trace = thread.trace
    is_zip = type(items) is ZippedArrays
    if trace is not None and (is_zip or isinstance(items, ArrayCore)) and type(start) is int:
        arrays = items.arrays if is_zip else (items,)
        counted = counted_arrays(trace, sys._getframe(1), arrays, start, packs=is_zip)
        if counted is not None:
            return counted
    return enumerate(items, start)


class ZippedArrays:
    """Python's ``zip(*arrays)``, of which `_enumerate` finds the arrays."""

    __slots__ = ("_items", "arrays")

    def __init__(self, arrays: tuple[ArrayCore, ...]) -> None:
        self.arrays = arrays
        self._items: Iterator[Any] | None = None

    def __iter__(self) -> ZippedArrays:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = zip(*self.arrays, strict=False)
        return next(self._items)


def _zip(*items: Any, **options: Any) -> Any:
    trace = thread.trace
    if trace is not None and items and not options and all(isinstance(each, ArrayCore) for each in items):
        counted = counted_arrays(trace, sys._getframe(1), items)
        return ZippedArrays(items) if counted is None else counted
    return zip(*items, **options)  # noqa: B905


DTYPES = {"float": _float, "int": _int}
"""Replacements that also stand for dtypes: NumPy asks objects for the attribute `dtype`."""

for _name, _function in DTYPES.items():
    vars(_function)["dtype"] = np.dtype(_name)

BODY = {"range": range_of_body}
"""Replacements in a body that may not look at values of arrays."""

LOOKING = {
    "float": _float,
    "int": _int,
    "min": functools.partial(_of_numbers, min),
    "max": functools.partial(_of_numbers, max),
    "range": range_of_body,
    "enumerate": _enumerate,
    "zip": _zip,
}
"""Replacements in a body that may look at values of arrays."""

CALLED = LOOKING | {"range": range_of_called}
"""Replacements in the functions called by a body that may look at values of arrays."""

_ORIGINALS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def original_of(value: Any) -> Any:
    """Return the function of which `value` is a copy with other builtins, and any other value unchanged."""
    return _ORIGINALS.get(value, value) if type(value) is types.FunctionType else value


def _is_only_called(code: types.CodeType, name: str) -> bool:
    """Whether the value of a global is only called or passed as a dtype."""
    escapes = facts(code).escaping_loads.count(name)
    return not escapes or (name in DTYPES and dtype_uses(code, name) == escapes)


def with_own_builtins(function: Any, replacements: Mapping[str, Any]) -> Any:
    """Return a copy of the function whose builtins include these replacements, if the function calls one of
    them; else the function itself.
    """
    if type(function) is types.MethodType:
        copy = with_own_builtins(function.__func__, replacements)
        return function if copy is function.__func__ else types.MethodType(copy, function.__self__)
    if type(function) is not types.FunctionType:
        return function
    installed = function.__globals__.get("__builtins__")
    if installed is not builtins and installed is not vars(builtins):
        return function
    names = facts(function.__code__)
    accessed = {name for name, attribute in names.uses if attribute}
    read = names.globals - accessed - function.__globals__.keys()
    replaced = {
        name: replacement
        for name, replacement in replacements.items()
        if name in read and _is_only_called(function.__code__, name)
    }
    return _copy(function, installed, vars(builtins) | replaced) if replaced else function


def _copy(function: types.FunctionType, installed: Any, new_builtins: dict[str, Any]) -> Any:
    """Return a copy of the function with these builtins. Python reads the builtins of a new function from its
    globals. They are stored there only while C code runs, so no other thread sees them.
    """
    namespace, key = function.__globals__, "__builtins__"
    create = functools.partial(
        types.FunctionType,
        function.__code__,
        namespace,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    steps: list[Callable[[], Any]] = [
        functools.partial(namespace.__setitem__, key, new_builtins),
        create,
        functools.partial(namespace.__setitem__, key, installed),
    ]
    try:
        copies: collections.deque[Any] = collections.deque(map(operator.call, steps))
    except BaseException:  # out of memory
        namespace[key] = installed
        raise
    copy: types.FunctionType = copies[1]
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    copy.__module__ = function.__module__
    _ORIGINALS[copy] = function
    return copy
