"""The engine around a fork and at exit.

Before a fork, running tasks have `PATIENCE` seconds to end. Then all threads are paused between two chunks;
threads that end a chunk later do not access the queues before the process has forked, so the child's copy of
the queues is consistent. The child has none of the threads: workers and host threads are started again when
they are needed, and tasks that were running on other threads fail in the child. A fork waits at most
3 * `PATIENCE`.

At exit, launches have `PATIENCE` seconds to end, failures that no wait has raised are printed, and all
threads are stopped; a task that never ends cannot block the exit. Some versions of Python start no threads at
exit. Python tasks for which no thread is free then run on the exiting thread, and end before it does.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time

from tracejit.engine import failures, native, threads
from tracejit.engine.hosts import POOLS, RUNNING, continue_in_python, ensure_threads, run_ready, stop_threads
from tracejit.engine.launches import IN_FLIGHT, reap
from tracejit.engine.native import ENGINE, LOCK
from tracejit.engine.threads import SLICE, do_nothing, workers
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
POLL = 50e-6  # seconds: polling interval of the executor


def drain(seconds: float = float("inf")) -> bool:
    """Wait at most `seconds` until all launches have ended; return whether they have. Raises no failures."""
    if not native.loaded() or ENGINE.words[ENGINE_OLDEST >> 3] == 0:
        reap()
        return True
    deadline = time.monotonic() + seconds
    thread, calls = threads.Thread("drain"), native.calls()
    code = calls.wait(ENGINE.address, thread.address, ALL, 0, 0)
    while code != 1 and time.monotonic() < deadline:
        run_ready()
        code = calls.wait(ENGINE.address, thread.address, AGAIN, 0, SLICE)
        if code < 0:
            thread.grow()
    reap()
    return code == 1


def stop() -> None:
    """Wait until all launches so far have ended, and end all threads of the engine.

    `start` or the next launch starts them again. Failures are kept for the next wait.
    Raises EngineError inside a task.

    >>> import tracejit as tj
    >>> tj.engine.stop()
    """
    if native.loaded():
        if threads.current().task is not None:
            raise EngineError("stop() inside a task would wait for the task itself; call it outside")
        drain()
        stop_threads(PATIENCE)


_has_lock = False  # whether the forking thread holds LOCK
_is_quiescent = False  # whether `_before_fork` succeeded: the hooks after a fork run even if it raised


def _before_fork() -> None:
    global _is_quiescent, _has_lock
    if native.loaded():
        if threads.current().task is None:
            drain(PATIENCE)
        _has_lock = LOCK.acquire(
            timeout=PATIENCE
        )  # a thread that holds it longer may wait for an earlier hook
        native.calls().quiesce(ENGINE.address, int(PATIENCE / POLL))
        _is_quiescent = True


def _unlock() -> None:
    global _has_lock
    if _has_lock:
        _has_lock = False
        LOCK.release()


def _after_in_parent() -> None:
    global _is_quiescent
    if _is_quiescent:
        _is_quiescent = False
        native.calls().resume(ENGINE.address)
        _unlock()
        ensure_threads()  # tasks that threads left behind while the engine was paused


def _after_in_child() -> None:
    global _is_quiescent
    if not _is_quiescent:
        return
    _is_quiescent = False
    native.calls().resume_child(ENGINE.address)
    workers.forget()
    for pool in POOLS:
        pool.forget()
    surviving = threads.current().task
    while surviving is not None:
        RUNNING.discard(surviving)
        surviving = surviving.outer
    for address in [address for pool in POOLS for address in pool.begun()]:
        continue_in_python(address)
    for run in list(RUNNING):
        run.fail_in_child()
    _fail_kernels_in_child()
    _unlock()
    ensure_threads()


def _fail_kernels_in_child() -> None:
    """Fail, in a forked child, the kernels that threads of the parent were executing."""
    error = EngineError("the task was running in the parent process when it forked")
    for _, instance, _ in list(IN_FLIGHT.values()):
        words = instance.words
        first, count = words[INSTANCE_TASKS >> 3], words[INSTANCE_TASK_COUNT >> 3]
        for task in range(first, first + count * TASK_BYTES, TASK_BYTES):
            if words[INSTANCE_LEFT >> 3] and words[(task - instance.address + TASK_ACTIVE) >> 3]:
                failures.record(
                    words[INSTANCE_SEQUENCE >> 3], functools.partial(failures.without_traceback, error)
                )
                native.calls().fail_lost_task(ENGINE.address, task)


def _at_exit() -> None:
    if not native.loaded():
        return
    threads.between_slices = run_ready
    for pool in POOLS:
        pool.ending = True
    deadline = time.monotonic() + PATIENCE
    try:
        while drain(max(0.0, deadline - time.monotonic())) and ENGINE.words[ENGINE_OLDEST >> 3]:
            pass  # tasks have launched further tasks
    finally:
        threads.between_slices = do_nothing
        for pool in POOLS:
            pool.ending = False
    stop_threads(0.1)
    for error in failures.take_unraised():
        import traceback  # rarely needed

        print("tracejit: a task failed, and no wait has raised it:", file=sys.stderr)
        traceback.print_exception(error)


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
