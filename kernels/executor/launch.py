"""The steps of a launch: patch the argument blocks, enrol on variables, run inline or queue the tasks."""

from __future__ import annotations

from tracejit.kernels.compiler.memory import (
    call_kernel,
)
from tracejit.kernels.executor.layout import (
    ENGINE_EVENTS,
    ENGINE_NEWEST,
    ENGINE_OLDEST,
    ENGINE_SEQUENCE,
    FAILED,
    FINISHED,
    INSTANCE_ARGUMENT_COUNT,
    INSTANCE_BLOCK,
    INSTANCE_ENGINE,
    INSTANCE_ERROR,
    INSTANCE_LEFT,
    INSTANCE_NEWER,
    INSTANCE_OLDER,
    INSTANCE_PATCH_COUNT,
    INSTANCE_PATCHES,
    INSTANCE_REQUESTS,
    INSTANCE_SCRATCH,
    INSTANCE_SEQUENCE,
    INSTANCE_SMALL,
    INSTANCE_TASK_COUNT,
    INSTANCE_TASKS,
    INSTANCE_UNISSUED,
    LEFT,
    NEEDS_SCRATCH,
    QUEUED,
    REQUEST_BYTES,
    REQUEST_GRANTED,
    REQUEST_ROOT,
    REQUEST_SOFT,
    REQUEST_USER_COUNT,
    REQUEST_USERS,
    SHARES,
    TASK_ACTIVE,
    TASK_BEFORE,
    TASK_BLOCK,
    TASK_BYTES,
    TASK_CHUNK,
    TASK_CLAIMED,
    TASK_FUNCTION,
    TASK_LANE,
    TASK_STATUS,
    TASK_UNITS,
    TASK_UNMET,
    TASK_USE_COUNT,
    THREAD_DEADLINE,
    THREAD_NEED,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
)
from tracejit.kernels.executor.queues import (
    enqueue,
    enrol,
    fail,
    finish_launch,
    release,
)
from tracejit.kernels.executor.run import (
    claim_all,
    record_event,
)
from tracejit.kernels.executor.threads import (
    get,
    lock,
    native,
    now,
    put,
    unlock,
    wake_idle_threads,
)


@native
def patch(instance, values):
    """Write the addresses and numbers of the launch, plus addends, into the argument blocks."""
    block, patches = get(instance, INSTANCE_BLOCK), get(instance, INSTANCE_PATCHES)
    for i in range(get(instance, INSTANCE_PATCH_COUNT)):
        triple = patches + 24 * i
        value = get(values, 8 * get(triple, 8)) + get(triple, 16)
        put(block, 8 * get(triple, 0), value)


@native
def begin(engine, instance, variables):
    """Number the launch, list it as in flight, and enrol it; return whether all requests were granted."""
    sequence, newest = get(engine, ENGINE_SEQUENCE) + 1, get(engine, ENGINE_NEWEST)
    put(engine, ENGINE_SEQUENCE, sequence)
    put(instance, INSTANCE_SEQUENCE, sequence)
    put(instance, INSTANCE_ERROR, 0)
    put(instance, INSTANCE_LEFT, get(instance, INSTANCE_TASK_COUNT))
    put(instance, INSTANCE_UNISSUED, get(instance, INSTANCE_TASK_COUNT))
    put(instance, INSTANCE_NEWER, 0)
    put(instance, INSTANCE_OLDER, newest)
    if newest == 0:
        put(engine, ENGINE_OLDEST, instance)
    else:
        put(newest, INSTANCE_NEWER, instance)
    put(engine, ENGINE_NEWEST, instance)
    return enrol(instance, variables)


@native
def run_inline(engine, instance, thread):
    """Run a small launch on this thread, in the order of its tasks, without the lock.

    Return the task that the thread left because it takes longer than expected, or 0.
    """
    task, scratch = get(instance, INSTANCE_TASKS), get(thread, THREAD_SCRATCH)
    profiled = get(engine, ENGINE_EVENTS) != 0
    put(thread, THREAD_DEADLINE, 0)
    for _ in range(get(instance, INSTANCE_TASK_COUNT)):
        function, block = get(task, TASK_FUNCTION), get(task, TASK_BLOCK)
        units, chunk = get(task, TASK_UNITS), get(task, TASK_CHUNK)
        start, smallest = 0, 0
        if profiled:
            start = now(thread)
        for low in range(0, units, chunk):
            status = call_kernel(function, block, low, min(low + chunk, units), scratch)
            if status != 0 and (smallest == 0 or status < smallest):
                smallest = status
        if profiled:
            lock(engine)
            record_event(engine, thread, task, start)
            unlock(engine)
        if smallest == LEFT:
            return task
        if smallest != 0:
            fail(instance, task, smallest)
            return 0
        task += TASK_BYTES
    return 0


