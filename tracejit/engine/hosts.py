"""Python tasks: the threads that run them, and their completion.

Native workers never acquire the GIL, so tasks that are Python callables have threads of their own. The pool
of the host lane keeps one thread free for the next task, up to a limit. Tasks that wait for a variable do not
count against the limit, so tasks that wait for each other cannot exhaust it. The communication lane always
has a single thread, as the library that its tasks call (MPI) may require that.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tracejit.config import config
from tracejit.engine import failures, native, profiler, threads
from tracejit.engine.available_processors import processors, request_short_time_slices
from tracejit.engine.launches import IN_FLIGHT
from tracejit.engine.native import ENGINE, LOCK
from tracejit.engine.threads import WATCHERS, Thread, workers
from tracejit.errors import EngineError, TracejitError, locate, text
from tracejit.kernels.executor.layout import (
    COMMUNICATION,
    ENGINE_PYTHON_COUNT,
    HOST,
    INSTANCE_SEQUENCE,
    INSTANCE_TASKS,
    LANE_READY,
    TASK_BYTES,
    TASK_INSTANCE,
    THREAD_OBJECT,
    VARIABLE_POISON,
)

IDLE_WAIT = 3600  # seconds; an idle host thread is woken when there is work
MIN_HOST_THREADS = 4  # lower bound of the limit on a small machine, as Python tasks often only wait


@dataclass(eq=False, repr=False, slots=True)
class HostCall:
    """The call of a Python task: its function and arguments, and its name in errors and timelines.

    variables: returns the addresses of all variables of its launch.
    written:   returns the addresses of those whose storage existed before the launch and is written.
    label:     of its profiler events, as for kernels.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...]
    name: str
    location: str | None
    asynchronous: bool
    communicates: bool
    plain: bool
    variables: Callable[[], tuple[int, ...]]
    written: Callable[[], tuple[int, ...]]
    label: int = 0


