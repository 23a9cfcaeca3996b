"""Fourier transforms of any length on GPUs, by Stockham's algorithm with the radices 4, 2, 3, 5, ...

The threads of a block transform one line together. A step of radix p computes every element of one buffer
from p elements of the other, so the time per element grows with the largest prime factor of the length. Each
block computes the roots of unity once, in double precision and exactly on the axes. Complex numbers are
stored as (real, imaginary) pairs, in the shared memory of a block or, for long lines, in the block's own
scratch memory on the GPU.
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
def factor_of(length):
    """Return 4 if it divides `length`, else the smallest prime factor."""
    if length % 4 == 0:
        return 4
    p = 2
    while p * p <= length:
        if length % p == 0:
            return p
        p += 1
    return length


def make_roots(real):
    """Return put_roots(w, length, sign), which writes the powers of the first root of unity, e to the
    ``sign * 2 pi i / length``.
    """

    @subroutine
    def put_roots(w, length, sign):
        k = thread_x()
        while k < length:
            quarter, remainder = 4 * k // length, 4 * k % length
            angle = float64(QUARTER) * (float64(remainder) / float64(length))
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
    """Return transform(x, y, w, length), which transforms `x` and returns whether the result is in `y`."""

    @subroutine
    def transform(x, y, w, length):
        remaining, stride, is_in_y = length, 1, False
        while remaining > 1:
            p = factor_of(remaining)
            remaining = remaining // p
            t = thread_x()
            while t < length:
                q, r, j = t % stride, t // stride % p, t // stride // p
                a, b = real(0), real(0)
                for k in range(p):
                    i, root = q + stride * (j + remaining * k), length // p * (k * r % p)
                    a += x[2 * i] * w[2 * root] - x[2 * i + 1] * w[2 * root + 1]
                    b += x[2 * i] * w[2 * root + 1] + x[2 * i + 1] * w[2 * root]
                root = stride * j * r
                y[2 * t] = a * w[2 * root] - b * w[2 * root + 1]
                y[2 * t + 1] = a * w[2 * root + 1] + b * w[2 * root]
                t += threads_x()
            barrier()
            x, y, stride, is_in_y = y, x, stride * p, not is_in_y
        return is_in_y

    return transform


def make_read(kind, real):
    """Return read(buffer, x, length, stride), which reads the line at `x` as pairs. For ``irfft`` it
    reconstructs the second half of the spectrum from the first.
    """

    @subroutine
    def read(buffer, x, length, stride):
        i = thread_x()
        while i < length:
            if kind == "rfft":
                buffer[2 * i] = x[i * stride]
                buffer[2 * i + 1] = real(0)
            elif kind == "fft" or i < length // 2 + 1:
                buffer[2 * i] = x[2 * i * stride]
                buffer[2 * i + 1] = x[2 * i * stride + 1]
                if kind == "irfft" and (i == 0 or 2 * i == length):
                    buffer[2 * i + 1] = real(0)
            else:
                buffer[2 * i] = x[2 * (length - i) * stride]
                buffer[2 * i + 1] = -x[2 * (length - i) * stride + 1]
            i += threads_x()

    return read


def make_write(kind):
    """Return write(out, buffer, length, stride), which writes `length` pairs, or their real parts, to the
    line at `out`.
    """

    @subroutine
    def write(out, buffer, length, stride):
        i = thread_x()
        while i < length:
            if kind == "irfft":
                out[i * stride] = buffer[2 * i]
            else:
                out[2 * i * stride] = buffer[2 * i]
                out[2 * i * stride + 1] = buffer[2 * i + 1]
            i += threads_x()

    return write


def make_factory(kind, *, near):
    """Return the factory of ``fft``, ``rfft`` or ``irfft``. `near`: the buffers are in shared memory."""

    def make(dtype, itemsize):
        real = numbers(dtype).real
        size = real.bitwidth // 8
        put_roots, transform = make_roots(real), make_transform(real)
        read, write = make_read(kind, real), make_write(kind)
        in_itemsize, out_itemsize = (size * (1 + (kind != other)) for other in ("rfft", "irfft"))

        if near:

            @subroutine
            def buffer_of(block, number):
                """Return the address of one of the three buffers."""
                return shared(2 * size * number * slot(block, T.COUNT), real)

        else:

            @subroutine
            def buffer_of(block, number):
                """Return the address of one of the three buffers."""
                buffer = 3 * block_x() + number
                return pointer(slot(block, T.OUT + 2) + 2 * size * buffer * slot(block, T.COUNT), real)

        def kernel(block):
            length, inner, unit = slot(block, T.COUNT), slot(block, T.INNER), block_x()
            w, x, y = buffer_of(block, 0), buffer_of(block, 1), buffer_of(block, 2)
            put_roots(w, length, slot(block, T.SIGN))
            while unit < slot(block, T.OUT + 1):
                outer, column = unit // inner, unit % inner
                first = outer * slot(block, T.IN_COUNT) * inner + column
                read(x, pointer(slot(block, T.X) + in_itemsize * first, real), length, inner)
                barrier()
                is_in_y = transform(x, y, w, length)
                last = outer * slot(block, T.OUT_COUNT) * inner + column
                out = pointer(slot(block, T.OUT) + out_itemsize * last, real)
                if is_in_y:
                    write(out, y, slot(block, T.OUT_COUNT), inner)
                else:
                    write(out, x, slot(block, T.OUT_COUNT), inner)
                barrier()
                unit += blocks_x()

        return kernel

    return make


MAKERS = {
    f"{kind}_{where}": make_factory(kind, near=where == "near")
    for kind in ("fft", "rfft", "irfft")
    for where in ("near", "far")
}
"""Factories of kernels, by operator and the location of their buffers: ``make(dtype, itemsize)``."""
