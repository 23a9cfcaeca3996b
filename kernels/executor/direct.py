"""Direct calls: small programs that run immediately on the calling thread, without a launch.

No other program accesses the memory that a direct call writes, and none writes the memory that it reads, so
it needs no variables, no lock and no instance. The record of a direct call (`layout.DIRECT_...`) refers to
its argument blocks; the call fills in addresses and numbers and runs one task after the other. The thread
holds the GIL, so two threads never use the same record simultaneously.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import call_kernel
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.layout import (
    DIRECT_PATCH_COUNT,
    DIRECT_PATCHES,
    DIRECT_SCRATCH,
    DIRECT_TASK_BYTES,
    DIRECT_TASK_COUNT,
    DIRECT_TASKS,
    NUMBER,
    NUMPY_DATA,
    PATCH_BYTES,
)
from tracejit.kernels.executor.python import (
    RAISED,
    argument,
    bad_arguments,
    error_occurred,
    integer,
    object_of,
)
from tracejit.kernels.executor.threads import get, put


@native
def run_direct(call, arguments):
    """Run the tasks of the record `call` on the NumPy arrays and integers that follow it in `arguments`.

    Return the status of the first chunk that fails, or 0.
    """
    patch = get(call, DIRECT_PATCHES)
    for _ in range(get(call, DIRECT_PATCH_COUNT)):
        slot, index, mode, addend = get(patch, 0), get(patch, 8), get(patch, 16), get(patch, 24)
        if mode == NUMBER:
            put(slot, 0, integer(arguments, index))
        else:
            put(slot, 0, get(argument(arguments, index), NUMPY_DATA) + addend)
        patch += PATCH_BYTES
    task = get(call, DIRECT_TASKS)
    for _ in range(get(call, DIRECT_TASK_COUNT)):
        function, block, units, chunk = get(task, 0), get(task, 8), get(task, 16), get(task, 24)
        low = 0
        while low < units:
            high = min(low + chunk, units)
            status = call_kernel(function, block, low, high, get(call, DIRECT_SCRATCH))
            if status != 0:
                return status
            low = high
        task += DIRECT_TASK_BYTES
    return 0


@native
def direct_builtin(module, arguments, count):
    """The builtin ``direct(call, *arguments)``: arguments are NumPy arrays, or bits of numbers as int."""
    if count < 1:
        return bad_arguments()
    status = run_direct(integer(arguments, 0), arguments)
    return RAISED if error_occurred() != 0 else object_of(status)
