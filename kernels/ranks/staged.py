"""Exchanges of large arrays that a thread waits for: chunk by chunk, through memory that stays in the caches.

Each rank has a *stage* of a few slots in shared memory. A slot has room for a chunk of the slice of each
other member, and for a chunk of this rank's own sum. A rank stores its next chunks when a slot is free,
combines chunks that all members have stored into its array and its slot, and takes the chunks of its peers'
sums. It publishes the numbers of chunks that it has stored, combined and taken in counters that its peers
poll. A slot is free when all peers have taken its contents.

A stage serves one exchange at a time, in the order in which the exchanges began, which is the same on all
ranks. The counters are never reset; a rank sends its peers the number with which an exchange begins. For this
rank an exchange ends with the last chunk taken; the next one begins when all peers have taken theirs.

A rank that aborts an exchange does not use its stage again, because its peers would take the contents for the
remaining chunks.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes, load_acquire, store_release
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.combine import combine, item_bytes, member_record
from tracejit.kernels.ranks.layout import (
    ANNOUNCING_SLICES,
    AWAITING_LINK,
    AWAITING_SLICES,
    BOARD_CHUNKS,
    BOARD_COUNTS,
    BOARD_EXCHANGES,
    BOARD_PEERS,
    BOARD_RUNNABLE,
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
    EXCHANGE_MODE,
    EXCHANGE_NEXT,
    EXCHANGE_STATE,
    LINE,
    MOVING,
    NEVER,
    PEER_BYTES,
    PEER_DUE,
    SEAT_BASE,
    SEAT_OPERAND,
    SEAT_PROGRESS,
    SLOTS,
    STAGE_BYTES,
    STAGED,
    STORED,
    TAKEN,
)
from tracejit.kernels.ranks.notices import consume_notice, segment_of
from tracejit.kernels.ranks.slices import announce, is_sending, offset_of, slices_announced

# --- Pieces -------------------------------------------------------------------------------------------------


@native
def chunk_bytes(exchange):
    """The size of a chunk in bytes."""
    return STAGE_BYTES // (SLOTS * get(exchange, EXCHANGE_MEMBERS)) // LINE * LINE


@native
def chunks_of(exchange):
    """The number of chunks of the largest slice."""
    members, chunk = get(exchange, EXCHANGE_MEMBERS), chunk_bytes(exchange)
    largest = (get(exchange, EXCHANGE_COUNT) + members - 1) // members * item_bytes(exchange)
    return (largest + chunk - 1) // chunk


@native
def start_of(exchange, member, number):
    """The offset in the array of a chunk of a member's slice, or of the slice's end if that comes first."""
    return min(offset_of(exchange, member) + number * chunk_bytes(exchange), offset_of(exchange, member + 1))


@native
def size_of(exchange, member, number):
    """The size in bytes of a chunk of a member's slice."""
    return start_of(exchange, member, number + 1) - start_of(exchange, member, number)


@native
def counters_of(board, seat):
    """The address of a rank's progress counters, which precede its stage."""
    return segment_of(board, seat) + get(board, BOARD_COUNTS)


@native
def stage_address(board, exchange, seat, member, number):
    """The address in a rank's stage of a chunk for a member; for the rank itself, of a chunk of its sum."""
    index = number % SLOTS * get(exchange, EXCHANGE_MEMBERS) + member
    return counters_of(board, seat) + LINE + index * chunk_bytes(exchange)


@native
def chunks_done(exchange, counter):
    """The number of chunks that this rank has stored, combined or taken."""
    return get(exchange, EXCHANGE_DONE + counter)


@native
def count_chunk(board, exchange, counter):
    """Increment a counter of this rank and publish it."""
    count = chunks_done(exchange, counter) + 1
    put(exchange, EXCHANGE_DONE + counter, count)
    address = counters_of(board, get(board, BOARD_SEAT)) + counter
    store_release(address, get(board, BOARD_CHUNKS) + count)  # pairs with load_acquire in `done_by`


@native
def done_by(board, exchange, member, counter):
    """The number of chunks that a member has stored, combined or taken."""
    record = member_record(exchange, member)
    # pairs with store_release in `count_chunk`
    count = load_acquire(counters_of(board, get(record, 0)) + counter)
    return count - get(record, SEAT_BASE)


@native
def done_by_others(board, exchange, counter):
    """The number of chunks that all peers have stored, combined or taken."""
    fewest = NEVER
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            fewest = min(fewest, done_by(board, exchange, member, counter))
    return fewest


@native
def progress_of(board, exchange, member):
    """A number that grows with every step of a member."""
    stored, combined = done_by(board, exchange, member, STORED), done_by(board, exchange, member, COMBINED)
    return stored + combined + done_by(board, exchange, member, TAKEN)


# --- The stage ----------------------------------------------------------------------------------------------


@native
def has_stage(board, exchange):
    """Whether an exchange owns the stage, or acquires it now."""
    if get(board, BOARD_STAGE) != 0:
        return int64(get(board, BOARD_STAGE) == exchange)
    earlier = get(board, BOARD_EXCHANGES)
    while earlier != 0 and earlier != exchange:
        if get(earlier, EXCHANGE_MODE) == STAGED:
            return 0
        earlier = get(earlier, EXCHANGE_NEXT)
    for seat in range(get(board, BOARD_SEATS)):
        due = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_DUE)
        if load_acquire(counters_of(board, seat) + TAKEN) < due:  # pairs with store_release in `count_chunk`
            return 0
    put(board, BOARD_STAGE, exchange)
    for counter in range(STORED, TAKEN + 8, 8):
        put(exchange, EXCHANGE_DONE + counter, 0)
    return 1