@native
def queue_remaining(engine, instance, unfinished):
    """Queue a small launch of which the tasks before `unfinished` have run, and `unfinished` partially."""
    reset_tasks(instance)
    task = get(instance, INSTANCE_TASKS)
    while task != unfinished:
        claim_all(task)
        task += TASK_BYTES
    put(unfinished, TASK_STATUS, LEFT)
    queue_tasks(engine, instance)


@native
def end_inline(engine, instance):
    """Release the requests of a small launch that has run, and end the launch."""
    start = get(instance, INSTANCE_REQUESTS)
    for i in range(get(instance, INSTANCE_ARGUMENT_COUNT)):
        request = start + i * REQUEST_BYTES
        if get(request, REQUEST_ROOT) == request:
            release(engine, request)
    finish_launch(instance)


@native
def reset_tasks(instance):
    """Reset the words of the tasks that change during a launch."""
    task = get(instance, INSTANCE_TASKS)
    for _ in range(get(instance, INSTANCE_TASK_COUNT)):
        put(task, TASK_UNMET, get(task, TASK_BEFORE) + get(task, TASK_USE_COUNT))
        put(task, TASK_ACTIVE, 0)
        put(task, TASK_STATUS, 0)
        for share in range(SHARES):
            put(task, TASK_CLAIMED + 8 * share, 0)
        task += TASK_BYTES


@native
def queue_tasks(engine, instance):
    """Subtract granted requests from the tasks' unmet dependencies; queue the tasks that have none left."""
    tasks, start = get(instance, INSTANCE_TASKS), get(instance, INSTANCE_REQUESTS)
    for i in range(get(instance, INSTANCE_ARGUMENT_COUNT)):
        request = start + i * REQUEST_BYTES
        root = get(request, REQUEST_ROOT)
        users, granted, soft = get(request, REQUEST_USERS), root == 0, 0
        if root != 0:
            granted, soft = get(root, REQUEST_GRANTED) != 0, get(root, REQUEST_SOFT)
        for j in range(get(request, REQUEST_USER_COUNT)):
            task = tasks + get(users, 8 * j) * TASK_BYTES
            if granted or get(task, TASK_LANE) == soft:
                put(task, TASK_UNMET, get(task, TASK_UNMET) - 1)
    for i in range(get(instance, INSTANCE_TASK_COUNT)):
        if get(tasks + i * TASK_BYTES, TASK_UNMET) == 0:
            enqueue(engine, tasks + i * TASK_BYTES)


@native
def launch(instance, packed, thread):
    """Start a launch; `packed` is the address of a value per argument, then a variable address per argument.

    Return FINISHED or FAILED if the launch ran inside this call, QUEUED if it did not, and NEEDS_SCRATCH if
    nothing happened, because the thread needs more scratch memory.
    """
    engine, small = get(instance, INSTANCE_ENGINE), get(instance, INSTANCE_SMALL)
    if small != 0 and get(instance, INSTANCE_SCRATCH) > get(thread, THREAD_SCRATCH_BYTES):
        put(thread, THREAD_NEED, get(instance, INSTANCE_SCRATCH))
        return NEEDS_SCRATCH
    patch(instance, packed)
    if small == 0:
        reset_tasks(instance)
    lock(engine)
    all_granted = begin(engine, instance, packed + 8 * get(instance, INSTANCE_ARGUMENT_COUNT))
    if small != 0 and all_granted != 0:
        unfinished = 0
        unlock(engine)
        if get(instance, INSTANCE_ERROR) == 0:
            unfinished = run_inline(engine, instance, thread)
        lock(engine)
        if unfinished == 0:
            end_inline(engine, instance)
            code = FINISHED if get(instance, INSTANCE_ERROR) == 0 else FAILED
        else:
            queue_remaining(engine, instance, unfinished)
            code = QUEUED
    else:
        if small != 0:
            reset_tasks(instance)
        queue_tasks(engine, instance)
        code = QUEUED
    wake_idle_threads(engine, 0)
    unlock(engine)
    return code
