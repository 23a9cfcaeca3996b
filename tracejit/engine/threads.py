"""Threads that run tasks: the workers, and every Python thread while it waits.

A `Thread` is the native record of a thread, with its own scratch memory. Workers are daemon threads, each
inside a single native call until it stops; they start at the first launch that needs them. A waiting thread
is in native code, too, where it runs tasks; it returns every 50 ms so that Python can handle a Ctrl-C.
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
from tracejit.engine.available_processors import LOADS_ACQUIRE, crowded, spare_processors, spin_time
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
"""The shares of a task with which the waiting thread and the workers begin: far apart for any number of
threads.
"""


REPORT_AFTER = 5.0
"""Seconds after which a wait calls `on_long_wait` once."""

on_long_wait: Callable[[float], object] = float
"""The function that reports a long wait; its argument is the duration so far in seconds."""


def do_nothing() -> None:
    """Do nothing."""


between_slices: Callable[[], object] = do_nothing
"""The function that a waiting thread calls between two slices of native waiting."""

_numbers = itertools.count()
_local = threading.local()


class Thread(Record):
    """The native record of a thread. The profiler shows `name` and `number`."""

    __slots__ = ("__weakref__", "busy", "is_host", "name", "number", "scratch", "task", "while_blocked")

    def __init__(self, name: str) -> None:
        super().__init__(THREAD_BYTES)
        self.name, self.number = name, next(_numbers)
        self.busy = False  # inside `block`; a signal handler that waits then needs another record
        self.scratch: Record | None = None
        self.task: Any = None  # the Python task that the thread runs
        self.is_host = False  # exists to run Python tasks
        self.while_blocked: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.words[THREAD_NUMBER >> 3] = self.number
        native.calls().initialize_thread(self.address)
        THREADS[self.number] = self

    def grow(self) -> None:
        """Replace the scratch memory by memory of the size that the last task requested."""
        nbytes = self.words[THREAD_NEED >> 3]
        self.scratch = scratch = Record(SCRATCH_HEAD + nbytes + -nbytes % native.LINE)
        scratch.words[(SCRATCH_HEAD + SCRATCH_ENGINE) >> 3] = ENGINE.address
        scratch.words[(SCRATCH_HEAD + SCRATCH_THREAD) >> 3] = self.address
        self.words[THREAD_SCRATCH >> 3] = scratch.address + SCRATCH_HEAD
        self.words[THREAD_SCRATCH_BYTES >> 3] = nbytes


THREADS: WeakValueDictionary[int, Thread] = WeakValueDictionary()
"""Live threads by number, for the profiler."""


def held() -> tuple[int, ...]:
    """The addresses of the variables that the Python task on this thread reads or writes.

    >>> import tracejit as tj
    >>> tj.engine.held()
    ()
    """
    task = current().task
    return task.variables() if task is not None else ()


def set_record(thread: Thread) -> None:
    """Make `thread` the record of the calling thread."""
    _local.thread = thread


def current() -> Thread:
    """The record with which the calling thread can wait: its own, or a new one inside `block`."""
    try:
        thread: Thread = _local.thread
    except AttributeError:
        thread = _local.thread = Thread(threading.current_thread().name)
    if thread.busy:
        return Thread(thread.name)
    return thread


def own_record() -> Thread:
    """The calling thread's own record, also inside `block`, where native code does not use it meanwhile."""
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


def block(kind: int, record_address: int) -> None:
    """Wait for a condition of the record at an address, and run native tasks in the meantime.

    kind: WRITTEN, UNUSED, LAUNCH or ALL
    """
    if kind == ALL and LOADS_ACQUIRE and ENGINE.words[ENGINE_OLDEST >> 3] == 0:
        return  # all launches of this thread have ended
    thread, wait = current(), native.calls().wait
    thread.busy = True
    try:
        first = SLICE if thread.while_blocked is contextlib.nullcontext else 0
        code = wait(ENGINE.address, thread.address, kind, record_address, first)
        if code != 1:
            with thread.while_blocked():
                _await_condition(thread, code)
    finally:
        thread.busy = False


def _await_condition(thread: Thread, code: int) -> None:
    """Wait until the condition of `thread` is true. code: the result of the native wait so far."""
    start, is_reported = time.monotonic(), False
    while code != 1:
        if code < 0:
            thread.grow()
        between_slices()
        if not is_reported and (seconds := time.monotonic() - start) >= REPORT_AFTER:
            is_reported = True
            on_long_wait(seconds)
        code = native.calls().wait(ENGINE.address, thread.address, AGAIN, 0, SLICE)


def computing() -> bool:
    """Whether a kernel is running on any thread."""
    return ENGINE.words[ENGINE_ACTIVE >> 3] != 0


def help_out() -> None:
    """Run native tasks on the calling thread until none is ready."""
    thread = current()
    while (code := native.calls().help(ENGINE.address, thread.address)) != 1:
        if code == 0:
            thread.grow()


