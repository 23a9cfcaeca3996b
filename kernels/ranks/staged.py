"""Exchanges of large arrays that a thread waits for: piece by piece, through memory that stays in the caches.

Each rank has a *stage* in shared memory, of a few slots. A slot holds a piece of the slice of each other
member, and of the sum of this rank's own. A rank stores its next pieces where a slot is free, combines pieces
that all have stored into its array and its slot, and takes the pieces of the others' sums. It counts what it
has stored, combined and taken, where the others look. A slot is free when all have taken what is there.

A stage serves one exchange at a time, in the order in which they have begun, which is the same on all ranks.
Pieces are counted on from exchange to exchange; a rank tells the others with which number one begins. For
this rank it ends with the last piece taken; the next one begins when all have taken theirs.

A rank that aborts an exchange uses its stage no more: the others would take what is there for the rest.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes, load_acquire, store_release
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_of, seat_at
from tracejit.kernels.ranks.layout import (
    AWAITING_LINK,
    AWAITING_SLICES,
    BOARD_COUNTS,
    BOARD_EXCHANGES,
    BOARD_MORE,
    BOARD_PEERS,
    BOARD_PIECES,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_STAGE,
    COMBINED,
    ENDED,
    EXCHANGE_ARRAY,
    EXCHANGE_COUNT,
    EXCHANGE_DONE,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_NEXT,
    EXCHANGE_STATE,
    EXCHANGE_WAY,
    LINE,
    MOVING,
    NEVER,
    PEER_BYTES,
    PEER_DUE,
    SEAT_AT,
    SEAT_BASE,
    SEAT_PART,
    SLOTS,
    STAGE_BYTES,
    STAGED,
    STORED,
    TAKEN,
    TELLING_SLICES,
)
from tracejit.kernels.ranks.notices import part_of, take_notice
from tracejit.kernels.ranks.parts import heard_slices, is_sending, offset_of, tell_all

# --- Pieces -------------------------------------------------------------------------------------------------


@native
def piece_bytes(exchange):
    """Bytes of a piece."""
    return STAGE_BYTES // (SLOTS * get(exchange, EXCHANGE_MEMBERS)) // LINE * LINE


@native
def pieces_of(exchange):
    """The number of pieces of the largest slice."""
    members, piece = get(exchange, EXCHANGE_MEMBERS), piece_bytes(exchange)
    largest = (get(exchange, EXCHANGE_COUNT) + members - 1) // members * item_of(exchange)
    return (largest + piece - 1) // piece


@native
def start_of(exchange, member, number):
    """The offset in the array of a piece of a member's slice, or of the slice's end."""
    return min(offset_of(exchange, member) + number * piece_bytes(exchange), offset_of(exchange, member + 1))


@native
def size_of(exchange, member, number):
    """Bytes of a piece of a member's slice."""
    return start_of(exchange, member, number + 1) - start_of(exchange, member, number)


@native
def counts_of(board, seat):
    """The address of a rank's counts of pieces, before its stage."""
    return part_of(board, seat) + get(board, BOARD_COUNTS)


@native
def place_on_stage(board, exchange, seat, member, number):
    """The address at which a rank has a piece for a member; for itself: of its sum."""
    place = number % SLOTS * get(exchange, EXCHANGE_MEMBERS) + member
    return counts_of(board, seat) + LINE + place * piece_bytes(exchange)


@native
def done(exchange, what):
    """The number of pieces that this rank has stored, combined or taken."""
    return get(exchange, EXCHANGE_DONE + what)


@native
def count_on(board, exchange, what):
    """Count one more piece."""
    count = done(exchange, what) + 1
    put(exchange, EXCHANGE_DONE + what, count)
    address = counts_of(board, get(board, BOARD_SEAT)) + what
    store_release(address, get(board, BOARD_PIECES) + count)  # pairs with load_acquire in `done_by`


@native
def done_by(board, exchange, member, what):
    """The number of pieces that a member has stored, combined or taken."""
    about = seat_at(exchange, member)
    count = load_acquire(counts_of(board, get(about, 0)) + what)  # pairs with store_release in `count_on`
    return count - get(about, SEAT_BASE)


@native
def done_by_all(board, exchange, what):
    """The number of pieces that all others have stored, combined or taken."""
    found = NEVER
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            found = min(found, done_by(board, exchange, member, what))
    return found


@native
def progress_of(board, exchange, member):
    """A number that grows with all that a member does."""
    stored, combined = done_by(board, exchange, member, STORED), done_by(board, exchange, member, COMBINED)
    return stored + combined + done_by(board, exchange, member, TAKEN)


# --- The stage ----------------------------------------------------------------------------------------------


@native
def has_stage(board, exchange):
    """Whether an exchange has the stage, or gets it now."""
    if get(board, BOARD_STAGE) != 0:
        return int64(get(board, BOARD_STAGE) == exchange)
    other = get(board, BOARD_EXCHANGES)
    while other != 0 and other != exchange:
        if get(other, EXCHANGE_WAY) == STAGED:
            return 0
        other = get(other, EXCHANGE_NEXT)
    for seat in range(get(board, BOARD_SEATS)):
        due = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_DUE)
        if load_acquire(counts_of(board, seat) + TAKEN) < due:  # pairs with store_release in `count_on`
            return 0
    put(board, BOARD_STAGE, exchange)
    for what in range(STORED, TAKEN + 8, 8):
        put(exchange, EXCHANGE_DONE + what, 0)
    return 1


