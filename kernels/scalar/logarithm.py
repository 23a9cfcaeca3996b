"""Logarithms: the argument is ``m 2**k`` with m in [sqrt(1/2), sqrt(2)), and log(m) a minimax
approximation.

In float32 it is a polynomial in ``f = m - 1``; in float64 the series of the inverse hyperbolic tangent
in ``s = f / (2 + f)``, which costs a division and saves a dozen terms (the arrangement of Sun's fdlibm).
"""

from tracejit.kernels.intrinsics import convert, dtype_of, fma, select
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.parts import is_double, of, polynomial, split

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


def log_parts(f, k):
    """log((1 + f) * 2**k) for 1 + f in [sqrt(1/2), sqrt(2)) and k an integer as float."""
    form = of(f)
    half = 0.5 * f * f
    if is_double(f):
        s = f / (2.0 + f)
        z = s * s
        rest = s * fma(z, polynomial(z, LOG_F64), half)
    else:
        rest = f * f * f * polynomial(f, LOG_F32)
    return fma(k, form.ln2, f - (half - fma(k, form.ln2_low, rest)))


def with_special_values(x, result):
    """The logarithm of x where `result` is right for positive finite x."""
    result = select(x < INFINITY, result, x)
    return select(x < 0.0, NAN, select(x == 0.0, -INFINITY, result))


@scalar()
def log(x):
    k, m = split(x)
    return with_special_values(x, log_parts(m - 1.0, convert(k, dtype_of(x))))
