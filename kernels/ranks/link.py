"""An imitated network between this rank and the others: it delays messages, and takes no processor.

A link carries one packet after the other, each of the most urgent message that waits, so that an urgent one
overtakes within a packet; a message arrives a latency after its last packet. What the link does is told by
the times at which messages were added, not by those at which somebody looks.

    add(link, message, nanoseconds, now)    # the link needs so long for it
    arrive(link, board, now)                # tells what has arrived by now
    due(link)                               # when the next one arrives

A message is a notice to a seat of the board, or stands for one that Python sends when it finds it ARRIVED.
"""

from __future__ import annotations

from tracejit.kernels.compiler.target import word_subroutine as native
from tracejit.kernels.executor.threads import get, put, read_clock
from tracejit.kernels.ranks.layout import (
    ARRIVED,
    LINK_ADDED,
    LINK_FREE,
    LINK_LATENCY,
    LINK_PACKET,
    LINK_SECONDS,
    LINK_SOONEST,
    LINK_TRAVELLING,
    LINK_WAITING,
    MESSAGE_ADDED,
    MESSAGE_ARRIVAL,
    MESSAGE_KEY,
    MESSAGE_LEFT,
    MESSAGE_NEXT,
    MESSAGE_NUMBER,
    MESSAGE_PRIORITY,
    MESSAGE_SEAT,
    MESSAGE_STATE,
    MESSAGE_WORD,
    NEVER,
    ON_LINK,
)
from tracejit.kernels.ranks.notices import tell


@native
def time_of(link):
    """The monotonic clock in nanoseconds."""
    return read_clock(link + LINK_SECONDS)


@native
def add(link, message, nanoseconds, now):
    """Have the link carry a message, for which it needs so long."""
    put(message, MESSAGE_NEXT, 0)
    put(message, MESSAGE_NUMBER, get(link, LINK_ADDED))
    put(message, MESSAGE_LEFT, nanoseconds)
    put(message, MESSAGE_ADDED, now)
    put(message, MESSAGE_STATE, ON_LINK)
    put(link, LINK_ADDED, get(link, LINK_ADDED) + 1)
    last = link + LINK_WAITING
    while get(last, 0) != 0:
        last = get(last, 0) + MESSAGE_NEXT
    put(last, 0, message)
    put(link, LINK_SOONEST, min(get(link, LINK_SOONEST), now + nanoseconds + get(link, LINK_LATENCY)))


@native
def take_out(head, message):
    """Remove a message from the list at `head`, if it is there; returns whether it was."""
    while get(head, 0) != 0 and get(head, 0) != message:
        head = get(head, 0) + MESSAGE_NEXT
    if get(head, 0) == 0:
        return 0
    put(head, 0, get(message, MESSAGE_NEXT))
    return 1


@native
def forget(link, message):
    """Have the link carry a message no further."""
    if get(message, MESSAGE_STATE) == ON_LINK and take_out(link + LINK_WAITING, message) == 0:
        take_out(link + LINK_TRAVELLING, message)
    put(message, MESSAGE_STATE, 0)


@native
def is_more_urgent(message, other):
    """Whether a message is carried before another one."""
    if get(message, MESSAGE_PRIORITY) != get(other, MESSAGE_PRIORITY):
        return get(message, MESSAGE_PRIORITY) > get(other, MESSAGE_PRIORITY)
    return get(message, MESSAGE_NUMBER) < get(other, MESSAGE_NUMBER)


@native
def most_urgent(link, by):
    """The most urgent message that waits and was added by a time."""
    first, message = 0, get(link, LINK_WAITING)
    while message != 0:
        if get(message, MESSAGE_ADDED) <= by and (first == 0 or is_more_urgent(message, first)):
            first = message
        message = get(message, MESSAGE_NEXT)
    return first


@native
def free_from(link):
    """The time at which the link can go on with what waits: after its last packet, once one was added."""
    return max(get(link, LINK_FREE), get(get(link, LINK_WAITING), MESSAGE_ADDED))


@native
def carry(link, now):
    """Carry packets of the most urgent message until it is over, a more urgent one came, or `now`."""
    free = free_from(link)
    first = most_urgent(link, free)
    until, message = NEVER, get(link, LINK_WAITING)
    while message != 0:
        if is_more_urgent(message, first):
            until = min(until, get(message, MESSAGE_ADDED))
        message = get(message, MESSAGE_NEXT)
    if until == NEVER:
        until = now
    left, packet = get(first, MESSAGE_LEFT), get(link, LINK_PACKET)
    taken = left
    if left > until - free:
        taken = min(left, packet * (1 + (until - free) // packet))
    put(link, LINK_FREE, free + taken)
    put(first, MESSAGE_LEFT, left - taken)
    if taken == left:
        travel(link, first, free + taken + get(link, LINK_LATENCY))


@native
def travel(link, message, arrival):
    """Have a message, which needs the link no more, arrive at a time."""
    take_out(link + LINK_WAITING, message)
    put(message, MESSAGE_ARRIVAL, arrival)
    place = link + LINK_TRAVELLING
    while get(place, 0) != 0 and get(get(place, 0), MESSAGE_ARRIVAL) <= arrival:
        place = get(place, 0) + MESSAGE_NEXT
    put(message, MESSAGE_NEXT, get(place, 0))
    put(place, 0, message)


@native
def due(link):
    """The time at which the next message arrives if none is added; NEVER if none does."""
    if get(link, LINK_TRAVELLING) != 0:
        return get(get(link, LINK_TRAVELLING), MESSAGE_ARRIVAL)
    if get(link, LINK_WAITING) == 0:
        return NEVER
    return free_from(link) + get(most_urgent(link, NEVER), MESSAGE_LEFT) + get(link, LINK_LATENCY)


@native
def arrive(link, board, now):
    """Tell what has arrived by now; returns how many messages have.

    One that finds no room for its notice arrives later, as do those behind it.
    """
    if now < get(link, LINK_SOONEST):
        return 0
    while get(link, LINK_WAITING) != 0 and get(link, LINK_FREE) <= now:
        carry(link, now)
    arrived, has_room = 0, 1
    message = get(link, LINK_TRAVELLING)
    while message != 0 and get(message, MESSAGE_ARRIVAL) <= now and has_room != 0:
        seat = get(message, MESSAGE_SEAT)
        if seat >= 0:
            has_room = tell(board, seat, get(message, MESSAGE_KEY), get(message, MESSAGE_WORD))
        if has_room != 0:
            put(message, MESSAGE_STATE, ARRIVED)
            arrived += 1
            message = get(message, MESSAGE_NEXT)
            put(link, LINK_TRAVELLING, message)
    put(link, LINK_SOONEST, due(link))
    return arrived
