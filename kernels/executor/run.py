"""The execution of ready tasks by threads: pick one, run chunks of it, leave it.

A task stays in the list of started tasks while it has chunks left, so that further threads can join it. Each
thread that is inside counts as active; the last one to leave a task whose chunks are all taken ends it.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import (
    atomic_add,
    call_kernel,
    load_acquire,
    store_release,
)
from tracejit.kernels.executor.layout import (
    ENGINE_ACTIVE,
    ENGINE_EVENT_CAPACITY,
    ENGINE_EVENT_COUNT,
    ENGINE_EVENTS,
    ENGINE_LANES,
    ENGINE_PAUSED,
    EVENT_BYTES,
    EVENT_END,
    EVENT_LABEL,
    EVENT_LAUNCH,
    EVENT_START,
    EVENT_THREAD,
    HALTED,
    INSTANCE_ENGINE,
    INSTANCE_ERROR,
    INSTANCE_SCRATCH,
    INSTANCE_SEQUENCE,
    LANE_DEMAND,
    LANE_DEMAND_SEQUENCE,
    LANE_DEVICE,
    LANE_NEXT,
    LANE_READY,
    LANE_REVERSED,
    LANE_STARTED,
    LANE_WORKERS,
    LEFT,
    NEVER,
    RUNNING,
    RUNS,
    SHARES,
    TASK_ACTIVE,
    TASK_BLOCK,
    TASK_CHUNK,
    TASK_CHUNKS,
    TASK_CLAIMED,
    TASK_FUNCTION,
    TASK_INSTANCE,
    TASK_LABEL,
    TASK_LANE,
    TASK_LISTED,
    TASK_PRIORITY,
    TASK_REVERSED,
    TASK_STATUS,
    TASK_UNITS,
    THREAD_DEADLINE,
    THREAD_HOME,
    THREAD_LANE,
    THREAD_LIMIT,
    THREAD_NEED,
    THREAD_NUMBER,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
    THREAD_STOP,
)
from tracejit.kernels.executor.queues import (
    before,
    enqueue,
    fail,
    finish_task,
    heap_pop,
    issue,
    list_started,
    unlist_started,
)
from tracejit.kernels.executor.threads import (
    get,
    lock,
    native,
    now,
    put,
    rouse,
    unlock,
    usleep,
)

POLL = 50  # microseconds


@native
def pick(engine, thread):
    """The next task for `thread`; 0 if there is none, -1 if the thread's scratch memory is too small.

    A worker looks into its own lane, a thread that waits into all lanes of kernels.
    """
    if get(engine, ENGINE_PAUSED) != RUNNING:
        return 0
    limit, lane = get(thread, THREAD_LIMIT), get(thread, THREAD_LANE)
    task = 0
    if lane != 0:
        task = first_of(lane, limit)
    else:
        other = get(engine, ENGINE_LANES)
        while other != 0:
            top = first_of(other, limit)
            if top != 0 and (task == 0 or before(top, task)):
                task, lane = top, other
            other = get(other, LANE_NEXT)
    if task == 0:
        return 0
    instance = get(task, TASK_INSTANCE)
    if get(instance, INSTANCE_SCRATCH) > get(thread, THREAD_SCRATCH_BYTES):
        put(thread, THREAD_NEED, get(instance, INSTANCE_SCRATCH))
        return -1
    if get(task, TASK_LISTED) == 0:
        heap_pop(lane + LANE_READY)
        if get(task, TASK_CHUNKS) > 1:
            list_started(task)
            turn_round(lane, task)
    return task


@native
def first_of(lane, limit):
    """The task of `lane` that is to run next, if its launch is none after `limit`; or 0.

    A running task with chunks left comes before a ready one of the same priority.
    """
    task, top = get(lane, LANE_STARTED), get(lane, LANE_READY)
    if task == 0 or (top != 0 and get(top, TASK_PRIORITY) > get(task, TASK_PRIORITY)):
        task = top
    if task != 0 and get(get(task, TASK_INSTANCE), INSTANCE_SEQUENCE) > limit:
        return 0
    return task


@native
def turn_round(lane, task):
    """Reverse the order of chunks of `task`, compared with the lane's last task of several chunks."""
    is_reversed = get(lane, LANE_REVERSED)
    put(task, TASK_REVERSED, is_reversed)
    put(lane, LANE_REVERSED, 1 - is_reversed)


@native
def share_count(task):
    """The number of shares of the chunks of `task`."""
    return SHARES if get(task, TASK_CHUNKS) > 1 else 1


@native
def share_start(task, share):
    """The first chunk of a share of `task`; of the share after the last one, the number of chunks."""
    return get(task, TASK_CHUNKS) * share // share_count(task)


