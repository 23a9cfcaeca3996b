"""Exchanges in shared memory: their steps, run for all that are under way by whoever polls (`advance`).

Rank r owns slice r of an array. A rank stores the others' slices in a block, tells them, and waits for
theirs; it combines them with its own where they lie, into its array and into its block, tells the others, and
copies their sums out of their blocks into its array. A small array is combined whole by every rank, in one
phase.

A rank that found no block free, or runs other code, sends messages instead and tells NOWHERE as its place.
Then the exchange stops before that phase (`SLICES_NOWHERE`, `SUMS_NOWHERE`), with no notice of it taken.

Elements are combined in a balanced tree over the ranks, as `ops.communicate.combined` does.
"""

from __future__ import annotations

from numba.types import float32, float64, int64, void

from tracejit.kernels.compiler.memory import copy_bytes, pause, pointer
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import BILLION, MONOTONIC, clock_gettime, get, put, sched_yield
from tracejit.kernels.ranks.layout import (
    AWAITING_SLICES,
    AWAITING_SUMS,
    BOARD_ACTIVE,
    BOARD_EXCHANGES,
    BOARD_HEAD,
    BOARD_LOOKS,
    BOARD_NANOSECONDS,
    BOARD_READY,
    BOARD_SCRATCH,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_SECONDS,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_BLOCK,
    EXCHANGE_COPIED,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_NEXT,
    EXCHANGE_SEATS,
    EXCHANGE_STATE,
    EXCHANGE_SUM,
    EXCHANGE_TOLD,
    EXCHANGE_WHOLE,
    FULL,
    NOWHERE,
    SEAT_BYTES,
    SEAT_COPIED,
    SEAT_PART,
    SLICES_NOWHERE,
    STRIP,
    SUM_FLOAT32,
    SUMS_NOWHERE,
    TELLING_SLICES,
    TELLING_SUMS,
)
from tracejit.kernels.ranks.notices import expect, find, hear, leave, lend, part_of, take_notice, tell

# --- Combining ----------------------------------------------------------------------------------------------


def _adding(dtype):
    @subroutine
    def add(out, a, b, count):
        x, y, z = pointer(a, dtype), pointer(b, dtype), pointer(out, dtype)
        for i in independent(0, count):
            z[i] = x[i] + y[i]
        return 0

    return add


_add32, _add64 = _adding(float32), _adding(float64)


@native
def add(kind, out, a, b, count):
    """``out[i] = a[i] + b[i]`` at addresses; `out` may be one of them."""
    if kind == SUM_FLOAT32:
        return _add32(out, a, b, count)
    return _add64(out, a, b, count)


@native
def item_of(exchange):
    """Bytes of an element."""
    return 4 if get(exchange, EXCHANGE_SUM) == SUM_FLOAT32 else 8


@native
def seat_at(exchange, member):
    """The address of a member's record."""
    return exchange + EXCHANGE_SEATS + member * SEAT_BYTES


