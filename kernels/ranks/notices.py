"""Short notices between ranks of one machine, through rings in their shared memory, and blocks of that
memory.

A notice is a key and a word. For each pair of ranks the sender's segment contains a ring and the number of
notices written to it; the receiver's segment contains the number of notices read. So each word of memory has
one writer. Notices that have arrived wait on the board until they are consumed by key. Notices with the same
key keep their order.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes, load_acquire, store_release
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.layout import (
    BOARD_BLOCKS,
    BOARD_LENT,
    BOARD_NEXT,
    BOARD_NOTICE_CAPACITY,
    BOARD_NOTICE_COUNT,
    BOARD_NOTICES,
    BOARD_PEERS,
    BOARD_ROTATION,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_SIZE,
    BOARD_START,
    FULL,
    LINE,
    NOTHING,
    NOTICE_BYTES,
    PEER_BYTES,
    PEER_RECEIVED,
    PEER_SEGMENT,
    PEER_SENT,
    PHASES,
    RING_BYTES,
    ROOM,
)


@native
def segment_of(board, seat):
    """The address of the segment of a seat."""
    return get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_SEGMENT)


@native
def reads_of(board, reader, sender):
    """The address of the number of notices from `sender` that `reader` has read."""
    return segment_of(board, reader) + get(board, BOARD_SEATS) * RING_BYTES + sender * LINE


@native
def post(board, seat, key, word):
    """Post a notice to the ring of `seat`. Returns whether there was room."""
    me, peer = get(board, BOARD_SEAT), board + BOARD_PEERS + seat * PEER_BYTES
    ring, count = segment_of(board, me) + seat * RING_BYTES, get(peer, PEER_SENT)
    read = load_acquire(reads_of(board, seat, me))  # pairs with store_release in `receive`
    if count - read >= ROOM:
        return 0
    entry = ring + LINE + count % ROOM * 16
    put(entry, 0, key)
    put(entry, 8, word)
    put(peer, PEER_SENT, count + 1)
    store_release(ring, count + 1)  # pairs with load_acquire in `receive`
    return 1


@native
def receive(board):
    """Receive the notices that have arrived. Returns their number, or FULL if the board has no more room."""
    me, total = get(board, BOARD_SEAT), 0
    for seat in range(get(board, BOARD_SEATS)):
        peer = board + BOARD_PEERS + seat * PEER_BYTES
        received, ring = get(peer, PEER_RECEIVED), segment_of(board, seat) + me * RING_BYTES
        count = load_acquire(ring)  # pairs with store_release in `post`
        if seat != me and count != received:
            while received < count:
                waiting = get(board, BOARD_NOTICE_COUNT)
                if waiting == get(board, BOARD_NOTICE_CAPACITY):
                    return FULL
                entry = ring + LINE + received % ROOM * 16
                notice = get(board, BOARD_NOTICES) + waiting * NOTICE_BYTES
                put(notice, 0, seat)
                put(notice, 8, get(entry, 0))
                put(notice, 16, get(entry, 8))
                put(board, BOARD_NOTICE_COUNT, waiting + 1)
                received += 1
                put(peer, PEER_RECEIVED, received)
                total += 1
            store_release(reads_of(board, me, seat), count)  # pairs with load_acquire in `post`
    return total


@native
def has_arrived(board):
    """Whether there are notices to receive."""
    me = get(board, BOARD_SEAT)
    for seat in range(get(board, BOARD_SEATS)):
        ring = segment_of(board, seat) + me * RING_BYTES
        received = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_RECEIVED)
        if seat != me and load_acquire(ring) != received:  # pairs with store_release in `post`
            return 1
    return 0


@native
def count_notices(board, key):
    """The number of unconsumed notices with this key."""
    matches, notice = 0, get(board, BOARD_NOTICES)
    for _ in range(get(board, BOARD_NOTICE_COUNT)):
        matches += int64(get(notice, 8) == key)
        notice += NOTICE_BYTES
    return matches


@native
def find_notice(board, seat, key):
    """The address of the oldest notice from `seat` with this key; 0: none."""
    notice = get(board, BOARD_NOTICES)
    end = notice + get(board, BOARD_NOTICE_COUNT) * NOTICE_BYTES
    while notice < end:
        if get(notice, 8) == key and get(notice, 0) == seat:
            return notice
        notice += NOTICE_BYTES
    return 0


@native
def consume_notice(board, seat, key):
    """Consume the oldest notice from `seat` with this key. Returns its word, or NOTHING."""
    notice = find_notice(board, seat, key)
    if notice == 0:
        return NOTHING
    word, remaining = get(notice, 16), get(board, BOARD_NOTICE_COUNT) - 1
    put(board, BOARD_NOTICE_COUNT, remaining)
    end = get(board, BOARD_NOTICES) + remaining * NOTICE_BYTES
    while notice < end:
        copy_bytes(notice, notice + NOTICE_BYTES, NOTICE_BYTES)
        notice += NOTICE_BYTES
    return word


# -- Blocks --------------------------------------------------------------------------------------------------


@native
def is_free(board, number):
    """Whether all readers have read the contents of a block."""
    lent = get(board, BOARD_LENT) + 8 * number
    if get(lent, 0) != 0:
        head = segment_of(board, get(board, BOARD_SEAT)) + block_at(board, number)
        for word in range(PHASES * get(board, BOARD_SEATS)):
            if load_acquire(head + 8 * word) == 0:  # pairs with store_release in `mark_read`
                return 0
        put(lent, 0, 0)
    return 1


@native
def block_at(board, number):
    """The offset of a block."""
    return get(board, BOARD_START) + number * get(board, BOARD_SIZE)


@native
def has_block(board):
    """Whether there is a free block."""
    for number in range(get(board, BOARD_BLOCKS)):
        if is_free(board, number) != 0:
            return 1
    return 0


@native
def lend(board):
    """Lend a free block, with no reader expected in its head. Returns its offset; 0 if there is none."""
    turn, first, blocks = get(board, BOARD_ROTATION), get(board, BOARD_NEXT), get(board, BOARD_BLOCKS)
    for step in range(blocks):
        number = (first + step) % turn if step < turn else step
        if is_free(board, number) != 0:
            if number < turn:
                put(board, BOARD_NEXT, number + 1)
            put(get(board, BOARD_LENT), 8 * number, 1)
            block = block_at(board, number)
            head = segment_of(board, get(board, BOARD_SEAT)) + block
            for word in range(PHASES * get(board, BOARD_SEATS)):
                put(head, 8 * word, 1)
            return block
    return 0


@native
def expect(board, block, seat, phase, reads):
    """Record in the head of a block whether `seat` will read it in a phase."""
    head = segment_of(board, get(board, BOARD_SEAT)) + block
    put(head, 8 * (phase * get(board, BOARD_SEATS) + seat), 1 - reads)


@native
def mark_read(board, seat, location):
    """Record that this rank has read the data at a location in the segment of `seat`."""
    start = get(board, BOARD_START)
    block = location - (location - start) % get(board, BOARD_SIZE)
    row = (location & 1) * get(board, BOARD_SEATS)
    word = segment_of(board, seat) + block + 8 * (row + get(board, BOARD_SEAT))
    store_release(word, 1)  # pairs with load_acquire in `is_free`
