"""The native executor: runs launches of tasks, compiled by Numba like any kernel.

Records are laid out in `executor_layout`; this module has the entry points that Python calls (`ENTRIES`). The
life of a launch: `launch` patches the argument blocks and enrols on all variables under the lock. If every
variable is free and the launch is small, it runs right there. Otherwise tasks whose requests are granted and
whose predecessors are done stand in a heap of ready tasks; threads (`work`, `wait`) pick one under the lock,
run chunks of it without the lock, and under the lock again mark it done, which makes others ready. Python
tasks wait in a heap of their own, from which host threads take them (`take_host`) and end them (`complete`).

Everything but two words is guarded by the one lock: TASK_CLAIMED, from which threads draw the chunks of a
task, and THREAD_IDLE, on which an idle thread spins. ENGINE_PAUSED is also read between chunks.

    lock; task = pick(); unlock; status = run_chunks(task); lock; leave(task)  # every thread, again and again
"""

from __future__ import annotations

from numba.types import int64, void

from tracejit.kernels.executor_layout import (
    AWAKE,
    ENGINE_ACTIVE,
    ENGINE_DEMAND,
    ENGINE_DEMAND_SEQUENCE,
    ENGINE_EVENT_CAPACITY,
    ENGINE_EVENT_COUNT,
    ENGINE_EVENTS,
    ENGINE_FINISHED,
    ENGINE_HOST_COUNT,
    ENGINE_HOST_READY,
    ENGINE_HOSTS_IDLE,
    ENGINE_LOCK,
    ENGINE_NEWEST,
    ENGINE_OLDEST,
    ENGINE_PAUSED,
    ENGINE_READY,
    ENGINE_SEQUENCE,
    ENGINE_STARTED,
    ENGINE_WAITERS_IDLE,
    ENGINE_WORKERS,
    ENGINE_WORKERS_IDLE,
    EVENT_BYTES,
    EVENT_END,
    EVENT_LABEL,
    EVENT_START,
    EVENT_THREAD,
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
    LAUNCH,
    NEEDS_SCRATCH,
    NEVER,
    QUEUED,
    REQUEST_BITS,
    REQUEST_BYTES,
    REQUEST_GRANTED,
    REQUEST_INSTANCE,
    REQUEST_PREVIOUS,
    REQUEST_ROOT,
    REQUEST_USER_COUNT,
    REQUEST_USERS,
    TASK_ACTIVE,
    TASK_BEFORE,
    TASK_BLOCK,
    TASK_BYTES,
    TASK_CHUNK,
    TASK_CHUNKS,
    TASK_CLAIMED,
    TASK_FUNCTION,
    TASK_INSTANCE,
    TASK_LABEL,
    TASK_LISTED,
    TASK_PRIORITY,
    TASK_STATUS,
    TASK_UNITS,
    TASK_UNMET,
    TASK_USE_COUNT,
    THREAD_CONDITION,
    THREAD_DEADLINE,
    THREAD_IDLE,
    THREAD_KIND,
    THREAD_LIMIT,
    THREAD_NEED,
    THREAD_NUMBER,
    THREAD_OBJECT,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
    THREAD_STOP,
    THREAD_TARGET,
    UNUSED,
    VARIABLE_FAILURE,
    VARIABLE_POISON,
    VARIABLE_PUSHED,
    VARIABLE_TAIL,
    VARIABLE_WAITERS,
    WRITES,
    WRITTEN,
)
from tracejit.kernels.executor_queues import (
    enqueue,
    enrol,
    fail,
    finish_launch,
    finish_task,
    heap_pop,
    list_started,
    release,
    satisfied,
    unlist_started,
)
from tracejit.kernels.executor_threads import (
    condition_init,
    get,
    idle,
    lock,
    mutex_init,
    native,
    now,
    put,
    rouse,
    unlock,
    usleep,
    wake,
    wake_all,
)
from tracejit.kernels.memory import atomic_add, call_kernel, load_acquire, store_release

PAUSE_POLL = 50  # microseconds

# --- Running tasks ------------------------------------------------------------------------------------------


