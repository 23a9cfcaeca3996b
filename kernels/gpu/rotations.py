"""Decompositions of matrices on GPUs by Jacobi's rotations: `svd`, `eigh`, and their values alone.

The threads of a block have a matrix, as in `systems`. In one step all columns are in pairs, and pairs do not
touch one another. `svd` makes the columns of x v orthogonal (one-sided), `eigh` makes v^H x v diagonal
(two-sided). Sources: Golub and Van Loan, Matrix Computations, 4th edition, 8.5 and 8.6; Drmac and Veselic,
New fast and accurate Jacobi SVD algorithm (2008), for when columns count as orthogonal.
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
"""After so many sweeps over all pairs the method counts as one that does not converge: 6 to 10 are usual."""


@subroutine
def player(step, number, count):
    """The column at place `number` of `count`, which is even, in a step of a round-robin tournament: those at
    places 2 i and 2 i + 1 are a pair.
    """
    seats, i = count - 1, number // 2
    if number == 0:
        return seats
    return (step + i) % seats if number % 2 == 0 else (step + seats - i) % seats


@subroutine
def rank(values, count, j, sign):
    """The place of element `j` in the order of ``sign * values``; of equal ones the first comes first."""
    before = 0
    for i in range(count):
        one, other = values[i] * sign, values[j] * sign
        if one < other or (one == other and i < j):
            before += 1
    return before


def make_rotation(dtype):
    """Make rotation(p, q, x): cosine, sine and phase by which two columns are made orthogonal, where their
    squares are `p` and `q`, their product is `x`, and its magnitude `size`.
    """
    of = numbers(dtype)
    real, number = of.real, of.number

    @subroutine
    def rotation(p, q, x, size):
        slope = (q - p) / (real(2) * size)
        tangent = real(1) / (abs(slope) + sqrt(real(1) + slope * slope))
        if slope < real(0):
            tangent = -tangent
        cosine = real(1) / sqrt(real(1) + tangent * tangent)
        return cosine, cosine * tangent, divide(x, number(size, real(0)))

    @subroutine
    def turned(x, i, j, cosine, sine, phase):
        """Rotate elements `i` and `j`."""
        c, s = number(cosine, real(0)), number(sine, real(0))
        first, second = x[i], multiply(phase, x[j])
        x[i] = subtract(multiply(c, first), multiply(s, second))
        x[j] = add(multiply(s, first), multiply(c, second))

    return rotation, turned


def make_scaled(dtype):
    """Make scale_of(x, count): the largest magnitude of an element; nan if there is one."""
    of = numbers(dtype)
    real, size = of.real, of.size

    @subroutine
    def scale_of(x, count):
        best, at = real(-1), 0
        t = thread_x()
        while t < count:
            s = size(x[t])
            if s > best or (s != s and best == best):
                best, at = s, t
            t += threads_x()
        place = largest_of_block(shared(0, int64), shared(8 * threads_x(), real), best, at)
        found = size(x[place]) if count > 0 else real(0)
        barrier()  # the caller may write to x
        return found

    return scale_of


def make_sweep(dtype, vectors):
    """Make sweep(w, v, tall, wide, tolerance) of a one-sided method; `v` is rotated, too, for `vectors`."""
    rotation, turned = make_rotation(dtype)
    of = numbers(dtype)
    real, number, part, rest, conjugate = of.real, of.number, of.part, of.rest, of.conjugate
    tiny = real(np.finfo(str(real)).tiny)

    @subroutine
    def sweep(w, v, tall, wide, tolerance):
        """Rotate all pairs of columns of `w`, and of `v`, that are not orthogonal; how many were not."""
        count = wide + wide % 2
        pairs, team = count // 2, threads_x()
        while team > 1 and team * pairs > threads_x():
            team = team // 2
        lane, teams = thread_x() % team, threads_x() // team
        box = shared(0, real)  # four numbers of each thread
        mine = 4 * thread_x()
        rotated = 0
        for step in range(count - 1):
            for base in range((pairs + teams - 1) // teams):
                pair = base * teams + thread_x() // team
                p, q = 0, wide
                if pair < pairs:
                    p, q = player(step, 2 * pair, count), player(step, 2 * pair + 1, count)
                a, b, c, d = real(0), real(0), real(0), real(0)
                if p < wide and q < wide:
                    r = lane
                    while r < tall:
                        x, y = w[p * tall + r], w[q * tall + r]
                        product = multiply(conjugate(x), y)
                        a += part(x) * part(x) + rest(x) * rest(x)
                        b += part(y) * part(y) + rest(y) * rest(y)
                        c += part(product)
                        d += rest(product)
                        r += team
                box[mine], box[mine + 1], box[mine + 2], box[mine + 3] = a, b, c, d
                barrier()
                if p < wide and q < wide:
                    a, b, c, d = real(0), real(0), real(0), real(0)
                    for other in range(team):
                        at = 4 * (thread_x() - lane + other)
                        a, b, c, d = a + box[at], b + box[at + 1], c + box[at + 2], d + box[at + 3]
                    size = sqrt(c * c + d * d)
                    if a > tiny and b > tiny and size > tolerance * (sqrt(a) * sqrt(b)):
                        cosine, sine, phase = rotation(a, b, number(c, d), size)
                        phase = conjugate(phase)
                        r = lane
                        while r < tall:
                            turned(w, p * tall + r, q * tall + r, cosine, sine, phase)
                            r += team
                        if vectors:
                            r = lane
                            while r < wide:
                                turned(v, p * wide + r, q * wide + r, cosine, sine, phase)
                                r += team
                        rotated += 1
                barrier()
        return total_of_block(shared(0, int64), rotated)

    return sweep


def make_vectors(dtype, itemsize):
    """Make put_vectors(block, unit, ...), which writes the singular vectors of a matrix."""
    triangular, reflected = make_reflections(dtype)
    of = numbers(dtype)
    real, number, conjugate = of.real, of.number, of.conjugate

    @subroutine
    def completed(w, tall, wide, known, kept, factors, out, down, across):
        """Columns `known` to `kept` of `out`, orthonormal to the first, the rows of which are in `w`."""
        triangular(w, tall, wide, known, factors)
        c = known + thread_x()
        while c < kept:
            for i in range(tall):
                out[i * down + c * across] = number(real(i == c), real(0))
            for back in range(known):
                k = known - 1 - back
                reflected(w, tall, wide, k, factors[k], out, c * across, down)
            c += threads_x()
        barrier()

    @subroutine
    def conjugated(x, count):
        t = thread_x()
        while t < count:
            x[t] = conjugate(x[t])
            t += threads_x()
        barrier()

    @subroutine
    def put_vectors(block, unit, w, v, lengths, places, again, factors, tall, wide, turned_round):
        """Write the singular vectors: the columns of `w`, divided by their lengths, and those of `v`."""
        rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
        every = slot(block, Decomposition.OPTION) != 0
        left, right = rows if every else wide, columns if every else wide
        kept = tall if every else wide
        u = pointer(slot(block, Decomposition.FIRST) + itemsize * unit * rows * left, dtype)
        vh = pointer(slot(block, Decomposition.THIRD) + itemsize * unit * right * columns, dtype)
        basis, down, across = u, left, 1
        other, other_down, other_across = vh, 1, columns
        if turned_round:
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
                basis[i * down + places[j] * across] = x
                again[i * wide + places[j]] = x
            t += threads_x()
        t = thread_x()
        while t < wide * wide:
            j, i = t // wide, t % wide
            other[i * other_down + places[j] * other_across] = v[t]
            t += threads_x()
        barrier()
        if known < kept:
            completed(again, tall, wide, known, kept, factors, basis, down, across)
        conjugated(vh, right * columns)

    return put_vectors


def make_svd(*, vectors):
    """Make a maker of `svd`, or of `singular_values`. OPTION: whether all columns are wanted."""
    values_slot = Decomposition.SECOND if vectors else Decomposition.FIRST
    last = Decomposition.THIRD if vectors else Decomposition.FIRST

    def make(dtype, itemsize):
        sweep, put_vectors = make_sweep(dtype, vectors), make_vectors(dtype, itemsize)
        scale_of = make_scaled(dtype)
        of = numbers(dtype)
        real, number, part, rest, conjugate = of.real, of.number, of.part, of.rest, of.conjugate
        epsilon, infinity = real(np.finfo(str(real)).eps), real(np.inf)
        tiny = real(np.finfo(str(real)).tiny)

        @subroutine
        def one_matrix(block, unit):
            rows, columns = slot(block, Decomposition.ROWS), slot(block, Decomposition.COLUMNS)
            tall, wide = max(rows, columns), min(rows, columns)
            turned_round = rows < columns
            space = slot(block, last + 2) + slot(block, Decomposition.SPACE) * block_x()
            places = pointer(space, int64)
            space += 8 * (wide + wide % 2)
            w = pointer(space, dtype)  # columns, one after the other, as in v
            again = pointer(space + itemsize * wide * tall, dtype)
            v = pointer(space + itemsize * wide * 2 * tall, dtype)
            factors = pointer(space + itemsize * wide * (2 * tall + wide), dtype)
            lengths = pointer(space + itemsize * wide * (2 * tall + wide + 1), real)
            x = pointer(slot(block, Decomposition.X) + itemsize * unit * rows * columns, dtype)
            scale = scale_of(x, rows * columns)
            divisor = number(scale if scale > real(0) else real(1), real(0))
            t = thread_x()
            while t < tall * wide:
                j, i = t // tall, t % tall
                w[t] = divide(conjugate(x[j * columns + i]) if turned_round else x[i * columns + j], divisor)
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
                    total += part(y) * part(y) + rest(y) * rest(y)
                lengths[j] = sqrt(total) if total > tiny else real(0)  # such columns are not made orthogonal
                j += threads_x()
            barrier()
            values = pointer(slot(block, values_slot) + real_size * unit * wide, real)
            j = thread_x()
            while j < wide:
                places[j] = rank(lengths, wide, j, real(-1))
                values[places[j]] = lengths[j] * scale
                j += threads_x()
            barrier()
            if vectors:
                put_vectors(block, unit, w, v, lengths, places, again, factors, tall, wide, turned_round)
            barrier()

        real_size = np.dtype(str(real)).itemsize
        return blocks_for_each(last + 1, one_matrix)

    return make


def make_eigh(*, vectors):
    """Make a maker of `eigh`, or of `eigenvalues_hermitian`. OPTION: whether the upper triangle is read."""
    last = Decomposition.SECOND if vectors else Decomposition.FIRST

    def make(dtype, itemsize):
        rotation, turned = make_rotation(dtype)
        scale_of = make_scaled(dtype)
        of = numbers(dtype)
        real, number, part, rest, conjugate = of.real, of.number, of.part, of.rest, of.conjugate
        epsilon, infinity = real(np.finfo(str(real)).eps), real(np.inf)
        real_size = np.dtype(str(real)).itemsize

        @subroutine
        def choose(a, n, step, count, turns, phases, tolerance):
            """The rotation of each pair of this step; how many of this thread's are none."""
            rotated, pair = 0, thread_x()
            while pair < count // 2:
                p, q = player(step, 2 * pair, count), player(step, 2 * pair + 1, count)
                turns[2 * pair], turns[2 * pair + 1] = real(1), real(0)
                phases[pair] = number(real(1), real(0))
                if p < n and q < n:
                    x = a[p * n + q]
                    size = sqrt(part(x) * part(x) + rest(x) * rest(x))
                    if size > tolerance:
                        cosine, sine, phase = rotation(part(a[p * n + p]), part(a[q * n + q]), x, size)
                        turns[2 * pair], turns[2 * pair + 1], phases[pair] = cosine, sine, phase
                        rotated += 1
                pair += threads_x()
            barrier()
            return rotated

        @subroutine
        def turn(x, n, step, count, turns, phases, down, across, columns):
            """Rotate all pairs of columns of `x`, or of rows, by the conjugates."""
            t = thread_x()
            while t < count // 2 * n:
                pair, r = t // n, t % n
                p, q = player(step, 2 * pair, count), player(step, 2 * pair + 1, count)
                if p < n and q < n and turns[2 * pair + 1] != real(0):
                    phase = conjugate(phases[pair]) if columns else phases[pair]
                    i, j = r * down + p * across, r * down + q * across
                    turned(x, i, j, turns[2 * pair], turns[2 * pair + 1], phase)
                t += threads_x()
            barrier()

        @subroutine
        def settle(a, n, step, count, turns):
            """Make what was rotated exactly what it is: zeros, and real numbers on the diagonal."""
            pair = thread_x()
            while pair < count // 2:
                p, q = player(step, 2 * pair, count), player(step, 2 * pair + 1, count)
                if p < n and q < n and turns[2 * pair + 1] != real(0):
                    a[p * n + q] = a[q * n + p] = number(real(0), real(0))
                    a[p * n + p] = number(part(a[p * n + p]), real(0))
                    a[q * n + q] = number(part(a[q * n + q]), real(0))
                pair += threads_x()
            barrier()

        @subroutine
        def sweep(a, v, n, turns, phases, tolerance):
            count, rotated = n + n % 2, 0
            for step in range(count - 1):
                rotated += choose(a, n, step, count, turns, phases, tolerance)
                turn(a, n, step, count, turns, phases, n, 1, True)
                turn(a, n, step, count, turns, phases, 1, n, False)
                settle(a, n, step, count, turns)
                if vectors:
                    turn(v, n, step, count, turns, phases, n, 1, True)
            return total_of_block(shared(0, int64), rotated)

        @subroutine
        def norm(a, count):
            total, t = real(0), thread_x()
            while t < count:
                total += part(a[t]) * part(a[t]) + rest(a[t]) * rest(a[t])
                t += threads_x()
            return sqrt(total_of_block(shared(0, real), total))

        @subroutine
        def one_matrix(block, unit):
            n, upper = slot(block, Decomposition.COLUMNS), slot(block, Decomposition.OPTION) != 0
            space = slot(block, last + 2) + slot(block, Decomposition.SPACE) * block_x()
            a, v = pointer(space, dtype), pointer(space + itemsize * n * n, dtype)
            phases = pointer(space + 2 * itemsize * n * n, dtype)
            turns = pointer(space + itemsize * (2 * n * n + n + 1), real)
            found = pointer(space + itemsize * (2 * n * n + n + 1) + real_size * (n + 1), real)
            x = pointer(slot(block, Decomposition.X) + itemsize * unit * n * n, dtype)
            t = thread_x()
            while t < n * n:
                i, j = t // n, t % n
                if i == j:
                    a[t] = number(part(x[t]), real(0))
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
                rotated = sweep(a, v, n, turns, phases, tolerance)
                sweeps += 1
            if rotated != 0 and thread_x() == 0:
                lower(slot(block, last + 3), unit + 1)
            j = thread_x()
            while j < n:
                found[j] = part(a[j * n + j])
                j += threads_x()
            barrier()
            values = pointer(slot(block, Decomposition.FIRST) + real_size * unit * n, real)
            j = thread_x()
            while j < n:
                place = rank(found, n, j, real(1))
                values[place] = found[j] * scale
                if vectors:
                    out = pointer(slot(block, Decomposition.SECOND) + itemsize * unit * n * n, dtype)
                    for i in range(n):
                        out[i * n + place] = v[i * n + j]
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
"""Makers of kernels, by operator: ``make(dtype, itemsize)``."""
