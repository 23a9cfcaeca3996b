"""Matrix decompositions on GPUs by Jacobi rotations: `svd`, `eigh`, and their values only.

The threads of a block decompose one matrix together, as in `systems`. Each step divides all columns into
disjoint pairs, which are processed in parallel. `svd` makes the columns of x v orthogonal (one-sided), `eigh`
makes v^H x v diagonal (two-sided). Sources: Golub and Van Loan, Matrix Computations, 4th edition, 8.5 and
8.6; Drmac and Veselic, New fast and accurate Jacobi SVD algorithm (2008), for the criterion of orthogonality.
"""

from __future__ import annotations

import numpy as np
from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import numbers
from tracejit.kernels.gpu.plan import Decomposition
from tracejit.kernels.gpu.reflections import make_reflections
from tracejit.kernels.gpu.threads import blocks_for_each, largest_of_block, total_of_block
from tracejit.kernels.gpu.words import barrier, block_x, lower, shared, thread_x, threads_x
from tracejit.kernels.scalar import abs, add, divide, multiply, sqrt, subtract

SWEEPS = 60
"""The number of sweeps over all pairs after which the method is regarded as not converging; 6 to 10 are
usual.
"""


@subroutine
def column_at(step, number, n_columns):
    """Return the column at position `number` of `n_columns`, which is even, in a step of a round-robin
    tournament. The columns at positions 2 i and 2 i + 1 are a pair.
    """
    n_moving, i = n_columns - 1, number // 2
    if number == 0:
        return n_moving
    return (step + i) % n_moving if number % 2 == 0 else (step + n_moving - i) % n_moving


@subroutine
def rank(values, n, j, sign):
    """Return the position of element `j` in the order of ``sign * values``. Equal elements keep their
    order.
    """
    before = 0
    for i in range(n):
        first, second = values[i] * sign, values[j] * sign
        if first < second or (first == second and i < j):
            before += 1
    return before


def make_rotation(dtype):
    """Return two subroutines: rotation(p, q, x, magnitude) returns the cosine, sine and phase of the
    rotation that makes two columns orthogonal, whose squared norms are `p` and `q` and whose inner product
    is `x`, with absolute value `magnitude`; rotate(x, i, j, cosine, sine, phase) applies it to two
    elements.
    """
    routines = numbers(dtype)
    real, number = routines.real, routines.number

    @subroutine
    def rotation(p, q, x, magnitude):
        slope = (q - p) / (real(2) * magnitude)
        tangent = real(1) / (abs(slope) + sqrt(real(1) + slope * slope))
        if slope < real(0):
            tangent = -tangent
        cosine = real(1) / sqrt(real(1) + tangent * tangent)
        return cosine, cosine * tangent, divide(x, number(magnitude, real(0)))

    @subroutine
    def rotate(x, i, j, cosine, sine, phase):
        """Rotate the elements `i` and `j` of `x`."""
        c, s = number(cosine, real(0)), number(sine, real(0))
        first, second = x[i], multiply(phase, x[j])
        x[i] = subtract(multiply(c, first), multiply(s, second))
        x[j] = add(multiply(s, first), multiply(c, second))

    return rotation, rotate


def make_scaled(dtype):
    """Return scale_of(x, n), which returns the largest magnitude of an element, or nan if there is
    one.
    """
    routines = numbers(dtype)
    real, magnitude = routines.real, routines.magnitude

    @subroutine
    def scale_of(x, n):
        best, candidate = real(-1), 0
        t = thread_x()
        while t < n:
            s = magnitude(x[t])
            if s > best or (s != s and best == best):
                best, candidate = s, t
            t += threads_x()
        index = largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, candidate)
        scale = magnitude(x[index]) if n > 0 else real(0)
        barrier()  # the caller may write to x
        return scale

    return scale_of


