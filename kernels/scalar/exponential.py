"""Exponentials: exp, exp2, expm1, and the logistic function and tanh, which are based on them.

An argument is decomposed as ``x = n ln 2 + r`` with an integer n and |r| <= ln(2) / 2 (Cody and Waite, with
`fma` so that the subtraction is exact); then ``e**x = 2**n (1 + r + r**2 Q(r))`` with a minimax polynomial Q.
"""

from tracejit.kernels.compiler.intrinsics import copysign, fma, magnitude, select
from tracejit.kernels.scalar.building_blocks import (
    clamped,
    format_of,
    is_double,
    nearest_multiple,
    polynomial,
    power_of_two,
    scaled,
)
from tracejit.kernels.scalar.declare import scalar

# (exp(r) - 1 - r) / r**2 on |r| <= ln(2) / 2; relative error of exp below 2**-28 and 2**-57
EXP_F32 = (
    0.49999993447796487,
    0.16666520631709497,
    0.041668388045313996,
    0.00836871687972814,
    0.0013814598646664034,
)
EXP_F64 = (
    0.5,
    0.16666666666666688,
    0.041666666666666824,
    0.00833333333331389,
    0.0013888888888777245,
    0.00019841269903481533,
    2.4801587489310087e-05,
    2.7557239938496747e-06,
    2.755731117602814e-07,
    2.5103940111890434e-08,
    2.081867081146858e-09,
)
# the same for expm1, where it determines the relative error for small r
EXPM1_F32 = (0.5, 0.16666648, 0.04166648, 0.008337889, 0.0013934602, 0.00017280648)
# (2**x - 1) / x for |x| <= 1/2, relative error of 2**x below 2**-28
EXP2_MEDIUM = (
    0.6931472150114951,
    0.24022652785510215,
    0.05550310468582203,
    0.009617692643213181,
    0.00134066717507282,
    0.00015594697301955332,
)
# (exp(r) - 1 - r) / r**2 on |r| <= ln(2) / 2; relative error of expm1 below 2**-31
TANH_F32 = (0.5, 0.16666666, 0.041666362, 0.00833339, 0.0013940654, 0.0001984588)
# (sinh(x) - x) / x**3 in x**2 on |x| <= 1, relative error below 2**-31 and 2**-61
SINH_F32 = (0.16666667, 0.0083333105, 0.00019842891, 2.7822673e-06)
SINH_F64 = (
    0.16666666666666669,
    0.008333333333332912,
    0.0001984126984159341,
    2.755731910675631e-06,
    2.5052130998846494e-08,
    1.6056659154091392e-10,
    7.776600625382018e-13,
)


def reduced(x):
    """The reduced argument (n as float, n as integer, r) with ``x = n ln 2 + r``, for |x| below about
    2**(fraction - 3).
    """
    n, i = nearest_multiple(x, format_of(x).log2e)
    return n, i, fma(-n, format_of(x).ln2_low, fma(-n, format_of(x).ln2, x))


def exp_reduced(r):
    """exp(r) for |r| <= ln(2) / 2."""
    return fma(r * r, polynomial(r, EXP_F64 if is_double(r) else EXP_F32), r) + 1.0


def exp2_reduced(r):
    """2**r for |r| <= 1/2, with slightly more than float32 precision."""
    return fma(r, polynomial(r, EXP2_MEDIUM), 1.0)


def exp_negative(x):
    """exp(x) for x <= 0, down to the smallest subnormal numbers."""
    least = -746.0 if is_double(x) else -104.0
    _, n, r = reduced(select(x < least, least, x))
    return scaled(exp_reduced(r), n)


@scalar()
def exp(x):
    least, most = (-746.0, 710.0) if is_double(x) else (-104.0, 89.0)
    _, n, r = reduced(clamped(x, least, most))
    return scaled(exp_reduced(r), n)


@scalar()
def exp2(x):
    least, most = (-1076.0, 1025.0) if is_double(x) else (-151.0, 129.0)
    x = clamped(x, least, most)
    n, i = nearest_multiple(x, 1.0)
    return scaled(exp_reduced((x - n) * format_of(x).ln2), i)


@scalar()
def sigmoid(x):
    """``1 / (1 + e**-x)``: with ``e = exp(-|x|)`` and ``q = e / (1 + e)`` it is 1 - q, or e - e q if x
    < 0.
    """
    e = exp_negative(-magnitude(x))
    q = e / (1.0 + e)
    return select(x < 0.0, fma(-e, q, e), 1.0 - q)


@scalar()
def expm1(x):
    """``e**x - 1`` as ``2**n (r + r**2 Q(r)) + (2**n - 1)``, with r and the sum as pairs of floats, at half
    scale.
    """
    form = format_of(x)
    least, most = (-40.0, 710.0) if is_double(x) else (-18.0, 89.0)
    n, i, _ = reduced(clamped(x, least, most))
    high = fma(-n, form.ln2, clamped(x, least, most))
    r = fma(-n, form.ln2_low, high)
    r_low = fma(-n, form.ln2_low, high - r)
    half = power_of_two(i - 1)
    leading = half - 0.5
    scaled_r = half * r
    total = leading + scaled_r
    q = polynomial(r, EXP_F64 if is_double(x) else EXPM1_F32)
    low = fma(half, fma(r * r, q, r_low), scaled_r - (total - leading))
    return select(magnitude(x) < 2.0 ** -(form.fraction + 1), x, 2.0 * (total + low))


@scalar()
def tanh(x):
    return _tanh_f64(x) if is_double(x) else _tanh_f32(x)


def _tanh_f64(x):
    t = expm1(clamped(2.0 * magnitude(x), 0.0, 45.0))
    return copysign(t / (t + 2.0), x)


def _tanh_f32(x):
    """``t / (t + 2)`` with ``t = e**y - 1`` and y twice the argument. The sign of y is arbitrary; near zero
    it is negative, because the sum is then below 2 and its rounding error is halved. t is
    ``2**n r**2 Q(r) + (2**n r + 2**n - 1)``.
    """
    a = magnitude(x)
    a = select(a > 10.0, 10.0, a)
    n, i = nearest_multiple(a, 2.0 * format_of(x).log2e)
    doubled = a + a
    r = fma(-n, format_of(x).ln2, select(a < 0.17, -doubled, doubled))  # n is 0 there
    scale = power_of_two(i)
    scaled_r = r * scale
    t = fma(scaled_r * r, polynomial(r, TANH_F32), scaled_r + (scale - 1.0))
    return copysign(t / (t + 2.0), x)


def _half_exp(a):
    """``e**a / 2`` for a >= 0, which is finite beyond the range of exp."""
    _, n, r = reduced(clamped(a, 0.0, 712.0 if is_double(a) else 90.0))
    return scaled(exp_reduced(r), n - 1)


@scalar()
def sinh(x):
    a = magnitude(x)
    z = a * a
    small = fma(a * z, polynomial(z, SINH_F64 if is_double(x) else SINH_F32), a)
    half = _half_exp(a)
    return copysign(select(a < 1.0, small, half - 0.25 / half), x)


@scalar()
def cosh(x):
    half = _half_exp(magnitude(x))
    return half + 0.25 / half
