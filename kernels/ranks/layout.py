"""Layouts of what ranks of one machine share, and of one rank's records about it: byte offsets of int64
words. Imports nothing; Python uses it, too.

    Part       the memory of one rank: rings of notices to each other rank, counts of those that it has read,
               a stage with counts of pieces (see `staged`), then blocks. All ranks read it.
    Block      a head, a word for each reader and phase, then what is stored. A word is 1 when the reader has
               read; when all are, the block is free.
    Board      one rank's record of the memory: where the parts are, what has been told and heard, which
               blocks are lent, which exchanges are under way
    Exchange   one exchange under way: an array of this rank that is combined with those of the others
    Plan       what a task of the engine exchanges, so that it begins and ends without Python (`tasks`)
    Link       an imitated network between this rank and the others; `Message`: one on its way there

Ranks of the machine have *seats*, from 0 on. A *place* is an offset into the part of the one who tells it;
its lowest bit is the phase.
"""

from __future__ import annotations

LINE = 64

# -- Part ----------------------------------------------------------------------------------------------------

ROOM = 64
"""Notices in a ring: pairs of a key and a word. Before them is a line with how many have been written."""

RING_BYTES = LINE + 16 * ROOM


def lost_at(seats: int) -> int:
    """The offset in a part of the word that says whether its rank has given up an exchange whose array others
    read (see `direct`): behind a ring to each seat, and a line for each with how many were read.
    """
    return seats * (RING_BYTES + LINE)


STAGE_BYTES, SLOTS = 1 << 19, 2
"""Bytes of a stage, and for how many pieces of an exchange it has room."""

STORED, COMBINED, TAKEN = 0, 8, 16  # counts of pieces, on a line before the stage


def counts_at(seats: int) -> int:
    """The offset in a part of the counts of pieces."""
    return lost_at(seats) + LINE


def start_bytes(seats: int) -> int:
    """Bytes of a part before its blocks."""
    return counts_at(seats) + LINE + STAGE_BYTES


PHASES = 2
"""Phases of an exchange: slices, then sums. Each has a row of words in the head of a block."""

KEYS = 3
"""Keys of notices of an operation: of its phases, and of that sums have been read where they lie."""


