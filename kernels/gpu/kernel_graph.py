"""The first and the last kernel of a graph of kernels (see `tracejit.engine.cuda.graphs`).

The first kernel writes the values that differ between launches, which are in its own parameters, into the
blocks of all other kernels, which are in device memory. It also resets the status words that kernels lower
when they fail. The last kernel reports to the host the first of these words, in the order of tasks, that was
lowered.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.executor.layout import FINISH_COUNT, FINISH_TARGET, FINISH_WORDS, NEVER, RANK
from tracejit.kernels.executor.layout import SETTER_ADDRESSES as ADDRESSES
from tracejit.kernels.executor.layout import SETTER_COUNT as COUNT
from tracejit.kernels.executor.layout import SETTER_FAILING as FAILING
from tracejit.kernels.executor.layout import SETTER_VALUES as VALUES
from tracejit.kernels.executor.layout import SETTER_WORDS as WORDS
from tracejit.kernels.gpu.words import thread_x, threads_x


def set_blocks(block):
    """Write the values of this launch into the blocks, and reset the status words."""
    words, addresses = pointer(slot(block, WORDS), int64), pointer(slot(block, ADDRESSES), int64)
    index = thread_x()
    while index < slot(block, FAILING):
        words[index] = NEVER
        index += threads_x()
    index = thread_x()
    while index < slot(block, COUNT):
        pointer(addresses[index], int64)[0] = slot(block, VALUES + index)
        index += threads_x()


def tell(block):
    """Write the status of the launch: the number of the first failed task, and its status."""
    if thread_x() == 0:
        words, launch_status = pointer(slot(block, FINISH_WORDS), int64), NEVER
        for i in range(slot(block, FINISH_COUNT)):
            status = words[i]
            if launch_status == NEVER and status != NEVER:
                launch_status = i * RANK + status
        pointer(slot(block, FINISH_TARGET), int64)[0] = launch_status
