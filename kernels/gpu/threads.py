"""Loops of handwritten kernels over units, shared out among the threads of a GPU.

The number of units stands behind the addresses of a kernel's operands: in slot `units` of its block.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.words import barrier, block_x, blocks_x, thread_x, threads_x


def for_each(units, one):
    """Make a kernel in which a thread does ``one(block, unit)`` for one unit after the other."""

    def kernel(block):
        unit = block_x() * threads_x() + thread_x()
        while unit < slot(block, units):
            one(block, unit)
            unit += blocks_x() * threads_x()

    return kernel


def blocks_for_each(units, one):
    """Make a kernel in which all threads of a block do ``one(block, unit)`` together."""

    def kernel(block):
        unit = block_x()
        while unit < slot(block, units):
            one(block, unit)
            unit += blocks_x()

    return kernel


@subroutine
def total_of_block(box, value):
    """The sum of the values of all threads of a block, in a tree; for all of them. `box`: shared memory with
    a place for each thread, of which there is a power of two.
    """
    thread, step = thread_x(), threads_x() // 2
    box[thread] = value
    barrier()
    while step > 0:
        if thread < step:
            box[thread] = box[thread] + box[thread + step]
        barrier()
        step = step // 2
    total = box[0]
    barrier()
    return total


@subroutine
def largest_of_block(places, sizes, size, place):
    """The place of the largest `size` of all threads of a block, of equal ones the first place; nan is above
    all. `places`, `sizes`: shared memory with a place for each thread, of which there is a power of two.
    """
    thread, step = thread_x(), threads_x() // 2
    places[thread] = place
    sizes[thread] = size
    barrier()
    while step > 0:
        if thread < step:
            one, other = sizes[thread], sizes[thread + step]
            larger = other > one or (other != other and one == one)
            equal = other == one or (other != other and one != one)
            if larger or (equal and places[thread + step] < places[thread]):
                sizes[thread] = other
                places[thread] = places[thread + step]
        barrier()
        step = step // 2
    found = places[0]
    barrier()
    return found
