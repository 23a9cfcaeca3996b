"""The engine around fork and at exit.

Before a fork, running tasks have a short time to end; then all threads are stopped between two chunks, and
those that end a chunk later do not touch the queues before the process has forked: the child finds them
consistent. It has none of the threads: workers and host threads start anew when they are needed, and the
tasks that were running elsewhere fail there. A fork never waits longer than three times that time.

At exit, launches have a short time to end, failures that no wait has raised are printed, and all threads are
stopped; a task that never ends cannot block the exit. Some
versions of Python start no threads at exit: Python tasks that no thread is free for then run on the exiting
one, and end before it does.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time

from tracejit.engine import failures, native, threads
from tracejit.engine.hosts import POOLS, RUNNING, ensure_threads, run_ready, stop_threads, take_up
from tracejit.engine.launches import IN_FLIGHT, reap
from tracejit.engine.native import ENGINE, LOCK
from tracejit.engine.threads import SLICE, nothing, workers
from tracejit.errors import EngineError
from tracejit.kernels.executor.layout import (
    AGAIN,
    ALL,
    ENGINE_OLDEST,
    INSTANCE_LEFT,
    INSTANCE_SEQUENCE,
    INSTANCE_TASK_COUNT,
    INSTANCE_TASKS,
    TASK_ACTIVE,
    TASK_BYTES,
)

PATIENCE = 5.0  # seconds
POLL = 50e-6  # seconds: that of the executor


def drain(seconds: float = float("inf")) -> bool:
    """Wait until everything launched has ended, without raising failures; return whether it has in time."""
    if not native.loaded() or ENGINE.words[ENGINE_OLDEST >> 3] == 0:
        reap()
        return True
    end = time.monotonic() + seconds
    thread, calls = threads.Thread("drain"), native.calls()
    code = calls.wait(ENGINE.address, thread.address, ALL, 0, 0)
    while code != 1 and time.monotonic() < end:
        run_ready()
        code = calls.wait(ENGINE.address, thread.address, AGAIN, 0, SLICE)
        if code < 0:
            thread.grow()
    reap()
    return code == 1


def stop() -> None:
    """Wait until everything launched so far has ended, and end all threads of the engine.

    The next launch starts them again, or `start`. Failures stay for the next wait.
    Raises EngineError inside a task.

    >>> import tracejit as tj
    >>> tj.engine.stop()
    """
    if native.loaded():
        if threads.current().task is not None:
            raise EngineError("stop() inside a task would wait for the task itself; call it outside")
        drain()
        stop_threads(PATIENCE)


_locked = False  # whether the thread that forks has the lock
_quiet = False  # whether `_before_fork` got through: the hooks after a fork run even if it raised


def _before_fork() -> None:
    global _quiet, _locked
    if native.loaded():
        if threads.current().task is None:
            drain(PATIENCE)
        _locked = LOCK.acquire(timeout=PATIENCE)  # a thread that keeps it longer may wait for an earlier hook
        native.calls().quiesce(ENGINE.address, int(PATIENCE / POLL))
        _quiet = True


def _unlock() -> None:
    global _locked
    if _locked:
        _locked = False
        LOCK.release()


def _after_in_parent() -> None:
    global _quiet
    if _quiet:
        _quiet = False
        native.calls().resume(ENGINE.address)
        _unlock()
        ensure_threads()  # tasks that threads left behind while the engine was paused


def _after_in_child() -> None:
    global _quiet
    if not _quiet:
        return
    _quiet = False
    native.calls().resume_child(ENGINE.address)
    workers.forget()
    for pool in POOLS:
        pool.forget()
    mine = threads.current().task
    while mine is not None:
        RUNNING.discard(mine)
        mine = mine.outer
    for task in [task for pool in POOLS for task in pool.begun()]:
        take_up(task)
    for run in list(RUNNING):
        run.lose()
    _lose_kernels()
    _unlock()
    ensure_threads()


def _lose_kernels() -> None:
    """Fail, in a forked child, the kernels that threads of the parent are still inside of."""
    error = EngineError("the task was running in the parent process when it forked")
    for _, instance, _ in list(IN_FLIGHT.values()):
        words = instance.words
        first, count = words[INSTANCE_TASKS >> 3], words[INSTANCE_TASK_COUNT >> 3]
        for task in range(first, first + count * TASK_BYTES, TASK_BYTES):
            if words[INSTANCE_LEFT >> 3] and words[(task - instance.address + TASK_ACTIVE) >> 3]:
                failures.record(words[INSTANCE_SEQUENCE >> 3], functools.partial(failures.renew, error))
                native.calls().lose(ENGINE.address, task)


def _at_exit() -> None:
    if not native.loaded():
        return
    threads.between_slices = run_ready
    for pool in POOLS:
        pool.ending = True
    end = time.monotonic() + PATIENCE
    try:
        while drain(max(0.0, end - time.monotonic())) and ENGINE.words[ENGINE_OLDEST >> 3]:
            pass  # tasks have launched others
    finally:
        threads.between_slices = nothing
        for pool in POOLS:
            pool.ending = False
    stop_threads(0.1)
    for error in failures.untold():
        import traceback  # rarely needed

        print("tracejit: a task failed, and no wait has raised it:", file=sys.stderr)
        traceback.print_exception(error)


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
