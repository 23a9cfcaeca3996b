"""The recorded signatures of a traced function, and the information about them for users and tools."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import importlib
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit import compile
from tracejit.compile import Planned
from tracejit.config import config
from tracejit.errors import ArgumentError, ReplayError
from tracejit.forking import make_rlock
from tracejit.frontend.jit import explain, record, specs
from tracejit.frontend.jit.entries import Path, RecordedCall, Signature, Timing
from tracejit.frontend.jit.trace_tree import TraceTree
from tracejit.frontend.recording.segments import Segments
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Graph

if TYPE_CHECKING:
    from tracejit.drawing.drawing import Drawing


class CacheInfo(NamedTuple):
    """Statistics of a traced function: the numbers of recorded calls, replayed calls, stored signatures, and
    kernels that were compiled, or loaded from the cache.

    >>> import tracejit as tj
    >>> tj.jit(lambda x: x * 2).cache_info().traces
    0
    """

    traces: int
    replays: int
    signatures: int
    kernels_compiled: int
    kernels_loaded: int


class Signatures:
    """The signatures of one traced function; see `jit.Jitted`.

    _entries:         the entries, one for each signature, in the order in which a call tries them. Calls read
                      the list without a lock, so it is replaced, never modified.
    _retraces:        why known signatures did not serve a call.
    _aliased:         storages that enter traces in full, because several views of them are used.
    _segments:        the segments of all paths.
    _traces:          the number of recorded calls.
    _dropped:         the number of evicted signatures.
    _replayed_before: the number of calls that these had served.
    """

    __name__: str
    __wrapped__: Callable[..., Any]
    _strict: bool

    def __init__(self) -> None:
        self._entries: list[Signature] = []
        self._retraces: list[explain.Retrace] = []
        self._aliased: weakref.WeakSet[Storage] = weakref.WeakSet()
        self._lock = make_rlock()
        self._segments = Segments()
        self._traces = 0
        self._dropped = 0
        self._replayed_before = 0

    def _add_path(self, path: Path) -> None:
        """Add a path to the trace tree that starts with the same segment, or to a new one."""
        first = path.segments[0][0]
        tree = next((e for e in self._entries if isinstance(e, TraceTree) and e.first is first), None)
        if tree is None:
            self._add(TraceTree(path))
            return
        tree.add(path)
        self._entries = list(self._entries)  # a thread that waits to record the same path sees a change
        if tree.is_growing and not self._strict:
            self._segments.ended = tree.traces
            self._entries = [entry for entry in self._entries if not isinstance(entry, TraceTree)]

    def _add(self, entry: Signature) -> None:
        """Add an entry for a new signature, and evict the least recently used ones beyond the limit."""
        retrace = explain.reason(entry, self._entries)
        if retrace is not None:
            self._retraces = [*self._retraces[-99:], retrace]
            if config.explain:
                explain.announce(self.__name__, retrace)
        replayable = [e for e in self._entries if e.paths]
        others = [e for e in self._entries if not e.paths]  # their checks are less specific
        entries = [entry, *replayable, *others] if entry.paths else [*replayable, entry, *others]
        while len(entries) > max(config.signatures, 1):
            oldest = min((e for e in entries if e is not entry), key=lambda e: e.used)
            entries.remove(oldest)
            self._replayed_before += oldest.replays
            self._dropped += 1
            for retrace in self._retraces:
                _ = retrace.differences  # they may refer to it
        self._entries = entries

    # -- inspection ------------------------------------------------------------------------------------------

    def entry_for(self, *args: Any, **kwargs: Any) -> Path:
        """Return the entry for these arguments (arrays, or `tj.spec`s for them). If it is new, the call is
        recorded without computing anything. For tools; `graph`, `schedule` and `kernels` show its content.
        """
        with self._lock:
            try:
                recorded = self._record_without_launch(args, kwargs)
            except ReplayError as error:
                if any(path.segments for entry in self._entries for path in entry.paths):
                    error.add_note(
                        "Its kernels depend on values: `schedules()` has those of the calls so far"
                    )
                raise
            entry = recorded.entry
            assert isinstance(entry, Path), "a body that cannot be replayed raises"
            known = (path for path in self._entries if isinstance(path, Path) and path.is_same(entry))
            path = next(known, entry)
            if path is entry:
                self._traces += 1
                self._add(entry)
            return path

    def _record_without_launch(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, compiled: bool = True
    ) -> RecordedCall:
        """Record a call with these arguments, or specs for them. Nothing is computed or changed."""
        args, kwargs = specs.without_specs(args, kwargs)
        return record.record(
            self.__wrapped__, args, kwargs, set(self._aliased), strict=True, launch=False, compiled=compiled
        )

    def warm(self, *args: Any, **kwargs: Any) -> None:
        """Record and compile a call with these arguments, without computing or changing anything.

        `tj.spec(shape, dtype)` may stand for an array.
        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> double.warm(tj.spec(3))
        >>> double(tj.ones(3)), double.cache_info().traces
        (NDArray([2., 2., 2.], dtype=float32), 1)
        """
        self.entry_for(*args, **kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Planned:
        """Return the memory plan for these arguments (arrays, or `tj.spec`s for them), without compiling a
        kernel.

        `planned_bytes` and `naive_bytes` are the sizes of intermediate results with and without shared
        memory. Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> total = tj.jit(lambda x: ((x @ x) @ x).sum())
        >>> plan = total.plan(tj.spec((64, 64)))
        >>> plan.planned_bytes <= plan.naive_bytes
        True
        """
        return compile.plan_graph(self._record_without_launch(args, kwargs, compiled=False).result.graph)

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the recorded graph for these arguments; `print` shows it.

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
        """Return the compiled schedule for these arguments: tasks, dependencies, buffers; `print` shows it.

        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> print(double.schedule(tj.spec(3)))
        schedule(%0: float32[3])
          0: %2@output 0 = multiply(%0@input 0, %1) [1/1]
          return %2@output 0
        memory: planned 0 bytes, naive 0
        """
        return self.entry_for(*args, **kwargs).schedule

    def draw(self, path: str | os.PathLike[str] | None = None, *args: Any, **kwargs: Any) -> "Drawing":
        """Draw the graph for these arguments (arrays, or `tj.spec`s for them): as recorded, by source lines,
        and as kernels. Without arguments, the signature that served the last call is drawn. With a `path` the
        picture is written to this file, ``.svg`` or ``.html``. A notebook shows the result.

        Raises ArgumentError for another file name extension, or if there is no graph yet; ReplayError if the
        function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.draw()
        <Drawing of <lambda>: .save('graph.svg'), .save('graph.html')>
        """
        if args or kwargs:
            entry = self.entry_for(*args, **kwargs)
        else:
            known = [path for entry in self._entries for path in entry.paths]
            if not known:
                raise ArgumentError(
                    f"draw: {self.__name__} has no graph yet; call it first, or give arguments (tj.spec) "
                    "after the path, which may be None"
                )
            entry = max(known, key=lambda e: e.used)
        count = len(entry.graph.outputs)
        outputs = ["result"] if count == 1 else [f"array {i}" for i in range(count)]
        module = importlib.import_module("tracejit.drawing.drawing")  # only imported when it is needed
        drawing: Drawing = module.Drawing(
            self.__name__, entry.graph, module.PictureNames(entry.names, outputs)
        )
        if path is not None:
            drawing.save(path)
        return drawing

    def schedules(self) -> list[Any]:
        """Return the schedules of all signatures, oldest first. Signatures that run piecewise have none.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> double.warm(tj.spec(3))
        >>> len(double.schedules())
        1
        """
        paths = [path for entry in self._entries for path in entry.paths]
        known = {id(schedule): schedule for path in reversed(paths) for schedule in path.schedules}
        return list(known.values())

    def first_call(self) -> Timing:
        """Return the times of the first call of the oldest signature, in seconds: to record, to compile (or
        load) kernels, and to run.

        Raises ArgumentError if no recorded call can be replayed.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.first_call().record > 0
        True
        """
        paths = [path for entry in self._entries for path in entry.paths]
        timings = [path.timing for path in reversed(paths) if path.timing is not None]
        if not timings:
            raise ArgumentError(f"{self.__name__} has not been called in a way that can be replayed")
        return timings[0]

    def kernels(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the kernels for these arguments: their names, sources and origins, the user's lines, and
        whether they are vectorised.

        Raises ReplayError if the function cannot be replayed for these arguments.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> [kernel.name for kernel in double.kernels(tj.spec(3))]
        ['multiply']
        """
        return list(self.schedule(*args, **kwargs).kernels)

    def explain(self) -> str:
        """Return a report for users: signatures, the reason of each retrace, kernels, memory, and what could
        not be replayed.

        >>> import tracejit as tj
        >>> largest = tj.jit(lambda x: float(x.max()))
        >>> largest(tj.ones(3))
        1.0
        >>> print(largest.explain())  # doctest: +ELLIPSIS
        <lambda>...
        """
        return explain.report(self.__name__, self._entries, self._retraces, self._dropped)

    def cache_info(self) -> CacheInfo:
        """Return the numbers of traces, replays, signatures, and kernels that were compiled and loaded.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x, y = double(tj.ones(3)), double(tj.ones(3))
        >>> info = double.cache_info()
        >>> info.traces, info.replays, info.signatures
        (1, 1, 1)
        """
        paths = [path for entry in self._entries for path in entry.paths]
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
        """Drop all signatures.

        >>> import tracejit as tj
        >>> double = tj.jit(lambda x: x * 2)
        >>> x = double(tj.ones(3))
        >>> double.cache_clear()
        >>> double.cache_info().signatures
        0
        """
        with self._lock:
            self._entries, self._retraces = [], []
