"""The native executor: runs launches of tasks, compiled by Numba like any kernel.

Records are laid out in `executor_layout`; this module has the entry points that Python calls (`ENTRIES`). The
life of a launch: `launch` patches the argument blocks and enrols on all variables under the lock. If every
variable is free and the launch is small, it runs right there. Otherwise tasks whose requests are granted and
whose predecessors are done stand in a heap of ready tasks; threads (`work`, `wait`) pick one under the lock,
run chunks of it without the lock, and under the lock again mark it done, which makes others ready. Python
tasks wait in a heap of their own, from which host threads take them (`take_host`) and end them (`complete`).

Everything else than this is guarded by the one lock: TASK_CLAIMED, from which threads draw the chunks of a
task, THREAD_IDLE, on which an idle thread spins, and ENGINE_PAUSED and THREAD_STOP, read between chunks.

    lock; task = pick(); unlock; status = run_chunks(task); lock; leave(task)  # every thread, again and again
"""

from __future__ import annotations

from numba.types import int64, void

from tracejit.kernels.executor_launch import (
    begin,
    end_inline,
    patch,
    queue_tasks,
    reset_tasks,
    run_inline,
)
from tracejit.kernels.executor_layout import (
    AWAKE,
    ENGINE_ACTIVE,
    ENGINE_FINISHED,
    ENGINE_HOST_COUNT,
    ENGINE_HOST_READY,
    ENGINE_HOSTS_IDLE,
    ENGINE_LOCK,
    ENGINE_PAUSED,
    ENGINE_SEQUENCE,
    ENGINE_WAITERS_IDLE,
    ENGINE_WORKERS,
    ENGINE_WORKERS_IDLE,
    FAILED,
    FINISHED,
    INSTANCE_ARGUMENT_COUNT,
    INSTANCE_ENGINE,
    INSTANCE_ERROR,
    INSTANCE_SCRATCH,
    INSTANCE_SEQUENCE,
    INSTANCE_SMALL,
    LAUNCH,
    NEEDS_SCRATCH,
    NEVER,
    QUEUED,
    REQUEST_BITS,
    REQUEST_INSTANCE,
    REQUEST_PREVIOUS,
    TASK_INSTANCE,
    THREAD_CONDITION,
    THREAD_DEADLINE,
    THREAD_IDLE,
    THREAD_KIND,
    THREAD_LIMIT,
    THREAD_NEED,
    THREAD_OBJECT,
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
    fail,
    finish_task,
    heap_pop,
    satisfied,
)
from tracejit.kernels.executor_run import (
    execute,
    pass_on,
    pick,
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
from tracejit.kernels.memory import (
    store_release,
)

PAUSE_POLL = 50  # microseconds between looks at what still runs

# --- Working and launching --------------------------------------------------------------------------------


def work(engine, thread):
    """The life of a worker. Returns 1 when it shall stop, 0 when it needs more scratch memory."""
    put(thread, THREAD_LIMIT, NEVER)
    put(thread, THREAD_DEADLINE, NEVER)
    lock(engine)
    while get(thread, THREAD_STOP) == 0:
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
    put(thread, THREAD_LIMIT, NEVER)
    put(thread, THREAD_DEADLINE, NEVER)
    lock(engine)
    task = pick(engine, thread)
    while task > 0:
        execute(engine, thread, task)
        rouse(engine, 1)
        task = pick(engine, thread)
    unlock(engine)
    return int64(task == 0)


def launch(instance, packed, thread):
    """Start a launch; `packed` is the address of a value per argument, then a variable address per argument.

    Returns FINISHED or FAILED if it ran inside this call, QUEUED if not, NEEDS_SCRATCH if nothing happened.
    """
    engine, small = get(instance, INSTANCE_ENGINE), get(instance, INSTANCE_SMALL)
    if small != 0 and get(instance, INSTANCE_SCRATCH) > get(thread, THREAD_SCRATCH_BYTES):
        put(thread, THREAD_NEED, get(instance, INSTANCE_SCRATCH))
        return NEEDS_SCRATCH
    patch(instance, packed)
    if small == 0:
        reset_tasks(instance)
    lock(engine)
    free = begin(engine, instance, packed + 8 * get(instance, INSTANCE_ARGUMENT_COUNT))
    if small != 0 and free != 0:
        unlock(engine)
        if get(instance, INSTANCE_ERROR) == 0:
            run_inline(engine, instance, thread)
        lock(engine)
        end_inline(engine, instance)
        code = FINISHED if get(instance, INSTANCE_ERROR) == 0 else FAILED
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
    while request != 0 and get(request, REQUEST_BITS) & bits == 0:
        request = get(request, REQUEST_PREVIOUS)
    if request == 0:
        return 0
    return get(get(request, REQUEST_INSTANCE), INSTANCE_SEQUENCE)


def begin_wait(engine, thread, kind, place):
    """Note what `thread` will wait for, as of now. Returns whether it has come already."""
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
    """Tell the variable that `thread` waits for, if it is one, that somebody waits."""
    kind, place = get(thread, THREAD_KIND), get(thread, THREAD_OBJECT)
    if kind in (WRITTEN, UNUSED):
        put(place, VARIABLE_WAITERS, get(place, VARIABLE_WAITERS) + amount)


def wait(engine, thread, duration):
    """Wait for what `begin_wait` noted, at most `duration` nanoseconds, and run what it needs meanwhile.

    Returns 1 when it has come, 0 when time is up, -1 when the thread needs more scratch memory.
    """
    deadline = now(thread) + duration
    put(thread, THREAD_DEADLINE, deadline)
    lock(engine)
    if get(engine, ENGINE_WORKERS) == 0:
        put(thread, THREAD_LIMIT, NEVER)
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
    failure = get(variable, VARIABLE_FAILURE)
    put(variable, VARIABLE_FAILURE, 0)
    if failure == 0:
        failure = get(variable, VARIABLE_POISON)
    unlock(engine)
    return failure


def take_finished(engine):
    """The list of instances that have finished since the last call."""
    lock(engine)
    first = get(engine, ENGINE_FINISHED)
    put(engine, ENGINE_FINISHED, 0)
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
        if get(engine, ENGINE_HOST_READY) != 0 and get(engine, ENGINE_PAUSED) == 0:
            task = heap_pop(engine + ENGINE_HOST_READY)
            put(engine, ENGINE_HOST_COUNT, get(engine, ENGINE_HOST_COUNT) - 1)
            put(thread, THREAD_OBJECT, get(task, TASK_INSTANCE))
            if get(get(task, TASK_INSTANCE), INSTANCE_ERROR) != 0:
                finish_task(task)
                task = 0
                break  # so that the caller sees to what this made ready
        elif get(thread, THREAD_STOP) != 0 or now(thread) >= deadline:
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
        fail(get(task, TASK_INSTANCE), task, status)
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
    if get(thread, THREAD_IDLE) != AWAKE:
        wake(thread)
    unlock(engine)


def quiesce(engine):
    """Let no thread take a task, and wait until none is inside a native one.

    From here to `resume`, only threads that hold the GIL change the queues: a process may fork.
    """
    lock(engine)
    store_release(engine + ENGINE_PAUSED, 1)  # pairs with load_acquire in `run_chunks`
    while get(engine, ENGINE_ACTIVE) != 0:
        unlock(engine)
        usleep(PAUSE_POLL)
        lock(engine)
    unlock(engine)


def resume(engine):
    """Undo `quiesce`."""
    lock(engine)
    store_release(engine + ENGINE_PAUSED, 0)  # pairs with load_acquire in `run_chunks`
    wake_all(engine + ENGINE_WORKERS_IDLE)
    wake_all(engine + ENGINE_WAITERS_IDLE)
    wake_all(engine + ENGINE_HOSTS_IDLE)
    unlock(engine)


def resume_child(engine):
    """Undo `quiesce` in a forked child, where the calling thread is the only one.

    Idle threads of the parent may have held the lock, to put themselves into lists or take themselves out.
    """
    mutex_init(engine + ENGINE_LOCK, 0)
    put(engine, ENGINE_WORKERS_IDLE, 0)
    put(engine, ENGINE_WAITERS_IDLE, 0)
    put(engine, ENGINE_HOSTS_IDLE, 0)
    put(engine, ENGINE_PAUSED, 0)


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
