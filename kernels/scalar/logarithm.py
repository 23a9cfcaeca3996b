"""Logarithms: the argument is split as ``m 2**k`` with m in [sqrt(1/2), sqrt(2)), and log(m) is a minimax
approximation.

In float32 it is a polynomial in ``f = m - 1``; in float64 the series of the inverse hyperbolic tangent in
``s = f / (2 + f)``, which costs a division and saves a dozen terms (the arrangement of Sun's fdlibm).
"""

from tracejit.kernels.compiler.intrinsics import convert, copysign, fill, fma, select
from tracejit.kernels.compiler.typed_values import dtype_of
from tracejit.kernels.scalar.building_blocks import (
    format_of,
    is_double,
    polynomial,
    power_of_two,
    split,
    two_sum,
)
from tracejit.kernels.scalar.declare import scalar

INFINITY, NAN = float("inf"), float("nan")

# (log(1 + f) - f + f**2 / 2) / f**3, relative error of the logarithm below 2**-28
LOG_F32 = (
    0.33333313,
    -0.25000167,
    0.20002224,
    -0.16659367,
    0.1420955,
    -0.1254965,
    0.12109642,
    -0.10921063,
    0.053453725,
)
# (log((1 + s) / (1 - s)) - 2 s) / s**3 in s**2, relative error of the logarithm below 2**-59
LOG_F64 = (
    0.6666666666666735,
    0.3999999999940935,
    0.28571428743686517,
    0.22222198428979315,
    0.18183572354632316,
    0.1531383217466057,
    0.14798258708554707,
)


def log_fraction(f):
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2))."""
    if not is_double(f):
        return f * f * fma(f, polynomial(f, LOG_F32), -0.5)
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f * f
    return s * fma(z, polynomial(z, LOG_F64), half) - half


def _natural(f, k):
    """log((1 + f) * 2**k), k an integer value."""
    k = convert(k, dtype_of(f))
    return fma(k, format_of(f).ln2, f + fma(k, format_of(f).ln2_low, log_fraction(f)))


def _with_special_values(x, result):
    """The logarithm of x, if `result` is correct for positive finite x."""
    result = select(x < INFINITY, result, x)
    return select(x < 0.0, NAN, select(x == 0.0, -INFINITY, result))


@scalar()
def log(x):
    k, m = split(x)
    return _with_special_values(x, _natural(m - 1.0, k))


@scalar()
def log2(x):
    form = format_of(x)
    k, m = split(x)
    f = m - 1.0
    low = fma(f, form.log2e_low, log_fraction(f) * form.log2e)
    return _with_special_values(x, convert(k, dtype_of(x)) + fma(f, form.log2e, low))


@scalar()
def log10(x):
    form = format_of(x)
    k, m = split(x)
    f, k = m - 1.0, convert(k, dtype_of(x))
    low = fma(k, form.log10of2_low, fma(f, form.log10e_low, log_fraction(f) * form.log10e))
    return _with_special_values(x, fma(k, form.log10of2, fma(f, form.log10e, low)))


@scalar()
def log1p(x):
    """The logarithm of ``1 + x = u + error``, where the error, scaled like u, is added to the fraction."""
    u, error = two_sum(fill(x, 1.0), x)
    k, m = split(u)
    bounded_k = select(k > 60, 60, k)  # beyond it, the error is negligible
    f = (m - 1.0) + error * power_of_two(-bounded_k)
    return copysign(_with_special_values(u, _natural(f, k)), x)
