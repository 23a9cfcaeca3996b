"""Tasks of devices with a clock of their own, GPUs: they are issued to a stream, and complete later.

A task's function issues it (`issue_kernel`, `issue_graph`, `issue_copy`): a call of the driver, by the
address that the device's record has, and an event behind it. When the function returns, the executor counts
the task as issued (`queues.issue`), so what runs on the same stream may be issued, too. One thread for each
device (`watch`) waits for the events, in order, and completes the tasks.

Records are laid out in `layout`: words of a device, and of the argument block of a task (`ISSUED_...`).
"""

from __future__ import annotations

from numba.types import int64

from tracejit.kernels.compiler.memory import call_c
from tracejit.kernels.executor.layout import (
    DEVICE_CONTEXT,
    DEVICE_COPY_IN,
    DEVICE_COPY_OUT,
    DEVICE_COPY_WITHIN,
    DEVICE_LAUNCH,
    DEVICE_LAUNCH_GRAPH,
    DEVICE_RECORD,
    DEVICE_SCRATCH,
    DEVICE_SET_CURRENT,
    DEVICE_SET_NODE,
    DEVICE_STREAM,
    DEVICE_SYNCHRONIZE,
    ENGINE_PAUSED,
    GRAPH_EXECUTABLE,
    GRAPH_FIRST,
    GRAPH_SETTERS,
    HALTED,
    ISSUED_COPY_FROM,
    ISSUED_COPY_KIND,
    ISSUED_COPY_SIZE,
    ISSUED_COPY_TO,
    ISSUED_DEVICE,
    ISSUED_EVENT,
    ISSUED_EXTRA,
    ISSUED_FAILURE,
    ISSUED_FUNCTION,
    ISSUED_GRID_X,
    ISSUED_GRID_Y,
    ISSUED_PARAMETERS,
    ISSUED_SHARED,
    ISSUED_SIZE,
    ISSUED_STATE,
    ISSUED_THREADS_X,
    ISSUED_THREADS_Y,
    LANE_DEVICE,
    LANE_ISSUED,
    LANE_WATCHER,
    NEVER,
    NODE_ARGUMENT,
    NODE_ARGUMENTS,
    NODE_BLOCK,
    NODE_BYTES,
    NODE_HANDLE,
    NODE_PARAMETERS,
    OUT,
    SETTER_VALUES,
    TASK_BLOCK,
    THREAD_STOP,
    WITHIN,
)
from tracejit.kernels.executor.queues import complete_first
from tracejit.kernels.executor.run import POLL
from tracejit.kernels.executor.threads import get, idle, lock, native, put, rouse, unlock, usleep

PACKED_PARAMETERS = 1  # CU_LAUNCH_PARAM_BUFFER_POINTER
PACKED_SIZE = 2  # CU_LAUNCH_PARAM_BUFFER_SIZE


@native
def finish_issue(block, device, code):
    """Record the task's event after the issued work; the status of the task."""
    if code == 0:
        code = call_c(get(device, DEVICE_RECORD), (get(block, ISSUED_EVENT), get(device, DEVICE_STREAM)))
    put(block, ISSUED_STATE, int64(code == 0))
    return 0 - code


def issue_kernel(block, lo, hi, scratch):
    """Launch the kernel of a task with the parameters in its block."""
    device = get(block, ISSUED_DEVICE)
    put(block, ISSUED_STATE, 0)
    if get(block, ISSUED_FAILURE) != 0:
        put(get(block, ISSUED_FAILURE), 0, NEVER)
    parameters, size = block + ISSUED_PARAMETERS, get(block, ISSUED_SIZE)
    put(parameters, size - 16, get(device, DEVICE_SCRATCH))
    put(parameters, size - 8, get(block, ISSUED_FAILURE))
    put(block, ISSUED_EXTRA, PACKED_PARAMETERS)
    put(block, ISSUED_EXTRA + 8, parameters)
    put(block, ISSUED_EXTRA + 16, PACKED_SIZE)
    put(block, ISSUED_EXTRA + 24, block + ISSUED_SIZE)
    put(block, ISSUED_EXTRA + 32, 0)
    code = call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    if code == 0:
        code = call_c(
            get(device, DEVICE_LAUNCH),
            (
                get(block, ISSUED_FUNCTION),
                get(block, ISSUED_GRID_X),
                get(block, ISSUED_GRID_Y),
                1,
                get(block, ISSUED_THREADS_X),
                get(block, ISSUED_THREADS_Y),
                1,
                get(block, ISSUED_SHARED),
                get(device, DEVICE_STREAM),
                0,
                block + ISSUED_EXTRA,
            ),
        )
    return finish_issue(block, device, code)


