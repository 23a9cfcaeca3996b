"""The entry points of the native executor, which runs launches of tasks; compiled like kernels.

`ENTRIES` lists the entry points that Python calls; `layout` defines the records. The life of a
launch: `launch` patches the argument blocks and enrols on all variables under the lock. If all requests are
granted and the launch is small, it runs inside the call. Otherwise, tasks whose requests are granted and
whose predecessors are done enter a heap of ready tasks. A thread (`work`, `wait`) picks a task under the
lock, runs chunks of it without the lock, and marks it done under the lock, which makes other tasks ready.
Each lane has such a heap and its own workers; waiting threads help all lanes of kernels. Python tasks wait in
lanes of their own, from which host threads take them (`take_host`) and end them (`complete`). A host thread
that also does other work polls for them (`await_host`).

The lock guards all words except TASK_CLAIMED, from which threads claim the chunks of a task; THREAD_IDLE, on
which an idle thread spins; ENGINE_PAUSED and THREAD_STOP, which are read between chunks; and the words of the
team (`team`).

    lock; task = pick(); unlock; status = run_chunks(task); lock; leave_task(task)  # every thread, repeatedly
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import store_release
from tracejit.kernels.executor.direct import direct_builtin
from tracejit.kernels.executor.launch import launch
from tracejit.kernels.executor.layout import (
    AGAIN,
    AWAKE,
    ENGINE_ACTIVE,
    ENGINE_FINISHED,
    ENGINE_LANES,
    ENGINE_LOCK,
    ENGINE_PAUSED,
    ENGINE_PYTHON_COUNT,
    ENGINE_PYTHON_LANES,
    ENGINE_WAITERS_IDLE,
    HALTED,
    INSTANCE_ERROR,
    LANE_IDLE,
    LANE_NEXT,
    LANE_PYTHON,
    LANE_READY,
    NEEDS_SCRATCH,
    NEVER,
    PAUSED,
    RUNNING,
    SLICE,
    TASK_ACTIVE,
    TASK_ALWAYS,
    TASK_INSTANCE,
    THREAD_CONDITION,
    THREAD_DEADLINE,
    THREAD_IDLE,
    THREAD_LANE,
    THREAD_LIMIT,
    THREAD_OBJECT,
    THREAD_STOP,
    VARIABLE_FAILURE,
    VARIABLE_POISON,
)
from tracejit.kernels.executor.python import (
    RAISED,
    append_result,
    argument,
    bad_arguments,
    content,
    error_occurred,
    integer,
    object_of,
    release_gil,
    take_gil,
)
from tracejit.kernels.executor.queues import (
    fail,
    finish_task,
    heap_pop,
)
from tracejit.kernels.executor.run import (
    POLL,
    claim_all,
    execute,
    leave_task,
    pick,
    wake_for_ready_work,
)
from tracejit.kernels.executor.team import dissolve, join
from tracejit.kernels.executor.threads import (
    await_ready,
    condition_init,
    get,
    idle,
    lock,
    mutex_init,
    native,
    now,
    only_lane,
    put,
    unlock,
    usleep,
    wake,
    wake_all,
    wake_idle_threads,
)
from tracejit.kernels.executor.wait import (
    begin_wait,
    wait,
)

# --- Working ------------------------------------------------------------------------------------------------


@native
def work(engine, thread):
    """Run the main loop of a worker. Return 1 if the worker must stop, 0 if it needs more scratch memory."""
    put(thread, THREAD_LIMIT, NEVER)
    put(thread, THREAD_DEADLINE, NEVER)
    lock(engine)
    while get(thread, THREAD_STOP) == 0:
        task = pick(engine, thread)
        if task < 0:
            unlock(engine)
            return 0
        if task == 0:
            helped = join(engine, thread)
            if helped < 0:
                unlock(engine)
                return 0
            if helped == 0:
                idle(engine, thread, get(thread, THREAD_LANE) + LANE_IDLE, NEVER)
        else:
            execute(engine, thread, task)
            wake_idle_threads(engine, get(thread, THREAD_LANE))
    wake_for_ready_work(engine)
    unlock(engine)
    return 1


@native
def help_out(engine, thread):
    """Run native tasks until none is ready, or for at most a SLICE.

    Return 1 if none is ready, 0 if the thread needs more scratch memory, 2 if the time is up.
    """
    deadline = now(thread) + SLICE
    put(thread, THREAD_LIMIT, NEVER)
    put(thread, THREAD_DEADLINE, deadline)
    lock(engine)
    task = pick(engine, thread)
    timed_out = 0
    while task > 0 and timed_out == 0:
        execute(engine, thread, task)
        wake_idle_threads(engine, only_lane(engine))
        timed_out = int64(now(thread) >= deadline)
        if timed_out == 0:
            task = pick(engine, thread)
    unlock(engine)
    return 2 if timed_out != 0 else int64(task == 0)


# --- Failures -----------------------------------------------------------------------------------------------


@native
def observe(engine, variable):
    """Return the sequence number of the failed launch that a wait for `variable` reports, or 0.

    A failure that kept the content is reported only once.
    """
    lock(engine)
    failure = get(variable, VARIABLE_FAILURE)
    put(variable, VARIABLE_FAILURE, 0)
    if failure == 0:
        failure = get(variable, VARIABLE_POISON)
    unlock(engine)
    return failure


# --- Builtin functions of Python, called by every replay ----------------------------------------------------


@native
def launch_builtin(module, arguments, count):
    """The builtin ``launch(instance, packed, thread, started)``, which returns the code of `launch`.

    `packed` is a bytes object. The code is appended to the list `started`, unless it is NEEDS_SCRATCH.
    """
    if count != 4:
        return bad_arguments()
    instance, packed, thread = integer(arguments, 0), content(arguments, 1), integer(arguments, 2)
    if error_occurred() != 0:
        return RAISED
    code = launch(instance, packed, thread)
    if code == NEEDS_SCRATCH:
        return object_of(code)
    return append_result(object_of(code), argument(arguments, 3))


@native
def wait_builtin(module, arguments, count):
    """The builtin ``wait(engine, thread, kind, awaited, duration)``, which returns the result of `wait`.

    It records the condition, unless `kind` is AGAIN. Then it waits without the GIL, unless the condition is
    already true.
    """
    if count != 5:
        return bad_arguments()
    engine, thread, kind = integer(arguments, 0), integer(arguments, 1), integer(arguments, 2)
    awaited, duration = integer(arguments, 3), integer(arguments, 4)
    if error_occurred() != 0:
        return RAISED
    code = 0
    if kind != AGAIN:
        code = begin_wait(engine, thread, kind, awaited)
    if code == 0 and duration > 0:
        state = release_gil()
        code = wait(engine, thread, duration)
        take_gil(state)
    return object_of(code)


@native
def take_finished_builtin(module, arguments, count):
    """The builtin ``take_finished(engine, lists)``: take the instances finished since the last call.

    It returns the address of the first instance of their linked list, and appends it to `lists`.
    """
    if count != 2:
        return bad_arguments()
    engine = integer(arguments, 0)
    if error_occurred() != 0:
        return RAISED
    lock(engine)
    first = get(engine, ENGINE_FINISHED)
    put(engine, ENGINE_FINISHED, 0)
    unlock(engine)
    return append_result(object_of(first), argument(arguments, 1))


# --- Python tasks -------------------------------------------------------------------------------------------


@native
def take_host(engine, lane, thread, duration):
    """Take the next Python task of `lane`; its instance is stored in THREAD_OBJECT.

    Wait at most `duration` nanoseconds. Return 0 if no task became ready in time, if the thread must stop, or
    if a task was skipped.
    """
    deadline = now(thread) + duration
    task = 0
    lock(engine)
    while task == 0:
        if get(lane, LANE_READY) != 0 and get(engine, ENGINE_PAUSED) == RUNNING:
            task = heap_pop(lane + LANE_READY)
            put(engine, ENGINE_PYTHON_COUNT, get(engine, ENGINE_PYTHON_COUNT) - 1)
            put(thread, THREAD_OBJECT, get(task, TASK_INSTANCE))
            if get(get(task, TASK_INSTANCE), INSTANCE_ERROR) != 0 and get(task, TASK_ALWAYS) == 0:
                finish_task(task)
                task = 0
                break  # so that the caller handles the tasks that this made ready
        elif get(thread, THREAD_STOP) != 0 or now(thread) >= deadline:
            break
        else:
            wake_idle_threads(engine, 0)
            idle(engine, thread, lane + LANE_IDLE, deadline)
    wake_idle_threads(engine, 0)
    unlock(engine)
    return task


@native
def await_host(engine, lane, thread, duration):
    """Wait at most `duration` nanoseconds for a ready Python task of `lane`; return whether there is one."""
    return await_ready(engine, lane, thread, now(thread) + duration)


@native
def complete(engine, task, status):
    """End a Python task; a nonzero `status` fails its launch."""
    lock(engine)
    if status != 0:
        fail(get(task, TASK_INSTANCE), task, status)
    finish_task(task)
    wake_idle_threads(engine, 0)
    unlock(engine)


# --- Life of the engine -------------------------------------------------------------------------------------


@native
def initialize(engine):
    mutex_init(engine + ENGINE_LOCK, 0)


@native
def initialize_thread(thread):
    condition_init(thread + THREAD_CONDITION, 0)


@native
def add_lane(engine, lane):
    """Append a lane to the engine's list of lanes of its kind."""
    lock(engine)
    link = engine + (ENGINE_LANES if get(lane, LANE_PYTHON) == 0 else ENGINE_PYTHON_LANES)
    while get(link, 0) != 0:
        link = get(link, 0) + LANE_NEXT
    put(link, 0, lane)
    unlock(engine)