def head_bytes(seats: int) -> int:
    """Bytes of the head of a block."""
    return -(-8 * PHASES * seats // LINE) * LINE


NOWHERE = -1  # instead of a place: the array comes as a message
NOTHING = -2  # no notice has come
AGREEMENT = -1  # the key of notices by which ranks agree
FULL = -1  # there is no room on the board for what has come

# -- Board ---------------------------------------------------------------------------------------------------

(
    BOARD_SEATS,
    BOARD_SEAT,
    BOARD_START,  # of the first block in a part
    BOARD_SIZE,  # bytes from block to block
    BOARD_HEAD,  # bytes of the head of a block
    BOARD_BLOCKS,
    BOARD_TURN,  # blocks that are lent in turn, as long as they are enough
    BOARD_NEXT,  # the one to be lent next
    BOARD_LENT,  # address of a word for each block
    BOARD_HEARD,  # address of notices that nobody has consumed: seat, key, word, oldest first
    BOARD_HEARD_COUNT,
    BOARD_HEARD_ROOM,
    BOARD_EXCHANGES,  # the first that is under way
    BOARD_SCRATCH,  # address of memory for the tree (`scratch_bytes`)
    BOARD_SECONDS,  # with the next word what the clock said: a `struct timespec`
    BOARD_NANOSECONDS,
    BOARD_LOOKS,  # how often to look before others may run
    BOARD_ENGINE,  # address of the record of the engine
    BOARD_LANE,  # address of that of the lane of communication
    BOARD_LINK,  # address of the imitated link over which notices of exchanges travel; 0: none
    BOARD_VOTES,  # who looks returns when so many notices of agreements wait; 0: none are awaited
    BOARD_STOPPED,  # the first exchange of a task that is up to Python now
    BOARD_PYTHON,  # 1: tasks are up to Python from the beginning
    BOARD_ROWS,  # address of a row of READ bytes for each seat: what was read of their arrays
    BOARD_MORE,  # 1: an exchange has steps to take that wait for nobody
    BOARD_COUNTS,  # of pieces, in a part
    BOARD_STAGE,  # the exchange that has this rank's stage; 0: none
    BOARD_PIECES,  # how many pieces those had that have ended
) = range(0, 28 * 8, 8)
BOARD_VECTORS = 28 * 8  # address and bytes of what is read, and of where
BOARD_PEERS = BOARD_VECTORS + 4 * 8  # for each seat:
PEER_PART, PEER_TOLD, PEER_HEARD = 0, 8, 16  # address; how many notices it was told, and has told
PEER_PROCESS = 24  # the number of its process
PEER_DUE = 32  # its count of pieces taken from which on it needs this rank's stage no more
PEER_BYTES = 40

HEARD_BYTES = 24

STRIP = 1 << 14
"""Bytes that are combined at a time: what is between two levels of the tree stays in the first cache."""


def scratch_bytes(seats: int) -> int:
    """Bytes for the tree: addresses of what is combined, and rows of what is between two levels."""
    return 8 * seats + seats // 2 * STRIP


READ = 1 << 15
"""Bytes that are read of another rank's array at a time, and combined while they are in the first cache."""

TURN_BYTES = 1 << 20
"""Bytes of an exchange that are read before others have their turn."""


def rows_bytes(seats: int) -> int:
    """Bytes for what is read of the arrays of other ranks."""
    return seats * READ


def board_bytes(seats: int) -> int:
    """Bytes of a board."""
    return BOARD_PEERS + seats * PEER_BYTES


# -- Link ----------------------------------------------------------------------------------------------------

(
    LINK_LATENCY,  # nanoseconds
    LINK_BANDWIDTH,  # bytes per second
    LINK_PACKET,  # nanoseconds of a packet
    LINK_FREE,  # when its last packet was over
    LINK_SOONEST,  # nothing arrives before
    LINK_ADDED,  # how many messages were added
    LINK_WAITING,  # the first one that waits, or is on its way, by number
    LINK_TRAVELLING,  # the first one of those that need the link no more, by arrival
    LINK_SECONDS,  # with the next word what the clock said: a `struct timespec`
    LINK_NANOSECONDS,
) = range(0, 10 * 8, 8)
LINK_BYTES = 10 * 8

(
    MESSAGE_NEXT,  # in its list
    MESSAGE_PRIORITY,
    MESSAGE_NUMBER,  # in order of being added
    MESSAGE_LEFT,  # nanoseconds that the link still needs for it
    MESSAGE_ADDED,  # when
    MESSAGE_ARRIVAL,  # when, once it travels
    MESSAGE_STATE,
    MESSAGE_SEAT,  # who is told a word when it arrives; -1: it is sent by Python
    MESSAGE_KEY,
    MESSAGE_WORD,
) = range(0, 10 * 8, 8)
MESSAGE_BYTES = 10 * 8

ON_LINK = 1
ARRIVED = 2  # 0: neither

NEVER = (1 << 63) - 1

# -- Exchange ------------------------------------------------------------------------------------------------

(
    EXCHANGE_NEXT,  # the one that has begun after it
    EXCHANGE_STATE,
    EXCHANGE_KEY,  # of the first phase's notices; the others are the next numbers (`KEYS`)
    EXCHANGE_ARRAY,  # address
    EXCHANGE_COUNT,  # elements
    EXCHANGE_SUM,  # how they are combined
    EXCHANGE_WHOLE,  # 1: all ranks combine the whole array; 0: each a slice
    EXCHANGE_MEMBERS,
    EXCHANGE_MEMBER,  # which of them this rank is
    EXCHANGE_BLOCK,  # offset in this rank's part: holds slices where they lie in the array
    EXCHANGE_TOLD,  # members that were told in this phase
    EXCHANGE_COPIED,  # members whose sums have been copied into the array
    EXCHANGE_PRIORITY,  # on an imitated link
    EXCHANGE_TASK,  # address of the task that ends with it; 0: Python has begun it
    EXCHANGE_PLAN,  # address of the plan by which the task has begun it
    EXCHANGE_BEGUN,  # when, in nanoseconds
    EXCHANGE_WAY,  # by which the bytes go: IN_BLOCKS, DIRECT, STAGED
    EXCHANGE_AT,  # DIRECT: bytes of this rank's slice that are combined
    EXCHANGE_LOST,  # and the member, from 1 on, whose array could not be read: it will never end
) = range(0, 19 * 8, 8)
EXCHANGE_DONE = 19 * 8  # STAGED: pieces that this rank has stored, combined and taken
EXCHANGE_SEATS = 22 * 8

IN_BLOCKS, DIRECT, STAGED = 0, 1, 2

# For each member: its seat, whether its sum has been copied, where its part lies, bytes of its sum that have
# been read or what was seen of its progress, its count of pieces before the exchange, a message for each
# phase.
SEAT_COPIED, SEAT_PART, SEAT_AT, SEAT_BASE, SEAT_MESSAGES = 8, 16, 24, 32, 40
SEAT_BYTES = SEAT_MESSAGES + PHASES * MESSAGE_BYTES


def exchange_bytes(members: int) -> int:
    """Bytes of the record of an exchange."""
    return EXCHANGE_SEATS + members * SEAT_BYTES


# -- Plan of a task ------------------------------------------------------------------------------------------

(
    PLAN_FREE,  # the first exchange that is not under way, prepared but for array and key
    PLAN_TAG,  # in the argument block: the slot of the number of the exchange
    PLAN_FIRST,  # and that of the address of the first array
    PLAN_COUNT,  # arrays; several are put together where the exchange has its array
    PLAN_SIZES,  # address of the bytes of each
) = range(0, 5 * 8, 8)
PLAN_BYTES = 5 * 8

NUMBERS = 1 << 27
"""Numbers of operations, which then begin anew."""

# States, in this order.
TELLING_SLICES = 0
AWAITING_SLICES = 1
TELLING_SUMS = 2
AWAITING_SUMS = 3
AWAITING_READERS = 4  # the array holds the result, which others read
MOVING = 5  # piece by piece
AWAITING_LINK = 6  # notices to others are on an imitated link
ENDED = 7
SLICES_NOWHERE = 8  # some come as messages: the rest of the exchange is up to who has begun it
SUMS_NOWHERE = 9

SUM_FLOAT32 = 0
SUM_FLOAT64 = 1
