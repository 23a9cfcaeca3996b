"""Threads that run tasks: the workers, and every Python thread while it waits.

A `Thread` is the native record of one, with its own scratch memory. Workers are daemon threads, each inside
one native call until it stops; they start at the first launch that needs them. A thread that waits is in
native code too, where it runs tasks, and returns every 50 ms so that Python can handle a Ctrl-C.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

from tracejit.config import config
from tracejit.device_kinds import device_name, kind_of
from tracejit.engine import native
from tracejit.engine.available_processors import ORDERED, crowded, spare_processors, spin_time
from tracejit.engine.native import ENGINE, LOCK, Record
from tracejit.errors import ArgumentError
from tracejit.kernels.executor.layout import (
    AGAIN,
    ALL,
    ENGINE_ACTIVE,
    ENGINE_CROWDED,
    ENGINE_OLDEST,
    ENGINE_SPIN,
    ENGINE_WORKERS,
    LANE_WORKERS,
    SCRATCH_ENGINE,
    SCRATCH_HEAD,
    SCRATCH_THREAD,
    SHARES,
    SLICE,
    THREAD_BYTES,
    THREAD_HOME,
    THREAD_LANE,
    THREAD_NEED,
    THREAD_NUMBER,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
    THREAD_SYSTEM,
)

HOMES = (0, 4, 2, 6, 1, 5, 3, 7)
"""The first shares of a task of the waiting thread and of the workers: well apart for any number of threads.
"""


LONG = 5.0
"""Seconds after which a wait reports once what has not ended."""

while_long: Callable[[float], object] = float
"""The function that reports it; its argument is the wait's duration in seconds."""


def nothing() -> None:
    """Do nothing."""


between_slices: Callable[[], object] = nothing
"""The function that a waiting thread calls between two slices."""

_numbers = itertools.count()
_local = threading.local()


class Thread(Record):
    """The native record of a thread. `name` and `number` are what the profiler shows."""

    __slots__ = ("__weakref__", "busy", "name", "number", "scratch", "task", "while_blocked")

    def __init__(self, name: str) -> None:
        super().__init__(THREAD_BYTES)
        self.name, self.number = name, next(_numbers)
        self.busy = False  # inside `block`; a signal handler that waits needs a record of its own
        self.scratch: Record | None = None
        self.task: Any = None  # the Python task that it runs
        self.while_blocked: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.words[THREAD_NUMBER >> 3] = self.number
        native.calls().initialize_thread(self.address)
        THREADS[self.number] = self

    def grow(self) -> None:
        """Replace the scratch memory by one of the size that the last task needed."""
        need = self.words[THREAD_NEED >> 3]
        self.scratch = scratch = Record(SCRATCH_HEAD + need + -need % native.LINE)
        scratch.words[(SCRATCH_HEAD + SCRATCH_ENGINE) >> 3] = ENGINE.address
        scratch.words[(SCRATCH_HEAD + SCRATCH_THREAD) >> 3] = self.address
        self.words[THREAD_SCRATCH >> 3] = scratch.address + SCRATCH_HEAD
        self.words[THREAD_SCRATCH_BYTES >> 3] = need


THREADS: WeakValueDictionary[int, Thread] = WeakValueDictionary()
"""Live threads by number, for the profiler."""


def held() -> tuple[int, ...]:
    """The addresses of the variables that the Python task on this thread holds: those it reads or writes.

    >>> import tracejit as tj
    >>> tj.engine.held()
    ()
    """
    task = current().task
    return task.variables() if task is not None else ()


def adopt(thread: Thread) -> None:
    """Make `thread` the record of the calling thread."""
    _local.thread = thread


def current() -> Thread:
    """The record of the calling thread."""
    try:
        thread: Thread = _local.thread
    except AttributeError:
        thread = _local.thread = Thread(threading.current_thread().name)
    if thread.busy:
        return Thread(thread.name)
    return thread


def own() -> Thread:
    """The calling thread's own record, also inside `block`, where it is not in use while Python runs."""
    try:
        return _local.thread
    except AttributeError:
        return current()


