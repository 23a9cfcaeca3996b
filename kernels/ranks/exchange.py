"""Exchanges between the ranks of a machine, advanced by whichever thread polls (see `tasks`).

Rank r owns slice r of an array: it combines that slice of all arrays, and its peers fetch the result from
there. Peers read the data from shared memory, either as one block (`stored`) or piece by piece (`staged`), or
directly from the memory of large arrays (`direct`).

On an emulated link a notice is delayed as long as the bytes that it announces would be; an exchange ends when
its own notices have arrived, too.
"""

from __future__ import annotations

from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import member_record
from tracejit.kernels.ranks.direct import invalidate, run_direct
from tracejit.kernels.ranks.layout import (
    ANNOUNCING_SLICES,
    BOARD_EXCHANGES,
    BOARD_LINK,
    DIRECT,
    ENDED,
    EXCHANGE_COMBINED,
    EXCHANGE_COPIED,
    EXCHANGE_LOST,
    EXCHANGE_MEMBERS,
    EXCHANGE_MODE,
    EXCHANGE_NEXT,
    EXCHANGE_NOTIFIED,
    EXCHANGE_STATE,
    IN_BLOCKS,
    PHASES,
    SEAT_COPIED,
    SEAT_PROGRESS,
    STAGED,
)
from tracejit.kernels.ranks.link import forget
from tracejit.kernels.ranks.slices import message_to
from tracejit.kernels.ranks.staged import abandon_stage, run_staged
from tracejit.kernels.ranks.stored import begin_stored, run_stored


@native
def run(board, exchange):
    """Take the steps of an exchange that are possible now. Returns whether there was one."""
    if get(exchange, EXCHANGE_MODE) == DIRECT:
        return run_direct(board, exchange)
    if get(exchange, EXCHANGE_MODE) == STAGED:
        return run_staged(board, exchange)
    return run_stored(board, exchange)


@native
def begin(board, exchange):
    """Begin an exchange. Returns whether there was a free block for it, if it needs one."""
    if get(exchange, EXCHANGE_MODE) == IN_BLOCKS and begin_stored(board, exchange) == 0:
        return 0
    put(exchange, EXCHANGE_STATE, ANNOUNCING_SLICES)
    put(exchange, EXCHANGE_NOTIFIED, 0)
    put(exchange, EXCHANGE_COPIED, 0)
    put(exchange, EXCHANGE_COMBINED, 0)
    put(exchange, EXCHANGE_LOST, 0)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        put(member_record(exchange, member), SEAT_COPIED, 0)
        put(member_record(exchange, member), SEAT_PROGRESS, 0)
    run(board, exchange)
    if get(exchange, EXCHANGE_STATE) < ENDED:
        last = board + BOARD_EXCHANGES
        while get(last, 0) != 0:
            last = get(last, 0) + EXCHANGE_NEXT
        put(exchange, EXCHANGE_NEXT, 0)
        put(last, 0, exchange)
    return 1


@native
def cancel(board, exchange):
    """Remove an exchange that has not ended from the list of exchanges, and its messages from the link."""
    previous = board + BOARD_EXCHANGES
    while get(previous, 0) != 0 and get(previous, 0) != exchange:
        previous = get(previous, 0) + EXCHANGE_NEXT
    if get(previous, 0) != 0:
        put(previous, 0, get(exchange, EXCHANGE_NEXT))
    if get(board, BOARD_LINK) != 0:
        for member in range(get(exchange, EXCHANGE_MEMBERS)):
            for phase in range(PHASES):
                forget(get(board, BOARD_LINK), message_to(exchange, member, phase))
    if get(exchange, EXCHANGE_MODE) == DIRECT:
        invalidate(board)
    elif get(exchange, EXCHANGE_MODE) == STAGED:
        abandon_stage(board, exchange)
