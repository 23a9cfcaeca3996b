"""The kernel ``loop``: it runs the iterations of a rolled loop, one task after the other.

The argument blocks of the tasks are copied to memory of the launch once. After each iteration, the step of
each induction variable is added to its slot. A thread need not complete the loop: if it has other work (a
signal to handle, a fork, its end), it leaves the loop with the status LEFT, and the next call of the kernel,
on any thread, continues at the recorded position. So an interrupt does not wait for the end of a loop, and
the results of the loop are complete all the same.

A nested loop is a task like any other. If a thread leaves it, it leaves the enclosing loops too.
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
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.words import word_function
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
ITERATION_OFFSET, TASK_OFFSET, UNIT_OFFSET = 8 * int(Loop.ITERATION), 8 * int(Loop.TASK), 8 * int(Loop.UNIT)


@word_function
def begin_loop(block):
    """Copy the argument blocks to memory of the launch, and write addresses in the arena into the copies."""
    space, row_count = slot(block, Loop.SPACE), slot(block, Loop.ARENA)
    growth_count = slot(block, Loop.INTEGERS) + slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    arena_rows = block + HEAD + TASK * slot(block, Loop.TASKS) + GROWTH * growth_count
    arena = space + slot(block, Loop.ARENA_OFFSET)
    copy_bytes(space, arena_rows + 16 * row_count, slot(block, Loop.BLOCK_BYTES))
    for i in range(row_count):
        store(space + slot(arena_rows, 2 * i), arena + slot(arena_rows, 2 * i + 1))


@subroutine
def add_floats(growth_rows, singles, floats, space):
    """Add their steps to the float induction variables: the first `singles` of `floats` are float32."""
    for i in range(floats):
        growth = growth_rows + GROWTH * i
        address = space + slot(growth, Growth.SLOT)
        if i < singles:
            store(address, load(address, float32) + number_slot(growth, Growth.STEP, float32))
        else:
            store(address, load(address, float64) + number_slot(growth, Growth.STEP, float64))


@word_function
def save_position(block, iteration, task, unit, status):
    """Record the position at which a loop stops; return `status`."""
    store(block + ITERATION_OFFSET, iteration)
    store(block + TASK_OFFSET, task)
    store(block + UNIT_OFFSET, unit)
    return status


@word_function
def loop(block, lo, hi, scratch):
    """Run the tasks of a loop `Loop.COUNT` times.

    `lo` is 0 to begin, 1 to continue at the recorded position. Return the status of the first task that
    fails, LEFT if the thread left the loop, or 0.
    """
    members, thread = slot(block, Loop.MEMBERS), get(scratch, SCRATCH_THREAD)
    if members <= 1 or thread == 0:
        return run_iterations(block, lo, scratch, 0)
    engine = get(scratch, SCRATCH_ENGINE)
    team = get(engine, ENGINE_TEAM)
    if get(team, TEAM_LEADER) == thread:  # an enclosing loop has opened the team
        return run_iterations(block, lo, scratch, team)
    team = open_team(engine, thread, members)
    status = run_iterations(block, lo, scratch, team)
    if team != 0:
        close_team(engine, team)
    return status


@word_function
def is_single_call(block):
    """Whether each iteration is the same single call of one kernel."""
    growth_count = slot(block, Loop.INTEGERS) + slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    if slot(block, Loop.TASKS) != 1 or growth_count + slot(block, Loop.UNTIL) != 0:
        return 0
    split = slot(block, Loop.SPACE) + slot(block + HEAD, LoopTask.UNITS)
    return int64(slot(split, 0) <= slot(split, 1))


@word_function
def repeat_call(block, iteration, scratch):
    """Run a loop for which `is_single_call` is true, from `iteration` on."""
    function, space, count = (
        slot(block + HEAD, LoopTask.FUNCTION),
        slot(block, Loop.SPACE),
        slot(block, Loop.COUNT),
    )
    check_interval = slot(block, Loop.CHECK_INTERVAL)
    argument_block = space + slot(block + HEAD, LoopTask.BLOCK)
    units = slot(space + slot(block + HEAD, LoopTask.UNITS), 0)
    while iteration < count:
        stop = min(count, iteration + check_interval)
        while iteration < stop:
            status = call_kernel(function, argument_block, 0, units, scratch)
            if status != 0:
                return save_position(block, iteration, 0, 1, status)
            iteration += 1
        if iteration < count and must_leave(scratch) != 0:
            return save_position(block, iteration, 0, 0, LEFT)
    return 0


@word_function
def run_iterations(block, lo, scratch, team):
    """Run the iterations of a loop, with the help of `team` unless it is 0; see `loop`."""
    count, tasks, integers = slot(block, Loop.COUNT), slot(block, Loop.TASKS), slot(block, Loop.INTEGERS)
    floats = slot(block, Loop.FLOATS) + slot(block, Loop.DOUBLES)
    first, space, check_interval = block + HEAD, slot(block, Loop.SPACE), slot(block, Loop.CHECK_INTERVAL)
    growth_rows = first + TASK * tasks
    iteration, begin, low, until_check = 0, 0, 0, check_interval
    until = slot(block, Loop.UNTIL)
    if lo == 0:
        begin_loop(block)
    else:
        iteration, begin, low = slot(block, Loop.ITERATION), slot(block, Loop.TASK), slot(block, Loop.UNIT)
    if low == 0 and is_single_call(block) != 0:
        return repeat_call(block, iteration, scratch)
    while iteration < count:
        for i in range(begin, tasks):
            task = first + TASK * i
            function, argument_block = slot(task, LoopTask.FUNCTION), space + slot(task, LoopTask.BLOCK)
            split = space + slot(task, LoopTask.UNITS)
            units, chunk = slot(split, 0), slot(split, 1)
            if team != 0 and low == 0 and units > chunk and load_acquire(team + TEAM_PRESENT) != 0:
                status = run_together(team, function, argument_block, units, chunk, scratch)
                if status != 0:
                    return save_position(block, iteration, i, 0, status)
                continue
            while True:
                high = min(low + chunk, units)
                status = call_kernel(function, argument_block, low, high, scratch)
                if status != 0:
                    # UNIT 1: a nested loop that was left continues with ``lo = 1``
                    return save_position(block, iteration, i, 1, status)
                if high >= units:
                    break
                low = high
                if must_leave(scratch) != 0:
                    return save_position(block, iteration, i, low, LEFT)
            low = 0
        begin = 0
        if until != 0 and load(until, uint8) == 0:
            break
        for growth in range(growth_rows, growth_rows + GROWTH * integers, GROWTH):
            address = space + slot(growth, Growth.SLOT)
            store(address, slot(address, 0) + slot(growth, Growth.STEP))
        if floats != 0:
            add_floats(growth_rows + GROWTH * integers, slot(block, Loop.FLOATS), floats, space)
        iteration += 1
        until_check -= 1
        if until_check == 0:
            until_check = check_interval
            if iteration < count and must_leave(scratch) != 0:
                return save_position(block, iteration, 0, 0, LEFT)
            if team != 0:
                invite_again(get(scratch, SCRATCH_ENGINE), team, slot(block, Loop.MEMBERS))
    return int64(0)
