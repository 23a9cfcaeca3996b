"""Exchanges of large arrays, which the ranks read directly from one another's memory: their steps.

A rank sends its peers the address of its array. It reads its slice of all arrays chunk by chunk, and combines
the chunks into its own array while they are in the L1 cache. Then it notifies its peers, and reads their sums
into its array. So each byte is copied once, and no memory is shared. The array must not change until all
peers have read this rank's sum; the exchange ends with their acknowledgements.

Long reads are split into turns, so that other exchanges progress meanwhile.

A rank that aborts an exchange sets a flag in shared memory before it reuses the array. A peer that has read
since then, or can no longer read, stops there (EXCHANGE_LOST): the deadline, or the news of the failed rank,
ends its wait.
"""

from __future__ import annotations

import sys

from numba.types import int64

from tracejit.kernels.compiler.memory import atomic_add, external, load_acquire
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_bytes, member_record
from tracejit.kernels.ranks.layout import (
    ANNOUNCING_SLICES,
    ANNOUNCING_SUMS,
    AWAITING_LINK,
    AWAITING_READERS,
    AWAITING_SLICES,
    AWAITING_SUMS,
    BOARD_PEERS,
    BOARD_ROWS,
    BOARD_RUNNABLE,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_VECTORS,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_COMBINED,
    EXCHANGE_COPIED,
    EXCHANGE_KEY,
    EXCHANGE_LOST,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_NOTIFIED,
    EXCHANGE_STATE,
    LINE,
    PEER_BYTES,
    PEER_PROCESS,
    READ,
    RING_BYTES,
    SEAT_COPIED,
    SEAT_OPERAND,
    SEAT_PROGRESS,
    TURN_BYTES,
)
from tracejit.kernels.ranks.notices import consume_notice, find_notice, post, segment_of
from tracejit.kernels.ranks.slices import announce, is_sending, offset_of, slices_announced


def on_linux():
    """Return the subroutine `read` for systems on which a process can read the memory of another one."""
    process_vm_readv = external("process_vm_readv", int64(int64, int64, int64, int64, int64, int64))

    @native
    def read(board, seat, target, source, count):
        """Copy bytes from the process of a seat. Returns whether all bytes could be read and are valid: a
        rank that reuses its array announces this first (`invalidate`).
        """
        vectors = board + BOARD_VECTORS
        put(vectors, 0, target)
        put(vectors, 8, count)
        put(vectors, 16, source)
        put(vectors, 24, count)
        process = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_PROCESS)
        if process_vm_readv(process, vectors, 1, vectors + 16, 1, 0) != count:
            return 0
        return int64(load_acquire(abort_flag(board, seat)) == 0)  # pairs with atomic_add in `invalidate`

    return read


def elsewhere():
    """Return the subroutine `read` for other systems: it reads nothing."""

    @native
    def read(board, seat, target, source, count):
        return 0

    return read


@native
def abort_flag(board, seat):
    """The address of the abort flag of a rank (`layout.abort_flag_at`)."""
    seats = get(board, BOARD_SEATS)
    return segment_of(board, seat) + seats * (RING_BYTES + LINE)


@native
def invalidate(board):
    """Notify the peers that data they read from this rank's arrays is no longer valid."""
    atomic_add(abort_flag(board, get(board, BOARD_SEAT)), 1)


read = on_linux() if sys.platform.startswith("linux") else elsewhere()


@native
def read_slices(board, exchange, offset, count):
    """Read the chunk at an offset of the array from all peers. Returns whether all bytes could be read."""
    key, rows = get(exchange, EXCHANGE_KEY), get(board, BOARD_ROWS)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        record = member_record(exchange, member)
        if member == get(exchange, EXCHANGE_MEMBER):
            put(record, SEAT_OPERAND, get(exchange, EXCHANGE_ARRAY) + offset)
        else:
            row, seat = rows + member * READ, get(record, 0)
            put(record, SEAT_OPERAND, row)
            if read(board, seat, row, get(find_notice(board, seat, key), 16) + offset, count) == 0:
                put(exchange, EXCHANGE_LOST, member + 1)
                return 0
    return 1


