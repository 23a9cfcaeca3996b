"""Functions of integers."""

from __future__ import annotations

from numba import int64, uint64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.library.blocks import Pairs


@subroutine
def magnitude(x):
    """Return the absolute value. It is unsigned: that of the smallest integer is no signed one."""
    return uint64(-int64(x)) if x < 0 else uint64(x)


def make_gcd(dtype):
    """Return the kernel of ``gcd``: greatest common divisors of integers, by Euclid's algorithm."""

    def divisor(block, lo, hi, scratch):
        first, second = pointer(slot(block, Pairs.FIRST), dtype), pointer(slot(block, Pairs.SECOND), dtype)
        out = pointer(slot(block, Pairs.OUT), dtype)
        for unit in range(lo, hi):
            a, b = magnitude(first[unit]), magnitude(second[unit])
            while b != 0:
                a, b = b, a % b
            out[unit] = dtype(a)
        return int64(0)

    return divisor
