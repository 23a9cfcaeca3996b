"""`tj.data`: prefetching of batches while a step runs.

A `Prefetch` keeps a few Python tasks of the engine ahead of its consumer, each of which fetches the next item
of the source. All tasks write a common engine variable, so they run sequentially and in order on the engine's
threads; there is no separate thread that could outlive the consumer. After the consumer has finished
(`close`, ``break``, the end of the process), the remaining tasks do not fetch further items, and the last of
them releases the source. A forked child continues independently with its copy of the source.
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
    """The source iterator, from which tasks fetch items sequentially until it is closed."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator: Iterator[Any] | None = iterator
        self.order = engine.Variable("prefetch")
        self.closed = False
        _open.add(self)

    def request(self) -> _Fetched:
        """Schedule the fetch of the next item, and return the slot that will contain it."""
        slot = _Fetched()
        engine.push(lambda: self._fetch(slot), writes=[self.order, slot.ready], name="prefetch")
        return slot

    def _fetch(self, slot: _Fetched) -> None:
        """Run as a task. An error, StopIteration included, is stored with its traceback for the consumer."""
        if not self.closed and self.iterator is not None:
            try:
                slot.item = next(self.iterator)
            except BaseException as error:
                slot.error, self.iterator = error, None
        if self.closed:
            self.iterator = None
        slot.loaded = True

    def close(self) -> None:
        """Stop fetching items. May be called in any context, including by the garbage collector."""
        self.closed = True


_open: WeakSet[_Source] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all sources at exit: the engine waits for running tasks, and further items are not needed."""
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
                item: T = slot.item
                return item
            self._slots.clear()
        if isinstance(slot.error, StopIteration):
            raise StopIteration
        raise slot.error

    def close(self) -> None:
        """Stop loading, drop the loaded items, and release the source after the task that uses it has ended.

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
    """Abort a recording: iteration in a traced body yields different items in each call."""
    if thread.trace is not None:
        thread.trace.give_up("tj.data.prefetch gives other items in every call", remedy="iterate outside")


def prefetch(iterable: Iterable[T], depth: int = 2) -> Prefetch[T]:
    """Return an iterator over the items of `iterable`, which loads the next `depth` items in the background.

    Any iterable is accepted, such as a generator or PyTorch's ``DataLoader``. Its items are fetched in order,
    one at a time, on a thread of the engine, so loading may read files and create arrays;
    ``map(convert, loader)`` converts them there. An exception of the source is raised, with its traceback,
    when the consumer requests the item.
    Loading ends, and the source is released, at the end of a ``with`` block, by `close`, and when the
    iterator is no longer referenced, as after ``break``.
    Raises ArgumentError if `iterable` is not iterable or `depth` is below 1.

    >>> import tracejit as tj
    >>> def batches():
    ...     for i in range(3):
    ...         yield tj.full(2, i)
    >>> [int(batch.sum()) for batch in tj.data.prefetch(batches())]
    [0, 2, 4]
    """
    return Prefetch(iterable, depth)


__all__ = ["Prefetch", "prefetch"]