@native
def combine_turn(board, exchange):
    """Combine up to TURN_BYTES of this rank's slice, once all peers have announced their arrays."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    first, last = offset_of(exchange, me), offset_of(exchange, me + 1)
    offset = first + get(exchange, EXCHANGE_COMBINED)
    end = min(last, offset + TURN_BYTES)
    while offset < end:
        count = min(READ, end - offset)
        if read_slices(board, exchange, offset, count) == 0:
            return
        combine(board, exchange, get(exchange, EXCHANGE_ARRAY) + offset, 0, count // item_bytes(exchange))
        offset += count
    put(exchange, EXCHANGE_COMBINED, offset - first)
    if offset < last:
        put(board, BOARD_RUNNABLE, 1)
        return
    for member in range(members):
        if member != me:
            consume_notice(board, get(member_record(exchange, member), 0), get(exchange, EXCHANGE_KEY))
    put(exchange, EXCHANGE_NOTIFIED, 0)
    put(exchange, EXCHANGE_STATE, ANNOUNCING_SUMS)


@native
def read_sum(board, exchange, member, source):
    """Read up to TURN_BYTES of a member's sum from its array at the address `source`."""
    record, first = member_record(exchange, member), offset_of(exchange, member)
    offset = first + get(record, SEAT_PROGRESS)
    count = min(TURN_BYTES, offset_of(exchange, member + 1) - offset)
    if read(board, get(record, 0), get(exchange, EXCHANGE_ARRAY) + offset, source + offset, count) == 0:
        put(exchange, EXCHANGE_LOST, member + 1)
        return
    put(record, SEAT_PROGRESS, offset + count - first)
    if offset + count < offset_of(exchange, member + 1):
        put(board, BOARD_RUNNABLE, 1)
    else:
        put(record, SEAT_COPIED, 1)


@native
def read_sums(board, exchange):
    """Read the sums that have been announced, and acknowledge each one that has been read completely."""
    me, members, key = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        get(exchange, EXCHANGE_KEY),
    )
    for step in range(1, members):
        member = (me + step) % members
        record = member_record(exchange, member)
        seat = get(record, 0)
        notice = find_notice(board, seat, key + 1)
        if notice == 0:
            continue
        if get(record, SEAT_COPIED) == 0:
            read_sum(board, exchange, member, get(notice, 16))
        if get(exchange, EXCHANGE_LOST) != 0:
            return
        if get(record, SEAT_COPIED) != 0 and post(board, seat, key + 2, 0) != 0:
            consume_notice(board, seat, key + 1)
            put(exchange, EXCHANGE_COPIED, get(exchange, EXCHANGE_COPIED) + 1)
    if get(exchange, EXCHANGE_COPIED) == members - 1:
        put(exchange, EXCHANGE_STATE, AWAITING_READERS)


@native
def await_readers(board, exchange):
    """Move on to the next state once all peers have acknowledged that they read this rank's sum."""
    me, members, key = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        get(exchange, EXCHANGE_KEY),
    )
    for member in range(members):
        if member != me and find_notice(board, get(member_record(exchange, member), 0), key + 2) == 0:
            return
    for member in range(members):
        if member != me:
            consume_notice(board, get(member_record(exchange, member), 0), key + 2)
    put(exchange, EXCHANGE_STATE, AWAITING_LINK)


@native
def run_direct(board, exchange):
    """Take the steps of an exchange that are possible now. Returns whether there was one."""
    if get(exchange, EXCHANGE_LOST) != 0:
        return 0
    before = get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED)
    if get(exchange, EXCHANGE_STATE) == ANNOUNCING_SLICES:
        announce(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES and slices_announced(board, exchange) > 0:
        combine_turn(board, exchange)
    if get(exchange, EXCHANGE_STATE) == ANNOUNCING_SUMS:
        announce(board, exchange, 1)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SUMS:
        read_sums(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_READERS:
        await_readers(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED) != before)
