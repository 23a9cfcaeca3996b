"""Exchanges through blocks of shared memory: their steps.

A rank stores the slices of its peers in a block, notifies them, and waits for their notices. It combines
their slices in place with its own, into its array and into its block, notifies the peers, and copies their
sums from their blocks into its array. Every rank combines a small array entirely, in a single phase.

A rank that has no free block, or runs other code, sends messages instead and announces the location NOWHERE.
The exchange then stops before that phase (`SLICES_NOWHERE`, `SUMS_NOWHERE`), and consumes none of its
notices.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_bytes, member_record
from tracejit.kernels.ranks.layout import (
    ANNOUNCING_SLICES,
    ANNOUNCING_SUMS,
    AWAITING_LINK,
    AWAITING_SLICES,
    AWAITING_SUMS,
    BOARD_HEAD,
    BOARD_SEAT,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_BLOCK,
    EXCHANGE_COPIED,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_NOTIFIED,
    EXCHANGE_REPLICATED,
    EXCHANGE_STATE,
    NOWHERE,
    SEAT_COPIED,
    SEAT_OPERAND,
    SLICES_NOWHERE,
    SUMS_NOWHERE,
)
from tracejit.kernels.ranks.notices import consume_notice, expect, find_notice, lend, mark_read, segment_of
from tracejit.kernels.ranks.slices import announce, is_sending, offset_of, slices_announced


@native
def image_of(board, exchange):
    """The address in this rank's block that corresponds to the start of the array."""
    block = get(exchange, EXCHANGE_BLOCK) + get(board, BOARD_HEAD)
    return segment_of(board, get(board, BOARD_SEAT)) + block


@native
def store_slices(board, exchange):
    """Copy the data that the peers combine to the corresponding addresses in the block."""
    array, image = get(exchange, EXCHANGE_ARRAY), image_of(board, exchange)
    if get(exchange, EXCHANGE_REPLICATED) != 0:
        copy_bytes(image, array, get(exchange, EXCHANGE_COUNT) * item_bytes(exchange))
        return
    first = offset_of(exchange, get(exchange, EXCHANGE_MEMBER))
    last = offset_of(exchange, get(exchange, EXCHANGE_MEMBER) + 1)
    copy_bytes(image, array, first)
    copy_bytes(image + last, array + last, offset_of(exchange, get(exchange, EXCHANGE_MEMBERS)) - last)


@native
def combine_slices(board, exchange):
    """Combine the announced slices with this rank's own."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    replicated, key = get(exchange, EXCHANGE_REPLICATED), get(exchange, EXCHANGE_KEY)
    first, last = offset_of(exchange, me), offset_of(exchange, me + 1)
    copy = image_of(board, exchange) + first
    if replicated != 0:
        first, last, copy = 0, offset_of(exchange, members), 0
    out = get(exchange, EXCHANGE_ARRAY) + first
    put(exchange, EXCHANGE_NOTIFIED, 0)
    for member in range(members):
        record = member_record(exchange, member)
        if member == me:
            put(record, SEAT_OPERAND, out)
        else:
            seat = get(record, 0)
            put(record, SEAT_COPIED, consume_notice(board, seat, key))  # the location, until it is read
            put(record, SEAT_OPERAND, segment_of(board, seat) + get(record, SEAT_COPIED))
    combine(board, exchange, out, copy, (last - first) // item_bytes(exchange))
    for member in range(members):
        record = member_record(exchange, member)
        if member != me:
            mark_read(board, get(record, 0), get(record, SEAT_COPIED))
            put(record, SEAT_COPIED, 0)


@native
def copy_sums(board, exchange):
    """Copy the announced sums into the array. Returns their number, or -1 if one arrives as a message."""
    me, members, copied = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS), 0
    for step in range(1, members):
        member = (me + step) % members
        record = member_record(exchange, member)
        notice = find_notice(board, get(record, 0), get(exchange, EXCHANGE_KEY) + 1)
        if notice == 0 or get(record, SEAT_COPIED) != 0:
            continue
        if get(notice, 16) == NOWHERE:
            return -1
        seat, first = get(record, 0), offset_of(exchange, member)
        location = consume_notice(board, seat, get(exchange, EXCHANGE_KEY) + 1)
        source = segment_of(board, seat) + location - location % 2  # Python sends no phase
        copy_bytes(get(exchange, EXCHANGE_ARRAY) + first, source, offset_of(exchange, member + 1) - first)
        mark_read(board, seat, location)
        put(record, SEAT_COPIED, 1)
        put(exchange, EXCHANGE_COPIED, get(exchange, EXCHANGE_COPIED) + 1)
        copied += 1
    return copied


@native
def begin_stored(board, exchange):
    """Store the data for the peers in a block. Returns whether there was a free one."""
    block = lend(board)
    if block == 0:
        return 0
    put(exchange, EXCHANGE_BLOCK, block)
    me, replicated = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_REPLICATED)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != me:
            seat = get(member_record(exchange, member), 0)
            expect(board, block, seat, 0, 1)
            if replicated == 0:
                expect(board, block, seat, 1, 1)
    store_slices(board, exchange)
    return 1


@native
def run_stored(board, exchange):
    """Take the steps of an exchange that are possible now. Returns whether there was one."""
    before = get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED)
    if get(exchange, EXCHANGE_STATE) == ANNOUNCING_SLICES:
        announce(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES:
        announced = slices_announced(board, exchange)
        if announced > 0:
            combine_slices(board, exchange)
            put(
                exchange,
                EXCHANGE_STATE,
                AWAITING_LINK if get(exchange, EXCHANGE_REPLICATED) != 0 else ANNOUNCING_SUMS,
            )
        elif announced < 0 and is_sending(board, exchange) == 0:
            for member in range(get(exchange, EXCHANGE_MEMBERS)):
                expect(board, get(exchange, EXCHANGE_BLOCK), get(member_record(exchange, member), 0), 1, 0)
            put(exchange, EXCHANGE_STATE, SLICES_NOWHERE)
    if get(exchange, EXCHANGE_STATE) == ANNOUNCING_SUMS:
        announce(board, exchange, 1)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SUMS:
        if copy_sums(board, exchange) < 0:
            if is_sending(board, exchange) == 0:
                put(exchange, EXCHANGE_STATE, SUMS_NOWHERE)
        elif get(exchange, EXCHANGE_COPIED) == get(exchange, EXCHANGE_MEMBERS) - 1:
            put(exchange, EXCHANGE_STATE, AWAITING_LINK)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED) != before)
