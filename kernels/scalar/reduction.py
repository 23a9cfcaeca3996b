"""Reduction of angles to ``x = q pi/2 + r`` with |r| <= pi/4.

Up to BOUND, `reduced` subtracts a multiple of pi/2 in three parts (Cody and Waite); the first subtraction is
exact, of the second the rounding errors are kept. Beyond, `reduced_far` does what Payne and Hanek found:
when a significand is multiplied by ``2**e * 2/pi``, only the part of the latter modulo 4 matters. That part
comes from a table with an entry of four doubles for each exponent; the product is a sum of exact products.
"""

import functools
from fractions import Fraction

from tracejit.kernels.intrinsics import bits, convert, floating, fma, lookup, rint, select
from tracejit.kernels.scalar.parts import fast_two_sum, nearest_multiple, two_product, two_sum

BOUND = 2.0**30
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_OVER_PI = 0.6366197723675814
DIGITS = 1280  # of 2/pi, in binary: enough for the largest exponent, 2**1024, and 200 digits behind it
LOWEST = 1021  # the biased exponent of 0.5, the first in the table
ENTRIES = 2047 - LOWEST
SCALE = 1 << (DIGITS + 1075 - LOWEST)


def reduced(x):
    """(q as int64, r in two parts) for a float64 lane with |x| < BOUND."""
    n, q = nearest_multiple(x, TWO_OVER_PI)
    product, product_low = two_product(-n, HALF_PI[1])
    r, error = two_sum(fma(-n, HALF_PI[0], x), product)
    return q, r, fma(-n, HALF_PI[2], error + product_low)


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
def _table():
    """For each exponent e from LOWEST: ``2**(e - 1075) * 2/pi`` modulo 4, in [-2, 2), as four doubles."""
    unit = 1 << (DIGITS + 64)
    pi = 4 * (4 * _arctan_of_inverse(5, unit) - _arctan_of_inverse(239, unit))  # Machin's formula
    two_over_pi = (2 * unit << DIGITS) // pi
    columns = ([], [], [], [])
    for exponent in range(LOWEST, 2047):
        rest = Fraction(((two_over_pi << (exponent - LOWEST)) + 2 * SCALE) % (4 * SCALE) - 2 * SCALE, SCALE)
        for column in columns:
            column.append(float(rest))
            rest -= Fraction(column[-1])
    return columns


def reduced_far(x):
    """(q modulo 4 as int64, r in two parts) for a float64 lane with 0.5 <= x < infinity."""
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
    return convert(q, "int64"), r, r_low + (turn * HALF_PI[1] + turn_low * HALF_PI[0])
