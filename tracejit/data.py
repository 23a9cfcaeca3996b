"""`tj.data`: batches that are loaded while a step runs.

A `Prefetch` keeps a few Python tasks of the engine ahead of its consumer, each of which takes the next item
of the source. They share an engine variable that all of them write, so they run one after the other, in
order, on the engine's threads; there is no thread of its own that could be left over. When the consumer lets
go (`close`, ``break``, the end of the process), the tasks that are left take nothing any more, and the source
is dropped with the last of them. A forked child goes on by itself with its copy of the source.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from tracejit import engine
from tracejit.errors import ArgumentError, EngineError, locate
from tracejit.forking import make_lock
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread

T = TypeVar("T")


class _Fetched:
    """The result of one task: an item of the source, or the error that ended it."""

    __slots__ = ("error", "item", "loaded", "ready")

    def __init__(self) -> None:
        self.ready = engine.Variable("prefetched")
        self.loaded = False
        self.item: Any = None
        self.error: BaseException | None = None


class _Source:
    """The iterator, which tasks take from one after the other, until it is closed."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator: Iterator[Any] | None = iterator
        self.order = engine.Variable("prefetch")
        self.closed = False
        _open.add(self)

    def request(self) -> _Fetched:
        """A slot that the next item will be put into."""
        slot = _Fetched()
        engine.push(lambda: self._take(slot), writes=[self.order, slot.ready], name="prefetch")
        return slot

    def _take(self, slot: _Fetched) -> None:
        """Run as a task. The error, StopIteration too, is kept with its traceback for who waits."""
        if not self.closed and self.iterator is not None:
            try:
                slot.item = next(self.iterator)
            except BaseException as error:
                slot.error, self.iterator = error, None
        if self.closed:
            self.iterator = None
        slot.loaded = True

    def close(self) -> None:
        """Have tasks take nothing more. May be called anywhere, also by the garbage collector."""
        self.closed = True


_open: WeakSet[_Source] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all sources at exit: the engine waits a while for running tasks, but need not load more."""
    for source in list(_open):
        source.close()


class Prefetch(Generic[T]):
    """An iterator whose next items are being loaded by tasks of the engine; see `prefetch`.

    >>> import tracejit as tj
    >>> with tj.data.prefetch(range(5)) as batches:
    ...     next(batches)
    0
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2) -> None:
        _refuse_traces()
        ahead = integer("data.prefetch: depth", depth)
        if ahead < 1:
            message = f"data.prefetch: expected a depth of at least 1, got {ahead}"
            raise locate(ArgumentError(message), user_location())
        try:
            iterator = iter(iterable)
        except TypeError:
            message = f"data.prefetch: expected an iterable, got {type(iterable).__name__}"
            raise locate(ArgumentError(message), user_location()) from None
        self._lock = make_lock()
        self._source = _Source(iterator)
        self._slots = deque(self._source.request() for _ in range(ahead))

    def __iter__(self) -> Prefetch[T]:
        return self

    def __next__(self) -> T:
        _refuse_traces()
        with self._lock:
            if not self._slots:
                raise StopIteration
            slot = self._slots[0]
            engine.wait(slot.ready)
            if not slot.loaded:  # the process was forked while it was being loaded
                self._slots.clear()
                message = (
                    "data.prefetch: the item was being loaded when this process was forked; iterate again"
                )
                raise locate(EngineError(message), user_location())
            self._slots.popleft()
            if slot.error is None:
                self._slots.append(self._source.request())
                found: T = slot.item
                return found
            self._slots.clear()
        if isinstance(slot.error, StopIteration):
            raise StopIteration
        raise slot.error

    def close(self) -> None:
        """Load nothing more; what is loaded is dropped, and the source when a task that uses it has ended.

        >>> import tracejit as tj
        >>> batches = tj.data.prefetch(range(5))
        >>> batches.close()
        >>> list(batches)
        []
        """
        self._source.close()
        self._slots.clear()

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        source = getattr(self, "_source", None)
        if source is not None:
            source.close()


def _refuse_traces() -> None:
    """Iterating in a traced body takes other items in each call: the body runs itself."""
    if thread.trace is not None:
        thread.trace.give_up("tj.data.prefetch gives other items in every call", remedy="iterate outside")


def prefetch(iterable: Iterable[T], depth: int = 2) -> Prefetch[T]:
    """An iterator over the items of `iterable`, of which the next `depth` are loaded while you compute.

    Any iterable will do, a generator or PyTorch's ``DataLoader``. They are taken in order, one at a time, on
    a thread of the engine, so loading may read files and make arrays; ``map(convert, loader)`` converts them
    there. What the source raises is raised where its item is asked for, with its traceback.
    It ends, and releases the source, at the end of a ``with`` block, by `close`, and when nothing refers to
    it any more, as after ``break``.
    Raises ArgumentError for what is no iterable and for a depth below 1.

    >>> import tracejit as tj
    >>> def batches():
    ...     for i in range(3):
    ...         yield tj.full(2, i)
    >>> [int(batch.sum()) for batch in tj.data.prefetch(batches())]
    [0, 2, 4]
    """
    return Prefetch(iterable, depth)


__all__ = ["Prefetch", "prefetch"]
