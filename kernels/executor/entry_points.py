"""The native executor: runs launches of tasks, compiled by Numba like any kernel.

Records are laid out in `layout`; this module has the entry points that Python calls (`QUEUES`,
`THREADS`). The life of a launch: `launch` patches the argument blocks and enrols on all variables under the
lock. If every variable is free and the launch is small, it runs right there. Otherwise tasks whose requests
are granted and whose predecessors are done stand in a heap of ready tasks; threads (`work`, `wait`) pick one
under the lock, run chunks of it without the lock, and under the lock again mark it done, which makes others
ready. Each lane has such a heap, and workers of its own; threads that wait help all lanes of kernels. Python
tasks wait in lanes from which host threads take them (`take_host`) and end them (`complete`); one with work
of its own waits for them now and then (`await_host`).

The one lock guards all other words than TASK_CLAIMED, from which threads take the chunks of a
task, THREAD_IDLE, on which an idle thread spins, ENGINE_PAUSED and THREAD_STOP, read between chunks, and the
team's (`team`).

    lock; task = pick(); unlock; status = run_chunks(task); lock; leave(task)  # every thread, again and again
"""

from __future__ import annotations

from numba.types import int64, void

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
    BUILTIN,
    RAISED,
    argument,
    bad_arguments,
    content,
    error_occurred,
    integer,
    noted,
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
    execute,
    leave,
    pass_on,
    pick,
    take_all,
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
    rouse,
    unlock,
    usleep,
    wake,
    wake_all,
)
from tracejit.kernels.executor.wait import (
    begin_wait,
    wait,
)

# --- Working ------------------------------------------------------------------------------------------------


def work(engine, thread):
    """The main loop of a worker. Returns 1 when it shall stop, 0 when it needs more scratch memory."""
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
            rouse(engine, get(thread, THREAD_LANE))
    pass_on(engine)
    unlock(engine)
    return 1


def help_out(engine, thread):
    """Run native tasks until none is ready, or for a SLICE at most.

    Returns 1 if none is ready, 0 when the thread needs more scratch memory, 2 when time is up.
    """
    deadline = now(thread) + SLICE
    put(thread, THREAD_LIMIT, NEVER)
    put(thread, THREAD_DEADLINE, deadline)
    lock(engine)
    task = pick(engine, thread)
    late = 0
    while task > 0 and late == 0:
        execute(engine, thread, task)
        rouse(engine, only_lane(engine))
        late = int64(now(thread) >= deadline)
        if late == 0:
            task = pick(engine, thread)
    unlock(engine)
    return 2 if late != 0 else int64(task == 0)


# --- Failures -----------------------------------------------------------------------------------------------


def observe(engine, variable):
    """The failure that a wait for `variable` raises, or 0. One that kept the content is reported once."""
    lock(engine)
    failure = get(variable, VARIABLE_FAILURE)
    put(variable, VARIABLE_FAILURE, 0)
    if failure == 0:
        failure = get(variable, VARIABLE_POISON)
    unlock(engine)
    return failure


# --- Builtin functions of Python, called by every replay ----------------------------------------------------


def launch_builtin(module, arguments, count):
    """``launch(instance, packed, thread, started)``: `packed` is a bytes object; the code is appended to the
    list `started`, unless nothing happened.
    """
    if count != 4:
        return bad_arguments()
    instance, packed, thread = integer(arguments, 0), content(arguments, 1), integer(arguments, 2)
    if error_occurred() != 0:
        return RAISED
    code = launch(instance, packed, thread)
    if code == NEEDS_SCRATCH:
        return object_of(code)
    return noted(object_of(code), argument(arguments, 3))


def wait_builtin(module, arguments, count):
    """``wait(engine, thread, kind, place, duration)``: note what to wait for, unless `kind` is AGAIN; then
    wait for it without the GIL, unless it has come already. Returns what `wait` does.
    """
    if count != 5:
        return bad_arguments()
    engine, thread, kind = integer(arguments, 0), integer(arguments, 1), integer(arguments, 2)
    place, duration = integer(arguments, 3), integer(arguments, 4)
    if error_occurred() != 0:
        return RAISED
    code = 0
    if kind != AGAIN:
        code = begin_wait(engine, thread, kind, place)
    if code == 0 and duration > 0:
        state = release_gil()
        code = wait(engine, thread, duration)
        take_gil(state)
    return object_of(code)