@native
def stop_thread(engine, thread):
    """Make a worker return after its current chunk, and a host thread after its current task."""
    lock(engine)
    store_release(thread + THREAD_STOP, 1)  # pairs with load_acquire in `run_chunks`
    if get(thread, THREAD_IDLE) != AWAKE:
        wake(thread)
    unlock(engine)


@native
def quiesce(engine, polls):
    """Stop threads from taking tasks, and wait until no thread runs a native one, for at most `polls` POLLs.

    From this call until `resume`, only threads that hold the GIL change the queues, so the process may fork.
    """
    lock(engine)
    store_release(engine + ENGINE_PAUSED, PAUSED)  # pairs with load_acquire in `run_chunks`
    while get(engine, ENGINE_ACTIVE) != 0 and polls > 0:
        unlock(engine)
        usleep(POLL)
        lock(engine)
        polls -= 1
    store_release(engine + ENGINE_PAUSED, HALTED)  # pairs with load_acquire in `run_chunks`
    unlock(engine)


@native
def wake_lanes(lane):
    """Wake the idle threads of `lane` and of all lanes after it."""
    while lane != 0:
        wake_all(lane + LANE_IDLE)
        lane = get(lane, LANE_NEXT)


@native
def forget_idle(lane):
    """Empty the lists of idle threads of `lane` and of all lanes after it: the threads do not exist."""
    while lane != 0:
        put(lane, LANE_IDLE, 0)
        lane = get(lane, LANE_NEXT)


