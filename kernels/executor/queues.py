"""The queues: variables grant requests, granted requests make tasks ready, threads pick ready tasks.

Every function here runs under the engine's lock.

A launch enrols on all its variables atomically (`enrol`), so two launches that share several variables queue
on them in the same order and cannot deadlock. A request is granted when it is the first in its queue, or when
it and all requests before it are readers. The last task that uses a request releases it, which grants the
requests that follow.
"""

from __future__ import annotations

from tracejit.kernels.executor.layout import (
    ENGINE_FINISHED,
    ENGINE_LANES,
    ENGINE_NEWEST,
    ENGINE_OLDEST,
    ENGINE_PYTHON_COUNT,
    ENGINE_WAITERS_IDLE,
    INSTANCE_ARGUMENT_COUNT,
    INSTANCE_ENGINE,
    INSTANCE_ERROR,
    INSTANCE_FAILED_TASK,
    INSTANCE_LEFT,
    INSTANCE_NEWER,
    INSTANCE_NEXT_FINISHED,
    INSTANCE_OLDER,
    INSTANCE_PASSES,
    INSTANCE_REQUESTS,
    INSTANCE_SEQUENCE,
    INSTANCE_STATUS,
    INSTANCE_TASKS,
    INSTANCE_UNISSUED,
    LANE_DEMAND,
    LANE_DEMAND_SEQUENCE,
    LANE_DEVICE,
    LANE_IDLE,
    LANE_ISSUED,
    LANE_ISSUED_LAST,
    LANE_PYTHON,
    LANE_READY,
    LANE_STARTED,
    LANE_WATCHER,
    LAUNCH,
    POISONS,
    READS,
    REQUEST_ACCESS,
    REQUEST_ALIAS,
    REQUEST_BITS,
    REQUEST_BYTES,
    REQUEST_GRANTED,
    REQUEST_INSTANCE,
    REQUEST_ISSUED,
    REQUEST_LEFT,
    REQUEST_NEXT,
    REQUEST_PREVIOUS,
    REQUEST_ROOT,
    REQUEST_SOFT,
    REQUEST_USER_COUNT,
    REQUEST_USERS,
    REQUEST_VARIABLE,
    TASK_ALWAYS,
    TASK_BYTES,
    TASK_CHILD,
    TASK_CHUNKS,
    TASK_INSTANCE,
    TASK_LANE,
    TASK_LISTED,
    TASK_NEXT,
    TASK_PREVIOUS,
    TASK_PRIORITY,
    TASK_SIBLING,
    TASK_SUCCESSOR_COUNT,
    TASK_SUCCESSORS,
    TASK_UNMET,
    TASK_USE_COUNT,
    TASK_USES,
    THREAD_KIND,
    THREAD_NEXT,
    THREAD_OBJECT,
    THREAD_TARGET,
    UNUSED,
    VARIABLE_DONE,
    VARIABLE_FAILURE,
    VARIABLE_HEAD,
    VARIABLE_OWNER,
    VARIABLE_POISON,
    VARIABLE_PUSHED,
    VARIABLE_TAIL,
    VARIABLE_WAITERS,
    WRITES,
    WRITTEN,
)
from tracejit.kernels.executor.threads import get, native, put, wake

# --- Heaps of ready tasks: pairing heaps (Fredman, Sedgewick, Sleator, Tarjan 1986) -------------------------


@native
def precedes(a, b):
    """Whether task `a` runs before `b`: higher priority, then older launch, then order in the launch."""
    first, second = get(a, TASK_PRIORITY), get(b, TASK_PRIORITY)
    if first != second:
        return first > second
    first = get(get(a, TASK_INSTANCE), INSTANCE_SEQUENCE)
    second = get(get(b, TASK_INSTANCE), INSTANCE_SEQUENCE)
    if first != second:
        return first < second
    return a < b


@native
def meld(a, b):
    """Merge two heaps, which may be empty; the root that runs later becomes the first child of the other."""
    if a == 0:
        return b
    if b == 0:
        return a
    if precedes(b, a):
        a, b = b, a
    put(b, TASK_SIBLING, get(a, TASK_CHILD))
    put(a, TASK_CHILD, b)
    return a


