"""`float`, `int`, `min`, `max`, `range` as a traced body finds them: their results stay run-time numbers.

``float(x)`` of an array ends a segment (`recording.segments`), and its result is to be a stand-in for a
number. Python allows no such result from ``__float__``. So the traced function runs as a copy of itself:
the same code, globals and closure, but with builtins of its own, in which these names are functions that
give stand-ins. For everything but arrays, and numbers that were found in arrays, they are Python's. The
smaller of two numbers is one that a replay computes if both are of one type; else Python compares them, and
the answer is guarded. What `range` does: `recording.ranges.builtin_range`.

Only where a body does nothing but call the name: `isinstance(x, float)` needs the class. Functions that the
body finds by name, and only calls, are copied, too; those that it defines have Python's builtins. In other
threads, which may find a copy while a body is recorded, it does what the function does.
"""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.python.bytecode import facts
from tracejit.frontend.recording.number import NumberProxy, computed_by, is_number, unproxied
from tracejit.frontend.recording.ranges.builtin_range import range_of_body, range_of_called
from tracejit.frontend.recording.recording import thread


def _found(kind: type, value: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The result of ``kind(value)`` in a body."""
    trace = thread.trace
    if trace is None or rest or options:
        return kind(value, *rest, **options)
    if isinstance(value, ArrayCore) and value.size == 1:
        value = trace.element(value, f"{kind.__name__}()")
    if type(value) is NumberProxy:
        return value.converted(kind)
    return kind(value)


def _float(value: Any = 0.0, /, *rest: Any, **options: Any) -> Any:
    return _found(float, value, rest, options)


def _int(value: Any = 0, /, *rest: Any, **options: Any) -> Any:
    return _found(int, value, rest, options)


def _of_numbers(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """``min(x, y)`` or ``max(x, y)`` of numbers of one type in a body."""
    trace = thread.trace
    one_kind = len({type(unproxied(value)) for value in values}) == 1
    if trace is None or options or not one_kind or not all(map(is_number, values)):
        return function(*values, **options)
    return computed_by(function, function.__name__, values, trace.numbers)


BODY = {"range": range_of_body}
"""Builtins of a body that may not look at values of arrays."""

LOOKING = {
    "float": _float,
    "int": _int,
    "min": functools.partial(_of_numbers, min),
    "max": functools.partial(_of_numbers, max),
    "range": range_of_body,
}
"""Builtins of a body that may."""

CALLED = LOOKING | {"range": range_of_called}
"""Builtins of functions that such a body calls."""

_ORIGINALS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def original_of(value: Any) -> Any:
    """The function of which another one is a copy with builtins of its own; other values as they are."""
    return _ORIGINALS.get(value, value) if type(value) is types.FunctionType else value


def with_own_builtins(function: Any, own: Mapping[str, Any]) -> Any:
    """The function with builtins of its own, if it calls one of these names; else the function itself."""
    if type(function) is types.MethodType:
        copy = with_own_builtins(function.__func__, own)
        return function if copy is function.__func__ else types.MethodType(copy, function.__self__)
    if type(function) is not types.FunctionType:
        return function
    held = function.__globals__.get("__builtins__")
    if held is not builtins and held is not vars(builtins):
        return function
    found = facts(function.__code__)
    asked = {name for name, attribute in found.uses if attribute}
    called = found.globals - found.handed - asked - function.__globals__.keys()
    ours = {name: ours for name, ours in own.items() if name in called}
    return _copy(function, held, vars(builtins) | ours) if ours else function


def _copy(function: types.FunctionType, held: Any, own: dict[str, Any]) -> Any:
    """The function with these builtins. Python takes them from the globals, where they are stored only while
    no bytecode runs, so that no other thread sees them.
    """
    namespace, place = function.__globals__, "__builtins__"
    made = functools.partial(
        types.FunctionType,
        function.__code__,
        namespace,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    steps: list[Callable[[], Any]] = [
        functools.partial(namespace.__setitem__, place, own),
        made,
        functools.partial(namespace.__setitem__, place, held),
    ]
    try:
        copies: collections.deque[Any] = collections.deque(map(operator.call, steps))
    except BaseException:  # no memory for a function
        namespace[place] = held
        raise
    copy: types.FunctionType = copies[1]
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    copy.__module__ = function.__module__
    _ORIGINALS[copy] = function
    return copy
