"""The slices of an exchange, and the notices about them to its members.

On an emulated link a notice is delayed as long as the bytes that it announces would be.
"""

from __future__ import annotations

from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import BILLION, get, put
from tracejit.kernels.ranks.combine import item_bytes, member_record
from tracejit.kernels.ranks.layout import (
    BOARD_CHUNKS,
    BOARD_HEAD,
    BOARD_LINK,
    DIRECT,
    EXCHANGE_ARRAY,
    EXCHANGE_BLOCK,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_MODE,
    EXCHANGE_NOTIFIED,
    EXCHANGE_PRIORITY,
    EXCHANGE_REPLICATED,
    EXCHANGE_STATE,
    LINK_BANDWIDTH,
    MESSAGE_BYTES,
    MESSAGE_KEY,
    MESSAGE_PRIORITY,
    MESSAGE_SEAT,
    MESSAGE_STATE,
    MESSAGE_WORD,
    NOWHERE,
    ON_LINK,
    PHASES,
    SEAT_MESSAGES,
    STAGED,
)
from tracejit.kernels.ranks.link import add, time_of
from tracejit.kernels.ranks.notices import find_notice, post


@native
def offset_of(exchange, member):
    """The byte offset of a member's slice in the array; for the number of members, the end of the array."""
    return get(exchange, EXCHANGE_COUNT) * member // get(exchange, EXCHANGE_MEMBERS) * item_bytes(exchange)


@native
def message_to(exchange, member, phase):
    """The address of the message to a member in a phase."""
    return member_record(exchange, member) + SEAT_MESSAGES + phase * MESSAGE_BYTES


@native
def send(board, exchange, member, phase, word, nbytes):
    """Send a member a notice with the word `word`, over the emulated link if there is one, where it takes the
    time of `nbytes` bytes. Returns whether there was room.
    """
    seat, key = get(member_record(exchange, member), 0), get(exchange, EXCHANGE_KEY) + phase
    link = get(board, BOARD_LINK)
    if link == 0:
        return post(board, seat, key, word)
    message = message_to(exchange, member, phase)
    put(message, MESSAGE_PRIORITY, get(exchange, EXCHANGE_PRIORITY))
    put(message, MESSAGE_SEAT, seat)
    put(message, MESSAGE_KEY, key)
    put(message, MESSAGE_WORD, word)
    add(link, message, nbytes * BILLION // get(link, LINK_BANDWIDTH), time_of(link))
    return 1


@native
def is_sending(board, exchange):
    """Whether messages of an exchange are on the emulated link."""
    if get(board, BOARD_LINK) != 0:
        for member in range(get(exchange, EXCHANGE_MEMBERS)):
            for phase in range(PHASES):
                if get(message_to(exchange, member, phase), MESSAGE_STATE) == ON_LINK:
                    return 1
    return 0


@native
def notice_word(board, exchange, offset, phase):
    """The word of the notices to the peers: the location of a slice, the address of an array that they read,
    or the number of chunks that have passed through this rank's stage.
    """
    if get(exchange, EXCHANGE_MODE) == DIRECT:
        return get(exchange, EXCHANGE_ARRAY)
    if get(exchange, EXCHANGE_MODE) == STAGED:
        return get(board, BOARD_CHUNKS)
    return get(exchange, EXCHANGE_BLOCK) + get(board, BOARD_HEAD) + offset + phase


@native
def announce(board, exchange, phase):
    """Notify the peers that the data of a phase is available. Returns whether all notices fitted in the
    rings.
    """
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    while get(exchange, EXCHANGE_NOTIFIED) < members:
        member = get(exchange, EXCHANGE_NOTIFIED)
        if member != me:
            owner = member if phase == 0 else me
            offset, end = offset_of(exchange, owner), offset_of(exchange, owner + 1)
            if get(exchange, EXCHANGE_REPLICATED) != 0:
                offset, end = 0, offset_of(exchange, members)
            nbytes = end - offset
            if get(exchange, EXCHANGE_MODE) == STAGED:  # no notices follow in the second phase
                nbytes += offset_of(exchange, me + 1) - offset_of(exchange, me)
            if send(board, exchange, member, phase, notice_word(board, exchange, offset, phase), nbytes) == 0:
                return 0
        put(exchange, EXCHANGE_NOTIFIED, member + 1)
    put(exchange, EXCHANGE_NOTIFIED, 0)
    put(exchange, EXCHANGE_STATE, get(exchange, EXCHANGE_STATE) + 1)
    return 1


@native
def slices_announced(board, exchange):
    """Whether all slices for this rank have been announced. 0: no, -1: yes, but some arrive as messages."""
    announced = 1
    for member in range(get(exchange, EXCHANGE_MEMBERS)):
        if member != get(exchange, EXCHANGE_MEMBER):
            notice = find_notice(board, get(member_record(exchange, member), 0), get(exchange, EXCHANGE_KEY))
            if notice == 0:
                return 0
            if get(notice, 16) == NOWHERE:
                announced = -1
    return announced
