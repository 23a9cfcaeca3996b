"""An emulated network link between this rank and its peers. It delays messages, and uses no processor time.

A link transmits one packet after another, each from the most urgent waiting message, so that an urgent
message overtakes others within the time of a packet. A message arrives one latency after the end of its last
packet. The schedule depends on the times at which messages were added, not on the times at which the link is
polled.

    add(link, message, nanoseconds, now)    # a message that the link transmits for so long
    arrive(link, board, now)                # deliver the messages that have arrived by now
    due(link)                               # the time at which the next message arrives

A message is a notice to a seat of the board, or stands for a message that Python sends when its state is
ARRIVED.
"""

from __future__ import annotations

from tracejit.kernels.compiler.words import word_function as native
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
from tracejit.kernels.ranks.notices import post


@native
def time_of(link):
    """The time of the monotonic clock in nanoseconds."""
    return read_clock(link + LINK_SECONDS)


@native
def add(link, message, nanoseconds, now):
    """Queue a message whose transmission lasts `nanoseconds`."""
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
def unlink(head, message):
    """Remove a message from the list at `head`. Returns whether the list contained it."""
    while get(head, 0) != 0 and get(head, 0) != message:
        head = get(head, 0) + MESSAGE_NEXT
    if get(head, 0) == 0:
        return 0
    put(head, 0, get(message, MESSAGE_NEXT))
    return 1


@native
def forget(link, message):
    """Remove a message from the link."""
    if get(message, MESSAGE_STATE) == ON_LINK and unlink(link + LINK_WAITING, message) == 0:
        unlink(link + LINK_TRAVELLING, message)
    put(message, MESSAGE_STATE, 0)


@native
def is_more_urgent(message, other):
    """Whether a message is transmitted before another one."""
    if get(message, MESSAGE_PRIORITY) != get(other, MESSAGE_PRIORITY):
        return get(message, MESSAGE_PRIORITY) > get(other, MESSAGE_PRIORITY)
    return get(message, MESSAGE_NUMBER) < get(other, MESSAGE_NUMBER)


@native
def most_urgent(link, time):
    """The most urgent waiting message that was added by `time`."""
    urgent, message = 0, get(link, LINK_WAITING)
    while message != 0:
        if get(message, MESSAGE_ADDED) <= time and (urgent == 0 or is_more_urgent(message, urgent)):
            urgent = message
        message = get(message, MESSAGE_NEXT)
    return urgent


@native
def next_free(link):
    """The time at which the link can continue: the end of its last packet, or the addition of the first
    waiting message if that is later.
    """
    return max(get(link, LINK_FREE), get(get(link, LINK_WAITING), MESSAGE_ADDED))


@native
def transmit(link, now):
    """Transmit packets of the most urgent message until it is complete, a more urgent one was added, or
    `now`.
    """
    free = next_free(link)
    urgent = most_urgent(link, free)
    until, message = NEVER, get(link, LINK_WAITING)
    while message != 0:
        if is_more_urgent(message, urgent):
            until = min(until, get(message, MESSAGE_ADDED))
        message = get(message, MESSAGE_NEXT)
    if until == NEVER:
        until = now
    left, packet = get(urgent, MESSAGE_LEFT), get(link, LINK_PACKET)
    duration = left
    if left > until - free:
        duration = min(left, packet * (1 + (until - free) // packet))
    put(link, LINK_FREE, free + duration)
    put(urgent, MESSAGE_LEFT, left - duration)
    if duration == left:
        schedule_arrival(link, urgent, free + duration + get(link, LINK_LATENCY))


@native
def schedule_arrival(link, message, arrival):
    """Move a message whose transmission is complete to the list of those that arrive later, ordered by
    arrival time.
    """
    unlink(link + LINK_WAITING, message)
    put(message, MESSAGE_ARRIVAL, arrival)
    entry = link + LINK_TRAVELLING
    while get(entry, 0) != 0 and get(get(entry, 0), MESSAGE_ARRIVAL) <= arrival:
        entry = get(entry, 0) + MESSAGE_NEXT
    put(message, MESSAGE_NEXT, get(entry, 0))
    put(entry, 0, message)


@native
def due(link):
    """The time at which the next message arrives if no message is added; NEVER if none arrives."""
    if get(link, LINK_TRAVELLING) != 0:
        return get(get(link, LINK_TRAVELLING), MESSAGE_ARRIVAL)
    if get(link, LINK_WAITING) == 0:
        return NEVER
    return next_free(link) + get(most_urgent(link, NEVER), MESSAGE_LEFT) + get(link, LINK_LATENCY)


@native
def arrive(link, board, now):
    """Deliver the messages that have arrived by now. Returns their number.

    A message whose notice does not fit in the ring is delivered later, as are those behind it.
    """
    if now < get(link, LINK_SOONEST):
        return 0
    while get(link, LINK_WAITING) != 0 and get(link, LINK_FREE) <= now:
        transmit(link, now)
    arrived, has_room = 0, 1
    message = get(link, LINK_TRAVELLING)
    while message != 0 and get(message, MESSAGE_ARRIVAL) <= now and has_room != 0:
        seat = get(message, MESSAGE_SEAT)
        if seat >= 0:
            has_room = post(board, seat, get(message, MESSAGE_KEY), get(message, MESSAGE_WORD))
        if has_room != 0:
            put(message, MESSAGE_STATE, ARRIVED)
            arrived += 1
            message = get(message, MESSAGE_NEXT)
            put(link, LINK_TRAVELLING, message)
    put(link, LINK_SOONEST, due(link))
    return arrived