@native
def first_share(thread, task):
    """The share with which `thread` begins: the first or the last one of its own."""
    if get(task, TASK_CHUNKS) <= 1:
        return 0
    home = get(thread, THREAD_HOME)
    if get(task, TASK_REVERSED) == 0:
        return home
    return home ^ (max(1, SHARES // (get(get(task, TASK_LANE), LANE_WORKERS) + 1)) - 1)


@native
def chunk_at(task, share, index):
    """The chunk that is taken as number `index` of `share`."""
    first, end = share_start(task, share), share_start(task, share + 1)
    if get(task, TASK_REVERSED) == 0:
        return first + index
    run = (end - first + RUNS - 1) // RUNS
    return max(first, end - (index // run + 1) * run) + index % run


@native
def has_chunks(task):
    """Whether chunks of `task` are left to take."""
    for share in range(share_count(task)):
        size = share_start(task, share + 1) - share_start(task, share)
        if load_acquire(task + TASK_CLAIMED + 8 * share) < size:  # pairs with atomic_add in `run_chunks`
            return True
    return False


@native
def take_all(task):
    """Take all remaining chunks of `task`."""
    for share in range(share_count(task)):
        # pairs with atomic_add in `run_chunks`
        store_release(task + TASK_CLAIMED + 8 * share, get(task, TASK_CHUNKS))


@native
def run_chunks(engine, thread, task):
    """Run chunks of `task` until none is left or `thread` must leave; returns the smallest nonzero status."""
    function, block = get(task, TASK_FUNCTION), get(task, TASK_BLOCK)
    units, chunk, chunks = get(task, TASK_UNITS), get(task, TASK_CHUNK), get(task, TASK_CHUNKS)
    scratch, deadline = get(thread, THREAD_SCRATCH), get(thread, THREAD_DEADLINE)
    origin, smallest = first_share(thread, task), 0
    further = int64(chunks == 1 and get(task, TASK_STATUS) == LEFT)
    for turn in range(share_count(task)):
        share = origin ^ turn
        size = share_start(task, share + 1) - share_start(task, share)
        claimed = task + TASK_CLAIMED + 8 * share
        if size == 0:
            continue
        index = atomic_add(claimed, 1)  # pairs with itself: each index goes to one thread
        while index < size:
            low = chunk_at(task, share, index) * chunk
            status = call_kernel(function, block, low + further, min(low + chunk, units), scratch)
            if status != 0 and (smallest == 0 or status < smallest):
                smallest = status
            if chunks > 1:
                halted = load_acquire(engine + ENGINE_PAUSED)  # pairs with store_release in `quiesce`
                halted |= load_acquire(thread + THREAD_STOP)  # pairs with store_release in `stop_thread`
                if halted != 0 or now(thread) >= deadline:
                    return smallest
            index = atomic_add(claimed, 1)
    return smallest


@native
def record_event(engine, thread, task, start):
    """Write a profiler event into the ring; the caller holds the lock."""
    ring = get(engine, ENGINE_EVENTS)
    if ring == 0:
        return
    count = get(engine, ENGINE_EVENT_COUNT)
    event = ring + count % get(engine, ENGINE_EVENT_CAPACITY) * EVENT_BYTES
    put(event, EVENT_LABEL, get(task, TASK_LABEL))
    put(event, EVENT_THREAD, get(thread, THREAD_NUMBER))
    put(event, EVENT_START, start)
    put(event, EVENT_END, now(thread))
    put(event, EVENT_LAUNCH, get(get(task, TASK_INSTANCE), INSTANCE_SEQUENCE))
    put(engine, ENGINE_EVENT_COUNT, count + 1)


@native
def leave(task, status):
    """Count a thread out of `task`; the last one to leave ends the task."""
    active = get(task, TASK_ACTIVE) - 1
    put(task, TASK_ACTIVE, active)
    if status == LEFT:
        put(task, TASK_STATUS, LEFT)
        put(task, TASK_CLAIMED, 0)
        enqueue(get(get(task, TASK_INSTANCE), INSTANCE_ENGINE), task)
        return
    smallest = get(task, TASK_STATUS)
    if smallest == LEFT:
        smallest = 0
        put(task, TASK_STATUS, 0)
    if status != 0 and (smallest == 0 or status < smallest):
        put(task, TASK_STATUS, status)
    if has_chunks(task):
        return  # it stays in the list of started tasks, and `pass_on` wakes a thread for it
    if get(task, TASK_LISTED) != 0:
        unlist_started(task)
    if active == 0:
        if get(task, TASK_STATUS) != 0:
            fail(get(task, TASK_INSTANCE), task, get(task, TASK_STATUS))
        if get(get(task, TASK_LANE), LANE_DEVICE) != 0:
            issue(get(get(task, TASK_INSTANCE), INSTANCE_ENGINE), task)
        else:
            finish_task(task)


@native
def execute(engine, thread, task):
    """Run a picked task, or skip it if its launch has failed. The lock is held before and after."""
    if get(get(task, TASK_INSTANCE), INSTANCE_ERROR) != 0:
        take_all(task)
    put(engine, ENGINE_ACTIVE, get(engine, ENGINE_ACTIVE) + 1)
    put(task, TASK_ACTIVE, get(task, TASK_ACTIVE) + 1)
    start = 0
    if get(engine, ENGINE_EVENTS) != 0:
        start = now(thread)
    unlock(engine)
    status = run_chunks(engine, thread, task)
    lock(engine)
    while get(engine, ENGINE_PAUSED) == HALTED:  # the process forks now
        unlock(engine)
        usleep(POLL)
        lock(engine)
    if start != 0:
        record_event(engine, thread, task, start)
    put(engine, ENGINE_ACTIVE, get(engine, ENGINE_ACTIVE) - 1)
    leave(task, status)


@native
def pass_on(engine):
    """Wake other threads if the caller leaves ready work behind."""
    lane = get(engine, ENGINE_LANES)
    while lane != 0:
        if get(lane, LANE_STARTED) != 0 or get(lane, LANE_READY) != 0:
            put(lane, LANE_DEMAND, 1)
            put(lane, LANE_DEMAND_SEQUENCE, NEVER)  # a worker, not another thread that waits
        lane = get(lane, LANE_NEXT)
    rouse(engine, 0)
