"""`tj.jit`: run a function's body once for each signature, replay it on later calls.

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

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import copy
import functools
import importlib
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from tracejit import engine
from tracejit.compile import Planned
from tracejit.config import config
from tracejit.errors import ArgumentError, locate
from tracejit.forking import make_rlock
from tracejit.frontend.jit import explain, record, specs
from tracejit.frontend.jit.entries import Signature, Timing
from tracejit.frontend.jit.piecewise import run_piecewise
from tracejit.frontend.jit.tree import Tree
from tracejit.frontend.python.kinds import Transparent
from tracejit.frontend.recording.eager import no_memory
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.segments import Segments
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.runtime import MISS, PIECEWISE
from tracejit.ir.graph import Graph


class CacheInfo(NamedTuple):
    """Counts of one traced function.

    >>> import tracejit as tj
    >>> tj.jit(lambda x: x * 2).cache_info().traces
    0
    """

    traces: int
    replays: int
    signatures: int
    kernels_compiled: int
    kernels_loaded: int


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", contravariant=True)

if TYPE_CHECKING:
    from tracejit.drawing.drawing import Drawing

    class BoundJitted(Protocol[P, R]):
        """The type of a bound traced method, for type checkers only; Python makes it a bound method."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        def explain(self) -> str: ...
        def draw(
            self, path: str | os.PathLike[str] | None = None, *args: Any, **kwargs: Any
        ) -> "Drawing": ...
        def cache_info(self) -> CacheInfo: ...
        def cache_clear(self) -> None: ...