@native
def heap_push(heap, task):
    """Insert a task into the heap whose root is at the address `heap`."""
    put(task, TASK_CHILD, 0)
    put(task, TASK_SIBLING, 0)
    put(heap, 0, meld(get(heap, 0), task))


@native
def heap_pop(heap):
    """Remove and return the first task of a nonempty heap."""
    top = get(heap, 0)
    child = get(top, TASK_CHILD)
    pairs = 0  # the melded pairs of children, linked by TASK_SIBLING, last pair first
    while child != 0:
        partner = get(child, TASK_SIBLING)
        following = 0
        if partner != 0:
            following = get(partner, TASK_SIBLING)
        melded = meld(child, partner)
        put(melded, TASK_SIBLING, pairs)
        pairs = melded
        child = following
    merged = 0
    while pairs != 0:
        following = get(pairs, TASK_SIBLING)
        merged = meld(pairs, merged)
        pairs = following
    if merged != 0:
        put(merged, TASK_SIBLING, 0)
    put(heap, 0, merged)
    return top


@native
def enqueue(engine, task):
    """Make `task` ready. Native threads process the Python tasks that a failed launch skips."""
    instance, lane = get(task, TASK_INSTANCE), get(task, TASK_LANE)
    if get(lane, LANE_PYTHON) != 0:
        if get(instance, INSTANCE_ERROR) == 0 or get(task, TASK_ALWAYS) != 0:
            heap_push(lane + LANE_READY, task)
            put(engine, ENGINE_PYTHON_COUNT, get(engine, ENGINE_PYTHON_COUNT) + 1)
            if get(lane, LANE_IDLE) != 0:
                wake(get(lane, LANE_IDLE))
            return
        lane = get(engine, ENGINE_LANES)
    heap_push(lane + LANE_READY, task)
    put(lane, LANE_DEMAND, get(lane, LANE_DEMAND) + max(1, get(task, TASK_CHUNKS)))
    sequence = max(get(lane, LANE_DEMAND_SEQUENCE), get(instance, INSTANCE_SEQUENCE))
    put(lane, LANE_DEMAND_SEQUENCE, sequence)


# --- Started tasks with unclaimed chunks: a list, because tasks are removed from the middle -----------------


@native
def list_started(task):
    """Insert a task at the front of its lane's list of started tasks."""
    lane = get(task, TASK_LANE)
    first = get(lane, LANE_STARTED)
    put(task, TASK_LISTED, 1)
    put(task, TASK_PREVIOUS, 0)
    put(task, TASK_NEXT, first)
    if first != 0:
        put(first, TASK_PREVIOUS, task)
    put(lane, LANE_STARTED, task)


@native
def unlist_started(task):
    """Remove a task from its lane's list of started tasks, as `threads.unlink` removes an idle thread."""
    following, previous = get(task, TASK_NEXT), get(task, TASK_PREVIOUS)
    put(task, TASK_LISTED, 0)
    if following != 0:
        put(following, TASK_PREVIOUS, previous)
    if previous != 0:
        put(previous, TASK_NEXT, following)
    else:
        put(get(task, TASK_LANE), LANE_STARTED, following)


# --- Variables ----------------------------------------------------------------------------------------------


@native
def append_request(request):
    """Append a root request to its variable's queue; grant it if no earlier request conflicts.

    Return whether it was granted.
    """
    variable, bits = get(request, REQUEST_VARIABLE), get(request, REQUEST_BITS)
    tail = get(variable, VARIABLE_TAIL)
    put(variable, VARIABLE_OWNER, 0)
    put(variable, VARIABLE_TAIL, request)
    put(request, REQUEST_PREVIOUS, tail)
    put(request, REQUEST_NEXT, 0)
    put(request, REQUEST_SOFT, 0)
    put(request, REQUEST_ISSUED, 0)
    granted = 1
    if tail == 0:
        put(variable, VARIABLE_HEAD, request)
    else:
        put(tail, REQUEST_NEXT, request)
        if bits & WRITES or get(tail, REQUEST_BITS) & WRITES or get(tail, REQUEST_GRANTED) == 0:
            granted = 0
    if bits & WRITES:
        put(variable, VARIABLE_PUSHED, get(variable, VARIABLE_PUSHED) + 1)
    put(request, REQUEST_GRANTED, granted)
    if granted:
        inherit_poison(request)
    else:
        put(request, REQUEST_SOFT, soft_lane(request))
    return granted


