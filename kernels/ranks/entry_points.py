"""The entry points for Python: of exchanges, notices and blocks, and the wait for what others do (`advance`).

A thread that waits takes every step that can be taken. Between two looks it rests while kernels of this
process run, whose processor a look takes, unless others wait for its pieces. Where none runs it looks without
a pause, and rests longer the longer nothing has come.
"""

from __future__ import annotations

from numba.types import int64, void

from tracejit.kernels.compiler.memory import pause
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.layout import ENGINE_ACTIVE
from tracejit.kernels.executor.python import (
    BUILTIN,
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
    BOARD_LOOKS,
    BOARD_MORE,
    BOARD_SECONDS,
    BOARD_STAGE,
    BOARD_VOTES,
    EXCHANGE_ARRAY,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_PRIORITY,
    EXCHANGE_SUM,
    EXCHANGE_WAY,
    EXCHANGE_WHOLE,
    FULL,
    NEVER,
)
from tracejit.kernels.ranks.link import add, arrive, due, time_of
from tracejit.kernels.ranks.notices import (
    count_of,
    expect,
    find,
    has_come,
    hear,
    leave,
    lend,
    take_notice,
    tell,
)
from tracejit.kernels.ranks.staged import has_moved
from tracejit.kernels.ranks.tasks import ENDS, begin_ready, run_all, take_over

# Nanoseconds.
SPIN = 300_000  # of looks before a thread rests between them
REST = 300_000  # after each look while kernels run
NAP = 20_000  # the first one where none runs
LONGEST = 1_000_000

STRUCT_DATA = 40
"""The offset of the address of an array in what its `__array_struct__` points to."""


@native
def now(board):
    """The monotonic clock in nanoseconds."""
    return read_clock(board + BOARD_SECONDS)


@native
def step(board, thread):
    """Take all steps that can be taken, and begin tasks if `thread` is that of communication. Returns how
    many, with ENDS if Python has something to do, or FULL (see `hear`).
    """
    moved, link, more = 0, get(board, BOARD_LINK), 1
    while more != 0:
        heard = hear(board)
        if heard < 0:
            return FULL
        put(board, BOARD_MORE, 0)
        arrived = arrive(link, board, time_of(link)) if link != 0 else 0
        begun = begin_ready(board, now(board)) if thread != 0 else 0
        if begun < 0:
            begun = ENDS
        moved += heard + arrived + begun + run_all(board)
        more = get(board, BOARD_MORE) if moved < ENDS else 0
    return moved


@native
def is_over(board):
    """Whether a wait is over: nothing is awaited, or all have agreed."""
    votes = get(board, BOARD_VOTES)
    if votes == 0 and get(board, BOARD_EXCHANGES) == 0:
        return 1
    return int64(votes != 0 and count_of(board, AGREEMENT) >= votes)


@native
def look(board):
    """Look for notices and pieces for some microseconds, then let others run."""
    for _ in range(get(board, BOARD_LOOKS)):
        if has_come(board) != 0 or has_moved(board) != 0:
            return
        pause()
    sched_yield()


@native
def rest(board, thread, until):
    """Sleep until then, until the imitated link has something to tell, or `thread` has a task."""
    start, link = now(board), get(board, BOARD_LINK)
    if link != 0:
        until = min(until, max(due(link), start + NAP))
    if thread != 0:
        await_ready(get(board, BOARD_ENGINE), get(board, BOARD_LANE), thread, until)
    else:
        usleep(max(0, until - start) // 1000)


@native
def advance(board, thread, duration):
    """Take all steps that can be taken. Go on for so many nanoseconds, or until nothing is awaited, an
    exchange of Python's ends, all have agreed, or there is a task for Python on `thread`, the one of
    communication (0: another one looks).

    Returns whether anything has come or moved, or FULL.
    """
    moved, begun = step(board, thread), now(board)
    quiet, nap, time = begun, NAP, begun
    while moved >= 0 and moved < ENDS and time < begun + duration and is_over(board) == 0:
        if get(get(board, BOARD_ENGINE), ENGINE_ACTIVE) != 0 and get(board, BOARD_STAGE) == 0:
            rest(board, thread, min(time + REST, begun + duration))
        elif time < quiet + SPIN:
            look(board)
        else:
            rest(board, thread, min(time + nap, begun + duration))
            nap = min(2 * nap, LONGEST)
        more, time = step(board, thread), now(board)
        if more > 0:
            quiet, nap = time, NAP
        moved = FULL if more < 0 else moved + more
    return FULL if moved < 0 else int64(moved > 0)


# --- Entry points -------------------------------------------------------------------------------------------


def advance_exchanges(board, thread, duration):
    """See `advance`."""
    return advance(board, thread, duration)


def begin_builtin(module, arguments, count):
    """``begin(board, exchange, array, key, count, sum, whole, way, priority, duration)``: begin an exchange
    of so many elements of an array, which is given as its `__array_struct__`, and go on with all for so many
    nanoseconds, as `advance` does. Returns whether it has begun (see `exchange.begin`).
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
    put(exchange, EXCHANGE_WHOLE, integer(arguments, 6))
    put(exchange, EXCHANGE_WAY, integer(arguments, 7))
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


def cancel_exchange(board, exchange):
    """See `exchange.cancel`."""
    cancel(board, exchange)


def take_over_exchange(board, before):
    """See `tasks.take_over`."""
    return take_over(board, before)


def tell_notice(board, seat, key, word):
    """See `notices.tell`."""
    return tell(board, seat, key, word)


def next_notice(board, seat, key):
    """See `notices.take_notice`."""
    return take_notice(board, seat, key)


def read_memory(board, seat, target, source, count):
    """See `direct.read`."""
    return read(board, seat, target, source, count)


def has_notice(board, seat, key):
    """Whether a notice with this key has come from `seat`."""
    return int64(find(board, seat, key) != 0)


def lend_block(board):
    """See `notices.lend`."""
    return lend(board)


def expect_reader(board, block, seat):
    """Note that `seat` will read a block in the first phase."""
    expect(board, block, seat, 0, 1)


def leave_place(board, seat, place):
    """See `notices.leave`."""
    leave(board, seat, place)


def add_to_link(link, message, nanoseconds):
    """See `link.add`."""
    add(link, message, nanoseconds, time_of(link))


def arrive_over_link(link, board):
    """See `link.arrive`."""
    return arrive(link, board, time_of(link))


def link_is_due(link):
    """Nanoseconds until the next message arrives if none is added; NEVER if none does."""
    time = due(link)
    return NEVER if time == NEVER else time - time_of(link)


RANKS = [
    ("ranks_begin", begin_builtin, BUILTIN),
    ("ranks_cancel", cancel_exchange, void(int64, int64)),
    ("ranks_advance", advance_exchanges, int64(int64, int64, int64)),
    ("ranks_take_over", take_over_exchange, int64(int64, int64)),
    ("ranks_tell", tell_notice, int64(int64, int64, int64, int64)),
    ("ranks_next_notice", next_notice, int64(int64, int64, int64)),
    ("ranks_has_notice", has_notice, int64(int64, int64, int64)),
    ("ranks_read", read_memory, int64(int64, int64, int64, int64, int64)),
    ("ranks_lend", lend_block, int64(int64)),
    ("ranks_expect", expect_reader, void(int64, int64, int64)),
    ("ranks_leave", leave_place, void(int64, int64, int64)),
    ("ranks_add_to_link", add_to_link, void(int64, int64, int64)),
    ("ranks_arrive", arrive_over_link, int64(int64, int64)),
    ("ranks_due", link_is_due, int64(int64)),
]
"""Name, function and signature of the entry points."""
