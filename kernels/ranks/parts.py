"""The parts of an exchange, and what its members are told of them.

On an imitated link a notice travels as long as the bytes for which it stands.
"""

from __future__ import annotations

from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import BILLION, get, put
from tracejit.kernels.ranks.combine import item_of, seat_at
from tracejit.kernels.ranks.layout import (
    BOARD_HEAD,
    BOARD_LINK,
    BOARD_PIECES,
    DIRECT,
    EXCHANGE_ARRAY,
    EXCHANGE_BLOCK,
    EXCHANGE_COUNT,
    EXCHANGE_KEY,
    EXCHANGE_MEMBER,
    EXCHANGE_MEMBERS,
    EXCHANGE_PRIORITY,
    EXCHANGE_STATE,
    EXCHANGE_TOLD,
    EXCHANGE_WAY,
    EXCHANGE_WHOLE,
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
from tracejit.kernels.ranks.notices import find, tell


@native
def offset_of(exchange, member):
    """The offset of a member's slice in the array; of the number of members, that of its end."""
    return get(exchange, EXCHANGE_COUNT) * member // get(exchange, EXCHANGE_MEMBERS) * item_of(exchange)


@native
def message_to(exchange, member, phase):
    """The record of the message to a member in a phase."""
    return seat_at(exchange, member) + SEAT_MESSAGES + phase * MESSAGE_BYTES


@native
def send(board, exchange, member, phase, place, nbytes):
    """Tell a member a place, over the imitated link if there is one; returns whether there was room."""
    seat, key = get(seat_at(exchange, member), 0), get(exchange, EXCHANGE_KEY) + phase
    link = get(board, BOARD_LINK)
    if link == 0:
        return tell(board, seat, key, place)
    message = message_to(exchange, member, phase)
    put(message, MESSAGE_PRIORITY, get(exchange, EXCHANGE_PRIORITY))
    put(message, MESSAGE_SEAT, seat)
    put(message, MESSAGE_KEY, key)
    put(message, MESSAGE_WORD, place)
    add(link, message, nbytes * BILLION // get(link, LINK_BANDWIDTH), time_of(link))
    return 1


@native
def is_sending(board, exchange):
    """Whether messages of an exchange are on the imitated link."""
    if get(board, BOARD_LINK) != 0:
        for member in range(get(exchange, EXCHANGE_MEMBERS)):
            for phase in range(PHASES):
                if get(message_to(exchange, member, phase), MESSAGE_STATE) == ON_LINK:
                    return 1
    return 0


@native
def place_of(board, exchange, offset, phase):
    """The word that the others are told: where a part lies, or the address of an array that they read, or how
    many pieces have been on this rank's stage.
    """
    if get(exchange, EXCHANGE_WAY) == DIRECT:
        return get(exchange, EXCHANGE_ARRAY)
    if get(exchange, EXCHANGE_WAY) == STAGED:
        return get(board, BOARD_PIECES)
    return get(exchange, EXCHANGE_BLOCK) + get(board, BOARD_HEAD) + offset + phase


@native
def tell_all(board, exchange, phase):
    """Tell the others where their part lies; returns whether there was room for all notices."""
    me, members = get(exchange, EXCHANGE_MEMBER), get(exchange, EXCHANGE_MEMBERS)
    while get(exchange, EXCHANGE_TOLD) < members:
        member = get(exchange, EXCHANGE_TOLD)
        if member != me:
            part = member if phase == 0 else me
            offset, end = offset_of(exchange, part), offset_of(exchange, part + 1)
            if get(exchange, EXCHANGE_WHOLE) != 0:
                offset, end = 0, offset_of(exchange, members)
            nbytes = end - offset
            if get(exchange, EXCHANGE_WAY) == STAGED:  # nothing more is told
                nbytes += offset_of(exchange, me + 1) - offset_of(exchange, me)
            if send(board, exchange, member, phase, place_of(board, exchange, offset, phase), nbytes) == 0:
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
