"""`tj.jit`: run the body of a function once for each signature, and replay it in later calls.

>>> import tracejit as tj
>>> @tj.jit
... def step(w, x, lr):
...     w -= lr * x
...     return (w * w).sum()
>>> w = tj.ones(3)
>>> for lr in (0.5, 0.25):
...     loss = step(w, tj.ones(3), lr)
>>> float(loss), step.cache_info().traces
(0.1875, 1)
"""

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tracejit import engine
from tracejit.config import config
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.jit import record
from tracejit.frontend.jit.entries import Path, PiecewiseSignature, Signature
from tracejit.frontend.jit.piecewise import run_piecewise
from tracejit.frontend.jit.signatures import Signatures
from tracejit.frontend.python.kinds import Transparent, bound
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.look_loops.frames import PASSING
from tracejit.frontend.recording.partial import no_memory
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.runtime import MISS, PIECEWISE
from tracejit.frontend.surroundings.numbers_found import CALLED, with_own_builtins

SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of functions whose bodies do not run when they are called."""

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", contravariant=True)

if TYPE_CHECKING:

    class BoundJitted(Signatures, Generic[P, R]):
        """The type of a bound traced method, for type checkers only. At run time it is a bound method, which
        gives access to all attributes of the traced function.
        """

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Jitted(Transparent, Signatures, Generic[P, R]):
    """A traced function, created by `tj.jit`. A call replays the entry with its signature, or records a new
    one.

    >>> import tracejit as tj
    >>> type(tj.jit(lambda x: x + 1))
    <class 'tracejit.frontend.jit.jit.Jitted'>
    """

    def __init__(self, function: Callable[P, R], *, strict: bool = False):
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.__wrapped__ = function
        self._strict = strict
        super().__init__()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if thread.trace is not None or thread.inlining or not config.jit:
            return self._inline(args, kwargs)
        entries = self._entries
        try:
            for entry in entries:
                result = entry.replay(args, kwargs)
                if result is not MISS:
                    if result is PIECEWISE:
                        assert isinstance(entry, PiecewiseSignature)
                        return self._run_piecewise(entry, args, kwargs)
                    return result
        except engine.ExhaustedError as error:
            raise no_memory(entry.graph, error) from None
        return self._record(args, kwargs, entries)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Jitted[P, R]": ...

    @overload
    def __get__(
        self: "Jitted[Concatenate[S, Q], R]", instance: S, owner: type | None = None
    ) -> "BoundJitted[Q, R]": ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return bound(self, instance)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body as part of another recording, or eagerly."""
        trace = thread.trace
        if trace is not None:
            may_look = (
                isinstance(trace, Trace)
                and trace.looks.segments is not None
                and trace.assumed.functions
                and not trace.numbers.concrete
            )
            function = with_own_builtins(self.__wrapped__, CALLED) if may_look else self.__wrapped__
            return function(*args, **kwargs)
        return run_piecewise(self.__wrapped__, args, kwargs)

    def _run_piecewise(self, entry: PiecewiseSignature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body, or record it again; the interval between recordings doubles each time. The reason may
        be gone by then: state that is created on first use exists, a flag may have changed.
        """
        entry.pieces += 1
        if entry.pieces < entry.interval:
            return run_piecewise(self.__wrapped__, args, kwargs)
        entry.pieces = 0
        with self._lock:
            self._entries = [e for e in self._entries if e is not entry]
            result = self._record_now(args, kwargs, interval=2 * entry.interval)
        return run_piecewise(self.__wrapped__, args, kwargs) if result is PIECEWISE else result

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[Signature]) -> Any:
        """Record a call that no entry in `known` can replay."""
        with self._lock:
            # Another thread may have recorded this signature meanwhile.
            for entry in list(self._entries) if self._entries is not known else ():
                try:
                    result = entry.replay(args, kwargs)
                except engine.ExhaustedError as error:
                    raise no_memory(entry.graph, error) from None
                if result is PIECEWISE:
                    break
                if result is not MISS:
                    return result
            else:
                result = self._record_now(args, kwargs)
                if result is not PIECEWISE:
                    return result
        return run_piecewise(self.__wrapped__, args, kwargs)

    def _record_now(self, args: tuple[Any, ...], kwargs: dict[str, Any], interval: int = 1) -> Any:
        recorded = record.record(
            self.__wrapped__,
            args,
            kwargs,
            set(self._aliased),
            strict=self._strict,
            segments=self._segments,
            required=[entry.pinned for entry in self._entries],
        )
        self._traces += 1
        self._aliased.update(recorded.aliased)
        entry = recorded.entry
        if isinstance(entry, Path) and entry.segments:
            self._add_path(entry)
        elif entry is not None:
            if isinstance(entry, PiecewiseSignature):
                entry.interval = max(interval, entry.interval)
            self._add(entry)
        return recorded.result

    PASSING.update((__call__.__code__, _inline.__code__))

    # -- copies ----------------------------------------------------------------------------------------------

    def __copy__(self) -> "Jitted[P, R]":
        """Return the traced function itself, as for any function."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Jitted[P, R]":
        """Return the traced function itself if it wraps a function, which `deepcopy` does not copy. If it
        wraps a bound method, or another object that is copied, return a new one, without signatures, for the
        copy.
        """
        wrapped = copy.deepcopy(self.__wrapped__, memo)
        if wrapped is self.__wrapped__:
            return self
        if id(self) not in memo:  # the method's object may refer to it: then it has just been copied
            memo[id(self)] = clone = Jitted(wrapped, strict=self._strict)
            vars(clone).update(copy.deepcopy(self._user_attributes(), memo))
        result: Jitted[P, R] = memo[id(self)]
        return result

    def __reduce__(self) -> Any:
        """Pickle it by its qualified name, as a function, if the name refers to it. Otherwise pickle the
        wrapped object, and rebuild it around that; pickle refuses a function without such a name, for example
        a lambda.
        """
        name: str = getattr(self, "__qualname__", "")
        named: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            named = getattr(named, part, None)
        if named is self:
            return name
        return (
            functools.partial(jit, strict=self._strict),
            (self.__wrapped__,),
            self._user_attributes() or None,
        )

    def _user_attributes(self) -> dict[str, Any]:
        """Return the attributes that users have added to it."""
        return {k: v for k, v in vars(self).items() if k not in vars(Jitted(self.__wrapped__))}


@overload
def jit(function: Callable[P, R], *, strict: bool = False) -> Jitted[P, R]: ...


@overload
def jit(function: None = None, *, strict: bool = False) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


def jit(function: Any = None, *, strict: bool = False) -> Any:
    """Trace `function` in its first call, and replay it in later ones.

    The body runs once for each signature: the structure, shapes, dtypes and aliasing of the arguments, and
    the numbers that the body looked at. With ``strict=True`` a body that cannot be replayed raises
    `ReplayError` at the line that is the reason; otherwise it runs piecewise, and `explain()` shows the
    reason. Raises ArgumentError if `function` is not callable, or is a generator or coroutine.

    >>> import tracejit as tj
    >>> @tj.jit
    ... def axpy(a, x, y):
    ...     return a * x + y
    >>> axpy(2.0, tj.ones(2), tj.ones(2))
    NDArray([3., 3.], dtype=float32)
    """
    if function is None:
        return functools.partial(jit, strict=strict)
    check_callable("jit", function)
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    if code is not None and code.co_flags & SUSPENDED:
        name = getattr(inner, "__qualname__", type(inner).__name__)
        raise locate(
            ArgumentError(
                f"jit: {name} is a generator or coroutine; trace the function that does one step of it"
            ),
            user_location(),
        )
    return Jitted(function, strict=strict)
