"""The decomposition `qr` on GPUs, by Householder's reflections, with the signs of LAPACK.

The threads of a block have a matrix, as in `systems`. Source: Golub and Van Loan, Matrix Computations, 4th
edition, 5.1 and 5.2.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import numbers
from tracejit.kernels.gpu.plan import Decomposition
from tracejit.kernels.gpu.systems import copied
from tracejit.kernels.gpu.threads import blocks_for_each, largest_of_block, total_of_block
from tracejit.kernels.gpu.words import barrier, block_x, shared, thread_x, threads_x
from tracejit.kernels.scalar import add, divide, multiply, sqrt, subtract


def make_reflections(dtype):
    """Make triangular(a, rows, width, columns, factors), which makes elements of columns below the diagonal
    zero by reflections, and keeps their vectors there; and reflected(a, rows, width, k, factor, x, at, step),
    which does reflection `k` to a column of `x`.
    """
    of = numbers(dtype)
    real, number, part, rest, conjugate, size = of.real, of.number, of.part, of.rest, of.conjugate, of.size

    @subroutine
    def square(x, scale):
        a, b = part(x) / scale, rest(x) / scale
        return a * a + b * b

    @subroutine
    def reflect(a, rows, width, k, factors):
        best, at = real(-1), k
        r = k + 1 + thread_x()
        while r < rows:
            s = size(a[r * width + k])
            if s > best or (s != s and best == best):
                best, at = s, r
            r += threads_x()
        row = largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, at)
        head = a[k * width + k]
        below = size(a[row * width + k]) if row > k else real(0)
        if below == real(0) and rest(head) == real(0):
            if thread_x() == 0:
                factors[k] = number(real(0), real(0))
            barrier()
            return
        scale = below if below > size(head) or below != below else size(head)
        total = real(0)
        r = k + 1 + thread_x()
        while r < rows:
            total += square(a[r * width + k], scale)
            r += threads_x()
        total = total_of_block(shared(8 * threads_x(), real), total)
        length = scale * sqrt(total + square(head, scale))
        if part(head) >= real(0):
            length = -length
        divisor = subtract(head, number(length, real(0)))
        r = k + 1 + thread_x()
        while r < rows:
            a[r * width + k] = divide(a[r * width + k], divisor)
            r += threads_x()
        barrier()
        if thread_x() == 0:
            a[k * width + k] = number(length, real(0))
            factors[k] = number((length - part(head)) / length, -rest(head) / length)
        barrier()

    @subroutine
    def reflected(a, rows, width, k, factor, x, at, step):
        total = x[at + k * step]
        for r in range(k + 1, rows):
            total = add(total, multiply(conjugate(a[r * width + k]), x[at + r * step]))
        total = multiply(factor, total)
        x[at + k * step] = subtract(x[at + k * step], total)
        for r in range(k + 1, rows):
            x[at + r * step] = subtract(x[at + r * step], multiply(a[r * width + k], total))

    @subroutine
    def triangular(a, rows, width, columns, factors):
        """Reflect the first columns of `a`, as many as there are."""
        for k in range(min(rows, columns)):
            reflect(a, rows, width, k, factors)
            c = k + 1 + thread_x()
            while c < columns:
                reflected(a, rows, width, k, conjugate(factors[k]), a, c, width)
                c += threads_x()
            barrier()

    return triangular, reflected


def make_qr(dtype, itemsize):
    """Orthonormal columns and an upper triangle; OPTION: whether all columns are wanted."""
    triangular, reflected = make_reflections(dtype)
    of = numbers(dtype)
    real, number = of.real, of.number

    @subroutine
    def one_matrix(block, unit):
        rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
        count = min(rows, columns)
        kept = rows if slot(block, Decomposition.OPTION) != 0 else count
        space = slot(block, Decomposition.SECOND + 2) + slot(block, Decomposition.SPACE) * block_x()
        a, factors = pointer(space, dtype), pointer(space + itemsize * rows * columns, dtype)
        q = pointer(slot(block, Decomposition.FIRST) + itemsize * unit * rows * kept, dtype)
        r = pointer(slot(block, Decomposition.SECOND) + itemsize * unit * kept * columns, dtype)
        x = pointer(slot(block, Decomposition.X) + itemsize * unit * rows * columns, dtype)
        copied(a, x, rows * columns)
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
            for back in range(count):
                k = count - 1 - back
                reflected(a, rows, columns, k, factors[k], q, c, kept)
            c += threads_x()
        barrier()

    return blocks_for_each(Decomposition.SECOND + 1, one_matrix)


MAKERS = {"qr": make_qr}
"""Makers of kernels, by operator: ``make(dtype, itemsize)``."""