def make_sweep(dtype, vectors):
    """Return sweep(w, v, tall, wide, tolerance) of the one-sided method. If `vectors`, `v` is rotated too."""
    rotation, rotate = make_rotation(dtype)
    routines = numbers(dtype)
    real, number, real_part, imag_part, conjugate = (
        routines.real,
        routines.number,
        routines.real_part,
        routines.imag_part,
        routines.conjugate,
    )
    tiny = real(np.finfo(str(real)).tiny)

    @subroutine
    def sweep(w, v, tall, wide, tolerance):
        """Rotate all pairs of columns of `w` (and of `v`) that are not orthogonal, and return the number
        of such pairs.
        """
        n_columns = wide + wide % 2
        pairs, team = n_columns // 2, threads_x()
        while team > 1 and team * pairs > threads_x():
            team = team // 2
        lane, teams = thread_x() % team, threads_x() // team
        sums = shared(0, real)  # four numbers per thread
        own = 4 * thread_x()
        rotated = 0
        for step in range(n_columns - 1):
            for base in range((pairs + teams - 1) // teams):
                pair = base * teams + thread_x() // team
                p, q = 0, wide
                if pair < pairs:
                    p, q = column_at(step, 2 * pair, n_columns), column_at(step, 2 * pair + 1, n_columns)
                a, b, c, d = real(0), real(0), real(0), real(0)
                if p < wide and q < wide:
                    r = lane
                    while r < tall:
                        x, y = w[p * tall + r], w[q * tall + r]
                        product = multiply(conjugate(x), y)
                        a += real_part(x) * real_part(x) + imag_part(x) * imag_part(x)
                        b += real_part(y) * real_part(y) + imag_part(y) * imag_part(y)
                        c += real_part(product)
                        d += imag_part(product)
                        r += team
                sums[own], sums[own + 1], sums[own + 2], sums[own + 3] = a, b, c, d
                barrier()
                if p < wide and q < wide:
                    a, b, c, d = real(0), real(0), real(0), real(0)
                    for member in range(team):
                        i = 4 * (thread_x() - lane + member)
                        a, b, c, d = a + sums[i], b + sums[i + 1], c + sums[i + 2], d + sums[i + 3]
                    magnitude = sqrt(c * c + d * d)
                    if a > tiny and b > tiny and magnitude > tolerance * (sqrt(a) * sqrt(b)):
                        cosine, sine, phase = rotation(a, b, number(c, d), magnitude)
                        phase = conjugate(phase)
                        r = lane
                        while r < tall:
                            rotate(w, p * tall + r, q * tall + r, cosine, sine, phase)
                            r += team
                        if vectors:
                            r = lane
                            while r < wide:
                                rotate(v, p * wide + r, q * wide + r, cosine, sine, phase)
                                r += team
                        rotated += 1
                barrier()
        return total_of_block(shared(0, int64), rotated)

    return sweep


def make_vectors(dtype, itemsize):
    """Return put_vectors(block, unit, ...), which writes the singular vectors of a matrix."""
    triangular, reflect_column = make_reflections(dtype)
    routines = numbers(dtype)
    real, number, conjugate = routines.real, routines.number, routines.conjugate

    @subroutine
    def complete_basis(w, tall, wide, known, kept, factors, out, down, across):
        """Compute columns `known` to `kept` of `out`, which extend to an orthonormal basis the first
        `known` columns, whose rows are in `w`.
        """
        triangular(w, tall, wide, known, factors)
        c = known + thread_x()
        while c < kept:
            for i in range(tall):
                out[i * down + c * across] = number(real(i == c), real(0))
            for back in range(known):
                k = known - 1 - back
                reflect_column(w, tall, wide, k, factors[k], out, c * across, down)
            c += threads_x()
        barrier()

    @subroutine
    def conjugate_all(x, count):
        t = thread_x()
        while t < count:
            x[t] = conjugate(x[t])
            t += threads_x()
        barrier()

    @subroutine
    def put_vectors(block, unit, w, v, lengths, positions, basis_rows, factors, tall, wide, is_transposed):
        """Write the singular vectors: the columns of `w` divided by their lengths, and the columns of `v`."""
        rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
        is_full = slot(block, Decomposition.OPTION) != 0
        left, right = rows if is_full else wide, columns if is_full else wide
        kept = tall if is_full else wide
        u = pointer(slot(block, Decomposition.FIRST) + itemsize * unit * rows * left, dtype)
        vh = pointer(slot(block, Decomposition.THIRD) + itemsize * unit * right * columns, dtype)
        basis, down, across = u, left, 1
        other, other_down, other_across = vh, 1, columns
        if is_transposed:
            basis, down, across = vh, 1, columns
            other, other_down, other_across = u, left, 1
        known = 0
        for j in range(wide):
            known += lengths[j] > real(0)
        t = thread_x()
        while t < tall * wide:
            j, i = t // tall, t % tall
            if lengths[j] > real(0):
                x = divide(w[t], number(lengths[j], real(0)))
                basis[i * down + positions[j] * across] = x
                basis_rows[i * wide + positions[j]] = x
            t += threads_x()
        t = thread_x()
        while t < wide * wide:
            j, i = t // wide, t % wide
            other[i * other_down + positions[j] * other_across] = v[t]
            t += threads_x()
        barrier()
        if known < kept:
            complete_basis(basis_rows, tall, wide, known, kept, factors, basis, down, across)
        conjugate_all(vh, right * columns)

    return put_vectors


def make_svd(*, vectors):
    """Return the factory of `svd`, or of `singular_values`. OPTION: whether all columns of the square
    factors are computed.
    """
    values_slot = Decomposition.SECOND if vectors else Decomposition.FIRST
    last = Decomposition.THIRD if vectors else Decomposition.FIRST

    def make(dtype, itemsize):
        sweep, put_vectors = make_sweep(dtype, vectors), make_vectors(dtype, itemsize)
        scale_of = make_scaled(dtype)
        routines = numbers(dtype)
        real, number, real_part, imag_part, conjugate = (
            routines.real,
            routines.number,
            routines.real_part,
            routines.imag_part,
            routines.conjugate,
        )
        epsilon, infinity = real(np.finfo(str(real)).eps), real(np.inf)
        tiny = real(np.finfo(str(real)).tiny)

        @subroutine
        def one_matrix(block, unit):
            rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
            tall, wide = max(rows, columns), min(rows, columns)
            is_transposed = rows < columns
            space = slot(block, last + 2) + slot(block, Decomposition.SPACE) * block_x()
            positions = pointer(space, int64)
            space += 8 * (wide + wide % 2)
            w = pointer(space, dtype)  # stored by columns, like v
            basis_rows = pointer(space + itemsize * wide * tall, dtype)
            v = pointer(space + itemsize * wide * 2 * tall, dtype)
            factors = pointer(space + itemsize * wide * (2 * tall + wide), dtype)
            lengths = pointer(space + itemsize * wide * (2 * tall + wide + 1), real)
            x = pointer(slot(block, Decomposition.X) + itemsize * unit * rows * columns, dtype)
            scale = scale_of(x, rows * columns)
            divisor = number(scale if scale > real(0) else real(1), real(0))
            t = thread_x()
            while t < tall * wide:
                j, i = t // tall, t % tall
                w[t] = divide(conjugate(x[j * columns + i]) if is_transposed else x[i * columns + j], divisor)
                t += threads_x()
            if vectors:
                t = thread_x()
                while t < wide * wide:
                    v[t] = number(real(t // wide == t % wide), real(0))
                    t += threads_x()
            barrier()
            tolerance = epsilon * sqrt(real(max(tall, 16)))
            sweeps, rotated = 0, 1
            while rotated != 0 and sweeps < SWEEPS and scale < infinity:
                rotated = sweep(w, v, tall, wide, tolerance)
                sweeps += 1
            if rotated != 0 and thread_x() == 0:
                lower(slot(block, last + 3), unit + 1)
            j = thread_x()
            while j < wide:
                total = real(0)
                for i in range(tall):
                    y = w[j * tall + i]
                    total += real_part(y) * real_part(y) + imag_part(y) * imag_part(y)
                lengths[j] = sqrt(total) if total > tiny else real(0)  # below it columns are not rotated
                j += threads_x()
            barrier()
            values = pointer(slot(block, values_slot) + real_size * unit * wide, real)
            j = thread_x()
            while j < wide:
                positions[j] = rank(lengths, wide, j, real(-1))
                values[positions[j]] = lengths[j] * scale
                j += threads_x()
            barrier()
            if vectors:
                put_vectors(
                    block, unit, w, v, lengths, positions, basis_rows, factors, tall, wide, is_transposed
                )
            barrier()

        real_size = np.dtype(str(real)).itemsize
        return blocks_for_each(last + 1, one_matrix)

    return make


def make_eigh(*, vectors):
    """Return the factory of `eigh`, or of `eigenvalues_hermitian`. OPTION: whether the upper triangle is
    read.
    """
    last = Decomposition.SECOND if vectors else Decomposition.FIRST

    def make(dtype, itemsize):
        rotation, rotate = make_rotation(dtype)
        scale_of = make_scaled(dtype)
        routines = numbers(dtype)
        real, number, real_part, imag_part, conjugate = (
            routines.real,
            routines.number,
            routines.real_part,
            routines.imag_part,
            routines.conjugate,
        )
        epsilon, infinity = real(np.finfo(str(real)).eps), real(np.inf)
        real_size = np.dtype(str(real)).itemsize

        @subroutine
        def choose_rotations(a, n, step, count, rotations, phases, tolerance):
            """Compute the rotations of this step, and return the number of pairs that this thread rotates."""
            rotated, pair = 0, thread_x()
            while pair < count // 2:
                p, q = column_at(step, 2 * pair, count), column_at(step, 2 * pair + 1, count)
                rotations[2 * pair], rotations[2 * pair + 1] = real(1), real(0)
                phases[pair] = number(real(1), real(0))
                if p < n and q < n:
                    x = a[p * n + q]
                    magnitude = sqrt(real_part(x) * real_part(x) + imag_part(x) * imag_part(x))
                    if magnitude > tolerance:
                        cosine, sine, phase = rotation(
                            real_part(a[p * n + p]), real_part(a[q * n + q]), x, magnitude
                        )
                        rotations[2 * pair], rotations[2 * pair + 1], phases[pair] = (
                            cosine,
                            sine,
                            phase,
                        )
                        rotated += 1
                pair += threads_x()
            barrier()
            return rotated

        @subroutine
        def rotate_pairs(x, n, step, count, rotations, phases, down, across, columns):
            """Rotate all pairs of columns of `x`, or of rows, with conjugate phases."""
            t = thread_x()
            while t < count // 2 * n:
                pair, r = t // n, t % n
                p, q = column_at(step, 2 * pair, count), column_at(step, 2 * pair + 1, count)
                if p < n and q < n and rotations[2 * pair + 1] != real(0):
                    phase = conjugate(phases[pair]) if columns else phases[pair]
                    i, j = r * down + p * across, r * down + q * across
                    rotate(x, i, j, rotations[2 * pair], rotations[2 * pair + 1], phase)
                t += threads_x()
            barrier()

        @subroutine
        def make_exact(a, n, step, count, rotations):
            """Set eliminated elements to exact zeros, and rotated diagonal elements to real numbers."""
            pair = thread_x()
            while pair < count // 2:
                p, q = column_at(step, 2 * pair, count), column_at(step, 2 * pair + 1, count)
                if p < n and q < n and rotations[2 * pair + 1] != real(0):
                    a[p * n + q] = a[q * n + p] = number(real(0), real(0))
                    a[p * n + p] = number(real_part(a[p * n + p]), real(0))
                    a[q * n + q] = number(real_part(a[q * n + q]), real(0))
                pair += threads_x()
            barrier()

        @subroutine
        def sweep(a, v, n, rotations, phases, tolerance):
            count, rotated = n + n % 2, 0
            for step in range(count - 1):
                rotated += choose_rotations(a, n, step, count, rotations, phases, tolerance)
                rotate_pairs(a, n, step, count, rotations, phases, n, 1, True)
                rotate_pairs(a, n, step, count, rotations, phases, 1, n, False)
                make_exact(a, n, step, count, rotations)
                if vectors:
                    rotate_pairs(v, n, step, count, rotations, phases, n, 1, True)
            return total_of_block(shared(0, int64), rotated)

        @subroutine
        def norm(a, count):
            total, t = real(0), thread_x()
            while t < count:
                total += real_part(a[t]) * real_part(a[t]) + imag_part(a[t]) * imag_part(a[t])
                t += threads_x()
            return sqrt(total_of_block(shared(0, real), total))

        @subroutine
        def one_matrix(block, unit):
            n, upper = slot(block, Decomposition.COLUMNS), slot(block, Decomposition.OPTION) != 0
            space = slot(block, last + 2) + slot(block, Decomposition.SPACE) * block_x()
            a, v = pointer(space, dtype), pointer(space + itemsize * n * n, dtype)
            phases = pointer(space + 2 * itemsize * n * n, dtype)
            rotations = pointer(space + itemsize * (2 * n * n + n + 1), real)
            diagonal = pointer(space + itemsize * (2 * n * n + n + 1) + real_size * (n + 1), real)
            x = pointer(slot(block, Decomposition.X) + itemsize * unit * n * n, dtype)
            t = thread_x()
            while t < n * n:
                i, j = t // n, t % n
                if i == j:
                    a[t] = number(real_part(x[t]), real(0))
                else:
                    a[t] = x[t] if (i < j) == upper else conjugate(x[j * n + i])
                v[t] = number(real(i == j), real(0))
                t += threads_x()
            barrier()
            scale = scale_of(a, n * n)
            divisor = number(scale if scale > real(0) else real(1), real(0))
            t = thread_x()
            while t < n * n:
                a[t] = divide(a[t], divisor)
                t += threads_x()
            barrier()
            tolerance = epsilon * norm(a, n * n)
            sweeps, rotated = 0, 1
            while rotated != 0 and sweeps < SWEEPS and scale < infinity:
                rotated = sweep(a, v, n, rotations, phases, tolerance)
                sweeps += 1
            if rotated != 0 and thread_x() == 0:
                lower(slot(block, last + 3), unit + 1)
            j = thread_x()
            while j < n:
                diagonal[j] = real_part(a[j * n + j])
                j += threads_x()
            barrier()
            values = pointer(slot(block, Decomposition.FIRST) + real_size * unit * n, real)
            j = thread_x()
            while j < n:
                position = rank(diagonal, n, j, real(1))
                values[position] = diagonal[j] * scale
                if vectors:
                    out = pointer(slot(block, Decomposition.SECOND) + itemsize * unit * n * n, dtype)
                    for i in range(n):
                        out[i * n + position] = v[i * n + j]
                j += threads_x()
            barrier()

        return blocks_for_each(last + 1, one_matrix)

    return make


MAKERS = {
    "svd": make_svd(vectors=True),
    "singular_values": make_svd(vectors=False),
    "eigh": make_eigh(vectors=True),
    "eigenvalues_hermitian": make_eigh(vectors=False),
}
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
