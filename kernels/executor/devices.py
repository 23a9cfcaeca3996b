"""Tasks of asynchronous devices, GPUs: they are issued to a stream and complete later.

The function of a task issues it (`issue_kernel`, `issue_graph`, `issue_copy`): it calls the driver, through
an address in the device's record, and records an event after the issued work. When the function returns, the
executor marks the task as issued (`queues.issue`), so that dependent tasks on the same stream can be issued
too. One thread for each device (`watch`) waits for the events in order and completes the tasks.

`layout` defines the records: the device, and the argument block of a task (`ISSUED_...`).
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
from tracejit.kernels.executor.threads import get, idle, lock, native, put, unlock, usleep, wake_idle_threads

PACKED_PARAMETERS = 1  # CU_LAUNCH_PARAM_BUFFER_POINTER
PACKED_SIZE = 2  # CU_LAUNCH_PARAM_BUFFER_SIZE


@native
def finish_issue(block, device, code):
    """Record the task's event after the issued work, unless issuing failed; return the status of the task.

    `code` is the driver's error code, or 0.
    """
    if code == 0:
        code = call_c(get(device, DEVICE_RECORD), (get(block, ISSUED_EVENT), get(device, DEVICE_STREAM)))
    put(block, ISSUED_STATE, int64(code == 0))
    return 0 - code


@native
def issue_kernel(block, lo, hi, scratch):
    """Issue the kernel of a task with the parameters in its argument block."""
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


@native
def issue_graph(block, lo, hi, scratch):
    """Set the parameters of the first nodes of a graph for this launch, and issue the graph."""
    device, executable, record = get(block, ISSUED_DEVICE), get(block, GRAPH_EXECUTABLE), block + GRAPH_FIRST
    put(block, ISSUED_STATE, 0)
    if get(block, ISSUED_FAILURE) != 0:
        put(get(block, ISSUED_FAILURE), 0, NEVER)
        put(record, NODE_BLOCK + 8 * SETTER_VALUES, get(block, ISSUED_FAILURE))
    code = call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    for _ in range(get(block, GRAPH_SETTERS)):
        put(record, NODE_ARGUMENTS, record + NODE_ARGUMENT)
        put(record, NODE_ARGUMENT, record + NODE_BLOCK)
        if code == 0:
            node = get(record, NODE_HANDLE)
            code = call_c(get(device, DEVICE_SET_NODE), (executable, node, record + NODE_PARAMETERS))
        record += get(record, NODE_BYTES)
    if code == 0:
        code = call_c(get(device, DEVICE_LAUNCH_GRAPH), (executable, get(device, DEVICE_STREAM)))
    return finish_issue(block, device, code)


@native
def issue_copy(block, lo, hi, scratch):
    """Issue a copy of memory to the device, from it, or within it."""
    device, kind, size = get(block, ISSUED_DEVICE), get(block, ISSUED_COPY_KIND), get(block, ISSUED_COPY_SIZE)
    put(block, ISSUED_STATE, 0)
    code = call_c(get(device, DEVICE_SET_CURRENT), (get(device, DEVICE_CONTEXT),))
    if code == 0 and size > 0:
        copy_function = DEVICE_COPY_IN
        if kind == OUT:
            copy_function = DEVICE_COPY_OUT
        elif kind == WITHIN:
            copy_function = DEVICE_COPY_WITHIN
        target, source = get(block, ISSUED_COPY_TO), get(block, ISSUED_COPY_FROM)
        code = call_c(get(device, copy_function), (target, source, size, get(device, DEVICE_STREAM)))
    return finish_issue(block, device, code)


@native
def watch(engine, lane, thread):
    """Complete the tasks issued to the device of `lane`, in order, until the thread must stop."""
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
                device_status = get(get(block, ISSUED_FAILURE), 0)
                if device_status != NEVER:
                    status = device_status
        lock(engine)
        while get(engine, ENGINE_PAUSED) == HALTED:  # the process is forking
            unlock(engine)
            usleep(POLL)
            lock(engine)
        complete_first(engine, lane, status)
        wake_idle_threads(engine, 0)
    unlock(engine)
    return 0


ENTRIES = [
    ("engine_issue_kernel", issue_kernel),
    ("engine_issue_graph", issue_graph),
    ("engine_issue_copy", issue_copy),
    ("engine_watch", watch),
]
"""Name and function of each entry point. They are a separate object, for processes with a GPU."""