# --- Asynchronous devices -----------------------------------------------------------------------------------


@native
def soft_lane(request):
    """Return the lane on which all requests that `request` has to wait for are issued, or 0 if there is none.

    The device runs the tasks of a lane in the order in which they are issued, so tasks of this lane need not
    wait for those requests to be released.
    """
    writes, lane = get(request, REQUEST_BITS) & WRITES, 0
    request = get(request, REQUEST_PREVIOUS)
    while request != 0:
        if writes or get(request, REQUEST_BITS) & WRITES:
            issued = get(request, REQUEST_ISSUED)
            if issued == 0 or (lane != 0 and issued != lane):
                return 0
            lane = issued
        request = get(request, REQUEST_PREVIOUS)
    return lane


@native
def grant_softly(engine, request):
    """Grant requests behind `request` softly, unless they have to wait for another request.

    All tasks of the launch of `request` are issued. A *soft* grant is for the tasks of one lane
    (REQUEST_SOFT).
    """
    request = get(request, REQUEST_NEXT)
    while request != 0:
        if get(request, REQUEST_GRANTED) == 0 and get(request, REQUEST_SOFT) == 0:
            lane = soft_lane(request)
            if lane == 0:
                return
            put(request, REQUEST_SOFT, lane)
            decrement_users(engine, request, lane, 1)
        request = get(request, REQUEST_NEXT)


@native
def decrement_users(engine, request, lane, inside):
    """Decrement the unmet dependencies of the tasks that use a root request or its aliases.

    `inside` selects the tasks on `lane`; otherwise the tasks on all other lanes are affected.
    """
    tasks = get(get(request, REQUEST_INSTANCE), INSTANCE_TASKS)
    while request != 0:
        users = get(request, REQUEST_USERS)
        for i in range(get(request, REQUEST_USER_COUNT)):
            task = tasks + get(users, 8 * i) * TASK_BYTES
            if (get(task, TASK_LANE) == lane) == (inside != 0):
                decrement_unmet(engine, task)
        request = get(request, REQUEST_ALIAS)


@native
def is_early(task, successor):
    """Whether `successor` may be issued before `task`, which is issued, is complete."""
    lane = get(task, TASK_LANE)
    return get(lane, LANE_DEVICE) != 0 and get(task, TASK_ALWAYS) == 0 and get(successor, TASK_LANE) == lane


@native
def issue(engine, task):
    """Record that `task` is issued to the device of its lane, after all earlier ones.

    This may make successors ready and, if all tasks of the launch are issued, grant requests softly.
    """
    instance, lane = get(task, TASK_INSTANCE), get(task, TASK_LANE)
    last = get(lane, LANE_ISSUED_LAST)
    put(task, TASK_NEXT, 0)
    if last == 0:
        put(lane, LANE_ISSUED, task)
    else:
        put(last, TASK_NEXT, task)
    put(lane, LANE_ISSUED_LAST, task)
    if get(lane, LANE_WATCHER) != 0:
        wake(get(lane, LANE_WATCHER))
    tasks, successors = get(instance, INSTANCE_TASKS), get(task, TASK_SUCCESSORS)
    for i in range(get(task, TASK_SUCCESSOR_COUNT)):
        successor = tasks + get(successors, 8 * i) * TASK_BYTES
        if is_early(task, successor):
            decrement_unmet(engine, successor)
    unissued = get(instance, INSTANCE_UNISSUED) - 1
    put(instance, INSTANCE_UNISSUED, unissued)
    if unissued == 0 and get(instance, INSTANCE_PASSES) != 0 and get(instance, INSTANCE_ERROR) == 0:
        start = get(instance, INSTANCE_REQUESTS)
        for i in range(get(instance, INSTANCE_ARGUMENT_COUNT)):
            request = start + i * REQUEST_BYTES
            if get(request, REQUEST_ROOT) == request:
                put(request, REQUEST_ISSUED, lane)
                grant_softly(engine, request)