def take_finished_builtin(module, arguments, count):
    """``take_finished(engine, lists)``: the list of instances that have finished since the last call, as the
    address of the first one, which is appended to `lists`.
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
    return noted(object_of(first), argument(arguments, 1))


# --- Python tasks -------------------------------------------------------------------------------------------


def take_host(engine, lane, thread, duration):
    """The next Python task of `lane`, and its instance in THREAD_OBJECT.

    Waits at most `duration` nanoseconds. Returns 0 if none came in time, if the thread shall stop, or if a
    task was skipped.
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
                break  # so that the caller handles the tasks this made ready
        elif get(thread, THREAD_STOP) != 0 or now(thread) >= deadline:
            break
        else:
            rouse(engine, 0)
            idle(engine, thread, lane + LANE_IDLE, deadline)
    rouse(engine, 0)
    unlock(engine)
    return task


def await_host(engine, lane, thread, duration):
    """Whether a Python task of `lane` is ready; waits for one at most `duration` nanoseconds."""
    return await_ready(engine, lane, thread, now(thread) + duration)


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


def add_lane(engine, lane):
    """Append a lane to the list of its sort."""
    lock(engine)
    place = engine + (ENGINE_LANES if get(lane, LANE_PYTHON) == 0 else ENGINE_PYTHON_LANES)
    while get(place, 0) != 0:
        place = get(place, 0) + LANE_NEXT
    put(place, 0, lane)
    unlock(engine)


def stop_thread(engine, thread):
    """Make a worker return after its current chunk, or a host thread after its current task."""
    lock(engine)
    store_release(thread + THREAD_STOP, 1)  # pairs with load_acquire in `run_chunks`
    if get(thread, THREAD_IDLE) != AWAKE:
        wake(thread)
    unlock(engine)


def quiesce(engine, polls):
    """Keep threads from taking tasks, and wait until none is inside a native one, for so many POLLs at most.

    From here to `resume`, only threads that hold the GIL change the queues: a process may fork.
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
    """Wake the idle threads of `lane` and of those after it."""
    while lane != 0:
        wake_all(lane + LANE_IDLE)
        lane = get(lane, LANE_NEXT)


@native
def forget_idle(lane):
    """Empty the lists of idle threads of `lane` and of those after it: the threads are gone."""
    while lane != 0:
        put(lane, LANE_IDLE, 0)
        lane = get(lane, LANE_NEXT)


def resume(engine):
    """Undo `quiesce`."""
    lock(engine)
    store_release(engine + ENGINE_PAUSED, RUNNING)  # pairs with load_acquire in `run_chunks`
    wake_all(engine + ENGINE_WAITERS_IDLE)
    wake_lanes(get(engine, ENGINE_LANES))
    wake_lanes(get(engine, ENGINE_PYTHON_LANES))
    unlock(engine)


def resume_child(engine):
    """Undo `quiesce` in a forked child, where the calling thread is the only one.

    Idle threads of the parent may have held the lock, to change the lists of idle threads.
    """
    mutex_init(engine + ENGINE_LOCK, 0)
    put(engine, ENGINE_WAITERS_IDLE, 0)
    forget_idle(get(engine, ENGINE_LANES))
    forget_idle(get(engine, ENGINE_PYTHON_LANES))
    put(engine, ENGINE_ACTIVE, 0)
    dissolve(engine)
    put(engine, ENGINE_PAUSED, RUNNING)


def lose(engine, task):
    """Fail a native task whose threads are those of the parent process."""
    lock(engine)
    take_all(task)
    put(task, TASK_ACTIVE, 1)
    leave(task, -1)
    rouse(engine, 0)
    unlock(engine)


def _signature(result, arity):
    return result(*[int64] * arity)


QUEUES = [
    ("engine_launch", launch_builtin, BUILTIN),
    ("engine_direct", direct_builtin, BUILTIN),
    ("engine_take_host", take_host, _signature(int64, 4)),
    ("engine_await_host", await_host, _signature(int64, 4)),
    ("engine_complete", complete, _signature(void, 3)),
    ("engine_observe", observe, _signature(int64, 2)),
]
"""Name, function and signature of the entry points of queues. They and the others are two objects, so that
LLVM compiles the first while Numba translates the second.
"""

THREADS = [
    ("engine_work", work, _signature(int64, 2)),
    ("engine_wait", wait_builtin, BUILTIN),
    ("engine_help", help_out, _signature(int64, 2)),
    ("engine_take_finished", take_finished_builtin, BUILTIN),
    ("engine_initialize", initialize, _signature(void, 1)),
    ("engine_initialize_thread", initialize_thread, _signature(void, 1)),
    ("engine_add_lane", add_lane, _signature(void, 2)),
    ("engine_stop_thread", stop_thread, _signature(void, 2)),
    ("engine_quiesce", quiesce, _signature(void, 2)),
    ("engine_resume", resume, _signature(void, 1)),
    ("engine_resume_child", resume_child, _signature(void, 1)),
    ("engine_lose", lose, _signature(void, 2)),
]
"""Names, functions and signatures of entry points for threads that run tasks, and of the engine's life."""