@native
def release_stage(board, exchange):
    """Release the stage for the next exchange, which may use it once the members have taken all chunks."""
    chunks = chunks_of(exchange)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        record = member_record(exchange, member)
        if member != get(exchange, EXCHANGE_MEMBER):
            peer = board + BOARD_PEERS + get(record, 0) * PEER_BYTES
            put(peer, PEER_DUE, get(record, SEAT_BASE) + chunks)
    put(board, BOARD_CHUNKS, get(board, BOARD_CHUNKS) + chunks)
    put(board, BOARD_STAGE, 0)


@native
def abandon_stage(board, exchange):
    """Prevent any further use of the stage if the aborted exchange owns it."""
    if get(board, BOARD_STAGE) == exchange:
        put(board + BOARD_PEERS + get(board, BOARD_SEAT) * PEER_BYTES, PEER_DUE, NEVER)
        put(board, BOARD_STAGE, 0)


@native
def has_moved(board):
    """Whether a member of the exchange that owns the stage has made progress since this rank last checked."""
    exchange = get(board, BOARD_STAGE)
    if exchange != 0 and get(exchange, EXCHANGE_STATE) == MOVING:
        for member in range(get(exchange, EXCHANGE_MEMBERS)):
            previous = get(member_record(exchange, member), SEAT_PROGRESS)
            if member != get(exchange, EXCHANGE_MEMBER) and progress_of(board, exchange, member) != previous:
                return 1
    return 0


# --- Steps --------------------------------------------------------------------------------------------------


@native
def store_chunk(board, exchange):
    """Store a chunk for each other member, if a slot is free. Returns whether one was."""
    me, members, number = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        chunks_done(exchange, STORED),
    )
    if number == chunks_of(exchange):
        return 0
    if number >= SLOTS and number - done_by_others(board, exchange, TAKEN) >= SLOTS:
        return 0
    for step in range(1, members):
        member = (me + step) % members
        target = stage_address(board, exchange, get(board, BOARD_SEAT), member, number)
        source = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, member, number)
        copy_bytes(target, source, size_of(exchange, member, number))
    count_chunk(board, exchange, STORED)
    return 1


@native
def combine_chunk(board, exchange):
    """Combine a chunk of this rank's slice, if all members have stored theirs. Returns whether they had."""
    me, number = get(exchange, EXCHANGE_MEMBER), chunks_done(exchange, COMBINED)
    if number == chunks_done(exchange, STORED) or done_by_others(board, exchange, STORED) <= number:
        return 0
    out = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, me, number)
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        record = member_record(exchange, member)
        operand = out if member == me else stage_address(board, exchange, get(record, 0), me, number)
        put(record, SEAT_OPERAND, operand)
    copy = stage_address(board, exchange, get(board, BOARD_SEAT), me, number)
    combine(board, exchange, out, copy, size_of(exchange, me, number) // item_bytes(exchange))
    count_chunk(board, exchange, COMBINED)
    return 1


@native
def take_chunk(board, exchange):
    """Take a chunk of each peer's sum, if all peers have stored it. Returns whether they had."""
    me, members, number = (
        get(exchange, EXCHANGE_MEMBER),
        get(exchange, EXCHANGE_MEMBERS),
        chunks_done(exchange, TAKEN),
    )
    if number == chunks_done(exchange, COMBINED) or done_by_others(board, exchange, COMBINED) <= number:
        return 0
    for step in range(1, members):
        member = (me + step) % members
        source = stage_address(board, exchange, get(member_record(exchange, member), 0), member, number)
        target = get(exchange, EXCHANGE_ARRAY) + start_of(exchange, member, number)
        copy_bytes(target, source, size_of(exchange, member, number))
    count_chunk(board, exchange, TAKEN)
    return 1


@native
def receive_bases(board, exchange):
    """Receive the numbers of chunks with which the peers begin."""
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            record = member_record(exchange, member)
            put(record, SEAT_BASE, consume_notice(board, get(record, 0), get(exchange, EXCHANGE_KEY)))
    put(exchange, EXCHANGE_STATE, MOVING)


@native
def move_chunks(board, exchange):
    """Take the steps that are possible for the next chunks. Returns their number."""
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            put(member_record(exchange, member), SEAT_PROGRESS, progress_of(board, exchange, member))
    moved = store_chunk(board, exchange) + combine_chunk(board, exchange) + take_chunk(board, exchange)
    if chunks_done(exchange, TAKEN) == chunks_of(exchange):
        release_stage(board, exchange)
        put(exchange, EXCHANGE_STATE, AWAITING_LINK)
    elif moved != 0:
        put(board, BOARD_RUNNABLE, 1)
    return moved


@native
def run_staged(board, exchange):
    """Take the steps of an exchange that are possible now. Returns whether there was one."""
    before, moved = get(exchange, EXCHANGE_STATE), 0
    if before == ANNOUNCING_SLICES and has_stage(board, exchange) != 0:
        announce(board, exchange, 0)
    if get(exchange, EXCHANGE_STATE) == AWAITING_SLICES:
        while chunks_done(exchange, STORED) < SLOTS and store_chunk(board, exchange) != 0:
            moved += 1
        if slices_announced(board, exchange) > 0:
            receive_bases(board, exchange)
    if get(exchange, EXCHANGE_STATE) == MOVING:
        moved += move_chunks(board, exchange)
    if get(exchange, EXCHANGE_STATE) == AWAITING_LINK and is_sending(board, exchange) == 0:
        put(exchange, EXCHANGE_STATE, ENDED)
    return int64(moved != 0 or get(exchange, EXCHANGE_STATE) != before)
