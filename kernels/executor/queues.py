"""The queues: variables grant requests, granted requests make tasks ready, threads pick ready tasks.

Every function here runs under the engine's lock.

A launch enrols on all its variables at once (`enrol`), so two launches that share several variables queue on
them in the same order and cannot deadlock. A request is granted when all requests before it are readers and
it is one too, or when it is the first. It is released by the last task that uses it, which grants what
follows.
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
def before(a, b):
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
    """Join two heaps (one may be empty); the loser becomes the first child of the winner."""
    if a == 0:
        return b
    if b == 0:
        return a
    if before(b, a):
        a, b = b, a
    put(b, TASK_SIBLING, get(a, TASK_CHILD))
    put(a, TASK_CHILD, b)
    return a


@native
def heap_push(heap, task):
    put(task, TASK_CHILD, 0)
    put(task, TASK_SIBLING, 0)
    put(heap, 0, meld(get(heap, 0), task))


@native
def heap_pop(heap):
    """Take the first task out of a heap that is not empty."""
    top = get(heap, 0)
    child = get(top, TASK_CHILD)
    pairs = 0  # a list through TASK_SIBLING
    while child != 0:
        partner = get(child, TASK_SIBLING)
        following = 0
        if partner != 0:
            following = get(partner, TASK_SIBLING)
        joined = meld(child, partner)
        put(joined, TASK_SIBLING, pairs)
        pairs = joined
        child = following
    rest = 0
    while pairs != 0:
        following = get(pairs, TASK_SIBLING)
        rest = meld(pairs, rest)
        pairs = following
    if rest != 0:
        put(rest, TASK_SIBLING, 0)
    put(heap, 0, rest)
    return top


@native
def enqueue(engine, task):
    """Make `task` ready. Native threads take the Python tasks that a failed launch skips."""
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


# --- Started tasks with chunks left: a list, because tasks leave it from the middle -------------------------


@native
def list_started(task):
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
    """Take a task out of its lane's list of started ones (`threads.unlink` does so with idle threads)."""
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
    """Put a root request at the end of its variable's queue; grant it if nothing stands in the way."""
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
        put(request, REQUEST_SOFT, passable(request))
    return granted


# --- Devices with a clock of their own ----------------------------------------------------------------------


@native
def passable(request):
    """The lane on which all that `request` has to wait for is issued; 0 if there is none.

    What is issued there later runs later, so tasks of this lane need not wait for it to complete.
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
def pass_softly(engine, request):
    """Let the requests behind `request`, which is issued, pass if nothing else stands in their way."""
    request = get(request, REQUEST_NEXT)
    while request != 0:
        if get(request, REQUEST_GRANTED) == 0 and get(request, REQUEST_SOFT) == 0:
            lane = passable(request)
            if lane == 0:
                return
            put(request, REQUEST_SOFT, lane)
            let_go(engine, request, lane, 1)
        request = get(request, REQUEST_NEXT)


@native
def let_go(engine, request, lane, inside):
    """Decrement the counts of tasks of a root request on `lane`, or (not `inside`) of those on others."""
    tasks = get(get(request, REQUEST_INSTANCE), INSTANCE_TASKS)
    while request != 0:
        users = get(request, REQUEST_USERS)
        for i in range(get(request, REQUEST_USER_COUNT)):
            task = tasks + get(users, 8 * i) * TASK_BYTES
            if (get(task, TASK_LANE) == lane) == (inside != 0):
                miss_one_less(engine, task)
        request = get(request, REQUEST_ALIAS)


@native
def is_early(task, successor):
    """Whether `successor` need not wait until `task`, which its device has, is complete."""
    lane = get(task, TASK_LANE)
    return get(lane, LANE_DEVICE) != 0 and get(task, TASK_ALWAYS) == 0 and get(successor, TASK_LANE) == lane


@native
def issue(engine, task):
    """Note that the device of the lane of `task` has it, after all earlier ones; successors may follow."""
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
            miss_one_less(engine, successor)
    left = get(instance, INSTANCE_UNISSUED) - 1
    put(instance, INSTANCE_UNISSUED, left)
    if left == 0 and get(instance, INSTANCE_PASSES) != 0 and get(instance, INSTANCE_ERROR) == 0:
        start = get(instance, INSTANCE_REQUESTS)
        for i in range(get(instance, INSTANCE_ARGUMENT_COUNT)):
            request = start + i * REQUEST_BYTES
            if get(request, REQUEST_ROOT) == request:
                put(request, REQUEST_ISSUED, lane)
                pass_softly(engine, request)


@native
def complete_first(engine, lane, status):
    """Complete the oldest task of the device of `lane`."""
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
    """Fail the launch of a granted request that reads undefined content, under the first failure's name."""
    instance = get(request, REQUEST_INSTANCE)
    poison = get(get(request, REQUEST_VARIABLE), VARIABLE_POISON)
    if poison != 0 and get(request, REQUEST_BITS) & READS and get(instance, INSTANCE_ERROR) == 0:
        put(instance, INSTANCE_ERROR, poison)


