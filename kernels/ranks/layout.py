"""Layouts of the memory shared by the ranks of one machine, and of one rank's records about it: byte offsets
of int64 words. The module imports nothing: `tracejit.distributed` uses it as well as the kernels.

    Segment    the memory of one rank, readable by all ranks: a ring of notices for each other rank, the
               numbers of notices consumed, a stage with its progress counters (see `staged`), then blocks
    Block      a head with a word for each reader and phase, then the data. A word is 1 once the reader has
               finished reading, or does not read; when all words are 1, the block is free.
    Board      one rank's record of the shared memory: addresses of the segments, numbers of notices sent and
               received, lent blocks, exchanges in progress
    Exchange   one exchange in progress: an array of this rank that is combined with those of its peers
    Plan       what an engine task exchanges, so that the task begins and ends without Python (`tasks`)
    Link       an emulated network link between this rank and its peers; `Message`: a message on that link

Ranks of the machine are numbered by *seats*, from 0 on. A *location* is an offset into the segment of the
rank that sends it; its lowest bit is the phase.
"""

from __future__ import annotations

LINE = 64

# -- Segment -------------------------------------------------------------------------------------------------

ROOM = 64
"""Number of notices in a ring: pairs of a key and a word. They follow a cache line with the number of notices
written.
"""

RING_BYTES = LINE + 16 * ROOM


def abort_flag_at(seats: int) -> int:
    """Return the offset, within a rank's segment, of its abort flag. A rank sets the flag when it abandons an
    exchange whose array its peers are still reading (see `direct`). The flag follows the rings, one per seat,
    and the numbers of notices consumed, one cache line per seat.
    """
    return seats * (RING_BYTES + LINE)


STAGE_BYTES, SLOTS = 1 << 19, 2
"""Size of a stage in bytes, and the number of its slots."""

STORED, COMBINED, TAKEN = 0, 8, 16  # progress counters, on a cache line before the stage


def counts_at(seats: int) -> int:
    """Return the offset of the progress counters within a segment."""
    return abort_flag_at(seats) + LINE


def start_bytes(seats: int) -> int:
    """Return the number of bytes of a segment that precede its blocks."""
    return counts_at(seats) + LINE + STAGE_BYTES


PHASES = 2
"""Phases of an exchange: slices, then sums. Each has a row of words in the head of a block."""

KEYS = 3
"""Number of notice keys per operation: one per phase, and one for the acknowledgement that the sums have been
read from this rank's array.
"""


