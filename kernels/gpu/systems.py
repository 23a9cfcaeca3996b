"""Linear systems on GPUs: `solve`, `inv`, `slogdet` by Gaussian elimination, and `cholesky`.

The threads of a block have a matrix, with barriers between the steps; so a large matrix keeps one
processor of a GPU busy, and no other. Rows are exchanged for the largest element of a column, in the sense of
LAPACK: of a complex number, the sum of the magnitudes of its parts; of equal ones the first is taken.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import numbers
from tracejit.kernels.gpu.plan import Factor, GpuSystem
from tracejit.kernels.gpu.threads import blocks_for_each, largest_of_block
from tracejit.kernels.gpu.words import barrier, block_x, lower, shared, thread_x, threads_x
from tracejit.kernels.scalar import abs, divide, log, multiply, sqrt, subtract


@subroutine
def copied(target, source, count):
    """Copy elements; a barrier has to follow."""
    i = thread_x()
    while i < count:
        target[i] = source[i]
        i += threads_x()


@subroutine
def exchanged(x, width, i, j):
    """Exchange two rows; a barrier has to follow."""
    c = thread_x()
    while c < width:
        first = x[i * width + c]
        x[i * width + c] = x[j * width + c]
        x[j * width + c] = first
        c += threads_x()


@subroutine
def subtracted(x, width, first, factors, n, k):
    """Subtract from the rows below `k` of x, from column `first` on, row `k` times a column of factors."""
    across = width - first
    t = thread_x()
    while t < (n - k - 1) * across:
        i, j = k + 1 + t // across, first + t % across
        x[i * width + j] = subtract(x[i * width + j], multiply(factors[i * n + k], x[k * width + j]))
        t += threads_x()


def make_elimination(dtype):
    """Make eliminate(a, n, b, m): the sign of the permutation, or 0 if a matrix is singular."""
    of = numbers(dtype)
    real, size = of.real, of.size

    @subroutine
    def largest(a, n, k):
        """The row of the largest element of column `k`, from row `k` on."""
        best, at = real(-1), k
        r = k + thread_x()
        while r < n:
            s = size(a[r * n + k])
            if s > best or (s != s and best == best):  # nan is above all
                best, at = s, r
            r += threads_x()
        return largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, at)

    @subroutine
    def eliminate(a, n, b, m):
        """Make `a` upper triangular, its multipliers below, and do to `b` what is done to it."""
        sign = 1
        for k in range(n):
            row = largest(a, n, k)
            if row != k:
                sign = 0 - sign
                exchanged(a, n, k, row)
                exchanged(b, m, k, row)
                barrier()
            pivot = a[k * n + k]
            if size(pivot) == real(0):
                return 0
            r = k + 1 + thread_x()
            while r < n:
                a[r * n + k] = divide(a[r * n + k], pivot)
                r += threads_x()
            barrier()
            subtracted(a, n, k + 1, a, n, k)
            subtracted(b, m, 0, a, n, k)
            barrier()
        return sign

    return eliminate


def make_system(*, inverts):
    """Make a maker of `solve`, or of `inv`: the same with the unit matrix on the right."""
    result = GpuSystem.SECOND if inverts else GpuSystem.THIRD

    def make(dtype, itemsize):
        eliminate = make_elimination(dtype)
        of = numbers(dtype)
        real, number = of.real, of.number

        @subroutine
        def put_right_sides(block, b, unit, n, m):
            if inverts:
                t = thread_x()
                while t < n * n:
                    b[t] = number(real(t // n == t % n), real(0))
                    t += threads_x()
            else:
                copied(b, pointer(slot(block, GpuSystem.SECOND) + itemsize * unit * n * m, dtype), n * m)

        @subroutine
        def substitute(a, n, b, m):
            """Solve the triangular system that elimination has left."""
            for back in range(n):
                k = n - 1 - back
                c = thread_x()
                while c < m:
                    b[k * m + c] = divide(b[k * m + c], a[k * n + k])
                    c += threads_x()
                barrier()
                t = thread_x()
                while t < k * m:
                    i, j = t // m, t % m
                    b[t] = subtract(b[t], multiply(a[i * n + k], b[k * m + j]))
                    t += threads_x()
                barrier()

        @subroutine
        def one_system(block, unit):
            n, m = slot(block, GpuSystem.ROWS), slot(block, GpuSystem.COLUMNS)
            a = pointer(slot(block, result + 2) + itemsize * block_x() * n * n, dtype)
            b = pointer(slot(block, result) + itemsize * unit * n * m, dtype)
            copied(a, pointer(slot(block, GpuSystem.FIRST) + itemsize * unit * n * n, dtype), n * n)
            put_right_sides(block, b, unit, n, m)
            barrier()
            if eliminate(a, n, b, m) != 0:
                substitute(a, n, b, m)
            elif thread_x() == 0:
                lower(slot(block, result + 3), unit + 1)
            barrier()

        return blocks_for_each(result + 1, one_system)

    return make


def make_slogdet(dtype, itemsize):
    """The sign and the logarithm of the magnitude of a determinant."""
    eliminate = make_elimination(dtype)
    of = numbers(dtype)
    real, number, direction = of.real, of.number, of.direction

    @subroutine
    def one_matrix(block, unit):
        n = slot(block, Factor.COLUMNS)
        a = pointer(slot(block, Factor.SECOND + 2) + itemsize * block_x() * n * n, dtype)
        copied(a, pointer(slot(block, Factor.X) + itemsize * unit * n * n, dtype), n * n)
        barrier()
        permutation = eliminate(a, n, a, 0)
        if thread_x() == 0:
            sign, total = number(real(permutation), real(0)), real(0)
            if permutation == 0:
                total = log(real(0))
            else:
                for k in range(n):
                    sign = multiply(sign, direction(a[k * n + k]))
                    total = total + log(abs(a[k * n + k]))
            pointer(slot(block, Factor.FIRST), dtype)[unit] = sign
            pointer(slot(block, Factor.SECOND), real)[unit] = total
        barrier()

    return blocks_for_each(Factor.SECOND + 1, one_matrix)


def make_cholesky(dtype, itemsize):
    """The lower triangular factor of a positive definite matrix, of which the lower triangle is read."""
    of = numbers(dtype)
    real, number, part, conjugate = of.real, of.number, of.part, of.conjugate

    @subroutine
    def factor(a, n):
        """Whether the matrix, the lower triangle of `a`, is positive definite; `a` becomes its factor."""
        for k in range(n):
            square = part(a[k * n + k])
            if not square > real(0):
                return False
            barrier()
            length = number(sqrt(square), real(0))
            r = k + thread_x()
            while r < n:
                a[r * n + k] = divide(a[r * n + k], length) if r > k else length
                r += threads_x()
            barrier()
            t, rows = thread_x(), n - k - 1
            while t < rows * rows:
                i, j = k + 1 + t // rows, k + 1 + t % rows
                if j <= i:
                    product = multiply(a[i * n + k], conjugate(a[j * n + k]))
                    a[i * n + j] = subtract(a[i * n + j], product)
                t += threads_x()
            barrier()
        return True

    @subroutine
    def one_matrix(block, unit):
        n = slot(block, Factor.COLUMNS)
        x = pointer(slot(block, Factor.X) + itemsize * unit * n * n, dtype)
        a = pointer(slot(block, Factor.FIRST) + itemsize * unit * n * n, dtype)
        t = thread_x()
        while t < n * n:
            a[t] = x[t] if t % n <= t // n else number(real(0), real(0))
            t += threads_x()
        barrier()
        if not factor(a, n) and thread_x() == 0:
            lower(slot(block, Factor.FIRST + 3), unit + 1)
        barrier()

    return blocks_for_each(Factor.FIRST + 1, one_matrix)


MAKERS = {
    "solve": make_system(inverts=False),
    "inv": make_system(inverts=True),
    "slogdet": make_slogdet,
    "cholesky": make_cholesky,
}
"""Makers of kernels, by operator: ``make(dtype, itemsize)``."""
