"""The engine around fork and at exit.

Before a fork, running tasks have a short time to end; then all threads are stopped between two chunks, so
that the child finds consistent queues. The child has none of the threads: workers and host threads start anew
when they are needed, Python tasks that were running elsewhere fail there.

At exit, launches have a short time to end, failures that no wait has raised are printed, and all threads are
stopped; a task that never ends cannot block the exit. Some
versions of Python start no threads at exit: Python tasks that no thread is free for then run on the exiting
one, and end before it does.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

from tracejit.engine import failures, native, threads
from tracejit.engine.hosts import RUNNING, ensure_threads, hosts, run_ready
from tracejit.engine.launches import reap
from tracejit.engine.native import ENGINE, LOCK
from tracejit.engine.threads import SLICE, nothing, workers
from tracejit.kernels.executor.layout import AGAIN, ALL, ENGINE_OLDEST

PATIENCE = 5.0  # seconds


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


_locked = False  # whether the thread that forks has the lock
_quiet = False  # whether `_before_fork` got through: the hooks after a fork run even if it raised


def _before_fork() -> None:
    global _quiet, _locked
    if native.loaded():
        if threads.current().task is None:
            drain(PATIENCE)
        _locked = LOCK.acquire(timeout=PATIENCE)  # a thread that keeps it longer may wait for an earlier hook
        native.calls().quiesce(ENGINE.address)
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
    hosts.forget()
    mine = threads.current().task
    while mine is not None:
        RUNNING.discard(mine)
        mine = mine.outer
    for run in list(RUNNING):
        run.lose()
    _unlock()
    ensure_threads()


def _at_exit() -> None:
    if not native.loaded():
        return
    hosts.ending, threads.between_slices = True, run_ready
    end = time.monotonic() + PATIENCE
    try:
        while drain(max(0.0, end - time.monotonic())) and ENGINE.words[ENGINE_OLDEST >> 3]:
            pass  # tasks have launched others
    finally:
        hosts.ending, threads.between_slices = False, nothing
    hosts.stop(0.1)
    workers.stop()
    for error in failures.untold():
        import traceback  # rarely needed

        print("tracejit: a task failed, and no wait has raised it:", file=sys.stderr)
        traceback.print_exception(error)


atexit.register(_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
