"""The executor's lock, clock and idle threads.

There is a single lock. A thread with nothing to do releases it in `idle`: the thread enters a list of idle
threads, spins for a short while, then sleeps on its own condition variable, so that a caller with work can
wake exactly this thread. Only C functions common to Linux and macOS are used, on opaque memory that their
``_init`` functions have initialised. The exception is the affinity of threads, which is queried and changed
on Linux only.
"""

from __future__ import annotations

import sys

from numba.extending import intrinsic
from numba.types import int32, int64, void

from tracejit.kernels.compiler.memory import I64, external, load_acquire, pause, store_release
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.layout import (
    ASLEEP,
    AWAKE,
    ENGINE_CROWDED,
    ENGINE_LANES,
    ENGINE_LOCK,
    ENGINE_PROCESSORS,
    ENGINE_SPIN,
    ENGINE_WAITERS_IDLE,
    LANE_DEMAND,
    LANE_DEMAND_SEQUENCE,
    LANE_IDLE,
    LANE_NEXT,
    LANE_READY,
    PROCESSORS_BYTES,
    SPINNING,
    THREAD_CONDITION,
    THREAD_EXCLUDED,
    THREAD_IDLE,
    THREAD_LIMIT,
    THREAD_LIST,
    THREAD_NEXT,
    THREAD_PREVIOUS,
    THREAD_PROCESSOR,
    THREAD_STOP,
    THREAD_SYSTEM,
    THREAD_TIME,
)

BILLION = 1_000_000_000
REALTIME = 0  # the clock of pthread_cond_timedwait
MONOTONIC = 6 if sys.platform == "darwin" else 1  # the clock of time.monotonic_ns
MAX_SLEEP = 3600 * BILLION

mutex_init = external("pthread_mutex_init", int32(int64, int64))
mutex_lock = external("pthread_mutex_lock", int32(int64))
mutex_unlock = external("pthread_mutex_unlock", int32(int64))
condition_init = external("pthread_cond_init", int32(int64, int64))
condition_signal = external("pthread_cond_signal", int32(int64))
condition_timedwait = external("pthread_cond_timedwait", int32(int64, int64, int64))
clock_gettime = external("clock_gettime", int32(int64, int64))
usleep = external("usleep", int32(int64))
sched_yield = external("sched_yield", int32())
get_processor = external("sched_getcpu", int32())
get_affinity = external("sched_getaffinity", int32(int64, int64, int64))
set_affinity = external("sched_setaffinity", int32(int64, int64, int64))


@intrinsic
def get(typingctx, record, offset):
    """Read the word at `offset` of a record."""

    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(builder.add(*args), I64.as_pointer()))

    return int64(int64, int64), codegen


@intrinsic
def put(typingctx, record, offset, value):
    """Write the word at `offset` of a record."""

    def codegen(context, builder, signature, args):
        builder.store(args[2], builder.inttoptr(builder.add(args[0], args[1]), I64.as_pointer()))
        return context.get_dummy_value()

    return void(int64, int64, int64), codegen


@native
def lock(engine):
    mutex_lock(engine + ENGINE_LOCK)


@native
def unlock(engine):
    mutex_unlock(engine + ENGINE_LOCK)


@native
def read_clock(time):
    """Read the monotonic clock in nanoseconds, by way of a ``struct timespec`` at the address `time`."""
    clock_gettime(MONOTONIC, time)
    return get(time, 0) * BILLION + get(time, 8)


@native
def now(thread):
    """Read the monotonic clock in nanoseconds."""
    return read_clock(thread + THREAD_TIME)


