"""Fourier transforms on GPUs: of any number of elements, by Stockham's algorithm with factors 4, 2, 3, 5, ...

The threads of a block have a line. A step with the factor p makes every element of one buffer from p of the
other, so a number of elements with a large prime factor takes that many times as long. Roots of unity are
computed once by each block, in double precision and exact on the axes. Numbers are pairs of their parts, in
the shared memory of a block or, long lines, in memory of the GPU that the block has for itself.
"""

from __future__ import annotations

from numba import float64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.numbers import numbers
from tracejit.kernels.gpu.plan import Transform as T
from tracejit.kernels.gpu.words import barrier, block_x, blocks_x, shared, thread_x, threads_x
from tracejit.kernels.scalar import cos, sin

QUARTER = 1.5707963267948966


@subroutine
def factor_of(count):
    """4, or the smallest prime factor."""
    if count % 4 == 0:
        return 4
    p = 2
    while p * p <= count:
        if count % p == 0:
            return p
        p += 1
    return count


def make_roots(real):
    """Make put_roots(w, count, sign): the powers of the first root, e to the ``sign * 2 pi i / count``."""

    @subroutine
    def put_roots(w, count, sign):
        k = thread_x()
        while k < count:
            quarter, rest = 4 * k // count, 4 * k % count
            angle = float64(QUARTER) * (float64(rest) / float64(count))
            x, y = cos(angle), sin(angle)
            if quarter % 2 == 1:
                x, y = -y, x
            if quarter >= 2:
                x, y = -x, -y
            w[2 * k] = real(x)
            w[2 * k + 1] = real(y) if sign > 0 else real(-y)
            k += threads_x()

    return put_roots


def make_transform(real):
    """Make transform(x, y, w, count): whether the result of transforming `x` is in `y`."""

    @subroutine
    def transform(x, y, w, count):
        left, stride, moved = count, 1, False
        while left > 1:
            p = factor_of(left)
            left = left // p
            t = thread_x()
            while t < count:
                q, r, j = t % stride, t // stride % p, t // stride // p
                a, b = real(0), real(0)
                for k in range(p):
                    i, root = q + stride * (j + left * k), count // p * (k * r % p)
                    a += x[2 * i] * w[2 * root] - x[2 * i + 1] * w[2 * root + 1]
                    b += x[2 * i] * w[2 * root + 1] + x[2 * i + 1] * w[2 * root]
                root = stride * j * r
                y[2 * t] = a * w[2 * root] - b * w[2 * root + 1]
                y[2 * t + 1] = a * w[2 * root + 1] + b * w[2 * root]
                t += threads_x()
            barrier()
            x, y, stride, moved = y, x, stride * p, not moved
        return moved

    return transform


def make_read(kind, real):
    """Make read(buffer, x, count, stride): the line at `x` as pairs; of half of one the other half, too."""

    @subroutine
    def read(buffer, x, count, stride):
        i = thread_x()
        while i < count:
            if kind == "rfft":
                buffer[2 * i] = x[i * stride]
                buffer[2 * i + 1] = real(0)
            elif kind == "fft" or i < count // 2 + 1:
                buffer[2 * i] = x[2 * i * stride]
                buffer[2 * i + 1] = x[2 * i * stride + 1]
                if kind == "irfft" and (i == 0 or 2 * i == count):
                    buffer[2 * i + 1] = real(0)
            else:
                buffer[2 * i] = x[2 * (count - i) * stride]
                buffer[2 * i + 1] = -x[2 * (count - i) * stride + 1]
            i += threads_x()

    return read


def make_write(kind):
    """Make write(out, buffer, count, stride): `count` pairs, or real parts, to the line at `out`."""

    @subroutine
    def write(out, buffer, count, stride):
        i = thread_x()
        while i < count:
            if kind == "irfft":
                out[i * stride] = buffer[2 * i]
            else:
                out[2 * i * stride] = buffer[2 * i]
                out[2 * i * stride + 1] = buffer[2 * i + 1]
            i += threads_x()

    return write


def make_of(kind, *, near):
    """Make a maker of ``fft``, ``rfft`` or ``irfft``. `near`: its buffers are in shared memory."""

    def make(dtype, itemsize):
        real = numbers(dtype).real
        size = real.bitwidth // 8
        put_roots, transform = make_roots(real), make_transform(real)
        read, write = make_read(kind, real), make_write(kind)
        given, made = (size * (1 + (kind != other)) for other in ("rfft", "irfft"))

        if near:

            @subroutine
            def room(block, number):
                """The place of one of three buffers."""
                return shared(2 * size * number * slot(block, T.COUNT), real)

        else:

            @subroutine
            def room(block, number):
                """The place of one of three buffers."""
                buffer = 3 * block_x() + number
                return pointer(slot(block, T.OUT + 2) + 2 * size * buffer * slot(block, T.COUNT), real)

        def kernel(block):
            count, inner, unit = slot(block, T.COUNT), slot(block, T.INNER), block_x()
            w, x, y = room(block, 0), room(block, 1), room(block, 2)
            put_roots(w, count, slot(block, T.SIGN))
            while unit < slot(block, T.OUT + 1):
                outer, column = unit // inner, unit % inner
                first = outer * slot(block, T.TAKEN) * inner + column
                read(x, pointer(slot(block, T.X) + given * first, real), count, inner)
                barrier()
                moved = transform(x, y, w, count)
                last = outer * slot(block, T.MADE) * inner + column
                out = pointer(slot(block, T.OUT) + made * last, real)
                if moved:
                    write(out, y, slot(block, T.MADE), inner)
                else:
                    write(out, x, slot(block, T.MADE), inner)
                barrier()
                unit += blocks_x()

        return kernel

    return make


MAKERS = {
    f"{kind}_{place}": make_of(kind, near=place == "near")
    for kind in ("fft", "rfft", "irfft")
    for place in ("near", "far")
}
"""Makers of kernels, by operator and where their buffers are: ``make(dtype, itemsize)``."""
