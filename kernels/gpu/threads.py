"""Loops of handwritten kernels over units, distributed over the threads of a GPU.

The number of units is in slot `units` of a kernel's block, after the addresses of its operands.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.words import barrier, block_x, blocks_x, thread_x, threads_x


def for_each(units, body):
    """Return a kernel in which each thread calls ``body(block, unit)`` for its units, one after the other."""

    def kernel(block):
        unit = block_x() * threads_x() + thread_x()
        while unit < slot(block, units):
            body(block, unit)
            unit += blocks_x() * threads_x()

    return kernel


def blocks_for_each(units, body):
    """Return a kernel in which all threads of a block call ``body(block, unit)`` together."""

    def kernel(block):
        unit = block_x()
        while unit < slot(block, units):
            body(block, unit)
            unit += blocks_x()

    return kernel


@subroutine
def total_of_block(cells, value):
    """Return to all threads of a block the sum of their values, computed in a tree. `cells`: shared memory
    with one element per thread; the number of threads is a power of two.
    """
    thread, step = thread_x(), threads_x() // 2
    cells[thread] = value
    barrier()
    while step > 0:
        if thread < step:
            cells[thread] = cells[thread] + cells[thread + step]
        barrier()
        step = step // 2
    total = cells[0]
    barrier()
    return total


@subroutine
def largest_of_block(indices, magnitudes, magnitude, index):
    """Return to all threads of a block the index with the largest magnitude, where nan is the largest;
    among equal ones, the smallest index. `indices`, `magnitudes`: shared memory with one element per
    thread; the number of threads is a power of two.
    """
    thread, step = thread_x(), threads_x() // 2
    indices[thread] = index
    magnitudes[thread] = magnitude
    barrier()
    while step > 0:
        if thread < step:
            one, other = magnitudes[thread], magnitudes[thread + step]
            larger = other > one or (other != other and one == one)
            equal = other == one or (other != other and one != one)
            if larger or (equal and indices[thread + step] < indices[thread]):
                magnitudes[thread] = other
                indices[thread] = indices[thread + step]
        barrier()
        step = step // 2
    result = indices[0]
    barrier()
    return result
