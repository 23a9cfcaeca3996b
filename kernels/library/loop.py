"""The library kernel ``loop``: the rounds of a rolled loop, one task after the other on one thread.

The tasks' argument blocks are copied to memory of the launch once; after each round the slots that move are
added to. A thread need not stay until the last round: when it has something else to do (a signal to handle,
a fork, its end), it leaves the loop with the status LEFT, and whoever calls the kernel again goes on there.
So an interrupt neither waits for a loop nor tears what it writes.

A loop in a round is a task like any other. If it is left, the loops around it are, too.
"""

from __future__ import annotations

from numba import float32, float64, int64

from tracejit.kernels.compiler.memory import (
    call_kernel,
    copy_bytes,
    load,
    load_acquire,
    number_slot,
    slot,
    store,
)
from tracejit.kernels.compiler.target import word_subroutine
from tracejit.kernels.executor.layout import (
    ENGINE_PAUSED,
    LEFT,
    NEVER,
    SCRATCH_ENGINE,
    SCRATCH_THREAD,
    SLICE,
    THREAD_DEADLINE,
    THREAD_STOP,
)
from tracejit.kernels.executor.threads import get, now, put
from tracejit.kernels.library.blocks import FLOAT32, FLOAT64, Growth, Loop, LoopTask

HEAD, TASK, GROWTH = 8 * len(Loop), 8 * len(LoopTask), 8 * len(Growth)
ROUND_AT, TASK_AT, UNIT_AT = 8 * int(Loop.ROUND), 8 * int(Loop.TASK), 8 * int(Loop.UNIT)


@word_subroutine
def must_leave(scratch):
    """Whether the thread whose scratch memory this is has something else to do."""
    engine, thread = get(scratch, SCRATCH_ENGINE), get(scratch, SCRATCH_THREAD)
    if thread == 0:
        return 0
    halted = load_acquire(engine + ENGINE_PAUSED)  # pairs with store_release in `quiesce`
    halted |= load_acquire(thread + THREAD_STOP)  # pairs with store_release in `stop_thread`
    if halted != 0:
        return 1
    deadline = get(thread, THREAD_DEADLINE)
    if deadline == NEVER:
        return 0
    time = now(thread)
    if deadline == 0:
        deadline = time + SLICE
        put(thread, THREAD_DEADLINE, deadline)
    return int64(time >= deadline)


@word_subroutine
def begin_loop(block):
    """Copy the argument blocks of the tasks to memory of the launch, and place the arena there."""
    space, rows = slot(block, Loop.SPACE), slot(block, Loop.ARENA)
    places = block + HEAD + TASK * slot(block, Loop.TASKS) + GROWTH * slot(block, Loop.GROWTHS)
    arena = space + slot(block, Loop.ARENA_AT)
    copy_bytes(space, places + 16 * rows, slot(block, Loop.BLOCK_BYTES))
    for i in range(rows):
        store(space + slot(places, 2 * i), arena + slot(places, 2 * i + 1))


@word_subroutine
def stop_at(block, this, task, unit, status):
    """Note where a loop stops; returns `status`."""
    store(block + ROUND_AT, this)
    store(block + TASK_AT, task)
    store(block + UNIT_AT, unit)
    return status


def loop(block, lo, hi, scratch):
    """Run the tasks of a loop `Loop.COUNT` times; the status of the first that fails, or LEFT.

    lo: 0 to begin, 1 to go on where the loop was left
    """
    count, tasks, growths = slot(block, Loop.COUNT), slot(block, Loop.TASKS), slot(block, Loop.GROWTHS)
    first, space, patience = block + HEAD, slot(block, Loop.SPACE), slot(block, Loop.PATIENCE)
    growing = first + TASK * tasks
    this, begin, low, left = 0, 0, 0, patience
    if lo == 0:
        begin_loop(block)
    else:
        this, begin, low = slot(block, Loop.ROUND), slot(block, Loop.TASK), slot(block, Loop.UNIT)
    while this < count:
        for i in range(begin, tasks):
            task = first + TASK * i
            function, own = slot(task, LoopTask.FUNCTION), space + slot(task, LoopTask.BLOCK)
            split = space + slot(task, LoopTask.UNITS)
            units, chunk = slot(split, 0), slot(split, 1)
            while True:
                high = min(low + chunk, units)
                status = call_kernel(function, own, low, high, scratch)
                if status != 0:
                    return stop_at(block, this, i, 1, status)  # a loop in this one goes on with 1
                if high >= units:
                    break
                low = high
                if must_leave(scratch) != 0:
                    return stop_at(block, this, i, low, LEFT)
            low = 0
        begin = 0
        for i in range(growths):
            growth = growing + GROWTH * i
            place, kind = space + slot(growth, Growth.SLOT), slot(growth, Growth.KIND)
            if kind == FLOAT32:
                store(place, load(place, float32) + number_slot(growth, Growth.STEP, float32))
            elif kind == FLOAT64:
                store(place, load(place, float64) + number_slot(growth, Growth.STEP, float64))
            else:
                store(place, slot(place, 0) + slot(growth, Growth.STEP))
        this += 1
        left -= 1
        if left == 0:
            left = patience
            if this < count and must_leave(scratch) != 0:
                return stop_at(block, this, 0, 0, LEFT)
    return int64(0)