def issue_graph(block, lo, hi, scratch):
    """Give the first nodes of a graph their parameters of this launch, and launch it."""
    device, executable, at = get(block, ISSUED_DEVICE), get(block, GRAPH_EXECUTABLE), block + GRAPH_FIRST
    put(block, ISSUED_STATE, 0)
    if get(block, ISSUED_FAILURE) != 0:
        put(get(block, ISSUED_FAILURE), 0, NEVER)
        put(at, NODE_BLOCK + 8 * SETTER_VALUES, get(block, ISSUED_FAILURE))
    code = call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    for _ in range(get(block, GRAPH_SETTERS)):
        put(at, NODE_ARGUMENTS, at + NODE_ARGUMENT)
        put(at, NODE_ARGUMENT, at + NODE_BLOCK)
        if code == 0:
            node = get(at, NODE_HANDLE)
            code = call_c(get(device, DEVICE_SET_NODE), (executable, node, at + NODE_PARAMETERS))
        at += get(at, NODE_BYTES)
    if code == 0:
        code = call_c(get(device, DEVICE_LAUNCH_GRAPH), (executable, get(device, DEVICE_STREAM)))
    return finish_issue(block, device, code)


def issue_copy(block, lo, hi, scratch):
    """Copy memory to the device, from it, or within it."""
    device, kind, size = get(block, ISSUED_DEVICE), get(block, ISSUED_COPY_KIND), get(block, ISSUED_COPY_SIZE)
    put(block, ISSUED_STATE, 0)
    code = call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    if code == 0 and size > 0:
        place = DEVICE_COPY_IN
        if kind == OUT:
            place = DEVICE_COPY_OUT
        elif kind == WITHIN:
            place = DEVICE_COPY_WITHIN
        target, source = get(block, ISSUED_COPY_TO), get(block, ISSUED_COPY_FROM)
        code = call_c(get(device, place), (target, source, size, get(device, DEVICE_STREAM)))
    return finish_issue(block, device, code)


def watch(engine, lane, thread):
    """Complete the tasks that the device of `lane` has, in order, until the thread shall stop."""
    device = get(lane, LANE_DEVICE)
    call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    lock(engine)
    while get(thread, THREAD_STOP) == 0:
        task = get(lane, LANE_ISSUED)
        if task == 0:
            idle(engine, thread, lane + LANE_WATCHER, NEVER)
            continue
        unlock(engine)
        block, status = get(task, TASK_BLOCK), 0
        if get(block, ISSUED_STATE) != 0:
            status = 0 - call_c(get(device, DEVICE_SYNCHRONIZE), (get(block, ISSUED_EVENT),))
            if status == 0 and get(block, ISSUED_FAILURE) != 0:
                told = get(get(block, ISSUED_FAILURE), 0)
                if told != NEVER:
                    status = told
        lock(engine)
        while get(engine, ENGINE_PAUSED) == HALTED:  # the process forks now
            unlock(engine)
            usleep(POLL)
            lock(engine)
        complete_first(engine, lane, status)
        rouse(engine, 0)
    unlock(engine)
    return 0


KERNEL = int64(int64, int64, int64, int64)

ENTRIES = [
    ("engine_issue_kernel", issue_kernel, KERNEL),
    ("engine_issue_graph", issue_graph, KERNEL),
    ("engine_issue_copy", issue_copy, KERNEL),
    ("engine_watch", watch, int64(int64, int64, int64)),
]
"""Name, function and signature of the entry points: an object of their own, for whoever has a GPU."""