class OperatorError(Exception):
    """Raised by a Python task that implements an operator. Waits raise `error` itself, which names its line.

    torn: whether the launch has written only some of its storage when the error occurs.
    """

    def __init__(self, error: TracejitError, torn: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.torn = error, torn


class HostRun:
    """One execution of a Python task, which is also the `on_complete` of an asynchronous task.

    Calling it ends the task: ``on_complete()``, or ``on_complete(error)``.
    """

    __slots__ = ("_address", "_ended", "call", "outer", "sequence", "started", "variables")

    def __init__(self, call: HostCall, address: int, sequence: int) -> None:
        self.call, self._address, self.sequence = call, address, sequence
        self.outer: HostRun | None = None  # the task that runs it on its own thread (naive engine)
        self.started = time.monotonic_ns()
        self._ended = threading.Lock()  # acquired when the task ends, and never released
        self.variables = call.variables

    def start(self) -> None:
        """Call the function on this thread. Unless the task is asynchronous, its return ends the task."""
        call, thread, failure = self.call, threads.current(), None
        self.outer, thread.task = thread.task, self
        RUNNING.add(self)
        try:
            if call.communicates or (call.plain and thread.is_host):
                call.function(*call.arguments, *((self,) if call.asynchronous else ()))
            else:
                with contextlib.ExitStack() as around:
                    for surround in AROUND_TASKS:
                        around.enter_context(surround())
                    call.function(*call.arguments, *((self,) if call.asynchronous else ()))
        except BaseException as error:
            failure = error
        thread.task = self.outer
        if failure is not None or not call.asynchronous:
            self._end(failure)
        if isinstance(failure, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise failure  # Ctrl-C under the naive engine

    def __call__(self, error: BaseException | None = None) -> None:
        if not self._end(error):
            raise EngineError(f"task {self.call.name!r} was completed twice")
        ensure_threads()

    def _end(self, error: BaseException | None) -> bool:
        """End the native task and return True, or return False if it has ended before.

        In both cases `wait_all` raises the error.
        """
        is_first = self._ended.acquire(blocking=False)
        if error is not None:
            failures.record(self.sequence, _explain(self.call, error))
            if isinstance(error, OperatorError) and error.torn:
                self._poison_outputs()
        if is_first:
            lane = COMMUNICATION if self.call.communicates else HOST
            call = self.call
            profiler.record_host(call.name, call.location, self.started, self.sequence, lane, call.label)
            RUNNING.discard(self)
            native.calls().complete(ENGINE.address, self._address, int(error is not None))
        return is_first

    def _poison_outputs(self) -> None:
        """Poison the storage that the launch writes, so that no wait or launch considers it complete."""
        for address in self.call.written():
            ctypes.c_int64.from_address(address + VARIABLE_POISON).value = self.sequence

    def fail_in_child(self) -> None:
        """Fail the task in a forked child, as the thread that runs it exists in the parent only."""
        if self._ended.acquire(blocking=False):
            error = EngineError("the task was running in the parent process when it forked")
            failures.record(self.sequence, _explain(self.call, error))
            RUNNING.discard(self)
            native.calls().complete(ENGINE.address, self._address, 1)


def _explain(call: HostCall, error: BaseException) -> Callable[[], BaseException]:
    if isinstance(error, OperatorError):
        return functools.partial(failures.without_traceback, error.error)

    def create() -> BaseException:
        failure = EngineError(f"task {call.name!r} failed: {text(error)}")
        failure.__cause__ = error
        return locate(failure, call.location)

    return create


def report(error: BaseException) -> None:
    """Make `wait_all` raise `error` on behalf of the current Python task, without failing the task.

    Raises `error` itself outside of a task.

    >>> import tracejit as tj
    >>> def task():
    ...     tj.engine.report(ValueError('bad batch'))
    >>> tj.engine.push(task)
    >>> try:
    ...     tj.engine.wait_all()
    ... except tj.errors.EngineError as error:
    ...     print(error.__cause__)
    bad batch
    """
    run = threads.current().task
    if run is None:
        raise error
    failures.record(run.sequence, _explain(run.call, error))


AROUND_TASKS: list[Callable[[], contextlib.AbstractContextManager[None]]] = []
"""Factories of the contexts in which the function of a Python task runs; the task ends after they exit.
Communication tasks and plain ones run without them, since they call no function of the user and record
nothing. Under the naive engine plain tasks have them, because a body may be recorded on the same thread.
"""

RUNNING: set[HostRun] = set()
"""The Python tasks that have started and have not ended."""


def _print_running_tasks(seconds: float) -> None:
    """Print the Python tasks that have not ended, after a wait of `seconds`."""
    lines = [f"tracejit: a wait has taken {seconds:.0f} s; Python tasks that have not ended:"]
    for run in sorted(RUNNING, key=lambda run: run.sequence):
        state = "not completed" if run.call.asynchronous else "running"
        age = (time.monotonic_ns() - run.started) / 1e9
        lines.append(f"  {run.call.name!r} at {run.call.location}, {state} for {age:.0f} s")
    if RUNNING:
        print("\n".join(lines), file=sys.stderr, flush=True)


threads.on_long_wait = _print_running_tasks


def _run_next(pool: HostPool, thread: Thread, patience: int) -> bool:
    """Run the pool's next Python task; wait for one at most `patience` ns. Return whether there was one."""
    task = pool.take(thread, patience) if patience else pool.poll(thread)
    if not task:
        return False
    run = create_run(task, thread.words[THREAD_OBJECT >> 3])
    with pool.occupied():
        run.start()
    return True


def create_run(task: int, instance: int) -> HostRun:
    """Create the run of the Python task at address `task`, of the launch whose instance is at `instance`."""
    program, record, keep = IN_FLIGHT[instance]
    index = (task - record.words[INSTANCE_TASKS >> 3]) // TASK_BYTES
    return HostRun(program.call(index, record, keep), task, record.words[INSTANCE_SEQUENCE >> 3])


def continue_in_python(task: int) -> HostRun:
    """Create the run of a Python task that native code has begun and that Python continues."""
    run = create_run(task, ctypes.c_int64.from_address(task + TASK_INSTANCE).value)
    RUNNING.add(run)
    return run


def run_ready() -> None:
    """Run a ready Python task on the calling thread if no thread can be started for it."""
    for pool in POOLS:
        if pool.has_ready_task():
            pool.ensure()
            if pool.exhausted:
                _run_next(pool, threads.current(), 0)


def run_here() -> None:
    """Run all ready tasks on the calling thread, as the naive engine does."""
    thread = threads.current()
    while True:
        threads.help_out()
        ran = [_run_next(pool, thread, 0) for pool in POOLS]
        if not any(ran) and ENGINE.words[ENGINE_PYTHON_COUNT >> 3] == 0:
            return


def become_naive() -> None:
    """Stop all other threads that run tasks, which exist if the engine was not naive before."""
    if threads.current().task is None:
        stop_threads(IDLE_WAIT)


def stop_threads(seconds: float) -> None:
    """End all threads after their current tasks; wait for Python tasks at most `seconds`."""
    for pool in POOLS:
        pool.stop(seconds)
    workers.stop()
    for watcher in WATCHERS:
        watcher.stop(seconds)


def ensure_threads(expected: Collection[int] = (), *, helps: bool = True) -> None:
    """Start threads for tasks that may have become ready.

    expected: lanes of Python tasks for which to start a thread in any case
    helps:    whether this thread runs ready kernels if there are no workers
    """
    for watcher in WATCHERS:
        watcher.ensure()
    if config.engine == "naive":
        run_here()
    else:
        if not workers.complete:
            workers.ensure(helps=helps)
        if expected or ENGINE.words[ENGINE_PYTHON_COUNT >> 3]:
            for pool in POOLS:
                if pool.lane in expected or pool.has_ready_task():
                    pool.ensure()


class HostPool:
    """The threads of a lane of Python tasks.

    limit: maximum number of threads, not counting those whose task waits if `grows`.
    take:  ``take(thread, patience)`` waits at most `patience` ns for the next Python task and returns its
           address, or 0. It is replaced if native code begins tasks of the lane itself.
    begun: returns the addresses of the tasks that native code has begun and not ended.
    """

    def __init__(self, lane: int, name: str, limit: int, *, grows: bool) -> None:
        self.lane, self.name, self._limit, self._grows = lane, name, limit, grows
        self.take: Callable[[Thread, int], int] = self.take_next
        self.begun: Callable[[], Sequence[int]] = tuple
        self.forget()

    def has_ready_task(self) -> bool:
        """Whether a task of the lane is ready and queued."""
        return native.LANES[self.lane].words[LANE_READY >> 3] != 0

    def poll(self, thread: Thread) -> int:
        """Dequeue the next ready task; return its address, or 0."""
        lane = native.LANES[self.lane].address
        return native.calls().poll_host(ENGINE.address, lane, thread.address, 0)

    def take_next(self, thread: Thread, patience: int) -> int:
        """Dequeue the next task, waiting for it at most `patience` ns; return its address, or 0."""
        lane = native.LANES[self.lane].address
        return self.poll(thread) or native.calls().take_host(ENGINE.address, lane, thread.address, patience)

    def await_ready(self, thread: Thread, patience: int) -> bool:
        """Wait at most `patience` ns until a task is ready; return whether one is."""
        lane = native.LANES[self.lane].address
        return bool(native.calls().await_host(ENGINE.address, lane, thread.address, patience))

    def serves(self) -> bool:
        """Whether the calling thread belongs to the pool."""
        return threads.own_record() in self._threads

    def forget(self) -> None:
        """Reset the pool; in a forked child its threads do not exist."""
        self._threads: dict[Thread, threading.Thread] = {}
        self._busy = 0  # threads that run a task
        self._blocked = 0  # of these, threads whose task waits
        self._stopping = False
        self.exhausted = False  # the last attempt to start a thread failed
        self.ending = False  # the process exits, so no more threads can be started

    def ensure(self) -> None:
        """Start a thread if none is free, up to the limit."""
        if len(self._threads) == self._busy:
            self._add_spare()

    def _add_spare(self) -> None:
        with LOCK:
            n_threads = len(self._threads)
            if n_threads == self._busy and n_threads - self._blocked < self._limit and not self._stopping:
                thread = Thread(f"{self.name} {n_threads}")
                thread.while_blocked, thread.is_host = self._unoccupied, True
                name = f"tracejit {thread.name}"
                python = threading.Thread(target=self._serve, args=(thread,), name=name, daemon=True)
                self._threads[thread] = python
                self.exhausted = False
                try:
                    python.start()
                except RuntimeError:  # no more threads
                    del self._threads[thread]
                    self.exhausted = True
                    if not self.ending:
                        raise
                except BaseException:  # an interrupt: if the thread runs nevertheless, `_serve` adds it again
                    del self._threads[thread]
                    raise

    def _serve(self, thread: Thread) -> None:
        threads.set_record(thread)
        if self.lane == COMMUNICATION:
            request_short_time_slices()  # other ranks wait for its messages
        with LOCK:
            self._threads[thread] = threading.current_thread()
        while True:
            _run_next(self, thread, IDLE_WAIT * 1_000_000_000)
            ensure_threads()
            with LOCK:
                if self._stopping or len(self._threads) - self._blocked > self._limit:
                    del self._threads[thread]
                    return

    @contextlib.contextmanager
    def occupied(self) -> Iterator[None]:
        """Count this host thread as busy while it runs a task, and keep another thread free."""
        if not self._grows or not threads.current().is_host:
            yield  # the only thread of its lane, or not a host thread: the naive engine
            return
        with LOCK:
            self._busy += 1
        self._add_spare()
        try:
            yield
        finally:
            with LOCK:
                self._busy -= 1

    @contextlib.contextmanager
    def _unoccupied(self) -> Iterator[None]:
        """Count this host thread as blocked while its task waits, and keep another thread free."""
        if not self._grows:
            yield
            return
        with LOCK:
            self._blocked += 1
        self._add_spare()
        try:
            yield
        finally:
            with LOCK:
                self._blocked -= 1

    def stop(self, seconds: float) -> None:
        """End the threads after their current tasks; wait for them at most `seconds`."""
        with LOCK:
            self._stopping = True
            running = list(self._threads.items())
        for thread, _ in running:
            native.calls().stop_thread(ENGINE.address, thread.address)
        deadline = time.monotonic() + seconds
        for _, python in running:
            python.join(max(0.0, deadline - time.monotonic()))
        with LOCK:
            self._stopping = False


hosts = HostPool(HOST, "host", max(MIN_HOST_THREADS, processors()), grows=True)
communication = HostPool(COMMUNICATION, "communication", 1, grows=False)
POOLS = (hosts, communication)
"""The pools of all lanes of Python tasks."""


def has_communication_task(seconds: float = 0.0) -> bool:
    """Wait at most `seconds` until a communication task is queued; return whether one is."""
    if seconds <= 0 or communication.has_ready_task():
        return communication.has_ready_task()
    return communication.await_ready(threads.current(), int(seconds * 1e9))


def address_of_communication() -> int:
    """The address of the calling thread's record if it is the communication thread, else 0."""
    return threads.address() if communication.serves() else 0