def address() -> int:
    """The address of the calling thread's own record."""
    try:
        return _local.thread.address
    except AttributeError:
        return current().address


def block(kind: int, place: int) -> None:
    """Wait for the record at `place` as `kind` says (WRITTEN, UNUSED, LAUNCH, ALL), and help meanwhile."""
    if kind == ALL and ORDERED and ENGINE.words[ENGINE_OLDEST >> 3] == 0:
        return  # what this thread has launched has ended
    thread, wait = current(), native.calls().wait
    thread.busy = True
    try:
        first = SLICE if thread.while_blocked is contextlib.nullcontext else 0
        code = wait(ENGINE.address, thread.address, kind, place, first)
        if code != 1:
            with thread.while_blocked():
                _wait_on(thread, code)
    finally:
        thread.busy = False


def _wait_on(thread: Thread, code: int) -> None:
    """Wait until the condition of `thread` holds; `code`: the result of the wait so far."""
    start, said = time.monotonic(), False
    while code != 1:
        if code < 0:
            thread.grow()
        between_slices()
        if not said and (seconds := time.monotonic() - start) >= LONG:
            said = True
            while_long(seconds)
        code = native.calls().wait(ENGINE.address, thread.address, AGAIN, 0, SLICE)


def computing() -> bool:
    """Whether a kernel runs at the moment, on any thread."""
    return ENGINE.words[ENGINE_ACTIVE >> 3] != 0


def help_out() -> None:
    """Run native tasks on the calling thread until none is ready."""
    thread = current()
    while (code := native.calls().help(ENGINE.address, thread.address)) != 1:
        if code == 0:
            thread.grow()


class CompletionThread:
    """The thread that completes what a device with a clock of its own has done: it runs `watch`, an entry
    point of the executor, on the device's lane.
    """

    def __init__(self, name: str, lane: native.Record, watch: Callable[[int, int, int], int]) -> None:
        self.name, self._lane, self._watch = name, lane, watch
        self._running: tuple[Thread, threading.Thread] | None = None

    def ensure(self) -> None:
        """Start it, if it does not run."""
        if self._running is None:
            with LOCK:
                if self._running is None:
                    thread = Thread(self.name)
                    python = threading.Thread(
                        target=self._work, args=(thread,), name=f"tracejit {self.name}", daemon=True
                    )
                    python.start()
                    self._running = thread, python

    def _work(self, thread: Thread) -> None:
        adopt(thread)
        self._watch(ENGINE.address, self._lane.address, thread.address)

    def stop(self, seconds: float) -> None:
        """End it, after what it waits for; at most `seconds` later."""
        with LOCK:
            if self._running is not None:
                thread, python = self._running
                native.calls().stop_thread(ENGINE.address, thread.address)
                python.join(seconds)
                self._running = None


WATCHERS: list[CompletionThread] = []


