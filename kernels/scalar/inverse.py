"""Inverse trigonometric and inverse hyperbolic functions."""

from tracejit.kernels.compiler.intrinsics import bits, copysign, fill, fma, magnitude, select, sqrt
from tracejit.kernels.scalar.building_blocks import in_double, is_double, polynomial
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.logarithm import log1p

INFINITY, NAN = float("inf"), float("nan")
HALF_PI = {
    "float32": (1.5707963705062866, -4.371138828673793e-08),
    "float64": (1.5707963267948966, 6.123233995736766e-17),
}
LN2 = 0.6931471805599453
HUGE = 2.0**60  # beyond it log1p(x) equals log(x), and asinh(x) and acosh(x) equal log(2 x)
TAN_EIGHTH = 0.41421356237309503  # tan(pi/8)

# (atan(t) - t) / t**3 in t**2: |t| <= 1, relative error of atan below 2**-28; |t| <= tan(pi/8), 2**-59
ATAN_F32 = (
    -0.333333,
    0.1999853,
    -0.14264016,
    0.10950881,
    -0.08399307,
    0.057881221,
    -0.03109644,
    0.010868078,
    -0.0017825912,
)
ATAN_F64 = (
    -0.333333333333332,
    0.19999999999953652,
    -0.14285714280196393,
    0.11111110783299809,
    -0.09090897751213693,
    0.07692060087169171,
    -0.06663102591658651,
    0.05847879146978737,
    -0.0503926216631821,
    0.038063580394492105,
    -0.01790625728673187,
)
# (asin(s) - s) / s**3 in s**2, |s| <= 1/2, relative error of asin below 2**-31 and 2**-55
ASIN_F32 = (0.1666666, 0.075005218, 0.044513386, 0.0318387, 0.014318536, 0.037687287)
ASIN_F64 = (
    0.16666666666665395,
    0.07500000000340586,
    0.044642856825259584,
    0.030381959267942543,
    0.022371754814016907,
    0.017359754892311008,
    0.01388472823399474,
    0.012172616238424847,
    0.006512947429411133,
    0.01957018155294841,
    -0.016291216162515408,
    0.031958953233973526,
)


def _half_pi(x):
    return HALF_PI["float64" if is_double(x) else "float32"]


def _atan_of_ratio(y, x):
    """atan(y / x) as a pair of floats for 0 <= y <= x, x > 0. In float64 it is rotated by pi/4 to shorten the
    series.
    """
    if not is_double(x):
        t = y / x
        z = t * t
        return t, t * z * polynomial(z, ATAN_F32)
    steep = y > TAN_EIGHTH * x
    high, low = _half_pi(x)
    t = select(steep, y - x, y) / select(steep, y + x, x)
    z = t * t
    correction = fma(t * z, polynomial(z, ATAN_F64), select(steep, fill(x, 0.5 * low), 0.0))
    base = select(steep, fill(x, 0.5 * high), 0.0)
    angle = base + t
    return angle, (t - (angle - base)) + correction


def _reflected(reflect, base, angle):
    """``base - angle`` where `reflect` holds, otherwise `angle`; both are pairs of floats, the first of each
    the larger.
    """
    high, low = angle
    total = base[0] - high
    error = (base[0] - total) - high
    return select(reflect, total, high), select(reflect, error + (base[1] - low), low)


@scalar()
def atan(x):
    a = magnitude(x)
    steep = a > 1.0
    ratio = _atan_of_ratio(select(steep, 1.0, a), select(steep, a, 1.0))
    high, low = _reflected(steep, _half_pi(x), ratio)
    return copysign(high + low, x)


@scalar()
def atan2(y, x):
    largest = 2.0**1000 if is_double(x) else 2.0**120
    a, b = magnitude(y), magnitude(x)
    steep = a > b
    small, large = select(steep, b, a), select(steep, a, b)
    infinite = large == INFINITY
    small = select(infinite, select(small == INFINITY, fill(x, 1.0), 0.0), small)
    large = select(infinite, 1.0, select(large == 0.0, 1.0, large))
    scale = select(large > largest, fill(x, 0.25), 1.0)
    angle = _reflected(steep, _half_pi(x), _atan_of_ratio(small * scale, large * scale))
    pi = tuple(2.0 * part for part in _half_pi(x))
    high, low = _reflected(bits(x) < 0, pi, angle)
    return select((x != x) | (y != y), x + y, copysign(high + low, y))


def _asin_small(x):
    """The triple (s, asin(s) - s, whether |x| > 1/2), where s is |x|, or the sine of the half angle if |x| >
    1/2.

    The latter is ``sqrt((1 - |x|) / 2)``: the angle is then ``pi/2 - 2 asin(s)``.
    """
    a = magnitude(x)
    big = a > 0.5
    z = select(big, 0.5 * (1.0 - a), a * a)
    s = select(big, sqrt(z), a)
    return s, s * z * polynomial(z, ASIN_F64 if is_double(x) else ASIN_F32), big


@scalar()
def asin(x):
    s, correction, big = _asin_small(x)
    high, low = _half_pi(x)
    complement = high - (2.0 * s - fma(-2.0, correction, low))
    return copysign(select(big, complement, s + correction), x)


@scalar()
def acos(x):
    s, correction, big = _asin_small(x)
    high, low = _half_pi(x)
    negative = bits(x) < 0
    angle = 2.0 * (s + correction)
    reflected = select(negative, 2.0 * high - (angle - 2.0 * low), angle)
    signed, signed_correction = select(negative, -s, s), select(negative, -correction, correction)
    return select(big, reflected, high - (signed - (low - signed_correction)))


@scalar()
def asinh(x):
    if not is_double(x):
        return in_double(asinh, x)
    a = magnitude(x)
    huge = a > HUGE
    exp_minus_one = a + a * a / (1.0 + sqrt(fma(a, a, 1.0)))
    return copysign(log1p(select(huge, a, exp_minus_one)) + select(huge, fill(x, LN2), 0.0), x)


@scalar()
def acosh(x):
    if not is_double(x):
        return in_double(acosh, x)
    t = x - 1.0
    huge = x > HUGE
    result = log1p(select(huge, x, t + sqrt(t * (x + 1.0)))) + select(huge, fill(x, LN2), 0.0)
    return select(x < 1.0, NAN, result)


@scalar()
def atanh(x):
    if not is_double(x):
        return in_double(atanh, x)
    a = magnitude(x)
    return copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x)