@native
def complete_first(engine, lane, status):
    """Complete the oldest task issued to the device of `lane`; a nonzero `status` fails its launch."""
    task = get(lane, LANE_ISSUED)
    following = get(task, TASK_NEXT)
    put(lane, LANE_ISSUED, following)
    if following == 0:
        put(lane, LANE_ISSUED_LAST, 0)
    if status != 0:
        fail(get(task, TASK_INSTANCE), task, status)
    finish_task(task)


# --- Enrolment ----------------------------------------------------------------------------------------------


@native
def inherit_poison(request):
    """Fail the launch of a granted request that reads undefined content.

    The launch inherits the sequence number of the original failure.
    """
    instance = get(request, REQUEST_INSTANCE)
    poison = get(get(request, REQUEST_VARIABLE), VARIABLE_POISON)
    if poison != 0 and get(request, REQUEST_BITS) & READS and get(instance, INSTANCE_ERROR) == 0:
        put(instance, INSTANCE_ERROR, poison)


@native
def enrol(instance, variables):
    """Enrol a launch on all its variables; `variables` is the address of their addresses in argument order.

    Arguments with the same variable share the request of the first of them, the *root*. Return whether every
    request was granted.
    """
    start, count = get(instance, INSTANCE_REQUESTS), get(instance, INSTANCE_ARGUMENT_COUNT)
    for i in range(count):
        request, variable = start + i * REQUEST_BYTES, get(variables, 8 * i)
        users, bits = get(request, REQUEST_USER_COUNT), get(request, REQUEST_ACCESS)
        put(request, REQUEST_ROOT, 0)
        if users == 0 or variable == 0:
            continue
        root = get(variable, VARIABLE_OWNER)
        if root == 0:
            put(variable, VARIABLE_OWNER, request)
            put(request, REQUEST_VARIABLE, variable)
            put(request, REQUEST_ROOT, request)
            put(request, REQUEST_ALIAS, 0)
            put(request, REQUEST_BITS, bits)
            put(request, REQUEST_LEFT, users)
        else:
            put(request, REQUEST_ROOT, root)
            put(request, REQUEST_ALIAS, get(root, REQUEST_ALIAS))
            put(root, REQUEST_ALIAS, request)
            put(root, REQUEST_BITS, get(root, REQUEST_BITS) | bits)
            put(root, REQUEST_LEFT, get(root, REQUEST_LEFT) + users)
    all_granted = 1
    for i in range(count):
        request = start + i * REQUEST_BYTES
        if get(request, REQUEST_ROOT) == request:
            all_granted &= append_request(request)
    return all_granted


@native
def grant(engine, request):
    """Grant a root request that had to wait; tasks that were granted it softly have been notified already."""
    put(request, REQUEST_GRANTED, 1)
    inherit_poison(request)
    decrement_users(engine, request, get(request, REQUEST_SOFT), 0)


@native
def decrement_unmet(engine, task):
    """Decrement the number of unmet dependencies of `task`; enqueue the task at zero."""
    unmet = get(task, TASK_UNMET) - 1
    put(task, TASK_UNMET, unmet)
    if unmet == 0:
        enqueue(engine, task)


@native
def release(engine, request):
    """Remove a root request from its queue, record its launch's failure, grant the requests that follow."""
    variable, bits = get(request, REQUEST_VARIABLE), get(request, REQUEST_BITS)
    error = get(get(request, REQUEST_INSTANCE), INSTANCE_ERROR)
    following, previous = get(request, REQUEST_NEXT), get(request, REQUEST_PREVIOUS)
    if previous == 0:
        put(variable, VARIABLE_HEAD, following)
    else:
        put(previous, REQUEST_NEXT, following)
    if following == 0:
        put(variable, VARIABLE_TAIL, previous)
    else:
        put(following, REQUEST_PREVIOUS, previous)
    if bits & WRITES:
        put(variable, VARIABLE_DONE, get(variable, VARIABLE_DONE) + 1)
        if error == 0 or bits & POISONS:
            put(variable, VARIABLE_POISON, error)
        else:
            put(variable, VARIABLE_FAILURE, error)
    if get(variable, VARIABLE_WAITERS) > 0:
        notify(engine)
    while previous == 0 and following != 0 and get(following, REQUEST_GRANTED) == 0:
        grant(engine, following)
        if get(following, REQUEST_BITS) & WRITES:
            return
        following = get(following, REQUEST_NEXT)
        if following != 0 and get(following, REQUEST_BITS) & WRITES:
            return