def on_linux():
    """Return the subroutines (processor, keep_apart, restore_affinity) for Linux."""

    @native
    def processor():
        """The number of the processor on which the caller runs."""
        return int64(get_processor())

    @native
    def keep_apart(engine, thread):
        """Exclude the caller's processor from the affinity of an idle worker that last ran there.

        Linux may queue a woken thread behind the thread that woke it for a tenth of a second, although
        another processor is idle; a task of two chunks then takes twice its time. The affinity of user
        threads is never changed. The caller holds the lock.
        """
        current, worker_id = processor(), get(thread, THREAD_SYSTEM)
        crowded = get(engine, ENGINE_CROWDED)  # the other processors are busy too
        if (crowded != 0) | (worker_id == 0) | (current < 0) | (current != get(thread, THREAD_PROCESSOR)):
            return
        allowed, offset, remaining = engine + ENGINE_PROCESSORS, current // 64 * 8, 0
        if get_affinity(worker_id, PROCESSORS_BYTES, allowed) < 0:
            return
        put(allowed, offset, get(allowed, offset) & ~(1 << current % 64))
        for word in range(0, PROCESSORS_BYTES, 8):
            remaining |= get(allowed, word)
        if remaining != 0 and set_affinity(worker_id, PROCESSORS_BYTES, allowed) == 0:
            put(thread, THREAD_EXCLUDED, current + 1)

    @native
    def restore_affinity(engine, thread):
        """Restore the affinity of the caller, a worker that runs again. The caller holds the lock."""
        excluded = get(thread, THREAD_EXCLUDED) - 1
        if excluded < 0:
            return
        put(thread, THREAD_EXCLUDED, 0)
        allowed, offset = engine + ENGINE_PROCESSORS, excluded // 64 * 8
        if get_affinity(0, PROCESSORS_BYTES, allowed) >= 0:
            put(allowed, offset, get(allowed, offset) | 1 << excluded % 64)
            set_affinity(0, PROCESSORS_BYTES, allowed)

    return processor, keep_apart, restore_affinity


def elsewhere():
    """Return the subroutines of `on_linux` for systems where a thread's processor is unknown."""

    @native
    def processor():
        return -1

    @native
    def keep_apart(engine, thread):
        pass

    @native
    def restore_affinity(engine, thread):
        pass

    return processor, keep_apart, restore_affinity


processor, keep_apart, restore_affinity = on_linux() if sys.platform.startswith("linux") else elsewhere()


@native
def link(head, thread):
    """Insert `thread` at the front of the list of idle threads at `head`.

    So the thread that was busy most recently is woken first.
    """
    first = get(head, 0)
    put(thread, THREAD_LIST, head)
    put(thread, THREAD_NEXT, first)
    put(thread, THREAD_PREVIOUS, 0)
    if first != 0:
        put(first, THREAD_PREVIOUS, thread)
    put(head, 0, thread)


@native
def unlink(thread):
    """Remove a thread from its list of idle threads, as `queues.unlist_started` removes a task of a lane."""
    following, previous = get(thread, THREAD_NEXT), get(thread, THREAD_PREVIOUS)
    if following != 0:
        put(following, THREAD_PREVIOUS, previous)
    if previous != 0:
        put(previous, THREAD_NEXT, following)
    else:
        put(get(thread, THREAD_LIST), 0, following)


@native
def wake(thread):
    """Make an idle thread return from `idle`. The caller holds the lock."""
    asleep = get(thread, THREAD_IDLE) == ASLEEP
    unlink(thread)
    store_release(thread + THREAD_IDLE, AWAKE)  # pairs with load_acquire in `spin_then_sleep`
    if asleep:
        condition_signal(thread + THREAD_CONDITION)


