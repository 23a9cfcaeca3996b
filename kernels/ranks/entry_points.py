"""The entry points for Python: exchanges, notices, blocks, and the wait for progress of the peers
(`advance`).

A waiting thread takes every step that is possible. Between two polls it sleeps while kernels of this process
run, because polling would take a processor from them, unless peers wait for its chunks. When no kernel runs
it polls without a pause at first, and sleeps longer the longer nothing has arrived.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import pause
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.layout import ENGINE_ACTIVE
from tracejit.kernels.executor.python import (
    RAISED,
    argument,
    bad_arguments,
    error_occurred,
    integer,
    object_of,
    pointer_of,
    release_gil,
    take_gil,
)
from tracejit.kernels.executor.threads import (
    await_ready,
    get,
    put,
    read_clock,
    sched_yield,
    usleep,
)
from tracejit.kernels.ranks.direct import read
from tracejit.kernels.ranks.exchange import begin, cancel
from tracejit.kernels.ranks.layout import (
    AGREEMENT,
    BOARD_ENGINE,
    BOARD_EXCHANGES,
    BOARD_LANE,
    BOARD_LINK,
    BOARD_POLLS,
    BOARD_RUNNABLE,
    BOARD_SECONDS,
    BOARD_STAGE,
    BOARD_VOTES,
    EXCHANGE_ARRAY,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MODE,
    EXCHANGE_PRIORITY,
    EXCHANGE_REPLICATED,
    EXCHANGE_SUM,
    FULL,
    NEVER,
)
from tracejit.kernels.ranks.link import add, arrive, due, time_of
from tracejit.kernels.ranks.notices import (
    consume_notice,
    count_notices,
    expect,
    find_notice,
    has_arrived,
    lend,
    mark_read,
    post,
    receive,
)
from tracejit.kernels.ranks.staged import has_moved
from tracejit.kernels.ranks.tasks import ENDS, begin_ready, run_all, take_over

# Nanoseconds.
SPIN = 300_000  # of polling before a thread sleeps between polls
POLL_INTERVAL = 300_000  # of sleep after each poll while kernels run
FIRST_NAP = 20_000  # of the first sleep when no kernel runs; each further one is twice as long
MAX_NAP = 1_000_000  # of the longest sleep

STRUCT_DATA = 40
"""The offset of the array's address in the structure to which `__array_struct__` points."""


@native
def now(board):
    """The time of the monotonic clock in nanoseconds."""
    return read_clock(board + BOARD_SECONDS)


@native
def step(board, thread):
    """Take all steps that are possible, and begin tasks if `thread` is the communication thread. Returns the
    number of steps, plus ENDS if Python has something to do, or FULL (see `receive`).
    """
    moved, link, runnable = 0, get(board, BOARD_LINK), 1
    while runnable != 0:
        received = receive(board)
        if received < 0:
            return FULL
        put(board, BOARD_RUNNABLE, 0)
        arrived = arrive(link, board, time_of(link)) if link != 0 else 0
        begun = begin_ready(board, now(board)) if thread != 0 else 0
        if begun < 0:
            begun = ENDS
        moved += received + arrived + begun + run_all(board)
        runnable = get(board, BOARD_RUNNABLE) if moved < ENDS else 0
    return moved


@native
def is_over(board):
    """Whether a wait is over: nothing is awaited, or all ranks have voted."""
    votes = get(board, BOARD_VOTES)
    if votes == 0 and get(board, BOARD_EXCHANGES) == 0:
        return 1
    return int64(votes != 0 and count_notices(board, AGREEMENT) >= votes)


@native
def poll(board):
    """Poll for notices and chunks for some microseconds, then yield the processor."""
    for _ in range(get(board, BOARD_POLLS)):
        if has_arrived(board) != 0 or has_moved(board) != 0:
            return
        pause()
    sched_yield()


