"""Exchanges by way of shared memory: their steps.

A rank stores the others' slices in a block, tells them, and waits for theirs; it combines them with its own
where they lie, into its array and into its block, tells the others, and copies their sums out of their blocks
into its array. A small array is combined whole by every rank, in one phase.

A rank that found no block free, or runs other code, sends messages instead and tells NOWHERE as its place.
Then the exchange stops before that phase (`SLICES_NOWHERE`, `SUMS_NOWHERE`), with no notice of it taken.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_of, seat_at
from tracejit.kernels.ranks.layout import (
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
    EXCHANGE_STATE,
    EXCHANGE_TOLD,
    EXCHANGE_WHOLE,
    NOWHERE,
    SEAT_COPIED,
    SEAT_PART,
    SLICES_NOWHERE,
    SUMS_NOWHERE,
    TELLING_SLICES,
    TELLING_SUMS,
)
from tracejit.kernels.ranks.notices import expect, find, leave, lend, part_of, take_notice
from tracejit.kernels.ranks.parts import heard_slices, is_sending, offset_of, tell_all


@native
def image_of(board, exchange):
    """The address at which the array would begin in this rank's block."""
    block = get(exchange, EXCHANGE_BLOCK) + get(board, BOARD_HEAD)
    return part_of(board, get(board, BOARD_SEAT)) + block


@native
def store_slices(board, exchange):
    """Copy what the others combine to where it lies in the block."""
    array, image = get(exchange, EXCHANGE_ARRAY), image_of(board, exchange)
    if get(exchange, EXCHANGE_WHOLE) != 0:
        copy_bytes(image, array, get(exchange, EXCHANGE_COUNT) * item_of(exchange))
        return
    first = offset_of(exchange, get(exchange, EXCHANGE_MEMBER))
    last = offset_of(exchange, get(exchange, EXCHANGE_MEMBER) + 1)
    copy_bytes(image, array, first)
    copy_bytes(image + last, array + last, offset_of(exchange, get(exchange, EXCHANGE_MEMBERS)) - last)


@native
def combine_slices(board, exchange):
    """Combine the slices that have come with this rank's own."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    whole, key = get(exchange, EXCHANGE_WHOLE), get(exchange, EXCHANGE_KEY)
    first, last = offset_of(exchange, me), offset_of(exchange, me + 1)
    copy = image_of(board, exchange) + first
    if whole != 0:
        first, last, copy = 0, offset_of(exchange, members), 0
    out = get(exchange, EXCHANGE_ARRAY) + first
    put(exchange, EXCHANGE_TOLD, 0)
    for member in range(members):
        about = seat_at(exchange, member)
        if member == me:
            put(about, SEAT_PART, out)
        else:
            seat = get(about, 0)
            put(about, SEAT_COPIED, take_notice(board, seat, key))  # the place, until it has been left
            put(about, SEAT_PART, part_of(board, seat) + get(about, SEAT_COPIED))
    combine(board, exchange, out, copy, (last - first) // item_of(exchange))
    for member in range(members):
        about = seat_at(exchange, member)
        if member != me:
            leave(board, get(about, 0), get(about, SEAT_COPIED))
            put(about, SEAT_COPIED, 0)


@native
def copy_sums(board, exchange):
    """Copy the sums that have been told of; returns how many, or -1 where one comes as a message."""
    me, members, found = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS), 0
    for step in range(1, members):
        member = (me + step) % members
        about = seat_at(exchange, member)
        note = find(board, get(about, 0), get(exchange, EXCHANGE_KEY) + 1)
        if note == 0 or get(about, SEAT_COPIED) != 0:
            continue
        if get(note, 16) == NOWHERE:
            return -1
        seat, first = get(about, 0), offset_of(exchange, member)
        place = take_notice(board, seat, get(exchange, EXCHANGE_KEY) + 1)
        source = part_of(board, seat) + place - place % 2  # without the phase, which Python does not tell
        copy_bytes(get(exchange, EXCHANGE_ARRAY) + first, source, offset_of(exchange, member + 1) - first)
        leave(board, seat, place)
        put(about, SEAT_COPIED, 1)
        put(exchange, EXCHANGE_COPIED, get(exchange, EXCHANGE_COPIED) + 1)
        found += 1
    return found


@native
def begin_stored(board, exchange):
    """Store what the others read; returns whether there was a free block for it."""
    block = lend(board)
    if block == 0:
        return 0
    put(exchange, EXCHANGE_BLOCK, block)
    me, whole = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_WHOLE)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != me:
            seat = get(seat_at(exchange, member), 0)
            expect(board, block, seat, 0, 1)
            if whole == 0:
                expect(board, block, seat, 1, 1)
    store_slices(board, exchange)
    return 1


@native
def run_stored(board, exchange):
    """Take the steps of an exchange that can be taken now; returns whether there was one."""
    before = get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED)
    if get(exchange, EXCHANGE_STATE) == TELLING_SLICES:
        tell_all(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES:
        heard = heard_slices(board, exchange)
        if heard > 0:
            combine_slices(board, exchange)
            put(
                exchange,
                EXCHANGE_STATE,
                AWAITING_LINK if get(exchange, EXCHANGE_WHOLE) != 0 else TELLING_SUMS,
            )
        elif heard < 0 and is_sending(board, exchange) == 0:
            for member in range(get(exchange, EXCHANGE_MEMBERS)):
                expect(board, get(exchange, EXCHANGE_BLOCK), get(seat_at(exchange, member), 0), 1, 0)
            put(exchange, EXCHANGE_STATE, SLICES_NOWHERE)
    if get(exchange, EXCHANGE_STATE) == TELLING_SUMS:
        tell_all(board, exchange, 1)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SUMS:
        if copy_sums(board, exchange) < 0:
            if is_sending(board, exchange) == 0:
                put(exchange, EXCHANGE_STATE, SUMS_NOWHERE)
        elif get(exchange, EXCHANGE_COPIED) == get(exchange, EXCHANGE_MEMBERS) - 1:
            put(exchange, EXCHANGE_STATE, AWAITING_LINK)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED) != before)