@native
def pick(engine, thread):
    """The next task for `thread`; 0 if there is none, -1 if the thread's scratch memory is too small.

    A running task with chunks left comes before a ready one of the same priority.
    """
    if get(engine + ENGINE_PAUSED) != 0:
        return 0
    task, top = get(engine + ENGINE_STARTED), get(engine + ENGINE_READY)
    if task == 0 or (top != 0 and get(top + TASK_PRIORITY) > get(task + TASK_PRIORITY)):
        task = top
    if task == 0:
        return 0
    instance = get(task + TASK_INSTANCE)
    if get(instance + INSTANCE_SEQUENCE) > get(thread + THREAD_LIMIT):
        return 0
    if get(instance + INSTANCE_SCRATCH) > get(thread + THREAD_SCRATCH_BYTES):
        put(thread + THREAD_NEED, get(instance + INSTANCE_SCRATCH))
        return -1
    if get(task + TASK_LISTED) == 0:
        heap_pop(engine + ENGINE_READY)
        if get(task + TASK_CHUNKS) > 1:
            list_started(engine, task)
    return task


@native
def run_chunks(engine, thread, task):
    """Run chunks of `task` until none is left or `thread` has to leave; the smallest nonzero status."""
    function, block = get(task + TASK_FUNCTION), get(task + TASK_BLOCK)
    units, chunk, chunks = get(task + TASK_UNITS), get(task + TASK_CHUNK), get(task + TASK_CHUNKS)
    scratch, deadline = get(thread + THREAD_SCRATCH), get(thread + THREAD_DEADLINE)
    smallest = 0
    while True:
        index = atomic_add(
            task + TASK_CLAIMED, 1
        )  # pairs with itself on other threads: each index goes out once
        if index >= chunks:
            return smallest
        low = index * chunk
        status = call_kernel(function, block, low, min(low + chunk, units), scratch)
        if status != 0 and (smallest == 0 or status < smallest):
            smallest = status
        if chunks > 1:
            halted = load_acquire(engine + ENGINE_PAUSED)  # pairs with store_release in `quiesce`
            halted |= load_acquire(thread + THREAD_STOP)  # pairs with store_release in `stop_thread`
            if halted != 0 or now(thread) >= deadline:
                return smallest


@native
def record_event(engine, thread, task, start):
    """Write a profiler event into the ring; the caller holds the lock."""
    ring = get(engine + ENGINE_EVENTS)
    if ring == 0:
        return
    count = get(engine + ENGINE_EVENT_COUNT)
    event = ring + count % get(engine + ENGINE_EVENT_CAPACITY) * EVENT_BYTES
    put(event + EVENT_LABEL, get(task + TASK_LABEL))
    put(event + EVENT_THREAD, get(thread + THREAD_NUMBER))
    put(event + EVENT_START, start)
    put(event + EVENT_END, now(thread))
    put(engine + ENGINE_EVENT_COUNT, count + 1)


@native
def leave(engine, task, status):
    """A thread has stopped running chunks of `task`; the last one to leave ends the task."""
    active = get(task + TASK_ACTIVE) - 1
    put(task + TASK_ACTIVE, active)
    smallest = get(task + TASK_STATUS)
    if status != 0 and (smallest == 0 or status < smallest):
        put(task + TASK_STATUS, status)
    if load_acquire(task + TASK_CLAIMED) < get(task + TASK_CHUNKS):  # pairs with atomic_add in `run_chunks`
        return  # it stands in the list of started tasks, and `pass_on` finds somebody for it
    if get(task + TASK_LISTED) != 0:
        unlist_started(engine, task)
    if active == 0:
        if get(task + TASK_STATUS) != 0:
            fail(get(task + TASK_INSTANCE), task, get(task + TASK_STATUS))
        finish_task(task)


@native
def execute(engine, thread, task):
    """Run a picked task, or skip it if its launch has failed. The lock is held before and after."""
    if get(get(task + TASK_INSTANCE) + INSTANCE_ERROR) != 0:
        store_release(task + TASK_CLAIMED, get(task + TASK_CHUNKS))  # pairs with atomic_add in `run_chunks`
    put(engine + ENGINE_ACTIVE, get(engine + ENGINE_ACTIVE) + 1)
    put(task + TASK_ACTIVE, get(task + TASK_ACTIVE) + 1)
    start = 0
    if get(engine + ENGINE_EVENTS) != 0:
        start = now(thread)
    unlock(engine)
    status = run_chunks(engine, thread, task)
    lock(engine)
    if start != 0:
        record_event(engine, thread, task, start)
    put(engine + ENGINE_ACTIVE, get(engine + ENGINE_ACTIVE) - 1)
    leave(engine, task, status)


@native
def pass_on(engine):
    """A thread turns away from ready work: see that another one looks after it."""
    if get(engine + ENGINE_STARTED) != 0 or get(engine + ENGINE_READY) != 0:
        put(engine + ENGINE_DEMAND, 1)
        put(engine + ENGINE_DEMAND_SEQUENCE, NEVER)  # a worker, not another thread that waits
        rouse(engine, 0)


