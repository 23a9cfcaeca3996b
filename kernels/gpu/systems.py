"""Linear systems on GPUs: `solve`, `inv` and `slogdet` by Gaussian elimination, and `cholesky`.

The threads of a block process one matrix together, with barriers between the steps, so a large matrix uses
only one multiprocessor of a GPU. Partial pivoting selects the largest element of a column by LAPACK's
measure: for a complex number, the sum of the absolute values of its parts. Among equal elements it selects
the first.
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
def copy_elements(target, source, n):
    """Copy elements. A barrier must follow."""
    i = thread_x()
    while i < n:
        target[i] = source[i]
        i += threads_x()


@subroutine
def exchange_rows(x, width, i, j):
    """Exchange two rows. A barrier must follow."""
    c = thread_x()
    while c < width:
        first = x[i * width + c]
        x[i * width + c] = x[j * width + c]
        x[j * width + c] = first
        c += threads_x()


@subroutine
def eliminate_rows(x, width, first, factors, n, k):
    """Subtract multiples of row `k` of x, given by column `k` of `factors`, from the rows below it, from
    column `first` on.
    """
    across = width - first
    t = thread_x()
    while t < (n - k - 1) * across:
        i, j = k + 1 + t // across, first + t % across
        x[i * width + j] = subtract(x[i * width + j], multiply(factors[i * n + k], x[k * width + j]))
        t += threads_x()


def make_elimination(dtype):
    """Return eliminate(a, n, b, m), which returns the sign of the permutation, or 0 if a matrix is
    singular.
    """
    routines = numbers(dtype)
    real, magnitude = routines.real, routines.magnitude

    @subroutine
    def pivot_row(a, n, k):
        """Return the row of the largest element of column `k`, from row `k` on."""
        best, index = real(-1), k
        r = k + thread_x()
        while r < n:
            s = magnitude(a[r * n + k])
            if s > best or (s != s and best == best):  # nan is the largest
                best, index = s, r
            r += threads_x()
        return largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, index)

    @subroutine
    def eliminate(a, n, b, m):
        """Reduce `a` to an upper triangle with the multipliers below it, and apply the same operations to
        `b`.
        """
        sign = 1
        for k in range(n):
            row = pivot_row(a, n, k)
            if row != k:
                sign = 0 - sign
                exchange_rows(a, n, k, row)
                exchange_rows(b, m, k, row)
                barrier()
            pivot = a[k * n + k]
            if magnitude(pivot) == real(0):
                return 0
            r = k + 1 + thread_x()
            while r < n:
                a[r * n + k] = divide(a[r * n + k], pivot)
                r += threads_x()
            barrier()
            eliminate_rows(a, n, k + 1, a, n, k)
            eliminate_rows(b, m, 0, a, n, k)
            barrier()
        return sign

    return eliminate


def make_system(*, inverts):
    """Return the factory of `solve`, or of `inv`, which solves with the identity matrix on the right-hand
    side.
    """
    result = GpuSystem.SECOND if inverts else GpuSystem.THIRD

    def make(dtype, itemsize):
        eliminate = make_elimination(dtype)
        routines = numbers(dtype)
        real, number = routines.real, routines.number

        @subroutine
        def put_right_sides(block, b, unit, n, m):
            if inverts:
                t = thread_x()
                while t < n * n:
                    b[t] = number(real(t // n == t % n), real(0))
                    t += threads_x()
            else:
                copy_elements(
                    b, pointer(slot(block, GpuSystem.SECOND) + itemsize * unit * n * m, dtype), n * m
                )

        @subroutine
        def substitute(a, n, b, m):
            """Solve the triangular system that remains after elimination."""
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
            copy_elements(a, pointer(slot(block, GpuSystem.FIRST) + itemsize * unit * n * n, dtype), n * n)
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
    """Return the kernel of ``slogdet``: the sign and the logarithm of the absolute value of a determinant."""
    eliminate = make_elimination(dtype)
    routines = numbers(dtype)
    real, number, direction = routines.real, routines.number, routines.direction

    @subroutine
    def one_matrix(block, unit):
        n = slot(block, Factor.COLUMNS)
        a = pointer(slot(block, Factor.SECOND + 2) + itemsize * block_x() * n * n, dtype)
        copy_elements(a, pointer(slot(block, Factor.X) + itemsize * unit * n * n, dtype), n * n)
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
    """Return the kernel of ``cholesky``: the lower triangular factor of a positive definite matrix, of
    which only the lower triangle is read.
    """
    routines = numbers(dtype)
    real, number, real_part, conjugate = (
        routines.real,
        routines.number,
        routines.real_part,
        routines.conjugate,
    )

    @subroutine
    def factor(a, n):
        """Replace the lower triangle of `a` by its factor, and return whether the matrix is positive
        definite.
        """
        for k in range(n):
            square = real_part(a[k * n + k])
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
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
