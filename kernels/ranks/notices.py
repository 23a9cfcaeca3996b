"""Short notices between ranks of one machine, through rings in the memory that they share, and blocks.

A notice is a key and a word. For each pair of ranks the sender's part holds a ring and counts what it has
written; the reader's part counts what it has read: each word of memory has one writer. Arrived notices wait
in the board until somebody takes their key. Notices with the same key keep their order.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import copy_bytes, load_acquire, store_release
from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.layout import (
    BOARD_BLOCKS,
    BOARD_HEARD,
    BOARD_HEARD_COUNT,
    BOARD_HEARD_ROOM,
    BOARD_LENT,
    BOARD_NEXT,
    BOARD_PEERS,
    BOARD_SEAT,
    BOARD_SEATS,
    BOARD_SIZE,
    BOARD_START,
    BOARD_TURN,
    FULL,
    HEARD_BYTES,
    LINE,
    NOTHING,
    PEER_BYTES,
    PEER_HEARD,
    PEER_PART,
    PEER_TOLD,
    PHASES,
    RING_BYTES,
    ROOM,
)


@native
def part_of(board, seat):
    """The address of the part of a seat."""
    return get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_PART)


@native
def reads_of(board, reader, sender):
    """The address of the word that counts what `reader` has read of the notices of `sender`."""
    return part_of(board, reader) + get(board, BOARD_SEATS) * RING_BYTES + sender * LINE


@native
def tell(board, seat, key, word):
    """Have the rank of `seat` read a word; returns whether there was room."""
    me, peer = get(board, BOARD_SEAT), board + BOARD_PEERS + seat * PEER_BYTES
    ring, count = part_of(board, me) + seat * RING_BYTES, get(peer, PEER_TOLD)
    read = load_acquire(reads_of(board, seat, me))  # pairs with store_release in `hear`
    if count - read >= ROOM:
        return 0
    entry = ring + LINE + count % ROOM * 16
    put(entry, 0, key)
    put(entry, 8, word)
    put(peer, PEER_TOLD, count + 1)
    store_release(ring, count + 1)  # pairs with load_acquire in `hear`
    return 1


@native
def hear(board):
    """Receive notices; returns how many, or FULL where there is no more room on the board."""
    me, found = get(board, BOARD_SEAT), 0
    for seat in range(get(board, BOARD_SEATS)):
        peer = board + BOARD_PEERS + seat * PEER_BYTES
        heard, ring = get(peer, PEER_HEARD), part_of(board, seat) + me * RING_BYTES
        count = load_acquire(ring)  # pairs with store_release in `tell`
        if seat != me and count != heard:
            while heard < count:
                noted = get(board, BOARD_HEARD_COUNT)
                if noted == get(board, BOARD_HEARD_ROOM):
                    return FULL
                entry = ring + LINE + heard % ROOM * 16
                note = get(board, BOARD_HEARD) + noted * HEARD_BYTES
                put(note, 0, seat)
                put(note, 8, get(entry, 0))
                put(note, 16, get(entry, 8))
                put(board, BOARD_HEARD_COUNT, noted + 1)
                heard += 1
                put(peer, PEER_HEARD, heard)
                found += 1
            store_release(reads_of(board, me, seat), count)  # pairs with load_acquire in `tell`
    return found


@native
def has_come(board):
    """Whether there are notices to receive."""
    me = get(board, BOARD_SEAT)
    for seat in range(get(board, BOARD_SEATS)):
        ring = part_of(board, seat) + me * RING_BYTES
        heard = get(board, BOARD_PEERS + seat * PEER_BYTES + PEER_HEARD)
        if seat != me and load_acquire(ring) != heard:  # pairs with store_release in `tell`
            return 1
    return 0


@native
def count_of(board, key):
    """The number of notices with this key that nobody has taken."""
    found, note = 0, get(board, BOARD_HEARD)
    for _ in range(get(board, BOARD_HEARD_COUNT)):
        found += int64(get(note, 8) == key)
        note += HEARD_BYTES
    return found


@native
def find(board, seat, key):
    """The address of the oldest notice that `seat` has told with this key; 0: none."""
    note = get(board, BOARD_HEARD)
    end = note + get(board, BOARD_HEARD_COUNT) * HEARD_BYTES
    while note < end:
        if get(note, 8) == key and get(note, 0) == seat:
            return note
        note += HEARD_BYTES
    return 0


@native
def take_notice(board, seat, key):
    """The word of the oldest notice that `seat` has told with this key, which is forgotten; or NOTHING."""
    note = find(board, seat, key)
    if note == 0:
        return NOTHING
    word, left = get(note, 16), get(board, BOARD_HEARD_COUNT) - 1
    put(board, BOARD_HEARD_COUNT, left)
    end = get(board, BOARD_HEARD) + left * HEARD_BYTES
    while note < end:
        copy_bytes(note, note + HEARD_BYTES, HEARD_BYTES)
        note += HEARD_BYTES
    return word


# -- Blocks --------------------------------------------------------------------------------------------------


@native
def is_free(board, number):
    """Whether all have read what lies in a block."""
    lent = get(board, BOARD_LENT) + 8 * number
    if get(lent, 0) != 0:
        head = part_of(board, get(board, BOARD_SEAT)) + block_at(board, number)
        for word in range(PHASES * get(board, BOARD_SEATS)):
            if load_acquire(head + 8 * word) == 0:  # pairs with store_release in `leave`
                return 0
        put(lent, 0, 0)
    return 1


@native
def block_at(board, number):
    """The offset of a block."""
    return get(board, BOARD_START) + number * get(board, BOARD_SIZE)


@native
def has_block(board):
    """Whether there is a block to lend."""
    for number in range(get(board, BOARD_BLOCKS)):
        if is_free(board, number) != 0:
            return 1
    return 0


@native
def lend(board):
    """The offset of a free block, with nobody in its head; 0 if there is none."""
    turn, first, blocks = get(board, BOARD_TURN), get(board, BOARD_NEXT), get(board, BOARD_BLOCKS)
    for step in range(blocks):
        number = (first + step) % turn if step < turn else step
        if is_free(board, number) != 0:
            if number < turn:
                put(board, BOARD_NEXT, number + 1)
            put(get(board, BOARD_LENT), 8 * number, 1)
            block = block_at(board, number)
            head = part_of(board, get(board, BOARD_SEAT)) + block
            for word in range(PHASES * get(board, BOARD_SEATS)):
                put(head, 8 * word, 1)
            return block
    return 0


@native
def expect(board, block, seat, phase, reads):
    """Note in the head of a block whether `seat` will read it in a phase."""
    head = part_of(board, get(board, BOARD_SEAT)) + block
    put(head, 8 * (phase * get(board, BOARD_SEATS) + seat), 1 - reads)


@native
def leave(board, seat, place):
    """Note that this rank has read what lies in the part of `seat` at a place."""
    start = get(board, BOARD_START)
    block = place - (place - start) % get(board, BOARD_SIZE)
    row = (place & 1) * get(board, BOARD_SEATS)
    word = part_of(board, seat) + block + 8 * (row + get(board, BOARD_SEAT))
    store_release(word, 1)  # pairs with load_acquire in `is_free`
