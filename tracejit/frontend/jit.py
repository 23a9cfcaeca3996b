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
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit import engine
from tracejit.compile import Planned
from tracejit.config import config
from tracejit.errors import ArgumentError
from tracejit.forking import make_rlock
from tracejit.frontend import explain, specs, tracer
from tracejit.frontend.eager import no_memory
from tracejit.frontend.kinds import Transparent
from tracejit.frontend.piecewise import run_piecewise
from tracejit.frontend.recording import thread
from tracejit.frontend.replay import MISS
from tracejit.frontend.storage import Storage
from tracejit.frontend.tracer import PIECEWISE, Entry
from tracejit.ir.graph import Graph

GROWTH = 3
"""How often a function is recorded again because it changed the keys or length of a container."""


class CacheInfo(NamedTuple):
    """Counts of one traced function."""

    traces: int
    replays: int
    signatures: int
    kernels_compiled: int
    kernels_loaded: int


class Jitted(Transparent):
    """A traced function; made by `tj.jit`. Calling it replays the entry whose signature fits, or records a
    new one."""

    def __init__(self, function: Callable[..., Any], *, strict: bool = False):
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.__wrapped__ = function
        self._strict = strict
        self._entries: list[Entry] = []
        self._retraces: list[explain.Retrace] = []
        self._whole: weakref.WeakSet[Storage] = weakref.WeakSet()
        self._lock = make_rlock()
        self._traces = 0
        self._dropped = 0
        self._grown = 0  # calls that changed a container in a way that they may not do again
        self._replayed_before = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body as part of another recording, or eagerly."""
        if thread.trace is not None:
            return self.__wrapped__(*args, **kwargs)
        return run_piecewise(self.__wrapped__, args, kwargs)

    def _run_piecewise(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body; now and then, record it again: a flag that only some code reads may have changed."""
        entry.pieces += 1
        if entry.pieces < entry.patience:
            return run_piecewise(self.__wrapped__, args, kwargs)
        entry.pieces = 0
        with self._lock:
            known = set(map(id, self._entries))
            result = self._record_now(args, kwargs)
            for each in self._entries:
                if id(each) not in known and each.patience > 1:
                    each.patience = max(each.patience, 2 * entry.patience)
            self._entries = [e for e in self._entries if e is not entry]
        return run_piecewise(self.__wrapped__, args, kwargs) if result is PIECEWISE else result

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any], known: list[Entry]) -> Any:
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

    def _record_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorded = tracer.record(self.__wrapped__, args, kwargs, set(self._whole), strict=self._strict)
        self._traces += 1
        for storage in recorded.aliased:
            self._whole.add(storage)
        entry = recorded.entry
        if entry is not None:
            if recorded.grown and self._grown < GROWTH:  # state that is made when it is first needed, say
                self._grown += 1
                entry.patience = 1
            self._add(entry)
        return recorded.result

    def _add(self, entry: Entry) -> None:
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

    def __copy__(self) -> "Jitted":
        """Itself, as with any function."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Jitted":
        """Itself around a function, which has no copies. Around a bound method (or another object with a copy
        of its own) another one: it belongs to the copy of the method's object, and knows no signatures yet.
        """
        wrapped = copy.deepcopy(self.__wrapped__, memo)
        if wrapped is self.__wrapped__:
            return self
        if id(self) not in memo:  # the method's object may hold it, and have been copied just now
            memo[id(self)] = made = Jitted(wrapped, strict=self._strict)
            vars(made).update(copy.deepcopy(self._given(), memo))
        known: Jitted = memo[id(self)]
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

    def entry_for(self, *args: Any, **kwargs: Any) -> Entry:
        """The entry these arguments (arrays, or `tj.spec`s for them) have; recorded without running, if
        new."""
        return specs.entry_for(self, args, kwargs)

    def warm(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile for these arguments without computing or changing anything.

        Arrays may be given as `tj.spec(shape, dtype)`.
        """
        self.entry_for(*args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Planned:
        """The memory plan for these arguments (arrays, or `tj.spec`s for them), without compiling a kernel.

        `planned_bytes` and `naive_bytes` are those of intermediate results with and without sharing memory.
        """
        return specs.plan_for(self, args, kwargs)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The recorded graph for these arguments; `print` shows it."""
        return self.entry_for(*args, **kwargs).graph

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled schedule for these arguments: tasks, their dependencies, buffers; `print` shows it."""
        entry = self.entry_for(*args, **kwargs)
        if entry.schedule is None:
            raise ArgumentError(f"{self.__name__} runs piecewise for these arguments: {entry.reasons[0][0]}")
        return entry.schedule

    def schedules(self) -> list[Any]:
        """The schedules of all signatures seen so far, oldest first (those that run piecewise have none)."""
        return [e.schedule for e in reversed(self._entries) if e.schedule is not None]

    def first_call(self) -> tracer.Timing:
        """How long the first call of the oldest signature took: record, compile (or load), run."""
        timings = [e.timing for e in reversed(self._entries) if e.timing is not None]
        if not timings:
            raise ArgumentError(f"{self.__name__} has not been called in a way that can be replayed")
        return timings[0]

    def kernels(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The kernels for these arguments: name, source, user lines, whether vectorised, where they came
        from."""
        return list(self.schedule(*args, **kwargs).kernels)

    def explain(self) -> str:
        """For people: signatures seen, why each retrace happened, kernels and memory, what could not be
        replayed."""
        return explain.report(self.__name__, self._entries, self._retraces, self._dropped)

    def cache_info(self) -> CacheInfo:
        """Counts: traces, replays, signatures, kernels compiled and loaded."""
        kernels = {k.key: k for e in self._entries if e.schedule is not None for k in e.schedule.kernels}
        origins = [k.origin for k in kernels.values()]
        return CacheInfo(
            traces=self._traces,
            replays=self._replayed_before + sum(e.replays for e in self._entries),
            signatures=len(self._entries),
            kernels_compiled=origins.count("compiled"),
            kernels_loaded=origins.count("loaded"),
        )

    def cache_clear(self) -> None:
        """Forget all signatures."""
        with self._lock:
            self._entries, self._retraces = [], []


def jit(function: Callable[..., Any] | None = None, *, strict: bool = False) -> Any:
    """Trace `function` on its first call and replay it on later ones.

    The body runs once for each signature: the arguments' structure, shapes, dtypes and aliasing, and the
    numbers it looked at. With ``strict=True`` a body that cannot be replayed raises `ReplayError` at the line
    that is the reason; otherwise it runs piecewise, and `explain()` says why.
    """
    if function is None:
        return functools.partial(jit, strict=strict)
    if not callable(function):
        raise ArgumentError(f"jit: expected a function, got {type(function).__name__}")
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    if code is not None and code.co_flags & 0x2A0:  # generator, coroutine, asynchronous generator
        name = getattr(inner, "__qualname__", type(inner).__name__)
        raise ArgumentError(
            f"jit: {name} is a generator or coroutine; trace the function that does one step of it"
        )
    return Jitted(function, strict=strict)