class Workers:
    """The native workers of the process, by device.

    Unless a count is set, the devices share the processors besides the one of the calling thread; each of
    several devices has at least one worker.
    """

    def __init__(self) -> None:
        self._running: dict[int, list[tuple[Thread, threading.Thread]]] = {0: []}
        self._every: int | None = None  # the count that is set for all devices
        self._counts: dict[int, int] = {}  # those that are set for one
        self.complete = False  # all of them run
        self._told: dict[int, int] = {}  # the number that run, as the executor knows

    @property
    def count(self) -> int:
        """The number of workers of device 0 that run, or will at the first launch that needs them."""
        return self.count_of(0)

    def count_of(self, device: int) -> int:
        """The number of workers of a device that run, or will at the first launch that needs them."""
        is_issued = kind_of(device).is_issued
        for count in (self._counts.get(device), self._every, config.workers):
            if count is not None:
                return min(count, 1) if is_issued else count
        if is_issued:
            return 1  # which issues
        devices = sum(not kind_of(number).is_issued for number in self._running)
        return spare_processors() if devices == 1 else max(1, spare_processors() // devices)

    def serve(self, devices: Iterable[int]) -> None:
        """Have workers for these devices from the next launch on."""
        for device in devices:
            if device not in self._running:
                with LOCK:
                    self._running.setdefault(device, [])
                    self.complete = False

    def ensure(self, *, helps: bool = True) -> None:
        """Start the workers that do not run yet, and end those that are too many.

        Where a device has none, run the ready tasks on this thread, if it `helps`.
        """
        if config.engine != "naive" and not self.complete:
            with LOCK:
                for device, running in list(self._running.items()):
                    count = self.count_of(device)
                    self._end(running, count)
                    while len(running) < count:
                        self._start(device, running)
                self._tell()
        if helps and not all(map(self.count_of, self._running)):
            help_out()

    def _tell(self) -> None:
        """Tell the executor how many workers run."""
        counts = {device: len(running) for device, running in self._running.items()}
        self.complete = all(0 < self.count_of(device) == count for device, count in counts.items())
        if counts == self._told:
            return  # each launch comes here where there are no workers
        self._told = counts
        for device, count in counts.items():
            native.lane_of(device).words[LANE_WORKERS >> 3] = count
        ENGINE.words[ENGINE_WORKERS >> 3] = min(counts.values())
        ENGINE.words[ENGINE_SPIN >> 3] = spin_time(sum(counts.values()))
        ENGINE.words[ENGINE_CROWDED >> 3] = crowded(sum(counts.values()))

    def _start(self, device: int, running: list[tuple[Thread, threading.Thread]]) -> None:
        index = len(running)
        name = f"{device_name(device)} worker {index}" if device else f"worker {index}"
        thread = Thread(name)
        thread.words[THREAD_HOME >> 3] = HOMES[(index + 1) % SHARES]
        thread.words[THREAD_LANE >> 3] = native.lane_of(device).address
        python = threading.Thread(target=_work, args=(thread,), name=f"tracejit {name}", daemon=True)
        running.append((thread, python))
        try:
            python.start()
        except BaseException:  # an interrupt
            if not python.is_alive():
                running.pop()
            raise

    def set(self, count: int, device: int | None = None) -> None:
        """Stop the workers after their current tasks; the next launch starts `count` of them."""
        with LOCK:
            self.stop()
            if device is None:
                self._every = count
                self._counts.clear()
            else:
                self._counts[device] = count

    def stop(self) -> None:
        """Stop the workers and wait for them; whatever is ready stays queued."""
        with LOCK:
            for running in self._running.values():
                self._end(running, 0)
            self._tell()

    def _end(self, running: list[tuple[Thread, threading.Thread]], count: int) -> None:
        """Stop all but the first `count` workers of a device."""
        ending = running[count:]
        for thread, _ in ending:
            native.calls().stop_thread(ENGINE.address, thread.address)
        for _, python in ending:
            python.join()
        del running[count:]

    def forget(self) -> None:
        """Reset the workers in a forked child, where they are gone."""
        for running in self._running.values():
            running.clear()
        self._tell()


def _work(thread: Thread) -> None:
    adopt(thread)
    thread.words[THREAD_SYSTEM >> 3] = threading.get_native_id()
    while not native.calls().work(ENGINE.address, thread.address):
        thread.grow()


workers = Workers()


def set_workers(count: int, device: int | None = None) -> None:
    """Use `count` native workers on each CPU device, or on the one with number `device`.

    They are those besides the calling threads. With 0 on all devices, what is launched runs on the caller's.
    Raises ArgumentError for what is no integer, for a negative count or device, and for 0 workers on a single
    device.

    >>> import tracejit as tj
    >>> tj.engine.set_workers(tj.engine.workers.count)
    """
    for name, number in (("count", count), ("device", 0 if device is None else device)):
        if type(number) is not int or number < 0:
            raise ArgumentError(f"set_workers: expected a {name} of at least 0, got {number!r}")
    if device is not None:
        workers.serve([device])
        if count == 0 or workers.count == 0:
            raise ArgumentError(
                f"set_workers: {count} workers for device {device}, {workers.count} for device 0; "
                "either every device has workers or, after set_workers(0), none"
            )
    workers.set(count, device)
    if native.loaded():
        workers.ensure()
