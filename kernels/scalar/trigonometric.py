"""Sine, cosine and tangent of any finite argument, in radians."""

from tracejit.kernels.intrinsics import bits, convert, fma, magnitude, select
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.parts import is_double, polynomial
from tracejit.kernels.scalar.reduction import reduced_f32, reduced_f64

QUARTER_PI = 0.7853981633974483

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
# the same in double precision, as accurate as a float32 tangent needs: 2**-37 and 2**-42
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


def _reduced(x):
    """(q, r, low) for |x|: small arguments stay as they are."""
    a = magnitude(x)
    small = a < QUARTER_PI
    if is_double(x):
        q, r, low = reduced_f64(a)
        return select(small, 0, q), select(small, a, r), select(small, 0.0, low)
    q, r = reduced_f32(a)
    return select(small, 0, convert(q, "int32")), select(small, a, convert(r, "float32")), 0.0


def _wave(x, q, r, low):
    """sin(q pi/2 + r)."""
    sine = _sine(r, low, SIN_F64 if is_double(r) else SIN_F32)
    cosine = _cosine(r, low, COS_F64 if is_double(r) else COS_F32)
    value = select((q & 1) != 0, cosine, sine)
    value = select((q & 2) != 0, -value, value)
    return select(magnitude(x) < float("inf"), value, x - x)


@scalar()
def sin(x):
    q, r, low = _reduced(x)
    value = _wave(x, q, r, low)
    return select(bits(x) < 0, -value, value)


@scalar()
def cos(x):
    q, r, low = _reduced(x)
    return _wave(x, q + 1, r, low)


@scalar()
def tan(x):
    if is_double(x):
        q, r, low = _reduced(x)
        sine, cosine = _sine(r, low, SIN_F64), _cosine(r, low, COS_F64)
    else:
        a = magnitude(x)
        q, r = reduced_f32(a)
        small = a < QUARTER_PI
        q, r = select(small, 0, convert(q, "int32")), select(small, convert(a, "float64"), r)
        sine, cosine = _sine(r, 0.0, SIN_MEDIUM), _cosine(r, 0.0, COS_MEDIUM)
    odd = (q & 1) != 0
    value = select(odd, -cosine, sine) / select(odd, sine, cosine)
    value = select(magnitude(x) < float("inf"), value if is_double(x) else convert(value, "float32"), x - x)
    return select(bits(x) < 0, -value, value)