class Jitted(Transparent, Generic[P, R]):
    """A traced function; made by `tj.jit`. Calling it replays the entry whose signature fits, or records a
    new one.

    >>> import tracejit as tj
    >>> type(tj.jit(lambda x: x + 1))
    <class 'tracejit.frontend.jit.jit.Jitted'>
    """

    def __init__(self, function: Callable[P, R], *, strict: bool = False):
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.__wrapped__ = function
        self._strict = strict
        self._entries: list[Signature] = []
        self._retraces: list[explain.Retrace] = []
        self._whole: weakref.WeakSet[Storage] = weakref.WeakSet()
        self._lock = make_rlock()
        self._segments = Segments()
        self._traces = 0
        self._dropped = 0
        self._replayed_before = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if thread.trace is not None or thread.plain or not config.jit:
            return self._inline(args, kwargs)
        entries = self._entries
        try:
            for entry in entries:
                result = entry.replay(args, kwargs)
                if result is not MISS:
                    if result is PIECEWISE:
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
        return self if instance is None else types.MethodType(self, instance)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body as part of another recording, or eagerly."""
        if thread.trace is not None:
            return self.__wrapped__(*args, **kwargs)
        return run_piecewise(self.__wrapped__, args, kwargs)

    def _run_piecewise(self, entry: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body, or record it again, after twice as many calls every time: state that is made when it
        is first needed is there by now, and a flag that only some code reads may have changed.
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
        """Record a call that none of the entries `known` can replay."""
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
            self.__wrapped__, args, kwargs, set(self._whole), strict=self._strict, segments=self._segments
        )
        self._traces += 1
        self._whole.update(recorded.whole)
        entry = recorded.entry
        if entry is not None and entry.segments:
            self._add_path(entry)
        elif entry is not None:
            entry.interval = max(interval, entry.interval)
            self._add(entry)
        return recorded.result

    def _add_path(self, path: Signature) -> None:
        """Add a path to the tree of its signature, which is new if no other begins with the same segment."""
        first = path.segments[0][0]
        tree = next((e for e in self._entries if isinstance(e, Tree) and e.first is first), None)
        if tree is None:
            self._add(Tree(path))
            return
        tree.add(path)
        self._entries = list(self._entries)  # who waits to record the same path sees that there is news
        if tree.is_bushy and not self._strict:
            self._segments.ended = tree.traces
            self._entries = [entry for entry in self._entries if not isinstance(entry, Tree)]

    def _add(self, entry: Signature) -> None:
        retrace = explain.reason(entry, self._entries)
        if retrace is not None:
            self._retraces = [*self._retraces[-99:], retrace]
            if config.explain:
                explain.announce(self.__name__, retrace)
        replayable = [e for e in self._entries if e.schedule is not None]
        others = [e for e in self._entries if e.schedule is None]  # these know less of their calls
        entries = (
            [entry, *replayable, *others] if entry.schedule is not None else [*replayable, entry, *others]
        )
        while len(entries) > max(config.signatures, 1):
            oldest = min((e for e in entries if e is not entry), key=lambda e: e.used)
            entries.remove(oldest)
            self._replayed_before += oldest.replays
            self._dropped += 1
        self._entries = entries

    # -- copies ----------------------------------------------------------------------------------------------

    def __copy__(self) -> "Jitted[P, R]":
        """Itself, as with any function."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Jitted[P, R]":
        """Itself around a function, which has no copies. Around a bound method (or another object with a copy
        of its own) another one: it belongs to the copy of the method's object, and knows no signatures yet.
        """
        wrapped = copy.deepcopy(self.__wrapped__, memo)
        if wrapped is self.__wrapped__:
            return self
        if id(self) not in memo:  # the method's object may hold it, and have been copied just now
            memo[id(self)] = made = Jitted(wrapped, strict=self._strict)
            vars(made).update(copy.deepcopy(self._given(), memo))
        known: Jitted[P, R] = memo[id(self)]
        return known

    def __reduce__(self) -> Any:
        """Pickled by its qualified name, as functions are, where that leads to it; else made again around
        what it wraps, which pickle refuses if it is a function without such a name, say a lambda.
        """
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name
        return functools.partial(jit, strict=self._strict), (self.__wrapped__,), self._given() or None

    def _given(self) -> dict[str, Any]:
        """The attributes that somebody has given it."""
        return {k: v for k, v in vars(self).items() if k not in vars(Jitted(self.__wrapped__))}

    # -- looking inside --------------------------------------------------------------------------------------

    def entry_for(self, *args: Any, **kwargs: Any) -> Signature:
        """The entry these arguments (arrays, or `tj.spec`s for them) have; recorded without running, if
        new.
        For tools; `graph`, `schedule` and `kernels` show what it holds.
        """
        return specs.entry_for(self, args, kwargs)

    def warm(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile for these arguments without computing or changing anything.

        Arrays may be given as `tj.spec(shape, dtype)`.
        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> double.warm(tj.spec(3))
        >>> double(tj.ones(3)), double.cache_info().traces
        (NDArray([2., 2., 2.], dtype=float32), 1)
        """
        self.entry_for(*args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Planned:
        """The memory plan for these arguments (arrays, or `tj.spec`s for them), without compiling a kernel.

        `planned_bytes` and `naive_bytes` are those of intermediate results with and without sharing memory.
        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> total = tj.jit(lambda x: ((x @ x) @ x).sum())
        >>> plan = total.plan(tj.spec((64, 64)))
        >>> plan.planned_bytes <= plan.naive_bytes
        True
        """
        return specs.plan_for(self, args, kwargs)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The recorded graph for these arguments; `print` shows it.

        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> print(double.graph(tj.spec(3)))
        graph(%0: float32[3]) {
          %1: float32 = constant() [value=2.0]
          %2: float32[3] = multiply(%0, %1)
          return %2
        }
        """
        return self.entry_for(*args, **kwargs).graph

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled schedule for these arguments: tasks, their dependencies, buffers; `print` shows it.

        Raises ReplayError or ArgumentError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> print(double.schedule(tj.spec(3)))
        schedule(%0: float32[3])
          0: %2@output 0 = multiply(%0@input 0, %1) [1/1]
          return %2@output 0
        memory: planned 0 bytes, naive 0
        """
        entry = self.entry_for(*args, **kwargs)
        if entry.schedule is None:
            raise ArgumentError(f"{self.__name__} runs piecewise for these arguments: {entry.reasons[0][0]}")
        return entry.schedule

    def draw(self, path: str | os.PathLike[str] | None = None, *args: Any, **kwargs: Any) -> "Drawing":
        """A picture of the graph for these arguments (arrays, or `tj.spec`s for them), without any of the
        signature that served last: as recorded, by the user's lines, and as kernels. With a `path` it is
        written to that file, ``.svg`` or ``.html``; a notebook shows it.

        Raises ArgumentError for another ending, or where there is no graph yet; ReplayError if the function
        cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.draw()
        <Drawing of <lambda>: .save('graph.svg'), .save('graph.html')>
        """
        if args or kwargs:
            entry = self.entry_for(*args, **kwargs)
        else:
            known = [e for e in self._entries if e.schedule is not None]
            if not known:
                raise ArgumentError(
                    f"draw: {self.__name__} has no graph yet; call it first, or give arguments (tj.spec) "
                    "after the path, which may be None"
                )
            entry = max(known, key=lambda e: e.used)
        count = len(entry.graph.outputs)
        outputs = ["result"] if count == 1 else [f"array {i}" for i in range(count)]
        module = importlib.import_module("tracejit.drawing.drawing")  # it reads sources: not at the start
        drawing: Drawing = module.Drawing(self.__name__, entry.graph, module.Names(entry.names, outputs))
        if path is not None:
            drawing.save(path)
        return drawing

    def schedules(self) -> list[Any]:
        """The schedules of all signatures seen so far, oldest first (those that run piecewise have none).

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> double.warm(tj.spec(3))
        >>> len(double.schedules())
        1
        """
        paths = [path for e in self._entries for path in (e.paths if isinstance(e, Tree) else [e])]
        known = {id(schedule): schedule for path in reversed(paths) for schedule in path.schedules}
        return list(known.values())

    def first_call(self) -> Timing:
        """Time that the first call of the oldest signature took: record, compile (or load), run.

        Seconds. Raises ArgumentError if no call could be replayed yet.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.first_call().record > 0
        True
        """
        timings = [e.timing for e in reversed(self._entries) if e.timing is not None]
        if not timings:
            raise ArgumentError(f"{self.__name__} has not been called in a way that can be replayed")
        return timings[0]

    def kernels(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The kernels for these arguments: name, source, user lines, whether vectorised, where they came
        from.
        Raises ReplayError or ArgumentError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> [kernel.name for kernel in double.kernels(tj.spec(3))]
        ['multiply']
        """
        return list(self.schedule(*args, **kwargs).kernels)

    def explain(self) -> str:
        """For people: signatures seen, why each retrace happened, kernels and memory, what could not be
        replayed.

        >>> import tracejit as tj
        >>> largest = tj.jit(lambda x: float(x.max()))
        >>> largest(tj.ones(3))
        1.0
        >>> print(largest.explain())  # doctest: +ELLIPSIS
        <lambda>...
        """
        return explain.report(self.__name__, self._entries, self._retraces, self._dropped)

    def cache_info(self) -> CacheInfo:
        """Counts: traces, replays, signatures, kernels compiled and loaded.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x, y = double(tj.ones(3)), double(tj.ones(3))
        >>> info = double.cache_info()
        >>> info.traces, info.replays, info.signatures
        (1, 1, 1)
        """
        paths = [path for e in self._entries for path in (e.paths if isinstance(e, Tree) else [e])]
        kernels = {k.key: k for path in paths for schedule in path.schedules for k in schedule.kernels}
        origins = [k.origin for k in kernels.values()]
        return CacheInfo(
            traces=self._traces,
            replays=self._replayed_before + sum(e.replays for e in self._entries),
            signatures=len(self._entries),
            kernels_compiled=origins.count("compiled"),
            kernels_loaded=origins.count("loaded"),
        )

    def cache_clear(self) -> None:
        """Forget all signatures.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.cache_clear()
        >>> double.cache_info().signatures
        0
        """
        with self._lock:
            self._entries, self._retraces = [], []


@overload
def jit(function: Callable[P, R], *, strict: bool = False) -> Jitted[P, R]: ...


@overload
def jit(function: None = None, *, strict: bool = False) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


def jit(function: Any = None, *, strict: bool = False) -> Any:
    """Trace `function` on its first call and replay it on later ones.

    The body runs once for each signature: the arguments' structure, shapes, dtypes and aliasing, and the
    numbers it looked at. With ``strict=True`` a body that cannot be replayed raises `ReplayError` at the line
    that is the reason; otherwise it runs piecewise, and `explain()` says why.
    Raises ArgumentError for what cannot be called, generators and coroutines.

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
    if code is not None and code.co_flags & 0x2A0:  # generator, coroutine, asynchronous generator
        name = getattr(inner, "__qualname__", type(inner).__name__)
        raise locate(
            ArgumentError(
                f"jit: {name} is a generator or coroutine; trace the function that does one step of it"
            ),
            user_location(),
        )
    return Jitted(function, strict=strict)