class CompletionThread:
    """The thread that completes the tasks of an asynchronous device.

    It runs `watch`, an entry point of the executor, on the device's lane.
    """

    def __init__(self, name: str, lane: native.Record, watch: Callable[[int, int, int], int]) -> None:
        self.name, self._lane, self._watch = name, lane, watch
        self._running: tuple[Thread, threading.Thread] | None = None

    def ensure(self) -> None:
        """Start the thread unless it is running."""
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
        set_record(thread)
        self._watch(ENGINE.address, self._lane.address, thread.address)

    def stop(self, seconds: float) -> None:
        """End the thread after its current wait; wait for it at most `seconds`."""
        with LOCK:
            if self._running is not None:
                thread, python = self._running
                native.calls().stop_thread(ENGINE.address, thread.address)
                python.join(seconds)
                self._running = None


WATCHERS: list[CompletionThread] = []


class Workers:
    """The native workers of the process, by device.

    By default the devices share the processors except the calling thread's; with several devices, each has
    at least one worker.
    """

    def __init__(self) -> None:
        self._running: dict[int, list[tuple[Thread, threading.Thread]]] = {0: []}
        self._default_count: int | None = None  # set for all devices
        self._counts: dict[int, int] = {}  # set for single devices
        self.complete = False  # whether all workers run
        self._published: dict[int, int] = {}  # numbers of running workers that the executor knows

    @property
    def count(self) -> int:
        """The number of workers of device 0 that run, or that the first launch will start."""
        return self.count_of(0)

    def count_of(self, device: int) -> int:
        """The number of workers of a device that run, or that the first launch will start."""
        is_issued = kind_of(device).is_issued
        for count in (self._counts.get(device), self._default_count, config.workers):
            if count is not None:
                return min(count, 1) if is_issued else count
        if is_issued:
            return 1  # it issues all tasks
        n_devices = sum(not kind_of(number).is_issued for number in self._running)
        return spare_processors() if n_devices == 1 else max(1, spare_processors() // n_devices)

    def serve(self, devices: Iterable[int]) -> None:
        """Register devices, whose workers the next launch starts."""
        for device in devices:
            if device not in self._running:
                with LOCK:
                    self._running.setdefault(device, [])
                    self.complete = False

    def ensure(self, *, helps: bool = True) -> None:
        """Start missing workers and end surplus ones.

        helps: if a device has no workers, run its ready tasks on this thread
        """
        if config.engine != "naive" and not self.complete:
            with LOCK:
                for device, running in list(self._running.items()):
                    count = self.count_of(device)
                    self._end(running, count)
                    while len(running) < count:
                        self._start(device, running)
                self._publish()
        if helps and not all(map(self.count_of, self._running)):
            help_out()

    def _publish(self) -> None:
        """Write the numbers of running workers to the executor's records."""
        counts = {device: len(running) for device, running in self._running.items()}
        self.complete = all(0 < self.count_of(device) == n_running for device, n_running in counts.items())
        if counts == self._published:
            return  # frequent: without workers each launch calls this
        self._published = counts
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
        """Stop the workers after their current tasks, and set the number that the next launch starts.

        device: None: all devices
        """
        with LOCK:
            self.stop()
            if device is None:
                self._default_count = count
                self._counts.clear()
            else:
                self._counts[device] = count

    def stop(self) -> None:
        """Stop the workers and wait for them; ready tasks remain queued."""
        with LOCK:
            for running in self._running.values():
                self._end(running, 0)
            self._publish()

    def _end(self, running: list[tuple[Thread, threading.Thread]], count: int) -> None:
        """Stop all but the first `count` workers of a device."""
        ending = running[count:]
        for thread, _ in ending:
            native.calls().stop_thread(ENGINE.address, thread.address)
        for _, python in ending:
            python.join()
        del running[count:]

    def forget(self) -> None:
        """Reset the workers in a forked child, where their threads do not exist."""
        for running in self._running.values():
            running.clear()
        self._publish()


def _work(thread: Thread) -> None:
    set_record(thread)
    thread.words[THREAD_SYSTEM >> 3] = threading.get_native_id()
    while not native.calls().work(ENGINE.address, thread.address):
        thread.grow()


workers = Workers()


def set_workers(count: int, device: int | None = None) -> None:
    """Use `count` native workers, in addition to the calling threads, on CPU device `device` or on all.

    Without workers, launches run on the calling thread.
    Raises ArgumentError for a count or device that is negative or not an integer, and for 0 workers on a
    single device.

    >>> import tracejit as tj
    >>> tj.engine.set_workers(tj.engine.workers.count)
    """
    for name, value in (("count", count), ("device", 0 if device is None else device)):
        if type(value) is not int or value < 0:
            raise ArgumentError(f"set_workers: expected a {name} of at least 0, got {value!r}")
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
