"""The first and the last kernel of a graph of kernels (see `tracejit.engine.cuda.graphs`).

The first one writes what differs from launch to launch, which is in its own parameters, into the blocks of
all others, which lie in the device's memory; and clears the words that kernels lower when they fail. The last
one tells the host which of these was lowered first, in the order of tasks.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.executor.layout import FINISH_COUNT, FINISH_TARGET, FINISH_WORDS, NEVER, RANK
from tracejit.kernels.executor.layout import SETTER_COUNT as COUNT
from tracejit.kernels.executor.layout import SETTER_FAILING as FAILING
from tracejit.kernels.executor.layout import SETTER_PLACES as PLACES
from tracejit.kernels.executor.layout import SETTER_VALUES as VALUES
from tracejit.kernels.executor.layout import SETTER_WORDS as WORDS
from tracejit.kernels.gpu.words import thread_x, threads_x


def set_blocks(block):
    """Write the values of this launch to their places."""
    words, places = pointer(slot(block, WORDS), int64), pointer(slot(block, PLACES), int64)
    at = thread_x()
    while at < slot(block, FAILING):
        words[at] = NEVER
        at += threads_x()
    at = thread_x()
    while at < slot(block, COUNT):
        pointer(places[at], int64)[0] = slot(block, VALUES + at)
        at += threads_x()


def tell(block):
    """Write the status of the launch: the first failed task and its status."""
    if thread_x() == 0:
        words, told = pointer(slot(block, FINISH_WORDS), int64), NEVER
        for i in range(slot(block, FINISH_COUNT)):
            status = words[i]
            if told == NEVER and status != NEVER:
                told = i * RANK + status
        pointer(slot(block, FINISH_TARGET), int64)[0] = told
