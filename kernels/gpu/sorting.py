"""Sorting and searching on GPUs.

A block of threads sorts a line with a variant of Batcher's bitonic network whose comparators all have the
same direction (the first step of a merge compares mirrored positions). A line therefore needs no padding: a
partner beyond the end counts as larger than all elements. The network depends on the length only. `argsort`
is stable because positions distinguish equal elements.
"""

from __future__ import annotations

from numba import int64, types

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import imag_of, real_of
from tracejit.kernels.gpu.plan import Lines, Pairs, Search
from tracejit.kernels.gpu.threads import blocks_for_each, for_each
from tracejit.kernels.gpu.words import barrier, thread_x, threads_x


@subroutine
def number_precedes(a, b):
    """Return whether `a` precedes `b`; nan is the largest."""
    return a < b or (a == a and b != b)


@subroutine
def complex_precedes(a, b):
    """Return whether `a` precedes `b` in NumPy's order of complex numbers: by real parts, then by
    imaginary parts. Numbers with a nan come last, those with a nan only in the imaginary part first among
    them.
    """
    a_real, a_imag, b_real, b_imag = real_of(a), imag_of(a), real_of(b), imag_of(b)
    if a_real != a_real or b_real != b_real:
        if a_real != a_real and b_real != b_real:
            return number_precedes(a_imag, b_imag)
        return a_real == a_real
    if (a_imag != a_imag) != (b_imag != b_imag):
        return a_imag == a_imag
    if a_real != b_real:
        return a_real < b_real
    return number_precedes(a_imag, b_imag)


def comparison_of(dtype):
    """Return the comparison of elements of a dtype."""
    return complex_precedes if isinstance(dtype, types.Complex) else number_precedes


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


@subroutine
def line_start(block, unit):
    """Return the index of the first element of a line."""
    inner = slot(block, Lines.INNER)
    return unit // inner * slot(block, Lines.COUNT) * inner + unit % inner


def make_lines(network, dtype, itemsize, out_dtype, out_itemsize, start):
    """Return a kernel that sorts lines. The threads of a block write ``start(x, index, i)`` for each
    element `i` of a line, whose index in X is ``i * stride``, and then sort these values with a network.
    """

    @subroutine
    def sort_line(block, unit):
        first, length, stride = line_start(block, unit), slot(block, Lines.COUNT), slot(block, Lines.INNER)
        x = pointer(slot(block, Lines.X) + itemsize * first, dtype)
        out = pointer(slot(block, Lines.OUT) + out_itemsize * first, out_dtype)
        i = thread_x()
        while i < length:
            out[i * stride] = start(x, i * stride, i)
            i += threads_x()
        barrier()
        network(out, x, length, stride)

    return blocks_for_each(Lines.OUT + 1, sort_line)


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


def make_search_sorted(dtype, itemsize):
    """Return the kernel of ``search_sorted``: the insertion positions of values in sorted rows, by binary
    search.
    """
    precedes = comparison_of(dtype)

    @subroutine
    def search(block, unit):
        length = slot(block, Search.COUNT)
        row = unit // slot(block, Search.EACH)
        x = pointer(slot(block, Search.X) + itemsize * row * length, dtype)
        value = pointer(slot(block, Search.VALUES), dtype)[unit]
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            if slot(block, Search.RIGHT) != 0:
                is_above = not precedes(value, x[middle])
            else:
                is_above = precedes(x[middle], value)
            if is_above:
                low = middle + 1
            else:
                high = middle
        pointer(slot(block, Search.OUT), int64)[unit] = low

    return for_each(Search.OUT + 1, search)


def make_gcd(dtype, itemsize):
    """Return the kernel of ``gcd``: greatest common divisors of integers, by Euclid's algorithm."""

    @subroutine
    def divisor(block, unit):
        a = pointer(slot(block, Pairs.FIRST), dtype)[unit]
        b = pointer(slot(block, Pairs.SECOND), dtype)[unit]
        while b != 0:
            a, b = b, dtype(a % b)
        pointer(slot(block, Pairs.OUT), dtype)[unit] = dtype(-a) if a < 0 else a

    return for_each(Pairs.OUT + 1, divisor)


MAKERS = {"sort": make_sort, "argsort": make_argsort, "search_sorted": make_search_sorted, "gcd": make_gcd}
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
