"""Exchanges of large arrays, which the ranks read in one another's memory: their steps.

A rank tells the others where its array lies. It reads its slice of all arrays there, piece by piece, and
combines them into its own array while they are in the first cache; then it tells the others, and reads their
sums into its array. So each byte is copied once, and no memory is shared. The array has to stay as it is
until all have read this rank's sum, which they tell: the exchange ends then.

Much is read in turns, so that other exchanges go on.

A rank that aborts an exchange says so in shared memory before its array is used for something else. Who
has read then, or can read no more, goes no further (EXCHANGE_LOST): the deadline, or the news of the other
rank's failure, ends the wait.
"""

from __future__ import annotations

import sys

from numba.types import int64

from tracejit.kernels.compiler.memory import atomic_add, external, load_acquire
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_of, seat_at
from tracejit.kernels.ranks.layout import (
    AWAITING_LINK,
    AWAITING_READERS,
    AWAITING_SLICES,
    AWAITING_SUMS,
    BOARD_MORE,
    BOARD_PEERS,
    BOARD_ROWS,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_VECTORS,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_AT,
    EXCHANGE_COPIED,
    EXCHANGE_KEY,
    EXCHANGE_LOST,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_STATE,
    EXCHANGE_TOLD,
    LINE,
    PEER_BYTES,
    PEER_PROCESS,
    READ,
    RING_BYTES,
    SEAT_AT,
    SEAT_COPIED,
    SEAT_PART,
    TELLING_SLICES,
    TELLING_SUMS,
    TURN_BYTES,
)
from tracejit.kernels.ranks.notices import find, part_of, take_notice, tell
from tracejit.kernels.ranks.parts import heard_slices, is_sending, offset_of, tell_all


def on_linux():
    """The subroutine `read` where the system reads the memory of other processes."""
    process_vm_readv = external("process_vm_readv", int64(int64, int64, int64, int64, int64, int64))

    @native
    def read(board, seat, target, source, count):
        """Copy bytes of the process of a seat; returns whether all were there, and still those that its rank
        has told of: before it uses them for something else, it says so (`invalidate`).
        """
        vectors = board + BOARD_VECTORS
        put(vectors, 0, target)
        put(vectors, 8, count)
        put(vectors, 16, source)
        put(vectors, 24, count)
        process = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_PROCESS)
        if process_vm_readv(process, vectors, 1, vectors + 16, 1, 0) != count:
            return 0
        return int64(load_acquire(lost_of(board, seat)) == 0)  # pairs with atomic_add in `invalidate`

    return read


def elsewhere():
    """The subroutine `read` for other systems: it reads nothing."""

    @native
    def read(board, seat, target, source, count):
        return 0

    return read


@native
def lost_of(board, seat):
    """The address of the word that says whether a rank has aborted an exchange."""
    seats = get(board, BOARD_SEATS)
    return part_of(board, seat) + seats * (RING_BYTES + LINE)


@native
def invalidate(board):
    """Tell the others that what they read of this rank's arrays is no longer valid."""
    atomic_add(lost_of(board, get(board, BOARD_SEAT)), 1)


read = on_linux() if sys.platform.startswith("linux") else elsewhere()


@native
def read_slices(board, exchange, at, count):
    """Read what the others have at an offset of the array; returns whether all was there."""
    key, rows = get(exchange, EXCHANGE_KEY), get(board, BOARD_ROWS)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        about = seat_at(exchange, member)
        if member == get(exchange, EXCHANGE_MEMBER):
            put(about, SEAT_PART, get(exchange, EXCHANGE_ARRAY) + at)
        else:
            row, seat = rows + member * READ, get(about, 0)
            put(about, SEAT_PART, row)
            if read(board, seat, row, get(find(board, seat, key), 16) + at, count) == 0:
                put(exchange, EXCHANGE_LOST, member + 1)
                return 0
    return 1


@native
def combine_some(board, exchange):
    """Combine some of this rank's slice, where all have told that theirs are there."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    first, last = offset_of(exchange, me), offset_of(exchange, me + 1)
    at = first + get(exchange, EXCHANGE_AT)
    end = min(last, at + TURN_BYTES)
    while at < end:
        count = min(READ, end - at)
        if read_slices(board, exchange, at, count) == 0:
            return
        combine(board, exchange, get(exchange, EXCHANGE_ARRAY) + at, 0, count // item_of(exchange))
        at += count
    put(exchange, EXCHANGE_AT, at - first)
    if at < last:
        put(board, BOARD_MORE, 1)
        return
    for member in range(members):
        if member != me:
            take_notice(board, get(seat_at(exchange, member), 0), get(exchange, EXCHANGE_KEY))
    put(exchange, EXCHANGE_TOLD, 0)
    put(exchange, EXCHANGE_STATE, TELLING_SUMS)


@native
def read_sum(board, exchange, member, source):
    """Read some of a member's sum from its array at an address."""
    about, first = seat_at(exchange, member), offset_of(exchange, member)
    at = first + get(about, SEAT_AT)
    count = min(TURN_BYTES, offset_of(exchange, member + 1) - at)
    if read(board, get(about, 0), get(exchange, EXCHANGE_ARRAY) + at, source + at, count) == 0:
        put(exchange, EXCHANGE_LOST, member + 1)
        return
    put(about, SEAT_AT, at + count - first)
    if at + count < offset_of(exchange, member + 1):
        put(board, BOARD_MORE, 1)
    else:
        put(about, SEAT_COPIED, 1)


@native
def read_sums(board, exchange):
    """Read of the sums that have been told of, and tell whose sum is read that it is."""
    me, members, key = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        get(exchange, EXCHANGE_KEY),
    )
    for step in range(1, members):
        member = (me + step) % members
        about = seat_at(exchange, member)
        seat = get(about, 0)
        note = find(board, seat, key + 1)
        if note == 0:
            continue
        if get(about, SEAT_COPIED) == 0:
            read_sum(board, exchange, member, get(note, 16))
        if get(exchange, EXCHANGE_LOST) != 0:
            return
        if get(about, SEAT_COPIED) != 0 and tell(board, seat, key + 2, 0) != 0:
            take_notice(board, seat, key + 1)
            put(exchange, EXCHANGE_COPIED, get(exchange, EXCHANGE_COPIED) + 1)
    if get(exchange, EXCHANGE_COPIED) == members - 1:
        put(exchange, EXCHANGE_STATE, AWAITING_READERS)


@native
def hear_readers(board, exchange):
    """Go on when all have told that they have read this rank's sum."""
    me, members, key = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        get(exchange, EXCHANGE_KEY),
    )
    for member in range(members):
        if member != me and find(board, get(seat_at(exchange, member), 0), key + 2) == 0:
            return
    for member in range(members):
        if member != me:
            take_notice(board, get(seat_at(exchange, member), 0), key + 2)
    put(exchange, EXCHANGE_STATE, AWAITING_LINK)


@native
def run_direct(board, exchange):
    """Take the steps of an exchange that can be taken now; returns whether there was one."""
    if get(exchange, EXCHANGE_LOST) != 0:
        return 0
    before = get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED)
    if get(exchange, EXCHANGE_STATE) == TELLING_SLICES:
        tell_all(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES and heard_slices(board, exchange) > 0:
        combine_some(board, exchange)
    if get(exchange, EXCHANGE_STATE) == TELLING_SUMS:
        tell_all(board, exchange, 1)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SUMS:
        read_sums(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_READERS:
        hear_readers(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED) != before)
