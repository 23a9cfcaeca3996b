"""The kernel ``loop``: the rounds of a rolled loop, one task after the other.

The tasks' argument blocks are copied to memory of the launch once; after each round the slots that move are
added to. A thread need not stay until the last round: when it has something else to do (a signal to handle,
a fork, its end), it leaves the loop with the status LEFT, and whoever calls the kernel again goes on there.
So an interrupt neither waits for a loop nor tears what it writes.

A loop in a round is a task like any other. If it is left, the loops around it are, too.
"""

from __future__ import annotations

from numba import float32, float64, int64, uint8

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
from tracejit.kernels.executor.blocks import Growth, Loop, LoopTask
from tracejit.kernels.executor.layout import (
    ENGINE_TEAM,
    LEFT,
    SCRATCH_ENGINE,
    SCRATCH_THREAD,
    TEAM_LEADER,
    TEAM_PRESENT,
)
from tracejit.kernels.executor.team import close_team, invite_again, must_leave, open_team, run_together
from tracejit.kernels.executor.threads import get

HEAD, TASK, GROWTH = 8 * len(Loop), 8 * len(LoopTask), 8 * len(Growth)
ROUND_AT, TASK_AT, UNIT_AT = 8 * int(Loop.ROUND), 8 * int(Loop.TASK), 8 * int(Loop.UNIT)


@word_subroutine
def begin_loop(block):
    """Copy the argument blocks of the tasks to memory of the launch, and place the arena there."""
    space, rows = slot(block, Loop.SPACE), slot(block, Loop.ARENA)
    growths = slot(block, Loop.INTEGERS) + slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    places = block + HEAD + TASK * slot(block, Loop.TASKS) + GROWTH * growths
    arena = space + slot(block, Loop.ARENA_AT)
    copy_bytes(space, places + 16 * rows, slot(block, Loop.BLOCK_BYTES))
    for i in range(rows):
        store(space + slot(places, 2 * i), arena + slot(places, 2 * i + 1))


@word_subroutine
def add_floats(growing, singles, floats, space):
    """Add to the floats that grow, those of 32 bits first."""
    for i in range(floats):
        growth = growing + GROWTH * i
        place = space + slot(growth, Growth.SLOT)
        if i < singles:
            store(place, load(place, float32) + number_slot(growth, Growth.STEP, float32))
        else:
            store(place, load(place, float64) + number_slot(growth, Growth.STEP, float64))


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
    members, thread = slot(block, Loop.MEMBERS), get(scratch, SCRATCH_THREAD)
    if members <= 1 or thread == 0:
        return rounds(block, lo, scratch, 0)
    engine = get(scratch, SCRATCH_ENGINE)
    team = get(engine, ENGINE_TEAM)
    if get(team, TEAM_LEADER) == thread:  # a loop around this one leads
        return rounds(block, lo, scratch, team)
    team = open_team(engine, thread, members)
    status = rounds(block, lo, scratch, team)
    if team != 0:
        close_team(engine, team)
    return status


@word_subroutine
def is_single_call(block):
    """Whether each round is the same call of one kernel."""
    more = slot(block, Loop.INTEGERS) + slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    if slot(block, Loop.TASKS) != 1 or more + slot(block, Loop.UNTIL) != 0:
        return 0
    split = slot(block, Loop.SPACE) + slot(block + HEAD, LoopTask.UNITS)
    return int64(slot(split, 0) <= slot(split, 1))


@word_subroutine
def repeat_call(block, this, scratch):
    """Run a loop whose rounds are the same call of one kernel, from round `this` on."""
    function, space, count = (
        slot(block + HEAD, LoopTask.FUNCTION),
        slot(block, Loop.SPACE),
        slot(block, Loop.COUNT),
    )
    own, patience = space + slot(block + HEAD, LoopTask.BLOCK), slot(block, Loop.PATIENCE)
    units = slot(space + slot(block + HEAD, LoopTask.UNITS), 0)
    while this < count:
        stop = min(count, this + patience)
        while this < stop:
            status = call_kernel(function, own, 0, units, scratch)
            if status != 0:
                return stop_at(block, this, 0, 1, status)
            this += 1
        if this < count and must_leave(scratch) != 0:
            return stop_at(block, this, 0, 0, LEFT)
    return 0


@word_subroutine
def rounds(block, lo, scratch, team):
    """Run the rounds of a loop, with the help of a `team` unless that is 0."""
    count, tasks, integers = slot(block, Loop.COUNT), slot(block, Loop.TASKS), slot(block, Loop.INTEGERS)
    floats = slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    first, space, patience = block + HEAD, slot(block, Loop.SPACE), slot(block, Loop.PATIENCE)
    growing = first + TASK * tasks
    this, begin, low, left = 0, 0, 0, patience
    until = slot(block, Loop.UNTIL)
    if lo == 0:
        begin_loop(block)
    else:
        this, begin, low = slot(block, Loop.ROUND), slot(block, Loop.TASK), slot(block, Loop.UNIT)
    if low == 0 and is_single_call(block) != 0:
        return repeat_call(block, this, scratch)
    while this < count:
        for i in range(begin, tasks):
            task = first + TASK * i
            function, own = slot(task, LoopTask.FUNCTION), space + slot(task, LoopTask.BLOCK)
            split = space + slot(task, LoopTask.UNITS)
            units, chunk = slot(split, 0), slot(split, 1)
            if team != 0 and low == 0 and units > chunk and load_acquire(team + TEAM_PRESENT) != 0:
                status = run_together(team, function, own, units, chunk, scratch)
                if status != 0:
                    return stop_at(block, this, i, 0, status)
                continue
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
        if until != 0 and load(until, uint8) == 0:
            break
        for growth in range(growing, growing + GROWTH * integers, GROWTH):
            place = space + slot(growth, Growth.SLOT)
            store(place, slot(place, 0) + slot(growth, Growth.STEP))
        if floats != 0:
            add_floats(growing + GROWTH * integers, slot(block, Loop.FLOATS), floats, space)
        this += 1
        left -= 1
        if left == 0:
            left = patience
            if this < count and must_leave(scratch) != 0:
                return stop_at(block, this, 0, 0, LEFT)
            if team != 0:
                invite_again(get(scratch, SCRATCH_ENGINE), team, slot(block, Loop.MEMBERS))
    return int64(0)
