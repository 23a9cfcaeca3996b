"""Teams: threads that help with the tasks of a loop, round after round, without the lock.

A loop is one task of the executor, on one thread, the *leader*. Its tasks are too short for queues: an idle
thread that the leader invites stays with it for the whole loop, and spins where it has nothing to do. There
is one team; a loop that finds it taken runs alone.

The leader publishes a task: what to call goes to the team's record, then the number of chunks to the claims,
then the task's number to TEAM_TASK. Everybody takes chunks from the claims, first those of the own share:

    claim = number of the task << 32 | chunks that are left of the share

until none is left; a claim of another task is left alone, so that a helper may look at any time. The leader
goes on when all chunks are done. A helper that finds nothing to do for a while leaves, and is invited again.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import (
    atomic_add,
    call_kernel,
    exchanged,
    load_acquire,
    pause,
    store_release,
)
from tracejit.kernels.executor.layout import (
    CLAIM_BYTES,
    ENGINE_LANES,
    ENGINE_PAUSED,
    ENGINE_TEAM,
    LANE_NEXT,
    LANE_READY,
    MEMBERS,
    NEVER,
    RUNNING,
    SCRATCH_ENGINE,
    SCRATCH_THREAD,
    SLICE,
    TEAM_BLOCK,
    TEAM_CHUNK,
    TEAM_CLAIMS,
    TEAM_DONE,
    TEAM_FUNCTION,
    TEAM_LEADER,
    TEAM_MEMBERS,
    TEAM_PRESENT,
    TEAM_SCRATCH,
    TEAM_STATUS,
    TEAM_TASK,
    TEAM_UNITS,
    TEAM_WANTED,
    THREAD_DEADLINE,
    THREAD_NEED,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
    THREAD_STOP,
)
from tracejit.kernels.executor.threads import get, lock, native, now, put, rouse_for, sched_yield, unlock

LEFT_MASK = (1 << 32) - 1
NUMBERS = (1 << 30) - 1
"""Numbers of tasks, which then begin anew."""

SPINS, LOOKS = 4096, 64
"""Looks for a task after which a helper leaves, about 0.1 ms; looks between checks whether it must."""

YIELD = 1000
"""Looks after which the leader yields its processor: the helper may wait for one."""


@native
def must_leave(scratch):
    """Whether the thread whose scratch memory this is has something else to do."""
    engine, thread = get(scratch, SCRATCH_ENGINE), get(scratch, SCRATCH_THREAD)
    if thread == 0:
        return 0
    halted = load_acquire(engine + ENGINE_PAUSED)  # pairs with store_release in `quiesce`
    halted |= load_acquire(thread + THREAD_STOP)  # pairs with store_release in `stop_thread`
    if halted != 0:
        return 1
    deadline = get(thread, THREAD_DEADLINE)
    if deadline == NEVER:
        return 0
    time = now(thread)
    if deadline == 0:
        deadline = time + SLICE
        put(thread, THREAD_DEADLINE, deadline)
    return int64(time >= deadline)


@native
def open_team(engine, thread, members):
    """Make `thread` the leader of the team and invite helpers; the team, or 0 if it is not to be had."""
    team, lane = get(engine, ENGINE_TEAM), get(engine, ENGINE_LANES)
    lock(engine)
    if get(team, TEAM_LEADER) != 0 or load_acquire(team + TEAM_PRESENT) != 0 or get(lane, LANE_NEXT) != 0:
        team = 0
    else:
        put(team, TEAM_SCRATCH, get(thread, THREAD_SCRATCH_BYTES))
        put(team, TEAM_WANTED, members - 1)
        store_release(team + TEAM_LEADER, thread)  # pairs with load_acquire in `stay`
        rouse_for(engine, lane, members - 1)
    unlock(engine)
    return team


@native
def close_team(engine, team):
    """Dissolve the team: its helpers leave it soon."""
    lock(engine)
    put(team, TEAM_WANTED, 0)
    store_release(team + TEAM_LEADER, 0)  # pairs with load_acquire in `stay`
    unlock(engine)


@native
def dissolve(engine):
    """Forget the team in a forked child, where its threads are gone."""
    team = get(engine, ENGINE_TEAM)
    put(team, TEAM_LEADER, 0)
    put(team, TEAM_WANTED, 0)
    put(team, TEAM_PRESENT, 0)


@native
def invite_again(engine, team, members):
    """Invite helpers in the place of those that have left."""
    missing = members - 1 - load_acquire(team + TEAM_PRESENT)
    if missing > 0 and get(team, TEAM_WANTED) == 0:
        lock(engine)
        put(team, TEAM_WANTED, missing)
        rouse_for(engine, get(engine, ENGINE_LANES), missing)
        unlock(engine)


@native
def share_of(chunks, members, member):
    """The first chunk of a member's share; of the one after the last, the number of chunks."""
    return chunks * member // members