@native
def sleep(engine, thread, duration):
    """Wait on the thread's condition variable for at most `duration` nanoseconds; may return early.

    POSIX measures this by the wall clock. Setting the clock back delays a timeout, but does not affect a wait
    for a signal.
    """
    clock_gettime(REALTIME, thread + THREAD_TIME)
    end = get(thread + THREAD_TIME, 8) + min(duration, MAX_SLEEP)
    put(thread, THREAD_TIME, get(thread, THREAD_TIME) + end // BILLION)
    put(thread + THREAD_TIME, 8, end % BILLION)
    condition_timedwait(thread + THREAD_CONDITION, engine + ENGINE_LOCK, thread + THREAD_TIME)


@native
def idle(engine, thread, head, deadline):
    """Wait in the list at `head` until woken or until `deadline`.

    The caller holds the lock, which is released meanwhile.
    """
    link(head, thread)
    put(thread, THREAD_PROCESSOR, processor())
    spin_then_sleep(engine, thread, deadline)
    restore_affinity(engine, thread)


@native
def spin_then_sleep(engine, thread, deadline):
    """Spin, then sleep, while the thread is in a list of idle threads."""
    put(thread, THREAD_IDLE, SPINNING)
    spin = get(engine, ENGINE_SPIN)
    if spin > 0:
        unlock(engine)
        limit = min(now(thread) + spin, deadline)
        while load_acquire(thread + THREAD_IDLE) == SPINNING and now(thread) < limit:  # pairs with `wake`
            pause()
        lock(engine)
        if get(thread, THREAD_IDLE) == AWAKE:
            return
    put(thread, THREAD_IDLE, ASLEEP)
    while get(thread, THREAD_IDLE) == ASLEEP:
        remaining = deadline - now(thread)
        if remaining <= 0:
            unlink(thread)
            put(thread, THREAD_IDLE, AWAKE)
        else:
            sleep(engine, thread, remaining)


@native
def wake_idle_threads(engine, caller_lane):
    """Wake as many idle threads as chunks became ready, less one in `caller_lane`, which the caller runs
    itself (`caller_lane` is 0 if it runs none).

    Threads that wait for a result are woken first: they have to wake up anyway, and their caches are warm. If
    there are several lanes, workers are woken first, because a waiting thread may prefer a task of another
    lane.
    """
    lane = get(engine, ENGINE_LANES)
    while lane != 0:
        if get(lane, LANE_DEMAND) != 0:
            thread_count = get(lane, LANE_DEMAND) - (1 if lane == caller_lane else 0)
            wake_idle_for(engine, lane, thread_count)
        lane = get(lane, LANE_NEXT)


@native
def only_lane(engine):
    """Return the lane of kernels if there is only one, else 0: a helping thread may then take any task."""
    lane = get(engine, ENGINE_LANES)
    return lane if get(lane, LANE_NEXT) == 0 else 0


@native
def wake_workers(engine, lane, thread_count):
    """Wake up to `thread_count` idle workers of `lane`; return how many are missing."""
    while thread_count > 0 and get(lane, LANE_IDLE) != 0:
        keep_apart(engine, get(lane, LANE_IDLE))
        wake(get(lane, LANE_IDLE))
        thread_count -= 1
    return thread_count


@native
def wake_idle_for(engine, lane, thread_count):
    """Wake up to `thread_count` idle threads for the tasks of `lane`."""
    sequence = get(lane, LANE_DEMAND_SEQUENCE)
    put(lane, LANE_DEMAND, 0)
    put(lane, LANE_DEMAND_SEQUENCE, 0)
    if only_lane(engine) == 0:
        thread_count = wake_workers(engine, lane, thread_count)
    thread = get(engine, ENGINE_WAITERS_IDLE)
    while thread_count > 0 and thread != 0:
        following = get(thread, THREAD_NEXT)
        if get(thread, THREAD_LIMIT) >= sequence:
            wake(thread)
            thread_count -= 1
        thread = following
    wake_workers(engine, lane, thread_count)


@native
def await_ready(engine, lane, thread, deadline):
    """Wait until a Python task of `lane` is ready, at most until `deadline`; return whether one is."""
    lock(engine)
    if get(lane, LANE_READY) == 0 and get(thread, THREAD_STOP) == 0:
        wake_idle_threads(engine, 0)
        idle(engine, thread, lane + LANE_IDLE, deadline)
    ready = int64(get(lane, LANE_READY) != 0)
    unlock(engine)
    return ready


@native
def wake_all(head):
    """Wake all threads in the list of idle threads at `head`."""
    while get(head, 0) != 0:
        wake(get(head, 0))