@native
def enrol(instance, variables):
    """Enrol on all variables of a launch (`variables`: their addresses in argument order).

    Returns whether every request was granted. An alias joins the request of its first argument.
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
    free = 1
    for i in range(count):
        request = start + i * REQUEST_BYTES
        if get(request, REQUEST_ROOT) == request:
            free &= append_request(request)
    return free


@native
def grant(engine, request):
    """Grant a root request that had to wait: decrement the counts of its tasks, under all its aliases."""
    put(request, REQUEST_GRANTED, 1)
    inherit_poison(request)
    let_go(engine, request, get(request, REQUEST_SOFT), 0)


@native
def miss_one_less(engine, task):
    """Decrement the number of things that `task` waits for; enqueue it at zero."""
    unmet = get(task, TASK_UNMET) - 1
    put(task, TASK_UNMET, unmet)
    if unmet == 0:
        enqueue(engine, task)


@native
def release(engine, request):
    """Remove a root request from its queue, record the launch's failure, grant the requests that follow."""
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
def satisfied(engine, thread):
    """Whether what `thread` waits for has come."""
    kind, place, target = get(thread, THREAD_KIND), get(thread, THREAD_OBJECT), get(thread, THREAD_TARGET)
    if kind == WRITTEN:
        return get(place, VARIABLE_DONE) >= target
    if kind == UNUSED:
        return get(place, VARIABLE_HEAD) == 0
    if kind == LAUNCH:
        return get(place, INSTANCE_SEQUENCE) != target or get(place, INSTANCE_LEFT) == 0
    oldest = get(engine, ENGINE_OLDEST)  # kind is ALL
    return oldest == 0 or get(oldest, INSTANCE_SEQUENCE) > target


@native
def notify(engine):
    """Wake the threads whose wait is over."""
    thread = get(engine, ENGINE_WAITERS_IDLE)
    while thread != 0:
        following = get(thread, THREAD_NEXT)
        if satisfied(engine, thread):
            wake(thread)
        thread = following


@native
def fail(instance, task, status):
    """Record the launch's first failure: its other tasks are skipped."""
    if get(instance, INSTANCE_ERROR) == 0:
        put(instance, INSTANCE_ERROR, get(instance, INSTANCE_SEQUENCE))
        put(instance, INSTANCE_FAILED_TASK, (task - get(instance, INSTANCE_TASKS)) // TASK_BYTES)
        put(instance, INSTANCE_STATUS, status)


@native
def finish_task(task):
    """End `task`: release the requests it was the last to use, make its successors ready."""
    instance = get(task, TASK_INSTANCE)
    engine, requests = get(instance, INSTANCE_ENGINE), get(instance, INSTANCE_REQUESTS)
    uses = get(task, TASK_USES)
    for i in range(get(task, TASK_USE_COUNT)):
        root = get(requests + get(uses, 8 * i) * REQUEST_BYTES, REQUEST_ROOT)
        if root != 0:
            left = get(root, REQUEST_LEFT) - 1
            put(root, REQUEST_LEFT, left)
            if left == 0:
                release(engine, root)
    tasks, successors = get(instance, INSTANCE_TASKS), get(task, TASK_SUCCESSORS)
    for i in range(get(task, TASK_SUCCESSOR_COUNT)):
        successor = tasks + get(successors, 8 * i) * TASK_BYTES
        if not is_early(task, successor):
            miss_one_less(engine, successor)
    left = get(instance, INSTANCE_LEFT) - 1
    put(instance, INSTANCE_LEFT, left)
    if left == 0:
        finish_launch(instance)
        put(instance, INSTANCE_NEXT_FINISHED, get(engine, ENGINE_FINISHED))
        put(engine, ENGINE_FINISHED, instance)


@native
def finish_launch(instance):
    """Remove a launch from those in flight."""
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
