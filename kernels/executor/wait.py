"""Waiting: a thread notes the condition, then runs tasks that it depends on until it holds."""

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
from tracejit.kernels.executor.queues import satisfied
from tracejit.kernels.executor.run import (
    execute,
    pass_on,
    pick,
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
    rouse,
    unlock,
)

NO_LAUNCH = -1
"""The limit of a thread that runs no tasks."""

STAY = 1_000_000
"""Nanoseconds after which a thread that helps with a loop looks whether what it waits for has come."""


@native
def last_enrolled(request, bits):
    """The newest launch, from `request` backwards, that enrolled with one of the access `bits`; or 0."""
    while request != 0 and get(request, REQUEST_BITS) & bits == 0:
        request = get(request, REQUEST_PREVIOUS)
    if request == 0:
        return 0
    return get(get(request, REQUEST_INSTANCE), INSTANCE_SEQUENCE)


@native
def begin_wait(engine, thread, kind, place):
    """Note the condition that `thread` waits for, as of now. Returns whether it holds already."""
    lock(engine)
    put(thread, THREAD_KIND, kind)
    put(thread, THREAD_OBJECT, place)
    limit = get(engine, ENGINE_SEQUENCE)
    target = limit
    if kind == WRITTEN:
        target = get(place, VARIABLE_PUSHED)
        limit = last_enrolled(get(place, VARIABLE_TAIL), WRITES)
    elif kind == UNUSED:
        limit = last_enrolled(get(place, VARIABLE_TAIL), -1)
    elif kind == LAUNCH:
        limit = get(place, INSTANCE_SEQUENCE)
        target = limit
    put(thread, THREAD_TARGET, target)
    put(thread, THREAD_LIMIT, limit)
    done = satisfied(engine, thread)
    unlock(engine)
    return int64(done)


@native
def count_waiter(thread, amount):
    """Add `amount` to the waiters of the variable that `thread` waits for, if it is one."""
    kind, place = get(thread, THREAD_KIND), get(thread, THREAD_OBJECT)
    if kind in (WRITTEN, UNUSED):
        put(place, VARIABLE_WAITERS, get(place, VARIABLE_WAITERS) + amount)


@native
def wait(engine, thread, duration):
    """Wait for the condition of `begin_wait`, at most `duration` nanoseconds; meanwhile run tasks it needs.

    Returns 1 when it has come, 0 when time is up, -1 when the thread needs more scratch memory.
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
        if satisfied(engine, thread):
            result = 1
            break
        task = pick(engine, thread)
        if task < 0:
            result = -1
        elif task > 0:
            execute(engine, thread, task)
            rouse(engine, only_lane(engine))
        else:
            pass_on(engine)
            put(thread, THREAD_DEADLINE, min(deadline, now(thread) + STAY))
            helped = join(engine, thread) if get(thread, THREAD_LIMIT) != NO_LAUNCH else 0
            put(thread, THREAD_DEADLINE, deadline)
            if helped == 0:
                idle(engine, thread, engine + ENGINE_WAITERS_IDLE, deadline)
            result = min(helped, 0)
        if result == 0 and now(thread) >= deadline:
            result = int64(satisfied(engine, thread))
            break
    count_waiter(thread, -1)
    pass_on(engine)
    unlock(engine)
    return result
