"""Tasks of the engine that are exchanges: they begin and end without Python.

A task of the communication lane whose function is the address of a *plan* is begun by the communication
thread while it polls for notices (`begin_ready`). The task's argument block contains the address of the
array; an exchange that Python has prepared describes the array and the members. The task ends with the
exchange.

Python handles the unusual cases. It begins a task if no block or no prepared exchange is free, if a profile
is being recorded, or if it has requested all tasks (BOARD_PYTHON). It takes over an exchange that has
stopped, or that waits for too long (`take_over`).
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.layout import (
    ENGINE_EVENTS,
    ENGINE_PAUSED,
    ENGINE_PYTHON_COUNT,
    ENGINE_WORKERS,
    HALTED,
    LANE_READY,
    RUNNING,
    TASK_BLOCK,
    TASK_FUNCTION,
)
from tracejit.kernels.executor.queues import finish_task, heap_pop
from tracejit.kernels.executor.run import POLL
from tracejit.kernels.executor.threads import get, lock, put, unlock, usleep, wake_idle_threads
from tracejit.kernels.ranks.exchange import begin, run
from tracejit.kernels.ranks.layout import (
    BOARD_ENGINE,
    BOARD_EXCHANGES,
    BOARD_LANE,
    BOARD_PYTHON,
    BOARD_STOPPED,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_BEGUN,
    EXCHANGE_KEY,
    EXCHANGE_MODE,
    EXCHANGE_NEXT,
    EXCHANGE_PLAN,
    EXCHANGE_STATE,
    EXCHANGE_TASK,
    IN_BLOCKS,
    KEYS,
    NUMBERS,
    PLAN_COUNT,
    PLAN_FIRST,
    PLAN_FREE,
    PLAN_SIZES,
    PLAN_TAG,
)
from tracejit.kernels.ranks.notices import has_block

ENDS = 1 << 32
"""The amount that `run_all` adds for an exchange that Python has to handle: one begun by Python has ended, or
one of a task has stopped.
"""


# --- Arrays -------------------------------------------------------------------------------------------------


@native
def copy_arrays(plan, exchange, block, out):
    """Copy the arrays of a task one after another into the array of the exchange, or back if `out` is
    not 0.
    """
    packed = get(exchange, EXCHANGE_ARRAY)
    for index in range(get(plan, PLAN_COUNT)):
        array = get(block, 8 * (get(plan, PLAN_FIRST) + index))
        nbytes = get(get(plan, PLAN_SIZES), 8 * index)
        if out != 0:
            copy_bytes(array, packed, nbytes)
        else:
            copy_bytes(packed, array, nbytes)
        packed += nbytes


@native
def gather(plan, exchange, block):
    """Set the array of the exchange, packing the arrays of a task if there are several."""
    if get(plan, PLAN_COUNT) == 1:
        put(exchange, EXCHANGE_ARRAY, get(block, 8 * get(plan, PLAN_FIRST)))
    else:
        copy_arrays(plan, exchange, block, 0)


# --- Life of a task -----------------------------------------------------------------------------------------


@native
def is_native(board, task):
    """Whether a ready task can begin without Python, now."""
    engine, plan = get(board, BOARD_ENGINE), get(task, TASK_FUNCTION)
    if plan == 0 or get(board, BOARD_PYTHON) != 0 or get(engine, ENGINE_EVENTS) != 0:
        return 0
    if get(engine, ENGINE_WORKERS) == 0:
        return 0  # without workers its successors would run on this thread
    exchange = get(plan, PLAN_FREE)
    return int64(exchange != 0 and (get(exchange, EXCHANGE_MODE) != IN_BLOCKS or has_block(board) != 0))


@native
def begin_ready(board, time):
    """Begin the ready tasks that can begin. Returns their number, or -1 if the next one is left to Python."""
    engine, lane, begun = get(board, BOARD_ENGINE), get(board, BOARD_LANE), 0
    while get(lane, LANE_READY) != 0:
        lock(engine)
        task = get(lane, LANE_READY)
        if task == 0 or get(engine, ENGINE_PAUSED) != RUNNING:
            unlock(engine)
            return begun
        if is_native(board, task) == 0:
            unlock(engine)
            return -1
        heap_pop(lane + LANE_READY)
        put(engine, ENGINE_PYTHON_COUNT, get(engine, ENGINE_PYTHON_COUNT) - 1)
        plan = get(task, TASK_FUNCTION)
        exchange = get(plan, PLAN_FREE)
        put(plan, PLAN_FREE, get(exchange, EXCHANGE_NEXT))
        put(exchange, EXCHANGE_TASK, task)
        unlock(engine)
        begin_task(board, exchange, time)
        begun += 1
    return begun


@native
def begin_task(board, exchange, time):
    """Begin the exchange of a task."""
    task, plan = get(exchange, EXCHANGE_TASK), get(exchange, EXCHANGE_PLAN)
    block = get(task, TASK_BLOCK)
    number = get(block, 8 * get(plan, PLAN_TAG))
    put(exchange, EXCHANGE_KEY, KEYS * (number % NUMBERS))
    put(exchange, EXCHANGE_BEGUN, time)
    gather(plan, exchange, block)
    begin(board, exchange)  # cannot fail: `is_native` has checked that there is a free block
    if get(exchange, EXCHANGE_STATE) >= ENDED:
        retire(board, exchange)


@native
def retire(board, exchange):
    """End the task of an exchange that has ended; leave an exchange that has stopped to Python. Returns ENDS
    if Python has to handle it.
    """
    task = get(exchange, EXCHANGE_TASK)
    if task == 0:
        return ENDS
    if get(exchange, EXCHANGE_STATE) != ENDED:
        put(exchange, EXCHANGE_NEXT, get(board, BOARD_STOPPED))
        put(board, BOARD_STOPPED, exchange)
        return ENDS
    plan = get(exchange, EXCHANGE_PLAN)
    if get(plan, PLAN_COUNT) > 1:
        copy_arrays(plan, exchange, get(task, TASK_BLOCK), 1)
    put(exchange, EXCHANGE_NEXT, get(plan, PLAN_FREE))
    put(plan, PLAN_FREE, exchange)
    end_task(get(board, BOARD_ENGINE), exchange)  # a thread that waited for it may discard the plan now
    return 1


@native
def end_task(engine, exchange):
    """End the task of an exchange atomically with respect to a fork, whose child sees either state."""
    lock(engine)
    while get(engine, ENGINE_PAUSED) == HALTED:
        unlock(engine)
        usleep(POLL)
        lock(engine)
    task = get(exchange, EXCHANGE_TASK)
    put(exchange, EXCHANGE_TASK, 0)
    finish_task(task)
    wake_idle_threads(engine, 0)
    unlock(engine)


@native
def run_all(board):
    """Take the steps of all exchanges that are possible now. Returns the number of steps, plus ENDS for each
    exchange that Python has to handle.
    """
    moved, previous = 0, board + BOARD_EXCHANGES
    exchange = get(previous, 0)
    while exchange != 0:
        following = get(exchange, EXCHANGE_NEXT)
        moved += run(board, exchange)
        if get(exchange, EXCHANGE_STATE) >= ENDED:
            put(previous, 0, following)
            moved += retire(board, exchange)
        else:
            previous = exchange + EXCHANGE_NEXT
        exchange = following
    return moved


@native
def take_over(board, before):
    """The next exchange of a task for Python to continue: one that has stopped, or that began before the time
    `before`; 0 if there is none. Python ends its task.
    """
    exchange = get(board, BOARD_STOPPED)
    if exchange != 0:
        put(board, BOARD_STOPPED, get(exchange, EXCHANGE_NEXT))
        return exchange
    exchange = get(board, BOARD_EXCHANGES)
    while exchange != 0:
        if get(exchange, EXCHANGE_TASK) != 0 and get(exchange, EXCHANGE_BEGUN) < before:
            return exchange
        exchange = get(exchange, EXCHANGE_NEXT)
    return 0
