"""Sine, cosine and tangent of any finite argument, in radians.

In float32 the angle is reduced in float64. Arguments beyond the range of the fast reduction are computed out
of line, in float64.
"""

from tracejit.kernels.compiler.intrinsics import bits, convert, fma, magnitude, select
from tracejit.kernels.compiler.outline import except_beyond
from tracejit.kernels.scalar.building_blocks import in_double, is_double, polynomial
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.reduction import BOUND, reduced, reduced_large

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2, |r| <= pi/4
SIN_F32 = (-0.16666667, 0.0083333794, -0.00019853064, 2.83251e-06)  # 2**-32
COS_F32 = (0.041666646, -0.001388731, 2.4432327e-05)  # 2**-33
SIN_F64 = (
    -0.1666666666666663,
    0.00833333333332184,
    -0.00019841269829358528,
    2.7557313538513256e-06,
    -2.5050734388849988e-08,
    1.5895433251122137e-10,
)  # 2**-57
COS_F64 = (
    0.041666666666666595,
    -0.0013888888888873325,
    2.480158728898371e-05,
    -2.755731421009333e-07,
    2.087570427479969e-09,
    -1.1358683590069273e-11,
)  # 2**-63
# the same in double precision, with the accuracy that a float32 tangent needs: 2**-37 and 2**-42
SIN_MEDIUM = (-0.16666666640692804, 0.008333329292699528, -0.0001983930834574974, 2.7180840611350424e-06)
COS_MEDIUM = (0.04166666661929998, -0.0013888883483734282, 2.4799455901826464e-05, -2.720540698120739e-07)


def _sine(r, low, coefficients):
    """sin(r + low)."""
    z = r * r
    return r + fma(r * z, polynomial(z, coefficients), low)


def _cosine(r, low, coefficients):
    """cos(r + low)."""
    z = r * r
    half = 0.5 * z
    one = 1.0 - half
    return one + (((1.0 - one) - half) + fma(z * z, polynomial(z, coefficients), -r * low))


def _wave(q, r, low):
    """sin(q pi/2 + r + low)."""
    double = is_double(r)
    sine = _sine(r, low, SIN_F64 if double else SIN_F32)
    cosine = _cosine(r, low, COS_F64 if double else COS_F32)
    value = select((q & 1) != 0, cosine, sine)
    return select((q & 2) != 0, -value, value)


def _ratio(q, r, low, sines, cosines):
    """tan(q pi/2 + r + low)."""
    sine, cosine = _sine(r, low, sines), _cosine(r, low, cosines)
    odd = (q & 1) != 0
    return select(odd, -cosine, sine) / select(odd, sine, cosine)


def _narrowed(x):
    """The angle x of float32, reduced in float64 and rounded to float32."""
    q, r, _ = reduced(convert(x, "float64"))
    return convert(q, "int32"), convert(r, "float32"), 0.0


def _odd(x, value):
    """The value of an odd function at x, given its value at |x|; NaN at infinity."""
    value = select(magnitude(x) < float("inf"), value, x - x)
    return select(bits(x) < 0, -value, value)


def sin_large(x):
    return _odd(x, _wave(*reduced_large(magnitude(x)))) if is_double(x) else in_double(sin_large, x)


def cos_large(x):
    if not is_double(x):
        return in_double(cos_large, x)
    q, r, low = reduced_large(magnitude(x))
    return select(magnitude(x) < float("inf"), _wave(q + 1, r, low), x - x)


def tan_large(x):
    if not is_double(x):
        return in_double(tan_large, x)
    return _odd(x, _ratio(*reduced_large(magnitude(x)), SIN_F64, COS_F64))


@scalar()
def sin(x):
    near = _wave(*(reduced(x) if is_double(x) else _narrowed(x)))
    return except_beyond(x, BOUND, select(x == 0.0, x, near), sin_large)


@scalar()
def cos(x):
    q, r, low = reduced(x) if is_double(x) else _narrowed(x)
    return except_beyond(x, BOUND, _wave(q + 1, r, low), cos_large)


@scalar()
def tan(x):
    if is_double(x):
        near = _ratio(*reduced(x), SIN_F64, COS_F64)
    else:
        q, r, _ = reduced(convert(x, "float64"))
        near = convert(_ratio(q, r, 0.0, SIN_MEDIUM, COS_MEDIUM), "float32")
    return except_beyond(x, BOUND, select(x == 0.0, x, near), tan_large)