@native
def leave_stage(board, exchange):
    """Leave the stage to the next exchange, once the members have taken all pieces."""
    pieces = pieces_of(exchange)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        about = seat_at(exchange, member)
        if member != get(exchange, EXCHANGE_MEMBER):
            peer = board + BOARD_PEERS + get(about, 0) * PEER_BYTES
            put(peer, PEER_DUE, get(about, SEAT_BASE) + pieces)
    put(board, BOARD_PIECES, get(board, BOARD_PIECES) + pieces)
    put(board, BOARD_STAGE, 0)


@native
def abandon_stage(board, exchange):
    """Have no exchange use the stage any more if this one has it, which does not end."""
    if get(board, BOARD_STAGE) == exchange:
        put(board + BOARD_PEERS + get(board, BOARD_SEAT) * PEER_BYTES, PEER_DUE, NEVER)
        put(board, BOARD_STAGE, 0)


@native
def has_moved(board):
    """Whether a member of the exchange that has the stage has done something since this rank looked."""
    exchange = get(board, BOARD_STAGE)
    if exchange != 0 and get(exchange, EXCHANGE_STATE) == MOVING:
        for member in range(get(exchange, EXCHANGE_MEMBERS)):
            seen = get(seat_at(exchange, member), SEAT_AT)
            if member != get(exchange, EXCHANGE_MEMBER) and progress_of(board, exchange, member) != seen:
                return 1
    return 0


# --- Steps --------------------------------------------------------------------------------------------------


@native
def store_piece(board, exchange):
    """Store a piece for each other member, if a slot is free; returns whether it was."""
    me, members, number = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        done(exchange, STORED),
    )
    if number == pieces_of(exchange):
        return 0
    if number >= SLOTS and number - done_by_all(board, exchange, TAKEN) >= SLOTS:
        return 0
    for step in range(1, members):
        member = (me + step) % members
        target = place_on_stage(board, exchange, get(board, BOARD_SEAT), member, number)
        source = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, member, number)
        copy_bytes(target, source, size_of(exchange, member, number))
    count_on(board, exchange, STORED)
    return 1


@native
def combine_piece(board, exchange):
    """Combine a piece of this rank's slice, if all have stored theirs; returns whether they had."""
    me, number = get(exchange, EXCHANGE_MEMBER), done(exchange, COMBINED)
    if number == done(exchange, STORED) or done_by_all(board, exchange, STORED) <= number:
        return 0
    out = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, me, number)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        about = seat_at(exchange, member)
        part = out if member == me else place_on_stage(board, exchange, get(about, 0), me, number)
        put(about, SEAT_PART, part)
    copy = place_on_stage(board, exchange, get(board, BOARD_SEAT), me, number)
    combine(board, exchange, out, copy, size_of(exchange, me, number) // item_of(exchange))
    count_on(board, exchange, COMBINED)
    return 1


@native
def take_piece(board, exchange):
    """Take a piece of each sum, if all others have it; returns whether they had."""
    me, members, number = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        done(exchange, TAKEN),
    )
    if number == done(exchange, COMBINED) or done_by_all(board, exchange, COMBINED) <= number:
        return 0
    for step in range(1, members):
        member = (me + step) % members
        source = place_on_stage(board, exchange, get(seat_at(exchange, member), 0), member, number)
        target = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, member, number)
        copy_bytes(target, source, size_of(exchange, member, number))
    count_on(board, exchange, TAKEN)
    return 1


@native
def hear_bases(board, exchange):
    """Note with which numbers of pieces the others begin."""
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            about = seat_at(exchange, member)
            put(about, SEAT_BASE, take_notice(board, get(about, 0), get(exchange, EXCHANGE_KEY)))
    put(exchange, EXCHANGE_STATE, MOVING)


@native
def move(board, exchange):
    """Do what can be done for the next pieces; returns how much that was."""
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            put(seat_at(exchange, member), SEAT_AT, progress_of(board, exchange, member))
    moved = store_piece(board, exchange) + combine_piece(board, exchange) + take_piece(board, exchange)
    if done(exchange, TAKEN) == pieces_of(exchange):
        leave_stage(board, exchange)
        put(exchange, EXCHANGE_STATE, AWAITING_LINK)
    elif moved != 0:
        put(board, BOARD_MORE, 1)
    return moved


@native
def run_staged(board, exchange):
    """Take the steps of an exchange that can be taken now; returns whether there was one."""
    before, moved = get(exchange, EXCHANGE_STATE), 0
    if before == TELLING_SLICES and has_stage(board, exchange) != 0:
        tell_all(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES:
        while done(exchange, STORED) < SLOTS and store_piece(board, exchange) != 0:
            moved += 1
        if heard_slices(board, exchange) > 0:
            hear_bases(board, exchange)
    if get(exchange, EXCHANGE_STATE) == MOVING:
        moved += move(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(moved != 0 or get(exchange, EXCHANGE_STATE) != before)
