"""The team: threads that help with the tasks of a loop, iteration after iteration, without the lock.

A loop is one task of the executor and runs on one thread, the *leader*. The tasks in the loop are too short
for the queues, so the leader invites idle threads, the *helpers*. A helper stays with the leader until the
end of the loop and spins while it has nothing to do. There is a single team; a loop that finds it in use runs
on one thread.

To publish a task, the leader writes the kernel and its arguments to the team's record, then the number of
chunks to the claims, then the number of the task to TEAM_TASK. Each thread claims chunks, first those of its
own share, until none is left:

    claim = number of the task << 32 | remaining chunks of the share

Threads do not modify a claim that belongs to another task, so a helper may read the claims at any time. The
leader continues when all chunks are done. A helper that has had nothing to do for a while leaves, and is
invited again.
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import (
    atomic_add,
    call_kernel,
    compare_exchange,
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
    TEAM_INVITATIONS,
    TEAM_LEADER,
    TEAM_MEMBERS,
    TEAM_PRESENT,
    TEAM_SCRATCH,
    TEAM_STATUS,
    TEAM_TASK,
    TEAM_UNITS,
    THREAD_DEADLINE,
    THREAD_NEED,
    THREAD_SCRATCH,
    THREAD_SCRATCH_BYTES,
    THREAD_STOP,
)
from tracejit.kernels.executor.threads import get, lock, native, now, put, sched_yield, unlock, wake_idle_for

REMAINING_MASK = (1 << 32) - 1
"""The bits of a claim that contain the number of remaining chunks."""

TASK_NUMBERS = (1 << 30) - 1
"""The number of different task numbers, which are then reused."""

HELPER_POLLS, CHECK_INTERVAL = 4096, 64
"""The number of unsuccessful polls after which a helper leaves, about 0.1 ms; and the number of polls between
checks whether it must leave.
"""

YIELD_INTERVAL = 1000
"""The number of polls after which the leader yields its processor, for which a helper may be waiting."""


@native
def must_leave(scratch):
    """Whether the thread to which `scratch` belongs must leave its kernel, because it has other work."""
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
    """Make `thread` the leader of the team and invite helpers; return the team, or 0 if it is in use."""
    team, lane = get(engine, ENGINE_TEAM), get(engine, ENGINE_LANES)
    lock(engine)
    if get(team, TEAM_LEADER) != 0 or load_acquire(team + TEAM_PRESENT) != 0 or get(lane, LANE_NEXT) != 0:
        team = 0
    else:
        put(team, TEAM_SCRATCH, get(thread, THREAD_SCRATCH_BYTES))
        put(team, TEAM_INVITATIONS, members - 1)
        store_release(team + TEAM_LEADER, thread)  # pairs with load_acquire in `help_leader`
        wake_idle_for(engine, lane, members - 1)
    unlock(engine)
    return team


@native
def close_team(engine, team):
    """Dissolve the team: its helpers leave when they next check."""
    lock(engine)
    put(team, TEAM_INVITATIONS, 0)
    store_release(team + TEAM_LEADER, 0)  # pairs with load_acquire in `help_leader`
    unlock(engine)


@native
def dissolve(engine):
    """Reset the team in a forked child, where the threads of the team do not exist."""
    team = get(engine, ENGINE_TEAM)
    put(team, TEAM_LEADER, 0)
    put(team, TEAM_INVITATIONS, 0)
    put(team, TEAM_PRESENT, 0)


@native
def invite_again(engine, team, members):
    """Invite helpers to replace those that have left."""
    missing = members - 1 - load_acquire(team + TEAM_PRESENT)
    if missing > 0 and get(team, TEAM_INVITATIONS) == 0:
        lock(engine)
        put(team, TEAM_INVITATIONS, missing)
        wake_idle_for(engine, get(engine, ENGINE_LANES), missing)
        unlock(engine)


@native
def share_of(chunks, members, member):
    """The first chunk of a member's share; the number of chunks if `member` is one past the last."""
    return chunks * member // members