@native
def combine_strip(board, exchange, out, at, count):
    """Combine `count` elements of all parts, from the offset `at` on, into those at the address `out`."""
    kind, width = get(exchange, EXCHANGE_SUM), get(exchange, EXCHANGE_MEMBERS)
    table = get(board, BOARD_SCRATCH)
    rows = table + 8 * get(board, BOARD_SEATS)
    for member in range(width):
        put(table, 8 * member, get(seat_at(exchange, member), SEAT_PART) + at)
    while width > 2:
        for pair in range(width // 2):
            row, two = rows + pair * STRIP, table + 16 * pair
            add(kind, row, get(two, 0), get(two, 8), count)
            put(table, 8 * pair, row)
        if width % 2 != 0:
            put(table, 8 * (width // 2), get(table, 8 * (width - 1)))
        width = (width + 1) // 2
    return add(kind, out, get(table, 0), get(table, 8), count)


@native
def combine(board, exchange, out, copy, count):
    """Combine the parts into the elements at `out`, and copy each strip to `copy` (0: nowhere)."""
    item = item_of(exchange)
    for start in range(0, count * item, STRIP):
        nbytes = min(STRIP, count * item - start)
        combine_strip(board, exchange, out + start, start, nbytes // item)
        if copy != 0:
            copy_bytes(copy + start, out + start, nbytes)


ENDS = 1 << 32

# --- The steps ----------------------------------------------------------------------------------------------


@native
def offset_of(exchange, member):
    """The offset of a member's slice in the array; of the number of members, that of its end."""
    return get(exchange, EXCHANGE_COUNT) * member // get(exchange, EXCHANGE_MEMBERS) * item_of(exchange)


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
def tell_all(board, exchange, phase):
    """Tell the others where their part lies; returns whether there was room for all notices."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    block = get(exchange, EXCHANGE_BLOCK) + get(board, BOARD_HEAD)
    while get(exchange, EXCHANGE_TOLD) < members:
        member = get(exchange, EXCHANGE_TOLD)
        if member != me:
            offset = offset_of(exchange, member if phase == 0 else me)
            if get(exchange, EXCHANGE_WHOLE) != 0:
                offset = 0
            seat = get(seat_at(exchange, member), 0)
            if tell(board, seat, get(exchange, EXCHANGE_KEY) + phase, block + offset + phase) == 0:
                return 0
        put(exchange, EXCHANGE_TOLD, member + 1)
    put(exchange, EXCHANGE_TOLD, 0)
    put(exchange, EXCHANGE_STATE, get(exchange, EXCHANGE_STATE) + 1)
    return 1


@native
def heard_slices(board, exchange):
    """Whether all slices for this rank have been told of: 0: no, -1: but some come as messages."""
    heard = 1
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            note = find(board, get(seat_at(exchange, member), 0), get(exchange, EXCHANGE_KEY))
            if note == 0:
                return 0
            if get(note, 16) == NOWHERE:
                heard = -1
    return heard


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
        source = part_of(board, seat) + place - 1  # without the phase
        copy_bytes(get(exchange, EXCHANGE_ARRAY) + first, source, offset_of(exchange, member + 1) - first)
        leave(board, seat, place)
        put(about, SEAT_COPIED, 1)
        put(exchange, EXCHANGE_COPIED, get(exchange, EXCHANGE_COPIED) + 1)
        found += 1
    return found


@native
def run(board, exchange):
    """Take the steps of an exchange that can be taken now; returns whether there was one."""
    before = get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED)
    if get(exchange, EXCHANGE_STATE) == TELLING_SLICES:
        tell_all(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES:
        heard = heard_slices(board, exchange)
        if heard > 0:
            combine_slices(board, exchange)
            put(exchange, EXCHANGE_STATE, ENDED if get(exchange, EXCHANGE_WHOLE) != 0 else TELLING_SUMS)
        elif heard < 0:
            for member in range(get(exchange, EXCHANGE_MEMBERS)):
                expect(board, get(exchange, EXCHANGE_BLOCK), get(seat_at(exchange, member), 0), 1, 0)
            put(exchange, EXCHANGE_STATE, SLICES_NOWHERE)
    if get(exchange, EXCHANGE_STATE) == TELLING_SUMS:
        tell_all(board, exchange, 1)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SUMS:
        if copy_sums(board, exchange) < 0:
            put(exchange, EXCHANGE_STATE, SUMS_NOWHERE)
        elif get(exchange, EXCHANGE_COPIED) == get(exchange, EXCHANGE_MEMBERS) - 1:
            put(exchange, EXCHANGE_STATE, ENDED)
    return int64(get(exchange, EXCHANGE_STATE) + get(exchange, EXCHANGE_COPIED) != before)


@native
def run_all(board):
    """Take the steps that can be taken now of all exchanges; returns how many moved, or ended: by ENDS."""
    moved, previous = 0, board + BOARD_EXCHANGES
    exchange = get(previous, 0)
    while exchange != 0:
        moved += run(board, exchange)
        if get(exchange, EXCHANGE_STATE) >= ENDED:
            moved += ENDS
            put(previous, 0, get(exchange, EXCHANGE_NEXT))
        else:
            previous = exchange + EXCHANGE_NEXT
        exchange = get(exchange, EXCHANGE_NEXT)
    return moved


# --- Entry points -------------------------------------------------------------------------------------------


def begin(board, exchange):
    """Begin an exchange; returns whether there was a free block for it."""
    block = lend(board)
    if block == 0:
        return 0
    put(exchange, EXCHANGE_BLOCK, block)
    put(exchange, EXCHANGE_STATE, TELLING_SLICES)
    put(exchange, EXCHANGE_TOLD, 0)
    put(exchange, EXCHANGE_COPIED, 0)
    me, whole = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_WHOLE)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        put(seat_at(exchange, member), SEAT_COPIED, 0)
        if member != me:
            seat = get(seat_at(exchange, member), 0)
            expect(board, block, seat, 0, 1)
            if whole == 0:
                expect(board, block, seat, 1, 1)
    store_slices(board, exchange)
    run(board, exchange)
    if get(exchange, EXCHANGE_STATE) < ENDED:
        last = board + BOARD_EXCHANGES
        while get(last, 0) != 0:
            last = get(last, 0) + EXCHANGE_NEXT
        put(exchange, EXCHANGE_NEXT, 0)
        put(last, 0, exchange)
    return 1


def cancel(board, exchange):
    """Forget an exchange that is under way, if it is."""
    previous = board + BOARD_EXCHANGES
    while get(previous, 0) != 0 and get(previous, 0) != exchange:
        previous = get(previous, 0) + EXCHANGE_NEXT
    if get(previous, 0) != 0:
        put(previous, 0, get(exchange, EXCHANGE_NEXT))


@native
def now(board):
    """The monotonic clock in nanoseconds."""
    clock_gettime(MONOTONIC, board + BOARD_SECONDS)
    return get(board, BOARD_SECONDS) * BILLION + get(board, BOARD_NANOSECONDS)


@native
def has_time(board):
    """Whether nothing else is to be done on this thread or its processor."""
    ready, active = get(get(board, BOARD_READY), 0), get(get(board, BOARD_ACTIVE), 0)
    return int64(ready == 0 and active == 0)


def advance(board, duration):
    """Take all steps that can be taken. Go on for so many nanoseconds, or until an exchange ends or there is
    other work.

    Returns whether anything has come or moved, or FULL (see `hear`).
    """
    found = hear(board)
    moved = run_all(board)
    if found >= 0 and duration > 0 and get(board, BOARD_EXCHANGES) != 0:
        deadline = now(board) + duration
        while found >= 0 and moved < ENDS and now(board) < deadline and has_time(board) != 0:
            looks, come = 0, 0
            while come == 0 and looks < get(board, BOARD_LOOKS):
                pause()
                come = hear(board)
                looks += 1
            more = run_all(board)
            if come == 0 and more == 0:
                sched_yield()
            found, moved = come if come < 0 else found + come, moved + more
    return FULL if found < 0 else int64(found + moved > 0)


def tell_notice(board, seat, key, word):
    """See `notices.tell`."""
    return tell(board, seat, key, word)


def next_notice(board, seat, key):
    """See `notices.take_notice`."""
    return take_notice(board, seat, key)


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


RANKS = [
    ("ranks_begin", begin, int64(int64, int64)),
    ("ranks_cancel", cancel, void(int64, int64)),
    ("ranks_advance", advance, int64(int64, int64)),
    ("ranks_tell", tell_notice, int64(int64, int64, int64, int64)),
    ("ranks_next_notice", next_notice, int64(int64, int64, int64)),
    ("ranks_has_notice", has_notice, int64(int64, int64, int64)),
    ("ranks_lend", lend_block, int64(int64)),
    ("ranks_expect", expect_reader, void(int64, int64, int64)),
    ("ranks_leave", leave_place, void(int64, int64, int64)),
]
"""Name, function and signature of the entry points."""