def head_bytes(seats: int) -> int:
    """Return the size of the head of a block in bytes."""
    return -(-8 * PHASES * seats // LINE) * LINE


NOWHERE = -1  # in place of a location: the array arrives as a message
NOTHING = -2  # no notice has arrived
AGREEMENT = -1  # the key of the notices by which ranks vote
FULL = -1  # the board has no room for an arrived notice

# -- Board ---------------------------------------------------------------------------------------------------

(
    BOARD_SEATS,
    BOARD_SEAT,
    BOARD_START,  # offset of the first block in a segment
    BOARD_SIZE,  # bytes from one block to the next
    BOARD_HEAD,  # bytes of the head of a block
    BOARD_BLOCKS,
    BOARD_ROTATION,  # number of blocks lent in rotation while they suffice
    BOARD_NEXT,  # the block to lend next
    BOARD_LENT,  # address of a word for each block: 1 while it is lent
    BOARD_NOTICES,  # address of the unconsumed notices: seat, key, word, oldest first
    BOARD_NOTICE_COUNT,
    BOARD_NOTICE_CAPACITY,
    BOARD_EXCHANGES,  # the first exchange in progress
    BOARD_SCRATCH,  # address of the memory of the reduction tree (`scratch_bytes`)
    BOARD_SECONDS,  # with the next word the last clock reading: a `struct timespec`
    BOARD_NANOSECONDS,
    BOARD_POLLS,  # polls before the thread yields its processor
    BOARD_ENGINE,  # address of the engine's record
    BOARD_LANE,  # address of the communication lane's record
    BOARD_LINK,  # address of the emulated link that delays notices of exchanges; 0: none
    BOARD_VOTES,  # number of votes (AGREEMENT) that end a wait; 0: no vote is awaited
    BOARD_STOPPED,  # the first exchange of a task that Python has to continue
    BOARD_PYTHON,  # 1: Python begins all tasks
    BOARD_ROWS,  # address of a row of READ bytes for each seat: data read from its array
    BOARD_RUNNABLE,  # 1: an exchange can take another step without waiting for a peer
    BOARD_COUNTS,  # offset of the progress counters in a segment
    BOARD_STAGE,  # the exchange that owns this rank's stage; 0: none
    BOARD_CHUNKS,  # number of chunks of all staged exchanges that have ended
) = range(0, 28 * 8, 8)
BOARD_VECTORS = 28 * 8  # address and size of the target of a read, then of its source: two `struct iovec`
BOARD_PEERS = BOARD_VECTORS + 4 * 8  # for each seat:
PEER_SEGMENT, PEER_SENT, PEER_RECEIVED = 0, 8, 16  # address; notices sent to the peer, received from it
PEER_PROCESS = 24  # process ID
PEER_DUE = 32  # value of its counter TAKEN from which on it does not need this rank's stage
PEER_BYTES = 40

NOTICE_BYTES = 24

STRIP = 1 << 14
"""Bytes combined in one pass over the tree, so that intermediate results stay in the L1 cache."""


def scratch_bytes(seats: int) -> int:
    """Return the bytes of memory for the reduction tree: addresses of the operands, and rows for intermediate
    results.
    """
    return 8 * seats + seats // 2 * STRIP


READ = 1 << 15
"""Bytes read from a peer's array at a time, and combined while they are in the L1 cache."""

TURN_BYTES = 1 << 20
"""Bytes that an exchange reads before the other exchanges get their turn."""


def rows_bytes(seats: int) -> int:
    """Return the bytes of memory for data read from the arrays of peers."""
    return seats * READ


def board_bytes(seats: int) -> int:
    """Return the size of a board in bytes."""
    return BOARD_PEERS + seats * PEER_BYTES


# -- Link ----------------------------------------------------------------------------------------------------

(
    LINK_LATENCY,  # nanoseconds
    LINK_BANDWIDTH,  # bytes per second
    LINK_PACKET,  # nanoseconds per packet
    LINK_FREE,  # time at which its last packet ended
    LINK_SOONEST,  # lower bound of the next arrival time
    LINK_ADDED,  # number of messages added
    LINK_WAITING,  # the first message that waits or is being transmitted, by number
    LINK_TRAVELLING,  # the first message that has left the link, by arrival time
    LINK_SECONDS,  # with the next word the last clock reading: a `struct timespec`
    LINK_NANOSECONDS,
) = range(0, 10 * 8, 8)
LINK_BYTES = 10 * 8

(
    MESSAGE_NEXT,  # the next message of its list
    MESSAGE_PRIORITY,
    MESSAGE_NUMBER,  # sequence number, in the order of addition
    MESSAGE_LEFT,  # nanoseconds of transmission that remain
    MESSAGE_ADDED,  # time of addition
    MESSAGE_ARRIVAL,  # arrival time, once it has left the link
    MESSAGE_STATE,
    MESSAGE_SEAT,  # the receiver of the notice posted on arrival; -1: Python sends it
    MESSAGE_KEY,
    MESSAGE_WORD,
) = range(0, 10 * 8, 8)
MESSAGE_BYTES = 10 * 8

ON_LINK = 1
ARRIVED = 2  # 0: neither

NEVER = (1 << 63) - 1

# -- Exchange ------------------------------------------------------------------------------------------------

(
    EXCHANGE_NEXT,  # the exchange that began next
    EXCHANGE_STATE,
    EXCHANGE_KEY,  # of the notices of the first phase; the following numbers are the other keys (`KEYS`)
    EXCHANGE_ARRAY,  # address
    EXCHANGE_COUNT,  # number of elements
    EXCHANGE_SUM,  # the reduction: SUM_FLOAT32 or SUM_FLOAT64
    EXCHANGE_REPLICATED,  # 1: every rank combines the entire array; 0: each combines a slice
    EXCHANGE_MEMBERS,  # their number
    EXCHANGE_MEMBER,  # the index of this rank among them
    EXCHANGE_BLOCK,  # offset in this rank's segment; slices have the same offsets in it as in the array
    EXCHANGE_NOTIFIED,  # number of members notified in this phase
    EXCHANGE_COPIED,  # number of members whose sums have been copied into the array
    EXCHANGE_PRIORITY,  # on an emulated link
    EXCHANGE_TASK,  # address of the task that ends with it; 0: Python began it
    EXCHANGE_PLAN,  # address of the plan of that task
    EXCHANGE_BEGUN,  # start time in nanoseconds
    EXCHANGE_MODE,  # how the bytes move: IN_BLOCKS, DIRECT, STAGED
    EXCHANGE_COMBINED,  # DIRECT: bytes of this rank's slice that have been combined
    EXCHANGE_LOST,  # DIRECT: 1 + the member whose array could not be read: the exchange will never end
) = range(0, 19 * 8, 8)
EXCHANGE_DONE = 19 * 8  # STAGED: numbers of chunks that this rank has stored, combined and taken
EXCHANGE_SEATS = 22 * 8

IN_BLOCKS, DIRECT, STAGED = 0, 1, 2

# For each member: its seat, whether its sum has been copied, the address of its operand, the bytes of its sum
# that have been read (DIRECT) or its progress at the last check (STAGED), its number of chunks before the
# exchange, a message for each phase.
SEAT_COPIED, SEAT_OPERAND, SEAT_PROGRESS, SEAT_BASE, SEAT_MESSAGES = 8, 16, 24, 32, 40
SEAT_BYTES = SEAT_MESSAGES + PHASES * MESSAGE_BYTES


def exchange_bytes(members: int) -> int:
    """Return the size of the record of an exchange in bytes."""
    return EXCHANGE_SEATS + members * SEAT_BYTES


# -- Plan of a task ------------------------------------------------------------------------------------------

(
    PLAN_FREE,  # the first idle exchange, prepared except for its array and key
    PLAN_TAG,  # slot of the argument block that contains the number of the exchange
    PLAN_FIRST,  # slot of the argument block that contains the address of the first array
    PLAN_COUNT,  # number of arrays; several are packed into the array of the exchange
    PLAN_SIZES,  # address of the size of each in bytes
) = range(0, 5 * 8, 8)
PLAN_BYTES = 5 * 8

NUMBERS = 1 << 27
"""Number of distinct operation numbers; numbering then wraps around."""

# States, in the order in which an exchange passes through them.
ANNOUNCING_SLICES = 0
AWAITING_SLICES = 1
ANNOUNCING_SUMS = 2
AWAITING_SUMS = 3
AWAITING_READERS = 4  # the array contains the result, which peers still read
MOVING = 5  # chunks move through the stage
AWAITING_LINK = 6  # notices to peers are on an emulated link
ENDED = 7
SLICES_NOWHERE = 8  # some slices arrive as messages: the initiator has to finish the exchange
SUMS_NOWHERE = 9  # some sums arrive as messages

SUM_FLOAT32 = 0
SUM_FLOAT64 = 1
