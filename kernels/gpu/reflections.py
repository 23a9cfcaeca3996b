"""The decomposition `qr` on GPUs, by Householder reflections, with the sign convention of LAPACK.

The threads of a block decompose one matrix together, as in `systems`. Source: Golub and Van Loan, Matrix
Computations, 4th edition, 5.1 and 5.2.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import numbers
from tracejit.kernels.gpu.plan import Decomposition
from tracejit.kernels.gpu.systems import copy_elements
from tracejit.kernels.gpu.threads import blocks_for_each, largest_of_block, total_of_block
from tracejit.kernels.gpu.words import barrier, block_x, shared, thread_x, threads_x
from tracejit.kernels.scalar import add, divide, multiply, sqrt, subtract


def make_reflections(dtype):
    """Return two subroutines: triangular(a, rows, width, columns, factors), which eliminates the elements
    of columns below the diagonal by reflections and stores the reflection vectors there; and
    reflect_column(a, rows, width, k, factor, x, at, step), which applies reflection `k` to a column of
    `x`.
    """
    routines = numbers(dtype)
    real, number, real_part, imag_part, conjugate, magnitude = (
        routines.real,
        routines.number,
        routines.real_part,
        routines.imag_part,
        routines.conjugate,
        routines.magnitude,
    )

    @subroutine
    def square(x, scale):
        a, b = real_part(x) / scale, imag_part(x) / scale
        return a * a + b * b

    @subroutine
    def make_reflection(a, rows, width, k, factors):
        best, at = real(-1), k
        r = k + 1 + thread_x()
        while r < rows:
            s = magnitude(a[r * width + k])
            if s > best or (s != s and best == best):
                best, at = s, r
            r += threads_x()
        row = largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, at)
        head = a[k * width + k]
        below = magnitude(a[row * width + k]) if row > k else real(0)
        if below == real(0) and imag_part(head) == real(0):
            if thread_x() == 0:
                factors[k] = number(real(0), real(0))
            barrier()
            return
        scale = below if below > magnitude(head) or below != below else magnitude(head)
        total = real(0)
        r = k + 1 + thread_x()
        while r < rows:
            total += square(a[r * width + k], scale)
            r += threads_x()
        total = total_of_block(shared(8 * threads_x(), real), total)
        length = scale * sqrt(total + square(head, scale))
        if real_part(head) >= real(0):
            length = -length
        divisor = subtract(head, number(length, real(0)))
        r = k + 1 + thread_x()
        while r < rows:
            a[r * width + k] = divide(a[r * width + k], divisor)
            r += threads_x()
        barrier()
        if thread_x() == 0:
            a[k * width + k] = number(length, real(0))
            factors[k] = number((length - real_part(head)) / length, -imag_part(head) / length)
        barrier()

    @subroutine
    def reflect_column(a, rows, width, k, factor, x, at, step):
        total = x[at + k * step]
        for r in range(k + 1, rows):
            total = add(total, multiply(conjugate(a[r * width + k]), x[at + r * step]))
        total = multiply(factor, total)
        x[at + k * step] = subtract(x[at + k * step], total)
        for r in range(k + 1, rows):
            x[at + r * step] = subtract(x[at + r * step], multiply(a[r * width + k], total))

    @subroutine
    def triangular(a, rows, width, columns, factors):
        """Apply one reflection for each column of `a`, as many as there are rows."""
        for k in range(min(rows, columns)):
            make_reflection(a, rows, width, k, factors)
            c = k + 1 + thread_x()
            while c < columns:
                reflect_column(a, rows, width, k, conjugate(factors[k]), a, c, width)
                c += threads_x()
            barrier()

    return triangular, reflect_column


def make_qr(dtype, itemsize):
    """Return the kernel of ``qr``: orthonormal columns and an upper triangle. OPTION: whether all columns
    of the square factor are computed.
    """
    triangular, reflect_column = make_reflections(dtype)
    routines = numbers(dtype)
    real, number = routines.real, routines.number

    @subroutine
    def one_matrix(block, unit):
        rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
        n_reflections = min(rows, columns)
        kept = rows if slot(block, Decomposition.OPTION) != 0 else n_reflections
        space = slot(block, Decomposition.SECOND + 2) + slot(block, Decomposition.SPACE) * block_x()
        a, factors = pointer(space, dtype), pointer(space + itemsize * rows * columns, dtype)
        q = pointer(slot(block, Decomposition.FIRST) + itemsize * unit * rows * kept, dtype)
        r = pointer(slot(block, Decomposition.SECOND) + itemsize * unit * kept * columns, dtype)
        x = pointer(slot(block, Decomposition.X) + itemsize * unit * rows * columns, dtype)
        copy_elements(a, x, rows * columns)
        barrier()
        triangular(a, rows, columns, columns, factors)
        t = thread_x()
        while t < kept * columns:
            r[t] = a[t] if t // columns <= t % columns else number(real(0), real(0))
            t += threads_x()
        c = thread_x()
        while c < kept:
            for i in range(rows):
                q[i * kept + c] = number(real(i == c), real(0))
            for back in range(n_reflections):
                k = n_reflections - 1 - back
                reflect_column(a, rows, columns, k, factors[k], q, c, kept)
            c += threads_x()
        barrier()

    return blocks_for_each(Decomposition.SECOND + 1, one_matrix)


MAKERS = {"qr": make_qr}
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
