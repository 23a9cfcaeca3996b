"""Exceptions to the soundness rule: `pure` vouches for a function, `callback` calls one in every replay."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from tracejit import engine
from tracejit.assembly.link import order_of
from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.python.kinds import Vouched, bound
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.number import NumberProxy, concrete, is_of, unproxied
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.recording import lock, thread
from tracejit.ir.graph import Graph
from tracejit.ir.types import CPU
from tracejit.ops.structural import CALLBACKS, keep_callback
from tracejit.ops.structural import callback as callback_op

CONSTANT = (bool, int, float, complex, str, bytes, type(None), np.generic)
"""Classes of arguments of callbacks that are constants of the trace."""


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", contravariant=True)


class Pure(Vouched, Generic[P, R]):
    """A function whose calls a trace does not record, created by `pure`."""

    def __init__(self, function: Callable[P, R]):
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        trace = thread.trace
        if trace is None:
            return self._function(*args, **kwargs)
        values, named_values = trees.map(concrete, (args, kwargs))
        trace.vouched += 1
        try:
            return self._function(*values, **named_values)
        finally:
            trace.vouched -= 1

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Pure[P, R]: ...

    @overload
    def __get__(
        self: Pure[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Callable[Q, R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return bound(self, instance)


def pure(function: Callable[P, R]) -> Pure[P, R]:
    """Vouch that `function` has no effect that matters, so that a replay need not run it.

    A recording does not check what the function does; its result is a constant of the trace. Numbers of the
    call that are passed to it count as looked at, so another value leads to another trace.
    Raises ArgumentError if `function` is not callable.

    >>> import tracejit as tj
    >>> @tj.pure
    ... def announce(n): print("compiling for", n)
    >>> @tj.jit
    ... def double(x):
    ...     announce(x.shape[0])
    ...     return x * 2
    >>> double(tj.ones(3)), double(tj.zeros(3))
    compiling for 3
    (NDArray([2., 2., 2.], dtype=float32), NDArray([0., 0., 0.], dtype=float32))
    """
    check_callable("pure", function)
    return Pure(function)


class _Callback:
    """A recorded callback: a function and its arguments.

    arguments: constants, and `_ARRAY` or `_NUMBER` for a run-time value.
    """

    def __init__(self, function: Callable[..., object], arguments: list[Any]):
        self.function = function
        self.arguments = arguments

    def __call__(self, *values: np.ndarray) -> None:
        remaining = iter(values)
        arguments = [
            next(remaining) if a is _ARRAY else next(remaining).item() if a is _NUMBER else a
            for a in self.arguments
        ]
        try:
            self.function(*arguments)
        except Exception as error:  # the launch continues: no other task depends on a callback
            engine.report(error)


_ARRAY, _NUMBER = object(), object()


def callback(function: Callable[..., object], *args: Any) -> None:
    """Call `function` with NumPy copies of arrays, whenever this statement is executed or replayed.

    A trace records the call: each replay calls the function, in a task of its own, once the arrays have been
    computed and all earlier callbacks have run. The result of the function is discarded; `tj.wait_all`
    reports its errors. Arguments are arrays, numbers and constants.
    Raises ArgumentError for other arguments, and for a function that captures an array of the traced call.

    >>> import tracejit as tj
    >>> losses = []
    >>> @tj.jit
    ... def step(x):
    ...     tj.callback(losses.append, x.sum())
    ...     return x * 2
    >>> _ = step(tj.ones(2)), step(tj.ones(3)), tj.wait_all()
    >>> losses
    [array(2., dtype=float32), array(3., dtype=float32)]
    """
    trace = thread.trace
    check_callable("callback", function)
    if trace is None:
        engine.wait(order_of("callbacks"))
        function(*(a.numpy() if isinstance(a, ArrayCore) else concrete(a) for a in args))
        return
    _check_closure(function)
    arguments: list[Any] = []
    args = tuple(_addressable(argument) for argument in args)
    with lock:
        values = []
        for position, argument in enumerate(args):
            if isinstance(argument, ArrayCore):
                arguments.append(_ARRAY)
                values.append(trace.read(argument._storage, argument._view))
            elif is_of(argument, trace.numbers):
                arguments.append(_NUMBER)
                dtype = np.dtype(np.int64 if issubclass(type(argument._value), int) else np.float64)
                values.append(trace.number(RuntimeNumber(argument._value, argument._source), dtype))
            elif isinstance(argument, CONSTANT):
                arguments.append(unproxied(argument))
            else:
                kind = type(argument).__name__
                raise _error(f"callback: argument {position} is a {kind}; pass arrays, numbers and strings")
        trace.callbacks.append(function)
        number = keep_callback(_Callback(function, arguments))
        trace.emit(callback_op, *values, id=number)
    trace.end_operation()


def _addressable(argument: Any) -> Any:
    """Return an argument in memory that Python can address: for an array elsewhere, a copy on the CPU."""
    is_elsewhere = isinstance(argument, ArrayCore) and not argument.device.is_addressable
    return argument.to(CPU) if is_elsewhere else argument


def _error(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


def _check_closure(function: Any) -> None:
    """Raise ArgumentError if a function captures an array or a number of the traced call."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            captured = cell.cell_contents
        except ValueError:
            continue
        if isinstance(captured, ArrayCore) or type(captured) is NumberProxy:
            raise _error(
                "callback: the function captures an array or number of the traced call, and would see it as "
                "it was while recording; pass it as an argument of tj.callback"
            )


def release_callbacks(graph: Graph, owner: object) -> None:
    """Release the callbacks of a graph when `owner` is freed."""
    for node in graph.nodes:
        if node.op is callback_op:
            weakref.finalize(owner, CALLBACKS.pop, node.attrs["id"], None)
