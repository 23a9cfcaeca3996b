"""The execution of ready tasks by threads: a thread picks a task, runs chunks of it, and leaves it.

A task stays in the list of started tasks while it has unclaimed chunks, so that other threads can join it. A
thread that runs chunks of a task is *active* in it. The last thread to leave a task whose chunks are all
claimed ends the task.
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
    enqueue,
    fail,
    finish_task,
    heap_pop,
    issue,
    list_started,
    precedes,
    unlist_started,
)
from tracejit.kernels.executor.threads import (
    get,
    lock,
    native,
    now,
    put,
    unlock,
    usleep,
    wake_idle_threads,
)

POLL = 50  # microseconds


@native
def pick(engine, thread):
    """Return the next task for `thread`, 0 if there is none, or -1 if it needs more scratch memory.

    A worker takes tasks of its own lane; a waiting thread takes tasks of all lanes of kernels.
    """
    if get(engine, ENGINE_PAUSED) != RUNNING:
        return 0
    limit, lane = get(thread, THREAD_LIMIT), get(thread, THREAD_LANE)
    task = 0
    if lane != 0:
        task = first_of(lane, limit)
    else:
        candidate_lane = get(engine, ENGINE_LANES)
        while candidate_lane != 0:
            top = first_of(candidate_lane, limit)
            if top != 0 and (task == 0 or precedes(top, task)):
                task, lane = top, candidate_lane
            candidate_lane = get(candidate_lane, LANE_NEXT)
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
            alternate_order(lane, task)
    return task


@native
def first_of(lane, limit):
    """Return the task of `lane` that runs next, or 0 if there is none or its launch is later than `limit`.

    A started task with unclaimed chunks precedes a ready task of the same priority.
    """
    task, top = get(lane, LANE_STARTED), get(lane, LANE_READY)
    if task == 0 or (top != 0 and get(top, TASK_PRIORITY) > get(task, TASK_PRIORITY)):
        task = top
    if task != 0 and get(get(task, TASK_INSTANCE), INSTANCE_SEQUENCE) > limit:
        return 0
    return task


@native
def alternate_order(lane, task):
    """Reverse the order of the chunks of `task` relative to the lane's previous task of several chunks."""
    is_reversed = get(lane, LANE_REVERSED)
    put(task, TASK_REVERSED, is_reversed)
    put(lane, LANE_REVERSED, 1 - is_reversed)


@native
def share_count(task):
    """The number of shares into which the chunks of `task` are divided."""
    return SHARES if get(task, TASK_CHUNKS) > 1 else 1


@native
def share_start(task, share):
    """The first chunk of a share of `task`; the number of chunks if `share` is one past the last."""
    return get(task, TASK_CHUNKS) * share // share_count(task)


@native
def first_share(thread, task):
    """The share with which `thread` begins: the first of its shares, or the last if the order is reversed."""
    if get(task, TASK_CHUNKS) <= 1:
        return 0
    home = get(thread, THREAD_HOME)
    if get(task, TASK_REVERSED) == 0:
        return home
    return home ^ (max(1, SHARES // (get(get(task, TASK_LANE), LANE_WORKERS) + 1)) - 1)


@native
def chunk_at(task, share, index):
    """The chunk that is claimed as number `index` of `share`."""
    first, end = share_start(task, share), share_start(task, share + 1)
    if get(task, TASK_REVERSED) == 0:
        return first + index
    run = (end - first + RUNS - 1) // RUNS
    return max(first, end - (index // run + 1) * run) + index % run


@native
def has_chunks(task):
    """Whether `task` has unclaimed chunks."""
    for share in range(share_count(task)):
        size = share_start(task, share + 1) - share_start(task, share)
        if load_acquire(task + TASK_CLAIMED + 8 * share) < size:  # pairs with atomic_add in `run_chunks`
            return True
    return False


@native
def claim_all(task):
    """Claim all remaining chunks of `task`."""
    for share in range(share_count(task)):
        # pairs with atomic_add in `run_chunks`
        store_release(task + TASK_CLAIMED + 8 * share, get(task, TASK_CHUNKS))


@native
def run_chunks(engine, thread, task):
    """Run chunks of `task` until none is left or `thread` must leave; return the smallest nonzero status."""
    function, block = get(task, TASK_FUNCTION), get(task, TASK_BLOCK)
    units, chunk, chunks = get(task, TASK_UNITS), get(task, TASK_CHUNK), get(task, TASK_CHUNKS)
    scratch, deadline = get(thread, THREAD_SCRATCH), get(thread, THREAD_DEADLINE)
    origin, smallest = first_share(thread, task), 0
    continues = int64(chunks == 1 and get(task, TASK_STATUS) == LEFT)  # ``lo = 1`` continues a kernel
    for offset in range(share_count(task)):
        share = origin ^ offset
        size = share_start(task, share + 1) - share_start(task, share)
        claimed = task + TASK_CLAIMED + 8 * share
        if size == 0:
            continue
        index = atomic_add(claimed, 1)  # pairs with itself: each index goes to one thread
        while index < size:
            low = chunk_at(task, share, index) * chunk
            status = call_kernel(function, block, low + continues, min(low + chunk, units), scratch)
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
    """Write a profiler event into the ring buffer. The caller holds the lock."""
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
def leave_task(task, status):
    """Remove a thread from `task`, with the status of its chunks; the last thread to leave ends the task."""
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
        return  # the task stays in the list of started tasks, and `wake_for_ready_work` wakes a thread for it
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
    """Run a task that `pick` returned, or skip it if its launch has failed.

    The caller holds the lock, which is released meanwhile.
    """
    if get(get(task, TASK_INSTANCE), INSTANCE_ERROR) != 0:
        claim_all(task)
    put(engine, ENGINE_ACTIVE, get(engine, ENGINE_ACTIVE) + 1)
    put(task, TASK_ACTIVE, get(task, TASK_ACTIVE) + 1)
    start = 0
    if get(engine, ENGINE_EVENTS) != 0:
        start = now(thread)
    unlock(engine)
    status = run_chunks(engine, thread, task)
    lock(engine)
    while get(engine, ENGINE_PAUSED) == HALTED:  # the process is forking
        unlock(engine)
        usleep(POLL)
        lock(engine)
    if start != 0:
        record_event(engine, thread, task, start)
    put(engine, ENGINE_ACTIVE, get(engine, ENGINE_ACTIVE) - 1)
    leave_task(task, status)


@native
def wake_for_ready_work(engine):
    """Wake other threads if the caller stops working while tasks are ready or have unclaimed chunks."""
    lane = get(engine, ENGINE_LANES)
    while lane != 0:
        if get(lane, LANE_STARTED) != 0 or get(lane, LANE_READY) != 0:
            put(lane, LANE_DEMAND, 1)
            put(lane, LANE_DEMAND_SEQUENCE, NEVER)  # wake a worker rather than another waiting thread
        lane = get(lane, LANE_NEXT)
    wake_idle_threads(engine, 0)
