"""Waiting: a thread records a condition, then runs tasks on which it depends until the condition is true."""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.executor.layout import (
    ENGINE_CROWDED,
    ENGINE_SEQUENCE,
    ENGINE_WAITERS_IDLE,
    ENGINE_WORKERS,
    INSTANCE_SEQUENCE,
    LAUNCH,
    NEVER,
    REQUEST_BITS,
    REQUEST_INSTANCE,
    REQUEST_PREVIOUS,
    THREAD_DEADLINE,
    THREAD_KIND,
    THREAD_LIMIT,
    THREAD_OBJECT,
    THREAD_TARGET,
    UNUSED,
    VARIABLE_PUSHED,
    VARIABLE_TAIL,
    VARIABLE_WAITERS,
    WRITES,
    WRITTEN,
)
from tracejit.kernels.executor.queues import is_satisfied
from tracejit.kernels.executor.run import (
    execute,
    pick,
    wake_for_ready_work,
)
from tracejit.kernels.executor.team import join
from tracejit.kernels.executor.threads import (
    get,
    idle,
    lock,
    native,
    now,
    only_lane,
    put,
    unlock,
    wake_idle_threads,
)

NO_LAUNCH = -1
"""The THREAD_LIMIT of a thread that runs no tasks."""

STAY = 1_000_000
"""Nanoseconds after which a thread that helps with a loop checks the condition that it waits for."""


@native
def last_enrolled(request, bits):
    """The number of the newest launch, from `request` backwards, that has any of the access `bits`; or 0."""
    while request != 0 and get(request, REQUEST_BITS) & bits == 0:
        request = get(request, REQUEST_PREVIOUS)
    if request == 0:
        return 0
    return get(get(request, REQUEST_INSTANCE), INSTANCE_SEQUENCE)


@native
def begin_wait(engine, thread, kind, awaited):
    """Record the condition that `thread` waits for, relative to the launches enrolled now.

    `kind` is a condition of `layout`; `awaited` is the address of a variable (WRITTEN, UNUSED) or an instance
    (LAUNCH). Return whether the condition is already true.
    """
    lock(engine)
    put(thread, THREAD_KIND, kind)
    put(thread, THREAD_OBJECT, awaited)
    limit = get(engine, ENGINE_SEQUENCE)
    target = limit
    if kind == WRITTEN:
        target = get(awaited, VARIABLE_PUSHED)
        limit = last_enrolled(get(awaited, VARIABLE_TAIL), WRITES)
    elif kind == UNUSED:
        limit = last_enrolled(get(awaited, VARIABLE_TAIL), -1)
    elif kind == LAUNCH:
        limit = get(awaited, INSTANCE_SEQUENCE)
        target = limit
    put(thread, THREAD_TARGET, target)
    put(thread, THREAD_LIMIT, limit)
    done = is_satisfied(engine, thread)
    unlock(engine)
    return int64(done)


@native
def count_waiter(thread, amount):
    """Add `amount` to the number of waiters of the variable that `thread` waits for, if it waits for one."""
    kind, awaited = get(thread, THREAD_KIND), get(thread, THREAD_OBJECT)
    if kind in (WRITTEN, UNUSED):
        put(awaited, VARIABLE_WAITERS, get(awaited, VARIABLE_WAITERS) + amount)


@native
def wait(engine, thread, duration):
    """Wait at most `duration` nanoseconds for the condition of `begin_wait`; run tasks on which it depends.

    Return 1 if the condition is true, 0 if the time is up, -1 if the thread needs more scratch memory.
    """
    deadline = now(thread) + duration
    put(thread, THREAD_DEADLINE, deadline)
    lock(engine)
    if get(engine, ENGINE_WORKERS) == 0:
        put(thread, THREAD_LIMIT, NEVER)
    elif get(engine, ENGINE_CROWDED) != 0:
        put(thread, THREAD_LIMIT, NO_LAUNCH)
    count_waiter(thread, 1)
    result = 0
    while result == 0:
        if is_satisfied(engine, thread):
            result = 1
            break
        task = pick(engine, thread)
        if task < 0:
            result = -1
        elif task > 0:
            execute(engine, thread, task)
            wake_idle_threads(engine, only_lane(engine))
        else:
            wake_for_ready_work(engine)
            put(thread, THREAD_DEADLINE, min(deadline, now(thread) + STAY))
            helped = join(engine, thread) if get(thread, THREAD_LIMIT) != NO_LAUNCH else 0
            put(thread, THREAD_DEADLINE, deadline)
            if helped == 0:
                idle(engine, thread, engine + ENGINE_WAITERS_IDLE, deadline)
            result = min(helped, 0)
        if result == 0 and now(thread) >= deadline:
            result = int64(is_satisfied(engine, thread))
            break
    count_waiter(thread, -1)
    wake_for_ready_work(engine)
    unlock(engine)
    return result