@native
def run_claimed(team, number, first_member, scratch):
    """Claim and run chunks of task `number` until none is left, beginning with those of `first_member`."""
    for offset in range(MEMBERS):
        member = (first_member + offset) % MEMBERS
        claim = team + TEAM_CLAIMS + CLAIM_BYTES * member
        seen = load_acquire(claim)  # pairs with store_release in `run_together`
        while seen >> 32 == number and seen & REMAINING_MASK != 0:
            if compare_exchange(claim, seen, seen - 1):  # pairs with itself: each chunk goes to one thread
                units, chunk = get(team, TEAM_UNITS), get(team, TEAM_CHUNK)
                chunks = (units + chunk - 1) // chunk
                end = share_of(chunks, get(team, TEAM_MEMBERS), member + 1)
                low = (end - (seen & REMAINING_MASK)) * chunk
                function, block = get(team, TEAM_FUNCTION), get(team, TEAM_BLOCK)
                status = call_kernel(function, block, low, min(low + chunk, units), scratch)
                if status != 0:
                    note_status(team, status)
                atomic_add(team + TEAM_DONE, 1)  # pairs with load_acquire in `run_together`
            seen = load_acquire(claim)


@native
def note_status(team, status):
    """Update the team's status, the smallest nonzero one."""
    seen = load_acquire(team + TEAM_STATUS)
    while (seen == 0 or status < seen) and not compare_exchange(team + TEAM_STATUS, seen, status):
        seen = load_acquire(team + TEAM_STATUS)


@native
def run_together(team, function, block, units, chunk, scratch):
    """Run a task of several chunks with the helpers that are present; return the smallest nonzero status."""
    members = min(MEMBERS, 1 + load_acquire(team + TEAM_PRESENT))
    chunks, number = (units + chunk - 1) // chunk, get(team, TEAM_TASK) % TASK_NUMBERS + 1
    put(team, TEAM_FUNCTION, function)
    put(team, TEAM_BLOCK, block)
    put(team, TEAM_UNITS, units)
    put(team, TEAM_CHUNK, chunk)
    put(team, TEAM_MEMBERS, members)
    store_release(team + TEAM_STATUS, 0)
    store_release(team + TEAM_DONE, 0)
    for member in range(members):
        size = share_of(chunks, members, member + 1) - share_of(chunks, members, member)
        # pairs with load_acquire in `run_claimed`
        store_release(team + TEAM_CLAIMS + CLAIM_BYTES * member, number << 32 | size)
    store_release(team + TEAM_TASK, number)  # pairs with load_acquire in `help_leader`
    run_claimed(team, number, 0, scratch)
    polls = 0
    while load_acquire(team + TEAM_DONE) != chunks:  # pairs with atomic_add in `run_claimed`
        polls += 1
        if polls % YIELD_INTERVAL == 0:
            sched_yield()
        pause()
    return load_acquire(team + TEAM_STATUS)


@native
def help_leader(engine, team, first_member, scratch):
    """Help until the team is dissolved, no task has been published for a while, or the thread has other work.

    Return 1 if the thread must leave although the team could still use it, else 0.
    """
    lane, last_number, polls = get(engine, ENGINE_LANES), 0, 0
    while polls < HELPER_POLLS:
        number = load_acquire(team + TEAM_TASK)  # pairs with store_release in `run_together`
        polls += 1
        if number != last_number:
            run_claimed(team, number, first_member, scratch)
            last_number, polls = number, polls % CHECK_INTERVAL
        else:
            pause()
        if polls % CHECK_INTERVAL == 0:
            # pairs with store_release in `close_team`; a later check sees a ready task that this one misses
            if load_acquire(team + TEAM_LEADER) == 0 or load_acquire(lane + LANE_READY) != 0:
                return 0
            if must_leave(scratch) != 0:
                return 1
    return 0


@native
def join(engine, thread):
    """Help the team if it has an open invitation. The caller holds the lock, which is released meanwhile.

    Return 1 if the thread helped, 0 if not, -1 if the thread's scratch memory is too small.
    """
    team = get(engine, ENGINE_TEAM)
    if (
        get(team, TEAM_INVITATIONS) <= 0
        or get(team, TEAM_LEADER) == 0
        or get(engine, ENGINE_PAUSED) != RUNNING
    ):
        return 0
    if get(team, TEAM_SCRATCH) > get(thread, THREAD_SCRATCH_BYTES):
        put(thread, THREAD_NEED, get(team, TEAM_SCRATCH))
        return -1
    put(team, TEAM_INVITATIONS, get(team, TEAM_INVITATIONS) - 1)
    member = atomic_add(team + TEAM_PRESENT, 1) + 1
    unlock(engine)
    invitations = help_leader(engine, team, member % MEMBERS, get(thread, THREAD_SCRATCH))
    lock(engine)
    atomic_add(team + TEAM_PRESENT, -1)
    if get(team, TEAM_LEADER) != 0:
        put(team, TEAM_INVITATIONS, get(team, TEAM_INVITATIONS) + invitations)
    return 1