# --- Launches and tasks that end ----------------------------------------------------------------------------


@native
def is_satisfied(engine, thread):
    """Whether the condition that `thread` waits for is true."""
    kind, awaited, target = get(thread, THREAD_KIND), get(thread, THREAD_OBJECT), get(thread, THREAD_TARGET)
    if kind == WRITTEN:
        return get(awaited, VARIABLE_DONE) >= target
    if kind == UNUSED:
        return get(awaited, VARIABLE_HEAD) == 0
    if kind == LAUNCH:
        return get(awaited, INSTANCE_SEQUENCE) != target or get(awaited, INSTANCE_LEFT) == 0
    oldest = get(engine, ENGINE_OLDEST)  # kind is ALL
    return oldest == 0 or get(oldest, INSTANCE_SEQUENCE) > target


@native
def notify(engine):
    """Wake the threads whose condition is true."""
    thread = get(engine, ENGINE_WAITERS_IDLE)
    while thread != 0:
        following = get(thread, THREAD_NEXT)
        if is_satisfied(engine, thread):
            wake(thread)
        thread = following


@native
def fail(instance, task, status):
    """Record the failure of `task`, if it is the first of its launch; the other tasks are skipped."""
    if get(instance, INSTANCE_ERROR) == 0:
        put(instance, INSTANCE_ERROR, get(instance, INSTANCE_SEQUENCE))
        put(instance, INSTANCE_FAILED_TASK, (task - get(instance, INSTANCE_TASKS)) // TASK_BYTES)
        put(instance, INSTANCE_STATUS, status)


@native
def finish_task(task):
    """End `task`: release the requests that no other task uses, and update its successors."""
    instance = get(task, TASK_INSTANCE)
    engine, requests = get(instance, INSTANCE_ENGINE), get(instance, INSTANCE_REQUESTS)
    uses = get(task, TASK_USES)
    for i in range(get(task, TASK_USE_COUNT)):
        root = get(requests + get(uses, 8 * i) * REQUEST_BYTES, REQUEST_ROOT)
        if root != 0:
            remaining = get(root, REQUEST_LEFT) - 1
            put(root, REQUEST_LEFT, remaining)
            if remaining == 0:
                release(engine, root)
    tasks, successors = get(instance, INSTANCE_TASKS), get(task, TASK_SUCCESSORS)
    for i in range(get(task, TASK_SUCCESSOR_COUNT)):
        successor = tasks + get(successors, 8 * i) * TASK_BYTES
        if not is_early(task, successor):
            decrement_unmet(engine, successor)
    remaining = get(instance, INSTANCE_LEFT) - 1
    put(instance, INSTANCE_LEFT, remaining)
    if remaining == 0:
        finish_launch(instance)
        put(instance, INSTANCE_NEXT_FINISHED, get(engine, ENGINE_FINISHED))
        put(engine, ENGINE_FINISHED, instance)


@native
def finish_launch(instance):
    """Remove a launch from the launches in flight."""
    engine = get(instance, INSTANCE_ENGINE)
    newer, older = get(instance, INSTANCE_NEWER), get(instance, INSTANCE_OLDER)
    put(instance, INSTANCE_LEFT, 0)
    if newer == 0:
        put(engine, ENGINE_NEWEST, older)
    else:
        put(newer, INSTANCE_OLDER, older)
    if older == 0:
        put(engine, ENGINE_OLDEST, newer)
    else:
        put(older, INSTANCE_NEWER, newer)
    notify(engine)