@native
def sleep_until(board, thread, until):
    """Sleep until the time `until`, until the emulated link has a message to deliver, or until `thread` has a
    task.
    """
    start, link = now(board), get(board, BOARD_LINK)
    if link != 0:
        until = min(until, max(due(link), start + FIRST_NAP))
    if thread != 0:
        await_ready(get(board, BOARD_ENGINE), get(board, BOARD_LANE), thread, until)
    else:
        usleep(max(0, until - start) // 1000)


@native
def advance(board, thread, duration):
    """Take all steps that are possible. Continue for `duration` nanoseconds, or until nothing is awaited, an
    exchange begun by Python ends, all ranks have voted, or `thread`, the communication thread, has a task for
    Python (0: the caller is another thread).

    Returns whether any notice or chunk has moved, or FULL.
    """
    moved, begun = step(board, thread), now(board)
    last_progress, nap, time = begun, FIRST_NAP, begun
    while moved >= 0 and moved < ENDS and time < begun + duration and is_over(board) == 0:
        if get(get(board, BOARD_ENGINE), ENGINE_ACTIVE) != 0 and get(board, BOARD_STAGE) == 0:
            sleep_until(board, thread, min(time + POLL_INTERVAL, begun + duration))
        elif time < last_progress + SPIN:
            poll(board)
        else:
            sleep_until(board, thread, min(time + nap, begun + duration))
            nap = min(2 * nap, MAX_NAP)
        progress, time = step(board, thread), now(board)
        if progress > 0:
            last_progress, nap = time, FIRST_NAP
        moved = FULL if progress < 0 else moved + progress
    return FULL if moved < 0 else int64(moved > 0)


# --- Entry points -------------------------------------------------------------------------------------------


@native
def advance_exchanges(board, thread, duration):
    """See `advance`."""
    return advance(board, thread, duration)


@native
def begin_builtin(module, arguments, count):
    """``begin(board, exchange, array, key, count, sum, replicated, mode, priority, duration)``: begin an
    exchange of `count` elements of an array, which is passed as its `__array_struct__`, and advance all
    exchanges for `duration` nanoseconds, as `advance` does. Returns whether the exchange has begun (see
    `exchange.begin`).
    """
    if count != 10:
        return bad_arguments()
    board, exchange, array = (
        integer(arguments, 0),
        integer(arguments, 1),
        pointer_of(argument(arguments, 2), 0),
    )
    if array == 0:
        return RAISED
    put(exchange, EXCHANGE_ARRAY, get(array, STRUCT_DATA))
    put(exchange, EXCHANGE_KEY, integer(arguments, 3))
    put(exchange, EXCHANGE_COUNT, integer(arguments, 4))
    put(exchange, EXCHANGE_SUM, integer(arguments, 5))
    put(exchange, EXCHANGE_REPLICATED, integer(arguments, 6))
    put(exchange, EXCHANGE_MODE, integer(arguments, 7))
    put(exchange, EXCHANGE_PRIORITY, integer(arguments, 8))
    duration = integer(arguments, 9)
    if error_occurred() != 0:
        return RAISED
    state = release_gil()
    begun = begin(board, exchange)
    if begun != 0 and duration > 0:
        put(board, BOARD_VOTES, 0)
        advance(board, 0, duration)
    take_gil(state)
    return object_of(begun)


@native
def cancel_exchange(board, exchange):
    """See `exchange.cancel`."""
    cancel(board, exchange)


@native
def take_over_exchange(board, before):
    """See `tasks.take_over`."""
    return take_over(board, before)


@native
def post_notice(board, seat, key, word):
    """See `notices.post`."""
    return post(board, seat, key, word)


@native
def next_notice(board, seat, key):
    """See `notices.consume_notice`."""
    return consume_notice(board, seat, key)


@native
def read_memory(board, seat, target, source, count):
    """See `direct.read`."""
    return read(board, seat, target, source, count)


@native
def has_notice(board, seat, key):
    """Whether a notice from `seat` with this key is waiting."""
    return int64(find_notice(board, seat, key) != 0)


@native
def lend_block(board):
    """See `notices.lend`."""
    return lend(board)


@native
def expect_reader(board, block, seat):
    """Record that `seat` will read a block in the first phase."""
    expect(board, block, seat, 0, 1)


@native
def mark_location_read(board, seat, location):
    """See `notices.mark_read`."""
    mark_read(board, seat, location)


@native
def add_to_link(link, message, nanoseconds):
    """See `link.add`."""
    add(link, message, nanoseconds, time_of(link))


@native
def arrive_over_link(link, board):
    """See `link.arrive`."""
    return arrive(link, board, time_of(link))


@native
def link_is_due(link):
    """Nanoseconds until the next message arrives if no message is added; NEVER if none arrives."""
    time = due(link)
    return NEVER if time == NEVER else time - time_of(link)


RANKS = [
    ("ranks_begin", begin_builtin),
    ("ranks_cancel", cancel_exchange),
    ("ranks_advance", advance_exchanges),
    ("ranks_take_over", take_over_exchange),
    ("ranks_tell", post_notice),
    ("ranks_next_notice", next_notice),
    ("ranks_has_notice", has_notice),
    ("ranks_read", read_memory),
    ("ranks_lend", lend_block),
    ("ranks_expect", expect_reader),
    ("ranks_leave", mark_location_read),
    ("ranks_add_to_link", add_to_link),
    ("ranks_arrive", arrive_over_link),
    ("ranks_due", link_is_due),
]
"""Name and function of each entry point."""