@native
def resume(engine):
    """Undo `quiesce`."""
    lock(engine)
    store_release(engine + ENGINE_PAUSED, RUNNING)  # pairs with load_acquire in `run_chunks`
    wake_all(engine + ENGINE_WAITERS_IDLE)
    wake_lanes(get(engine, ENGINE_LANES))
    wake_lanes(get(engine, ENGINE_PYTHON_LANES))
    unlock(engine)


@native
def resume_child(engine):
    """Undo `quiesce` in a forked child, whose only thread is the calling one.

    Idle threads of the parent may have held the lock at the time of the fork, to change the lists of idle
    threads, so the lock and the lists are reset.
    """
    mutex_init(engine + ENGINE_LOCK, 0)
    put(engine, ENGINE_WAITERS_IDLE, 0)
    forget_idle(get(engine, ENGINE_LANES))
    forget_idle(get(engine, ENGINE_PYTHON_LANES))
    put(engine, ENGINE_ACTIVE, 0)
    dissolve(engine)
    put(engine, ENGINE_PAUSED, RUNNING)


@native
def fail_lost_task(engine, task):
    """Fail a native task that threads of the parent process were running."""
    lock(engine)
    claim_all(task)
    put(task, TASK_ACTIVE, 1)
    leave_task(task, -1)
    wake_idle_threads(engine, 0)
    unlock(engine)


ENTRIES = [
    ("engine_launch", launch_builtin),
    ("engine_direct", direct_builtin),
    ("engine_take_host", take_host),
    ("engine_await_host", await_host),
    ("engine_complete", complete),
    ("engine_observe", observe),
    ("engine_work", work),
    ("engine_wait", wait_builtin),
    ("engine_help", help_out),
    ("engine_take_finished", take_finished_builtin),
    ("engine_initialize", initialize),
    ("engine_initialize_thread", initialize_thread),
    ("engine_add_lane", add_lane),
    ("engine_stop_thread", stop_thread),
    ("engine_quiesce", quiesce),
    ("engine_resume", resume),
    ("engine_resume_child", resume_child),
    ("engine_lose", fail_lost_task),
]
"""Name and function of each entry point."""
