"""Sorting on GPUs.

A block of threads sorts a line with a variant of Batcher's bitonic network whose comparators all have the
same direction (the first step of a merge compares mirrored positions). A line therefore needs no padding: a
partner beyond the end counts as larger than all elements. The network depends on the length only. `argsort`
is stable because positions distinguish equal elements.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.plan import BlockLines
from tracejit.kernels.gpu.threads import blocks_for_each
from tracejit.kernels.gpu.words import barrier, thread_x, threads_x
from tracejit.kernels.library.comparisons import comparison_of
from tracejit.kernels.library.sorting import line_start


def make_network(exchange):
    """Return network(line, keys, length, stride), which applies `exchange` for all comparators, with
    barriers between the steps.
    """

    @subroutine
    def network(line, keys, length, stride):
        half = 1
        while half < length:
            t = thread_x()
            while (t // half) * 2 * half + half < length + t % half:
                group, o = t // half, t % half
                exchange(line, keys, group * 2 * half + o, (group + 1) * 2 * half - 1 - o, length, stride)
                t += threads_x()
            barrier()
            step = half // 2
            while step > 0:
                t = thread_x()
                while (t // step) * 2 * step < length:
                    i = (t // step) * 2 * step + t % step
                    exchange(line, keys, i, i + step, length, stride)
                    t += threads_x()
                barrier()
                step = step // 2
            half = 2 * half

    return network


def make_lines(network, dtype, itemsize, out_dtype, out_itemsize, start):
    """Return a kernel that sorts lines. The threads of a block write ``start(x, index, i)`` for each
    element `i` of a line, whose index in X is ``i * stride``, and then sort these values with a network.
    """

    @subroutine
    def sort_line(block, unit):
        length, stride = slot(block, BlockLines.COUNT), slot(block, BlockLines.INNER)
        first = line_start(unit, length, stride)
        x = pointer(slot(block, BlockLines.X) + itemsize * first, dtype)
        out = pointer(slot(block, BlockLines.OUT) + out_itemsize * first, out_dtype)
        i = thread_x()
        while i < length:
            out[i * stride] = start(x, i * stride, i)
            i += threads_x()
        barrier()
        network(out, x, length, stride)

    return blocks_for_each(BlockLines.OUT + 1, sort_line)


@subroutine
def element_at(x, index, i):
    """Return the element: the initial value for lines of elements."""
    return x[index]


@subroutine
def position_of(x, index, i):
    """Return the position: the initial value for lines of positions."""
    return i


def make_sort(dtype, itemsize):
    """Return the kernel of ``sort``: elements in ascending order."""
    precedes = comparison_of(dtype)

    @subroutine
    def exchange(line, keys, i, j, length, stride):
        if j < length:
            a, b = line[i * stride], line[j * stride]
            if precedes(b, a):
                line[i * stride] = b
                line[j * stride] = a

    return make_lines(make_network(exchange), dtype, itemsize, dtype, itemsize, element_at)


def make_argsort(dtype, itemsize):
    """Return the kernel of ``argsort``: positions in ascending order of the elements; positions of equal
    elements are ascending.
    """
    precedes = comparison_of(dtype)

    @subroutine
    def exchange(line, keys, i, j, length, stride):
        if j < length:
            first, second = line[i * stride], line[j * stride]
            a, b = keys[first * stride], keys[second * stride]
            if precedes(b, a) or (second < first and not precedes(a, b)):
                line[i * stride] = second
                line[j * stride] = first

    return make_lines(make_network(exchange), dtype, itemsize, int64, 8, position_of)


MAKERS = {"sort": make_sort, "argsort": make_argsort}
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