def work(engine, thread):
    """The life of a worker. Returns 1 when it shall stop, 0 when it needs more scratch memory."""
    put(thread + THREAD_LIMIT, NEVER)
    put(thread + THREAD_DEADLINE, NEVER)
    lock(engine)
    while get(thread + THREAD_STOP) == 0:
        task = pick(engine, thread)
        if task < 0:
            unlock(engine)
            return 0
        if task == 0:
            idle(engine, thread, engine + ENGINE_WORKERS_IDLE, NEVER)
        else:
            execute(engine, thread, task)
            rouse(engine, 1)
    pass_on(engine)
    unlock(engine)
    return 1


def help_out(engine, thread):
    """Run native tasks until none is ready. Returns 1, or 0 when the thread needs more scratch memory."""
    put(thread + THREAD_LIMIT, NEVER)
    put(thread + THREAD_DEADLINE, NEVER)
    lock(engine)
    task = pick(engine, thread)
    while task > 0:
        execute(engine, thread, task)
        rouse(engine, 1)
        task = pick(engine, thread)
    unlock(engine)
    return int64(task == 0)


# --- Launching ----------------------------------------------------------------------------------------------


@native
def patch(instance, values):
    """Write the launch's addresses and numbers into the argument blocks."""
    block, patches = get(instance + INSTANCE_BLOCK), get(instance + INSTANCE_PATCHES)
    for i in range(get(instance + INSTANCE_PATCH_COUNT)):
        triple = patches + 24 * i
        value = get(values + 8 * get(triple + 8)) + get(triple + 16)
        put(block + 8 * get(triple), value)


@native
def begin(engine, instance, variables):
    """Number the launch, enrol it, put it among those in flight. Returns whether everything was granted."""
    sequence, newest = get(engine + ENGINE_SEQUENCE) + 1, get(engine + ENGINE_NEWEST)
    put(engine + ENGINE_SEQUENCE, sequence)
    put(instance + INSTANCE_SEQUENCE, sequence)
    put(instance + INSTANCE_ERROR, 0)
    put(instance + INSTANCE_LEFT, get(instance + INSTANCE_TASK_COUNT))
    put(instance + INSTANCE_NEWER, 0)
    put(instance + INSTANCE_OLDER, newest)
    if newest == 0:
        put(engine + ENGINE_OLDEST, instance)
    else:
        put(newest + INSTANCE_NEWER, instance)
    put(engine + ENGINE_NEWEST, instance)
    return enrol(instance, variables)


@native
def run_inline(engine, instance, thread):
    """Run a small launch on this thread, in the order of its tasks, without the lock."""
    task, scratch = get(instance + INSTANCE_TASKS), get(thread + THREAD_SCRATCH)
    profiled = get(engine + ENGINE_EVENTS) != 0
    for _ in range(get(instance + INSTANCE_TASK_COUNT)):
        function, block = get(task + TASK_FUNCTION), get(task + TASK_BLOCK)
        units, chunk = get(task + TASK_UNITS), get(task + TASK_CHUNK)
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
        if smallest != 0:
            fail(instance, task, smallest)
            return
        task += TASK_BYTES


@native
def end_inline(engine, instance):
    """Release what a small launch used."""
    start = get(instance + INSTANCE_REQUESTS)
    for i in range(get(instance + INSTANCE_ARGUMENT_COUNT)):
        request = start + i * REQUEST_BYTES
        if get(request + REQUEST_ROOT) == request:
            release(engine, request)
    finish_launch(instance)


@native
def reset_tasks(instance):
    task = get(instance + INSTANCE_TASKS)
    for _ in range(get(instance + INSTANCE_TASK_COUNT)):
        put(task + TASK_UNMET, get(task + TASK_BEFORE) + get(task + TASK_USE_COUNT))
        put(task + TASK_ACTIVE, 0)
        put(task + TASK_STATUS, 0)
        put(task + TASK_CLAIMED, 0)
        task += TASK_BYTES


@native
def queue_tasks(engine, instance):
    """Take the requests granted at once off the tasks' counts, and queue the tasks that miss nothing."""
    tasks, start = get(instance + INSTANCE_TASKS), get(instance + INSTANCE_REQUESTS)
    for i in range(get(instance + INSTANCE_ARGUMENT_COUNT)):
        request = start + i * REQUEST_BYTES
        root = get(request + REQUEST_ROOT)
        if root == 0 or get(root + REQUEST_GRANTED) != 0:
            users = get(request + REQUEST_USERS)
            for j in range(get(request + REQUEST_USER_COUNT)):
                task = tasks + get(users + 8 * j) * TASK_BYTES
                put(task + TASK_UNMET, get(task + TASK_UNMET) - 1)
    for i in range(get(instance + INSTANCE_TASK_COUNT)):
        if get(tasks + i * TASK_BYTES + TASK_UNMET) == 0:
            enqueue(engine, tasks + i * TASK_BYTES)


