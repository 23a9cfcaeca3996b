"""Building blocks of several functions: polynomials, powers of two, and splitting of numbers.

Constants that depend on the precision are in `FORMATS`; `format_of(x)` returns those of a typed value.
"""

from dataclasses import dataclass

from tracejit.kernels.compiler.intrinsics import bits, can_scale, convert, fill, floating, fma, ldexp, select
from tracejit.kernels.compiler.typed_values import dtype_of


@dataclass(frozen=True)
class Format:
    """Constants of one precision. Each `c` with a `c_low` is a number in twice the precision."""

    fraction: int  # stored bits of the significand
    bias: int  # of the exponent
    tiny: float  # smallest normal number
    magic: float  # 1.5 * 2**fraction: adding it rounds to an integer, which is then in the low bits
    magic_bits: int
    middle: int  # the bits of sqrt(1/2)
    ln2: float
    ln2_low: float
    log2e: float
    log2e_low: float
    log10e: float
    log10e_low: float
    log10of2: float
    log10of2_low: float


FORMATS = {
    "float32": Format(
        fraction=23,
        bias=127,
        tiny=2.0**-126,
        magic=1.5 * 2.0**23,
        magic_bits=0x4B400000,
        middle=0x3F3504F3,
        ln2=0.6931471824645996,
        ln2_low=-1.9046542121259336e-09,
        log2e=1.4426950216293335,
        log2e_low=1.925963033500011e-08,
        log10e=0.4342944920063019,
        log10e_low=-1.0103049952192578e-08,
        log10of2=0.3010300099849701,
        log10of2_low=-1.432098883924482e-08,
    ),
    "float64": Format(
        fraction=52,
        bias=1023,
        tiny=2.0**-1022,
        magic=1.5 * 2.0**52,
        magic_bits=0x4338000000000000,
        middle=0x3FE6A09E667F3BCD,
        ln2=0.6931471805599453,
        ln2_low=2.3190468138462996e-17,
        log2e=1.4426950408889634,
        log2e_low=2.0355273740931033e-17,
        log10e=0.4342944819032518,
        log10e_low=1.098319650216765e-17,
        log10of2=0.3010299956639812,
        log10of2_low=-2.8037281277851704e-18,
    ),
}


def format_of(x):
    """The constants of the precision of `x`."""
    return FORMATS[dtype_of(x)]


def is_double(x):
    return dtype_of(x) == "float64"


def in_double(function, *xs):
    """The result of `function` for float32 values, computed in float64 and rounded."""
    return convert(function(*(convert(x, "float64") for x in xs)), "float32")


def polynomial(x, coefficients):
    """``c[0] + c[1] x + c[2] x**2 + ...`` by Horner's rule."""
    *others, value = coefficients
    for c in reversed(others):
        value = fma(value, x, c)
    return value


def nearest_multiple(x, factor):
    """The integer n nearest to ``x * factor``, as float and as integer; |n| must be below 2**(fraction - 2).

    No conversion is involved, so NaN passes through the float, and its integer is unspecified.
    """
    shifted = fma(x, factor, format_of(x).magic)
    return shifted - format_of(x).magic, bits(shifted) - format_of(x).magic_bits


def power_of_two(n):
    """2**n for an integer value, if that is a normal number."""
    form = FORMATS["float32" if dtype_of(n) == "int32" else "float64"]
    return floating((n + form.bias) << form.fraction)


def scaled(x, n):
    """``x * 2**n``, rounded once; n may be up to twice the range of exponents of normal numbers."""
    if can_scale(x):
        return ldexp(x, n)
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


def clamped(x, least, most):
    """`x` limited to the bounds; NaN is preserved."""
    x = select(x < least, least, x)
    return select(x > most, most, x)


def split(x):
    """The pair (k, m) with ``x == m * 2**k`` for positive finite x: k is an integer value, m in [sqrt(1/2),
    sqrt(2)).
    """
    form = format_of(x)
    subnormal = x < form.tiny
    x = select(subnormal, x * 2.0**form.fraction, x)
    offset = bits(x) - form.middle
    k = (offset >> form.fraction) - select(subnormal, fill(offset, form.fraction), 0)
    return k, floating((offset & ((1 << form.fraction) - 1)) + form.middle)


def two_sum(a, b):
    """The pair (sum, error) with ``sum + error == a + b`` exactly (Knuth)."""
    total = a + b
    b_virtual = total - a
    return total, (a - (total - b_virtual)) + (b - b_virtual)


def fast_two_sum(a, b):
    """The pair (sum, error) with ``sum + error == a + b`` exactly, for |a| >= |b| or a == 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


def two_product(a, b):
    """The pair (product, error) with ``product + error == a * b`` exactly."""
    product = a * b
    return product, fma(a, b, -product)
