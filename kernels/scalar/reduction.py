"""Reduction of angles to ``x = q pi/2 + r`` with |r| <= pi/4.

Up to BOUND, `reduced` subtracts a multiple of pi/2, represented by three floats (Cody and Waite); the first
subtraction is exact, the rounding errors of the second are kept. Beyond BOUND, `reduced_large` uses Payne and
Hanek's method: when a significand is multiplied by ``2**e * 2/pi``, only the value of the latter modulo 4
matters. That value is a 192-bit window into the digits of 2/pi, and the product is an integer of which 128
bits are kept.
"""

import functools

from tracejit.kernels.compiler.intrinsics import bits, convert, fill, fma, lookup, product_high, select
from tracejit.kernels.scalar.building_blocks import fast_two_sum, nearest_multiple, two_product, two_sum

BOUND = 2.0**30
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_OVER_PI = 0.6366197723675814
WORDS = 19  # of 64 digits of 2/pi: enough for the largest exponent, 2**1023, plus two words


def reduced(x):
    """(q as int64, r as a pair of floats) for a float64 value with |x| < BOUND."""
    n, q = nearest_multiple(x, TWO_OVER_PI)
    product, product_low = two_product(-n, HALF_PI[1])
    r, error = two_sum(fma(-n, HALF_PI[0], x), product)
    return q, r, fma(-n, HALF_PI[2], error + product_low)


def _arctan_of_inverse(n, unit):
    """``unit * atan(1 / n)`` in integer arithmetic."""
    total = term = unit // n
    k = 1
    while term:
        term //= -n * n
        k += 2
        total += term // k
    return total


@functools.cache
def _digits():
    """The digits of 2/pi as words of 64 bits, preceded by a word of zeros."""
    unit = 1 << (64 * WORDS + 64)
    pi = 4 * (4 * _arctan_of_inverse(5, unit) - _arctan_of_inverse(239, unit))  # Machin's formula
    two_over_pi = (2 << (64 * WORDS)) * unit // pi
    return tuple(two_over_pi >> 64 * (WORDS - n) & (2**64 - 1) for n in range(WORDS + 1))


def reduced_large(x):
    """(q modulo 4 as int64, r as a pair of floats) for a float64 value >= BOUND; unspecified for infinity and
    NaN.
    """
    start = (bits(x) >> 52) - 1013  # of the window: the digit that has the weight 2**1 in the product
    words = [lookup(_digits(), (start >> 6) + n) for n in range(4)]
    shift = convert(start & 63, "uint64")
    high, middle, low = (words[n] << shift | words[n + 1] >> 1 >> (63 - shift) for n in range(3))
    m = convert((bits(x) & ((1 << 52) - 1)) | 1 << 52, "uint64")
    carry_word = product_high(m, low)
    fraction = m * middle + carry_word
    turns = m * high + product_high(m, middle) + select(fraction < carry_word, fill(m, 1), 0)
    q = (turns + (1 << 61)) >> 62
    turn_fraction = convert(turns - (q << 62), "int64")
    top = convert(turn_fraction, "float64")
    tail = convert(turn_fraction - convert(top, "int64"), "float64") + convert(fraction, "float64") * 2.0**-64
    turn, turn_low = fast_two_sum(top * 2.0**-62, tail * 2.0**-62)
    r, r_low = two_product(turn, HALF_PI[0])
    return convert(q, "int64"), r, fma(turn_low, HALF_PI[0], fma(turn, HALF_PI[1], r_low))