def launch(instance, packed, thread):
    """Start a launch; `packed` is the address of a value per argument, then a variable address per argument.

    Returns FINISHED or FAILED if it ran inside this call, QUEUED if not, NEEDS_SCRATCH if nothing happened.
    """
    engine, small = get(instance + INSTANCE_ENGINE), get(instance + INSTANCE_SMALL)
    if small != 0 and get(instance + INSTANCE_SCRATCH) > get(thread + THREAD_SCRATCH_BYTES):
        put(thread + THREAD_NEED, get(instance + INSTANCE_SCRATCH))
        return NEEDS_SCRATCH
    patch(instance, packed)
    if small == 0:
        reset_tasks(instance)
    lock(engine)
    free = begin(engine, instance, packed + 8 * get(instance + INSTANCE_ARGUMENT_COUNT))
    if small != 0 and free != 0:
        unlock(engine)
        if get(instance + INSTANCE_ERROR) == 0:
            run_inline(engine, instance, thread)
        lock(engine)
        end_inline(engine, instance)
        code = FINISHED if get(instance + INSTANCE_ERROR) == 0 else FAILED
    else:
        if small != 0:
            reset_tasks(instance)
        queue_tasks(engine, instance)
        code = QUEUED
    rouse(engine, 0)
    unlock(engine)
    return code


# --- Waiting ------------------------------------------------------------------------------------------------


@native
def last_enrolled(request, bits):
    """The newest launch, from `request` backwards, that enrolled with one of the access `bits`; or 0."""
    while request != 0 and get(request + REQUEST_BITS) & bits == 0:
        request = get(request + REQUEST_PREVIOUS)
    if request == 0:
        return 0
    return get(get(request + REQUEST_INSTANCE) + INSTANCE_SEQUENCE)


def begin_wait(engine, thread, kind, place):
    """Note what `thread` will wait for, as of now. Returns whether it has come already."""
    lock(engine)
    put(thread + THREAD_KIND, kind)
    put(thread + THREAD_OBJECT, place)
    limit = get(engine + ENGINE_SEQUENCE)
    target = limit
    if kind == WRITTEN:
        target = get(place + VARIABLE_PUSHED)
        limit = last_enrolled(get(place + VARIABLE_TAIL), WRITES)
    elif kind == UNUSED:
        limit = last_enrolled(get(place + VARIABLE_TAIL), -1)
    elif kind == LAUNCH:
        limit = get(place + INSTANCE_SEQUENCE)
        target = limit
    put(thread + THREAD_TARGET, target)
    put(thread + THREAD_LIMIT, limit)
    done = satisfied(engine, thread)
    unlock(engine)
    return int64(done)


@native
def count_waiter(thread, amount):
    """Tell the variable that `thread` waits for, if it is one, that somebody waits."""
    kind, place = get(thread + THREAD_KIND), get(thread + THREAD_OBJECT)
    if kind in (WRITTEN, UNUSED):
        put(place + VARIABLE_WAITERS, get(place + VARIABLE_WAITERS) + amount)


def wait(engine, thread, duration):
    """Wait for what `begin_wait` noted, at most `duration` nanoseconds, and run what it needs meanwhile.

    Returns 1 when it has come, 0 when time is up, -1 when the thread needs more scratch memory.
    """
    deadline = now(thread) + duration
    put(thread + THREAD_DEADLINE, deadline)
    lock(engine)
    if get(engine + ENGINE_WORKERS) == 0:
        put(thread + THREAD_LIMIT, NEVER)
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
            rouse(engine, 1)
        else:
            pass_on(engine)
            idle(engine, thread, engine + ENGINE_WAITERS_IDLE, deadline)
        if result == 0 and now(thread) >= deadline:
            result = int64(satisfied(engine, thread))
            break
    count_waiter(thread, -1)
    pass_on(engine)
    unlock(engine)
    return result


def observe(engine, variable):
    """The failure that a wait for `variable` raises, or 0. One that kept the content is told once."""
    lock(engine)
    failure = get(variable + VARIABLE_FAILURE)
    put(variable + VARIABLE_FAILURE, 0)
    if failure == 0:
        failure = get(variable + VARIABLE_POISON)
    unlock(engine)
    return failure


