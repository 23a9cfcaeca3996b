"""Python tasks: the threads that run them, and their end.

Native workers never take the GIL, so tasks that are Python callables have threads of their own. The pool of
the host lane keeps one thread free to take the next task, up to a bound; a task that waits for a variable
does not count against the bound, so tasks that wait for one another cannot use it up. The lane of
communication has one thread, in any case: the library that its tasks call (MPI) may require that.
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
from tracejit.engine.available_processors import processors, take_short_turns
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

LONG = 3600  # seconds; an idle host thread is woken when there is work
LEAST = 4  # host threads that may run at once on a small machine: Python tasks often only wait


@dataclass(eq=False, repr=False, slots=True)
class HostCall:
    """The call of a Python task: its function and arguments, and its name in errors and timelines.

    `variables` returns the addresses of all variables of its launch, `written` those of storage that existed
    before. `label`: of its events, as of those of kernels.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...]
    name: str
    location: str | None
    asynchronous: bool
    communicates: bool
    variables: Callable[[], tuple[int, ...]]
    written: Callable[[], tuple[int, ...]]
    label: int = 0


class OperatorError(Exception):
    """Raised by a Python task that is an operator: waits raise `error` itself, which names its line.

    torn: it came too late: some of the storage that the launch writes is written, and some is not.
    """

    def __init__(self, error: TracejitError, torn: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.torn = error, torn


class HostRun:
    """One run of a Python task; the `on_complete` of an asynchronous one.

    Calling it ends the task: ``on_complete()``, or ``on_complete(error)``.
    """

    __slots__ = ("_address", "_ended", "call", "outer", "sequence", "started", "variables")

    def __init__(self, call: HostCall, address: int, sequence: int) -> None:
        self.call, self._address, self.sequence = call, address, sequence
        self.outer: HostRun | None = None  # the task on whose thread it runs (naive engine)
        self.started = time.monotonic_ns()
        self._ended = threading.Lock()  # acquired when the task ends, and never released
        self.variables = call.variables

    def start(self) -> None:
        """Call the function on this thread; unless it is asynchronous, its return ends the task."""
        call, thread, failure = self.call, threads.current(), None
        self.outer, thread.task = thread.task, self
        RUNNING.add(self)
        try:
            with contextlib.ExitStack() as around:
                for surround in () if call.communicates else AROUND_TASKS:
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
        """End the native task, unless it has ended. Even then, `wait_all` raises an error."""
        first = self._ended.acquire(blocking=False)
        if error is not None:
            failures.record(self.sequence, _explain(self.call, error))
            if isinstance(error, OperatorError) and error.torn:
                self._tear()
        if first:
            lane = COMMUNICATION if self.call.communicates else HOST
            call = self.call
            profiler.record_host(call.name, call.location, self.started, self.sequence, lane, call.label)
            RUNNING.discard(self)
            native.calls().complete(ENGINE.address, self._address, int(error is not None))
        return first

    def _tear(self) -> None:
        """Poison what the launch writes: no wait and no launch may take it for complete."""
        for address in self.call.written():
            ctypes.c_int64.from_address(address + VARIABLE_POISON).value = self.sequence

    def lose(self) -> None:
        """Fail the task in a forked child: the thread that would have ended it exists in the parent only."""
        if self._ended.acquire(blocking=False):
            error = EngineError("the task was running in the parent process when it forked")
            failures.record(self.sequence, _explain(self.call, error))
            RUNNING.discard(self)
            native.calls().complete(ENGINE.address, self._address, 1)


def _explain(call: HostCall, error: BaseException) -> Callable[[], BaseException]:
    if isinstance(error, OperatorError):
        return functools.partial(failures.renew, error.error)

    def make() -> BaseException:
        failure = EngineError(f"task {call.name!r} failed: {text(error)}")
        failure.__cause__ = error
        return locate(failure, call.location)

    return make


def report(error: BaseException) -> None:
    """Let `wait_all` raise `error` for the Python task that runs here, without failing the task.

    Raises `error` itself outside of tasks.

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
"""The contexts entered around the function of a Python task; the task ends after they are left. One of
communication is none of the user's functions, and records nothing.
"""

RUNNING: set[HostRun] = set()
"""The Python tasks that have started and not ended."""


def _say_what_runs(seconds: float) -> None:
    """Print the Python tasks that have not ended, when a wait takes long."""
    lines = [f"tracejit: a wait has taken {seconds:.0f} s; Python tasks that have not ended:"]
    for run in sorted(RUNNING, key=lambda run: run.sequence):
        state = "not completed" if run.call.asynchronous else "running"
        age = (time.monotonic_ns() - run.started) / 1e9
        lines.append(f"  {run.call.name!r} at {run.call.location}, {state} for {age:.0f} s")
    if RUNNING:
        print("\n".join(lines), file=sys.stderr, flush=True)


threads.while_long = _say_what_runs


def _run_next(pool: Hosts, thread: Thread, patience: int) -> bool:
    """Take and run the pool's next Python task; wait for it at most `patience` ns. Returns whether there was
    one.
    """
    task = pool.take(thread, patience) if patience else pool.poll(thread)
    if not task:
        return False
    run = run_of(task, thread.words[THREAD_OBJECT >> 3])
    with pool.occupied():
        run.start()
    return True


def run_of(task: int, instance: int) -> HostRun:
    """The run of the Python task at an address, of the launch whose instance is at another one."""
    program, record, keep = IN_FLIGHT[instance]
    index = (task - record.words[INSTANCE_TASKS >> 3]) // TASK_BYTES
    return HostRun(program.call(index, record, keep), task, record.words[INSTANCE_SEQUENCE >> 3])


def take_up(task: int) -> HostRun:
    """The run of a Python task that machine code has begun, and that Python goes on with."""
    run = run_of(task, ctypes.c_int64.from_address(task + TASK_INSTANCE).value)
    RUNNING.add(run)
    return run


def run_ready() -> None:
    """Run a ready Python task on the calling thread, when no more threads can be started for it."""
    for pool in POOLS:
        if pool.is_wanted():
            pool.ensure()
            if pool.exhausted:
                _run_next(pool, threads.current(), 0)


def run_here() -> None:
    """Run everything that is ready on the calling thread: the naive engine."""
    thread = threads.current()
    while True:
        threads.help_out()
        ran = [_run_next(pool, thread, 0) for pool in POOLS]
        if not any(ran) and ENGINE.words[ENGINE_PYTHON_COUNT >> 3] == 0:
            return


def become_naive() -> None:
    """Stop all other threads that run tasks, if the engine was not naive before."""
    if threads.current().task is None:
        stop_threads(LONG)


def stop_threads(seconds: float) -> None:
    """End all threads that run tasks, after their current ones; wait for Python tasks at most `seconds`."""
    for pool in POOLS:
        pool.stop(seconds)
    workers.stop()
    for watcher in WATCHERS:
        watcher.stop(seconds)


def ensure_threads(expected: Collection[int] = (), *, helps: bool = True) -> None:
    """Start threads for tasks that may have become ready, also on the `expected` lanes of Python tasks.

    helps: whether this thread runs the ready kernels where there are no workers
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
                if pool.lane in expected or pool.is_wanted():
                    pool.ensure()


class Hosts:
    """The threads of a lane of Python tasks: at most `limit`, not counting those that wait if `grows`.

    take:  has a thread wait for the next Python task, for so many nanoseconds at most; its address, or 0.
           Machine code that begins tasks of the lane itself sets another function here.
    begun: the addresses of the tasks that it has begun and not ended.
    """

    def __init__(self, lane: int, name: str, limit: int, *, grows: bool) -> None:
        self.lane, self.name, self._limit, self._grows = lane, name, limit, grows
        self.take: Callable[[Thread, int], int] = self.take_next
        self.begun: Callable[[], Sequence[int]] = tuple
        self.forget()

    def is_wanted(self) -> bool:
        """Whether a task of the lane is ready."""
        return native.LANES[self.lane].words[LANE_READY >> 3] != 0

    def poll(self, thread: Thread) -> int:
        """Take the next task, if one is ready; its address, or 0."""
        lane = native.LANES[self.lane].address
        return native.calls().poll_host(ENGINE.address, lane, thread.address, 0)

    def take_next(self, thread: Thread, patience: int) -> int:
        """Take the next task; wait for it at most `patience` ns. Its address, or 0."""
        lane = native.LANES[self.lane].address
        return self.poll(thread) or native.calls().take_host(ENGINE.address, lane, thread.address, patience)

    def await_ready(self, thread: Thread, patience: int) -> bool:
        """Whether a task is ready; waits for one at most `patience` ns."""
        lane = native.LANES[self.lane].address
        return bool(native.calls().await_host(ENGINE.address, lane, thread.address, patience))

    def serves(self) -> bool:
        """Whether the calling thread is one of the pool."""
        return threads.own() in self._threads

    def forget(self) -> None:
        """Reset the pool (in a forked child the threads are gone)."""
        self._threads: dict[Thread, threading.Thread] = {}
        self._busy = 0  # threads that run a task
        self._blocked = 0  # of these, threads whose task waits
        self._stopping = False
        self.exhausted = False  # the last attempt to start a thread failed
        self.ending = False  # the process ends: no more threads can be started

    def ensure(self) -> None:
        """Start a thread if none is free, up to the bound."""
        if len(self._threads) == self._busy:
            self._add_spare()

    def _add_spare(self) -> None:
        with LOCK:
            alive = len(self._threads)
            if alive == self._busy and alive - self._blocked < self._limit and not self._stopping:
                thread = Thread(f"{self.name} {alive}")
                thread.while_blocked = self._unoccupied
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
                except BaseException:  # an interrupt: if the thread runs nevertheless, it counts itself
                    del self._threads[thread]
                    raise

    def _serve(self, thread: Thread) -> None:
        threads.adopt(thread)
        if self.lane == COMMUNICATION:
            take_short_turns()  # other ranks wait for what it sends
        with LOCK:
            self._threads[thread] = threading.current_thread()
        while True:
            _run_next(self, thread, LONG * 1_000_000_000)
            ensure_threads()
            with LOCK:
                if self._stopping or len(self._threads) - self._blocked > self._limit:
                    del self._threads[thread]
                    return

    @contextlib.contextmanager
    def occupied(self) -> Iterator[None]:
        """Count this host thread as busy while it runs a task, and keep another one free."""
        if not self._grows or threads.current().while_blocked != self._unoccupied:
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
        """Count this host thread as blocked while its task waits, and keep another one free."""
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
        """Let the threads end after their current tasks; wait for them at most `seconds`."""
        with LOCK:
            self._stopping = True
            running = list(self._threads.items())
        for thread, _ in running:
            native.calls().stop_thread(ENGINE.address, thread.address)
        end = time.monotonic() + seconds
        for _, python in running:
            python.join(max(0.0, end - time.monotonic()))
        with LOCK:
            self._stopping = False


hosts = Hosts(HOST, "host", max(LEAST, processors()), grows=True)
communication = Hosts(COMMUNICATION, "communication", 1, grows=False)
POOLS = (hosts, communication)
"""The pools of all lanes of Python tasks."""


def communication_is_wanted(seconds: float = 0.0) -> bool:
    """Whether a task of communication is ready and waits for the thread; waits for one at most so long."""
    if seconds <= 0 or communication.is_wanted():
        return communication.is_wanted()
    return communication.await_ready(threads.current(), int(seconds * 1e9))


def address_of_communication() -> int:
    """The address of the record of the calling thread if it is the one of communication, else 0."""
    return threads.address() if communication.serves() else 0