@native
def take_part(team, number, mine, scratch):
    """Do chunks of task `number` until none is left."""
    for turn in range(MEMBERS):
        member = (mine + turn) % MEMBERS
        claim = team + TEAM_CLAIMS + CLAIM_BYTES * member
        seen = load_acquire(claim)  # pairs with store_release in `run_together`
        while seen >> 32 == number and seen & LEFT_MASK != 0:
            if exchanged(claim, seen, seen - 1):  # pairs with itself: each chunk goes to one thread
                units, chunk = get(team, TEAM_UNITS), get(team, TEAM_CHUNK)
                chunks = (units + chunk - 1) // chunk
                end = share_of(chunks, get(team, TEAM_MEMBERS), member + 1)
                low = (end - (seen & LEFT_MASK)) * chunk
                function, block = get(team, TEAM_FUNCTION), get(team, TEAM_BLOCK)
                status = call_kernel(function, block, low, min(low + chunk, units), scratch)
                if status != 0:
                    note_status(team, status)
                atomic_add(team + TEAM_DONE, 1)  # pairs with load_acquire in `run_together`
            seen = load_acquire(claim)


@native
def note_status(team, status):
    """Keep the smallest status."""
    seen = load_acquire(team + TEAM_STATUS)
    while (seen == 0 or status < seen) and not exchanged(team + TEAM_STATUS, seen, status):
        seen = load_acquire(team + TEAM_STATUS)


@native
def run_together(team, function, block, units, chunk, scratch):
    """Run a task of several chunks with the helpers that are there; the smallest nonzero status."""
    members = min(MEMBERS, 1 + load_acquire(team + TEAM_PRESENT))
    chunks, number = (units + chunk - 1) // chunk, get(team, TEAM_TASK) % NUMBERS + 1
    put(team, TEAM_FUNCTION, function)
    put(team, TEAM_BLOCK, block)
    put(team, TEAM_UNITS, units)
    put(team, TEAM_CHUNK, chunk)
    put(team, TEAM_MEMBERS, members)
    store_release(team + TEAM_STATUS, 0)
    store_release(team + TEAM_DONE, 0)
    for member in range(members):
        size = share_of(chunks, members, member + 1) - share_of(chunks, members, member)
        # pairs with load_acquire in `take_part`
        store_release(team + TEAM_CLAIMS + CLAIM_BYTES * member, number << 32 | size)
    store_release(team + TEAM_TASK, number)  # pairs with load_acquire in `stay`
    take_part(team, number, 0, scratch)
    looks = 0
    while load_acquire(team + TEAM_DONE) != chunks:  # pairs with atomic_add in `take_part`
        looks += 1
        if looks % YIELD == 0:
            sched_yield()
        pause()
    return load_acquire(team + TEAM_STATUS)


@native
def stay(engine, team, mine, scratch):
    """Help until the team is dissolved, until nothing has been to do for a while, or until other work is.

    Returns 1 if the thread has something else to do while the team could use it.
    """
    lane, last, looks = get(engine, ENGINE_LANES), 0, 0
    while looks < SPINS:
        number = load_acquire(team + TEAM_TASK)  # pairs with store_release in `run_together`
        looks += 1
        if number != last:
            take_part(team, number, mine, scratch)
            last, looks = number, looks % LOOKS
        else:
            pause()
        if looks % LOOKS == 0:
            # pairs with store_release in `close_team`; a task that is missed here is found in a round to come
            if load_acquire(team + TEAM_LEADER) == 0 or load_acquire(lane + LANE_READY) != 0:
                return 0
            if must_leave(scratch) != 0:
                return 1
    return 0


@native
def join(engine, thread):
    """Help the team, if it wants somebody; the lock is held before and after.

    Returns 1 if it did, 0 if not, -1 if the thread's scratch memory is too small.
    """
    team = get(engine, ENGINE_TEAM)
    if get(team, TEAM_WANTED) <= 0 or get(team, TEAM_LEADER) == 0 or get(engine, ENGINE_PAUSED) != RUNNING:
        return 0
    if get(team, TEAM_SCRATCH) > get(thread, THREAD_SCRATCH_BYTES):
        put(thread, THREAD_NEED, get(team, TEAM_SCRATCH))
        return -1
    put(team, TEAM_WANTED, get(team, TEAM_WANTED) - 1)
    mine = atomic_add(team + TEAM_PRESENT, 1) + 1
    unlock(engine)
    missed = stay(engine, team, mine % MEMBERS, get(thread, THREAD_SCRATCH))
    lock(engine)
    atomic_add(team + TEAM_PRESENT, -1)
    if get(team, TEAM_LEADER) != 0:
        put(team, TEAM_WANTED, get(team, TEAM_WANTED) + missed)
    return 1
