"""Reduction of angles to ``x = q pi/2 + r`` with |r| <= pi/4, right for every finite argument.

Payne and Hanek's idea without branches. When a significand is multiplied by ``2**e * 2/pi`` only the part of
the latter modulo 4 matters. In float32 that part is a 96-bit window of the digits of 2/pi, picked from
constants by a tree of selects, and the product is an integer. In float64 it comes from a table with an entry
of four doubles for each exponent, and the product is a sum of exact products.
"""

import functools
from fractions import Fraction

from tracejit.kernels.intrinsics import bitcast, bits, convert, fill, floating, lookup, rint, select
from tracejit.kernels.scalar.parts import fast_two_sum, two_product, two_sum

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
DIGITS = 1280  # of 2/pi, in binary: enough for the largest exponent, 2**1024, and 200 digits behind it
LOWEST = 1021  # the biased exponent of 0.5, the first in the table
ENTRIES = 2047 - LOWEST


def _arctan_of_inverse(n, unit):
    """``unit * atan(1 / n)`` in integers."""
    total = term = unit // n
    k = 1
    while term:
        term //= -n * n
        k += 2
        total += term // k
    return total


@functools.cache
def two_over_pi():
    """2/pi times 2**DIGITS as an integer; pi from Machin's formula."""
    unit = 1 << (DIGITS + 64)
    pi = 4 * (4 * _arctan_of_inverse(5, unit) - _arctan_of_inverse(239, unit))
    return (2 * unit << DIGITS) // pi


def reduced_f32(x):
    """(q modulo 4 as uint64, r as float64) for x >= 0.5."""
    i = bitcast(x, "uint32")
    start = (i >> 23) - 120  # where the window starts in `words`: the digit that becomes 2**1
    digits = two_over_pi() >> (DIGITS - 7 * 32)
    words = [fill(i, digits >> (32 * (7 - n)) & 0xFFFFFFFF) for n in range(8)]
    for step in (4, 2, 1):
        skip = (start & (32 * step)) != 0
        words = [
            select(skip, words[n + step], words[n]) if n + step < len(words) else words[n]
            for n in range(3 + step)
        ]
    shift = start & 31
    high, middle, low = (
        convert((words[n] << shift) | (words[n + 1] >> 1 >> (31 - shift)), "uint64") for n in range(3)
    )
    m = convert((i & 0x7FFFFF) | 0x800000, "uint64")
    product = ((m * high) << 32) + m * middle + ((m * low) >> 32)  # quarter turns, times 2**62
    q = (product + (1 << 61)) >> 62
    return q, convert(convert(product - (q << 62), "int64"), "float64") * (HALF_PI[0] * 2.0**-62)


@functools.cache
def _table():
    """For each exponent e from LOWEST: ``2**(e - 1075) * 2/pi`` modulo 4, in [-2, 2), as four doubles."""
    columns = ([], [], [], [])
    for exponent in range(LOWEST, 2047):
        scaled = two_over_pi() << (exponent - 1075 + 64)
        period = 4 << (DIGITS + 64)
        rest = Fraction((scaled + period // 2) % period - period // 2, 1 << (DIGITS + 64))
        for column in columns:
            column.append(float(rest))
            rest -= Fraction(column[-1])
    return columns


def reduced_f64(x):
    """(q modulo 4 as int64, r in two parts) for x >= 0.5."""
    exponent = (bits(x) >> 52) - LOWEST
    index = select(exponent < 0, 0, select(exponent < ENTRIES, exponent, ENTRIES - 1))
    m = floating((bits(x) & ((1 << 52) - 1)) | (1075 << 52))  # the significand as an integer
    a, b, c, d = (lookup(column, index) for column in _table())
    first, first_low = two_product(m, a)
    first -= 4.0 * rint(0.25 * first)
    second, second_low = two_product(m, b)
    third, third_low = two_product(m, c)
    top, top_low = two_sum(first, first_low)
    top, error = two_sum(top, second)
    q = rint(top)
    low, low_low = two_sum(top_low, error)
    low, error = two_sum(low, second_low)
    low_low += error
    low, error = two_sum(low, third)
    low_low += error + (third_low + m * d)
    turn, turn_low = two_sum(top - q, low)
    turn, turn_low = fast_two_sum(turn, turn_low + low_low)
    r, r_low = two_product(turn, HALF_PI[0])
    return convert(q, "int64") & 3, r, r_low + (turn * HALF_PI[1] + turn_low * HALF_PI[0])
