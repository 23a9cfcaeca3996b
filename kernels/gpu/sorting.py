"""Sorting and searching on GPUs.

A line is sorted by a block of threads with Batcher's bitonic network, whose comparators all point one way
(the first step of a merge compares mirrored positions), so that a line needs no padding: a partner behind the
end counts as larger than all. The network depends on the length only; positions make equal elements
different, so `argsort` is stable.
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
def number_goes_before(a, b):
    """Whether `a` comes before `b`: nan is above all."""
    return a < b or (a == a and b != b)


@subroutine
def complex_goes_before(a, b):
    """The same for complex numbers: by their real parts, then their imaginary parts; those with nan come
    last, first those whose real part is a number, as in NumPy.
    """
    a_real, a_imag, b_real, b_imag = real_of(a), imag_of(a), real_of(b), imag_of(b)
    if a_real != a_real or b_real != b_real:
        if a_real != a_real and b_real != b_real:
            return number_goes_before(a_imag, b_imag)
        return a_real == a_real
    if (a_imag != a_imag) != (b_imag != b_imag):
        return a_imag == a_imag
    if a_real != b_real:
        return a_real < b_real
    return number_goes_before(a_imag, b_imag)


def order_of(dtype):
    """The comparison of elements of a dtype."""
    return complex_goes_before if isinstance(dtype, types.Complex) else number_goes_before


def make_network(exchange):
    """Make network(line, keys, count, stride): `exchange` for all comparators, with barriers between."""

    @subroutine
    def network(line, keys, count, stride):
        half = 1
        while half < count:
            t = thread_x()
            while (t // half) * 2 * half + half < count + t % half:
                group, o = t // half, t % half
                exchange(line, keys, group * 2 * half + o, (group + 1) * 2 * half - 1 - o, count, stride)
                t += threads_x()
            barrier()
            step = half // 2
            while step > 0:
                t = thread_x()
                while (t // step) * 2 * step < count:
                    i = (t // step) * 2 * step + t % step
                    exchange(line, keys, i, i + step, count, stride)
                    t += threads_x()
                barrier()
                step = step // 2
            half = 2 * half

    return network


@subroutine
def start_of(block, unit):
    """The first element of a line."""
    inner = slot(block, Lines.INNER)
    return unit // inner * slot(block, Lines.COUNT) * inner + unit % inner


def make_lines(network, dtype, itemsize, out_dtype, out_itemsize, start):
    """Make a kernel that sorts lines: the threads of a block write ``start(x, place, i)`` for each element
    of a line, whose place in X is ``i * stride``, and sort that with a network.
    """

    @subroutine
    def sort_line(block, unit):
        first, count, stride = start_of(block, unit), slot(block, Lines.COUNT), slot(block, Lines.INNER)
        x = pointer(slot(block, Lines.X) + itemsize * first, dtype)
        out = pointer(slot(block, Lines.OUT) + out_itemsize * first, out_dtype)
        i = thread_x()
        while i < count:
            out[i * stride] = start(x, i * stride, i)
            i += threads_x()
        barrier()
        network(out, x, count, stride)

    return blocks_for_each(Lines.OUT + 1, sort_line)


@subroutine
def element_at(x, place, i):
    """The element, of which lines of elements begin."""
    return x[place]


@subroutine
def position_of(x, place, i):
    """The position, of which lines of positions begin."""
    return i


def make_sort(dtype, itemsize):
    """Elements in ascending order."""
    goes_before = order_of(dtype)

    @subroutine
    def exchange(line, keys, i, j, count, stride):
        if j < count:
            a, b = line[i * stride], line[j * stride]
            if goes_before(b, a):
                line[i * stride] = b
                line[j * stride] = a

    return make_lines(make_network(exchange), dtype, itemsize, dtype, itemsize, element_at)


def make_argsort(dtype, itemsize):
    """Positions in ascending order of the elements; of equal ones in their own."""
    goes_before = order_of(dtype)

    @subroutine
    def exchange(line, keys, i, j, count, stride):
        if j < count:
            first, second = line[i * stride], line[j * stride]
            a, b = keys[first * stride], keys[second * stride]
            if goes_before(b, a) or (second < first and not goes_before(a, b)):
                line[i * stride] = second
                line[j * stride] = first

    return make_lines(make_network(exchange), dtype, itemsize, int64, 8, position_of)


def make_search_sorted(dtype, itemsize):
    """A kernel of the places where values go in sorted rows, by binary search."""
    goes_before = order_of(dtype)

    @subroutine
    def search(block, unit):
        count = slot(block, Search.COUNT)
        row = unit // slot(block, Search.EACH)
        x = pointer(slot(block, Search.X) + itemsize * row * count, dtype)
        value = pointer(slot(block, Search.VALUES), dtype)[unit]
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if slot(block, Search.RIGHT) != 0:
                further = not goes_before(value, x[middle])
            else:
                further = goes_before(x[middle], value)
            if further:
                low = middle + 1
            else:
                high = middle
        pointer(slot(block, Search.OUT), int64)[unit] = low

    return for_each(Search.OUT + 1, search)


def make_gcd(dtype, itemsize):
    """Greatest common divisors of integers, as Euclid has them."""

    @subroutine
    def divisor(block, unit):
        a = pointer(slot(block, Pairs.FIRST), dtype)[unit]
        b = pointer(slot(block, Pairs.SECOND), dtype)[unit]
        while b != 0:
            a, b = b, dtype(a % b)
        pointer(slot(block, Pairs.OUT), dtype)[unit] = dtype(-a) if a < 0 else a

    return for_each(Pairs.OUT + 1, divisor)


MAKERS = {"sort": make_sort, "argsort": make_argsort, "search_sorted": make_search_sorted, "gcd": make_gcd}
"""Makers of kernels, by operator: ``make(dtype, itemsize)``."""