def take_finished(engine):
    """The list of instances that have finished since the last call."""
    lock(engine)
    first = get(engine + ENGINE_FINISHED)
    put(engine + ENGINE_FINISHED, 0)
    unlock(engine)
    return first


# --- Python tasks -------------------------------------------------------------------------------------------


def take_host(engine, thread, duration):
    """The next Python task, and its instance in THREAD_OBJECT. Waits at most `duration` nanoseconds.

    Returns 0 if none came in time, if the thread shall stop, or if a task was skipped.
    """
    deadline = now(thread) + duration
    task = 0
    lock(engine)
    while task == 0:
        if get(engine + ENGINE_HOST_READY) != 0:
            task = heap_pop(engine + ENGINE_HOST_READY)
            put(engine + ENGINE_HOST_COUNT, get(engine + ENGINE_HOST_COUNT) - 1)
            put(thread + THREAD_OBJECT, get(task + TASK_INSTANCE))
            if get(get(task + TASK_INSTANCE) + INSTANCE_ERROR) != 0:
                finish_task(task)
                task = 0
                break  # so that the caller sees to what this made ready
        elif get(thread + THREAD_STOP) != 0 or now(thread) >= deadline:
            break
        else:
            rouse(engine, 0)
            idle(engine, thread, engine + ENGINE_HOSTS_IDLE, deadline)
    rouse(engine, 0)
    unlock(engine)
    return task


def complete(engine, task, status):
    """End a Python task; a nonzero `status` fails its launch."""
    lock(engine)
    if status != 0:
        fail(get(task + TASK_INSTANCE), task, status)
    finish_task(task)
    rouse(engine, 0)
    unlock(engine)


# --- Life of the engine -------------------------------------------------------------------------------------


def initialize(engine):
    mutex_init(engine + ENGINE_LOCK, 0)


def initialize_thread(thread):
    condition_init(thread + THREAD_CONDITION, 0)


def stop_thread(engine, thread):
    """Make a worker return after its current chunk, or a host thread after its current task."""
    lock(engine)
    store_release(thread + THREAD_STOP, 1)  # pairs with load_acquire in `run_chunks`
    if get(thread + THREAD_IDLE) != AWAKE:
        wake(thread)
    unlock(engine)


def quiesce(engine):
    """Wait until no thread is inside a native task, and return with the lock held."""
    lock(engine)
    store_release(engine + ENGINE_PAUSED, 1)  # pairs with load_acquire in `run_chunks`
    while get(engine + ENGINE_ACTIVE) != 0:
        unlock(engine)
        usleep(PAUSE_POLL)
        lock(engine)


def resume(engine):
    """Undo `quiesce`."""
    store_release(engine + ENGINE_PAUSED, 0)
    wake_all(engine + ENGINE_WORKERS_IDLE)
    wake_all(engine + ENGINE_WAITERS_IDLE)
    unlock(engine)


def resume_child(engine):
    """Undo `quiesce` in a forked child, where the calling thread is the only one."""
    put(engine + ENGINE_WORKERS_IDLE, 0)
    put(engine + ENGINE_WAITERS_IDLE, 0)
    put(engine + ENGINE_HOSTS_IDLE, 0)
    put(engine + ENGINE_PAUSED, 0)
    mutex_init(engine + ENGINE_LOCK, 0)


def _signature(result, arity):
    return result(*[int64] * arity)


ENTRIES = [
    ("engine_initialize", initialize, _signature(void, 1)),
    ("engine_initialize_thread", initialize_thread, _signature(void, 1)),
    ("engine_launch", launch, _signature(int64, 3)),
    ("engine_begin_wait", begin_wait, _signature(int64, 4)),
    ("engine_wait", wait, _signature(int64, 3)),
    ("engine_observe", observe, _signature(int64, 2)),
    ("engine_work", work, _signature(int64, 2)),
    ("engine_help", help_out, _signature(int64, 2)),
    ("engine_take_host", take_host, _signature(int64, 3)),
    ("engine_complete", complete, _signature(void, 3)),
    ("engine_take_finished", take_finished, _signature(int64, 1)),
    ("engine_stop_thread", stop_thread, _signature(void, 2)),
    ("engine_quiesce", quiesce, _signature(void, 1)),
    ("engine_resume", resume, _signature(void, 1)),
    ("engine_resume_child", resume_child, _signature(void, 1)),
]
"""Name, function and signature of every entry point, for whoever compiles and links them."""
