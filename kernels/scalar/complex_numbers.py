"""Functions of complex numbers, in terms of functions of their real and imaginary parts.

complex64 is computed in float64 and rounded, so neither cancellation nor overflow inside a formula is
visible. Branch cuts, the signs of zeros and the results for infinities and nan are those of C (Annex G of the
standard of 2011, with its correction DR 471) and so of NumPy, which calls C's functions. The inverse
functions follow Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit"
(1987); the quotient is Smith's (1962), as in NumPy.
"""

import functools

from tracejit.kernels.compiler.intrinsics import (
    convert,
    copysign,
    fill,
    larger,
    magnitude,
    pair,
    select,
    smaller,
)
from tracejit.kernels.compiler.intrinsics import sqrt as root
from tracejit.kernels.compiler.typed_values import dtype_of
from tracejit.kernels.scalar import arithmetic, exponential, inverse, logarithm, power, trigonometric
from tracejit.kernels.scalar.building_blocks import two_product, two_sum
from tracejit.kernels.scalar.declare import on_complex, scalar

INFINITY, NAN, PI = float("inf"), float("nan"), 3.141592653589793
LN2, LN10 = 0.6931471805599453, 2.302585092994046
E64 = 6.235149080811617e27  # e**64


def _in_double(formula):
    """The formula `formula`, with complex64 operands computed in complex128."""

    @functools.wraps(formula)
    def in_double(*xs):
        if dtype_of(xs[0]) == "complex128":
            return formula(*xs)
        result = formula(*(convert(x, "complex128") for x in xs))
        return convert(result, "complex64" if dtype_of(result) == "complex128" else "float32")

    return in_double


def _function(name):
    """Declare a function of complex numbers by a formula in double precision."""
    return lambda formula: on_complex(name)(_in_double(formula))


# ---- real and imaginary parts


def complex_dtype(dtype):
    """The complex dtype whose parts have a floating dtype."""
    return {"float32": "complex64", "float64": "complex128"}[dtype]


@scalar(complex_dtype)
def complex(x, y):
    return pair(x, y)


@scalar(arithmetic.real_dtype)
def real(x):
    return x.real


@scalar(arithmetic.real_dtype)
def imag(x):
    return x.imag


@scalar()
def conj(x):
    return pair(x.real, -x.imag)


# ---- arithmetic


def _is_infinite(part):
    return magnitude(part) == INFINITY


@on_complex("divide")
def divide(x, y):
    """Smith's quotient: both parts of the divisor are divided by the larger one."""
    imag_is_larger = magnitude(y.imag) > magnitude(y.real)
    most, least = select(imag_is_larger, y.imag, y.real), select(imag_is_larger, y.real, y.imag)
    ratio = select(most == 0, fill(most, 0.0), least / most)
    scale = 1.0 / select(most == 0, magnitude(most), most + least * ratio)
    a, b = select(imag_is_larger, x.imag, x.real), select(imag_is_larger, -x.real, x.imag)
    # (x.real + i x.imag) / (most + i least), or the same with both operands rotated by a quarter turn
    c, d = select(imag_is_larger, x.real, x.imag), select(imag_is_larger, x.imag, -x.real)
    return pair((a + c * ratio) * scale, (b + d * ratio) * scale)


@on_complex("reciprocal")
def reciprocal(x):
    """Smith's quotient of 1, without products with its imaginary part, which would change signs of zeros."""
    imag_is_larger = magnitude(x.imag) > magnitude(x.real)
    most, least = select(imag_is_larger, x.imag, x.real), select(imag_is_larger, x.real, x.imag)
    ratio = least / most
    scale = 1.0 / (most + least * ratio)
    return pair(
        select(imag_is_larger, ratio * scale, scale), select(imag_is_larger, -scale, -(ratio * scale))
    )


@_function("abs")
def abs(x):
    return power.hypot(x.real, x.imag)


@_function("sign")
def sign(x):
    """``x / |x|``, as in NumPy; 0 for 0, and a unit on an axis if only one part is infinite."""
    a, b, zero = x.real, x.imag, fill(x.real, 0.0)
    infinite = _is_infinite(a) | _is_infinite(b)
    a = select(infinite, select(_is_infinite(a), copysign(fill(a, 1.0), a), zero), a)
    b = select(infinite, select(_is_infinite(b), copysign(fill(b, 1.0), b), zero), b)
    huge = larger(magnitude(a), magnitude(b)) > 2.0**1000
    a, b = select(huge, 0.25 * a, a), select(huge, 0.25 * b, b)
    length = select(infinite & (a != 0) & (b != 0), fill(a, NAN), power.hypot(a, b))
    return pair(select(length == 0, zero, a / length), select(length == 0, zero, b / length))


@on_complex("isinf")
def isinf(x):
    return _is_infinite(x.real) | _is_infinite(x.imag)


@on_complex("isfinite")
def isfinite(x):
    return (magnitude(x.real) < INFINITY) & (magnitude(x.imag) < INFINITY)


# ---- exponentials


def _polar_part(modulus, factor):
    """The part ``modulus * factor`` of a number in polar form, where an infinite modulus does not turn a zero
    into nan.
    """
    return select(factor == 0, factor * copysign(fill(modulus, 1.0), modulus), modulus * factor)


def _polar_part_or_modulus(modulus, factor, keeps_modulus):
    """The product of `_polar_part`, or the modulus itself if `keeps_modulus` holds and the factor is nan,
    because its angle is infinite or nan.
    """
    return select(keeps_modulus & (factor != factor), modulus, _polar_part(modulus, factor))


@_function("exp")
def exp(x):
    """e**real (cos imag + i sin imag), also if the product is finite though its first factor overflows."""
    a, b = x.real, x.imag
    large = (a > 700.0) & (a < 1500.0)
    modulus = exponential.exp(select(large, a - 64.0, a))
    scale = select(large, fill(a, E64), 1.0)
    cosine, sine = trigonometric.cos(b), trigonometric.sin(b)
    return pair(
        _polar_part_or_modulus(modulus, cosine, _is_infinite(a)) * scale,
        _polar_part_or_modulus(modulus, sine, a == -INFINITY) * scale,
    )


@_function("exp2")
def exp2(x):
    return exp(pair(x.real * LN2, x.imag * LN2))


@_function("expm1")
def expm1(x):
    """The real part is expm1(a) cos(b) - 2 sin(b / 2)**2, which does not cancel near 0."""
    half = trigonometric.sin(0.5 * x.imag)
    accurate = _polar_part(exponential.expm1(x.real), trigonometric.cos(x.imag)) - 2.0 * half * half
    exponential_of_x = exp(x)
    return pair(select(_is_infinite(x.real), exponential_of_x.real - 1.0, accurate), exponential_of_x.imag)


# ---- logarithms


def _log_modulus(a, b):
    """log(hypot(a, b)), accurate near 1 as well, where the sum of squares is computed in twice the
    precision.
    """
    most, least = larger(magnitude(a), magnitude(b)), smaller(magnitude(a), magnitude(b))
    near = (most > 0.5) & (most < 1.5)
    product, product_low = two_product(most - 1.0, most + 1.0)
    square, square_low = two_product(least, least)
    total, total_low = two_sum(product, square)
    log_of_square = logarithm.log1p(select(near, total + (total_low + (product_low + square_low)), 0.0))
    large = most > 2.0**1000
    scale = select(large, fill(a, 0.5), 1.0)
    general = logarithm.log(power.hypot(a * scale, b * scale)) + select(large, fill(a, LN2), 0.0)
    return select(near, 0.5 * log_of_square, general)


@_function("log")
def log(x):
    return pair(_log_modulus(x.real, x.imag), inverse.atan2(x.imag, x.real))


@_function("log2")
def log2(x):
    y = log(x)
    return pair(y.real * (1 / LN2), y.imag * (1 / LN2))


@_function("log10")
def log10(x):
    y = log(x)
    return pair(y.real * (1 / LN10), y.imag * (1 / LN10))


@_function("log1p")
def log1p(x):
    a, b = x.real, x.imag
    small = (magnitude(a) < 0.5) & (magnitude(b) < 0.5)
    near = 0.5 * logarithm.log1p(select(small, a * (2.0 + a) + b * b, 0.0))
    return pair(select(small, near, _log_modulus(1.0 + a, b)), inverse.atan2(b, 1.0 + a))


# ---- roots and powers


@_function("sqrt")
def sqrt(x):
    """The root whose real part is not negative; parts whose squares are out of range are scaled."""
    most = larger(magnitude(x.real), magnitude(x.imag))
    large, small = most > 2.0**1000, most < 2.0**-900
    down = select(large, fill(most, 2.0**-4), select(small, fill(most, 2.0**200), 1.0))
    up = select(large, fill(most, 2.0**2), select(small, fill(most, 2.0**-100), 1.0))
    a, b = x.real * down, x.imag * down
    larger_part = root(0.5 * (magnitude(a) + power.hypot(a, b)))
    smaller_part = select(larger_part == 0, fill(a, 0.0), magnitude(b) / (2.0 * larger_part))
    infinite = _is_infinite(x.imag)
    larger_part = select(infinite, fill(a, INFINITY), larger_part * up)
    smaller_part = select(infinite, fill(a, INFINITY), smaller_part * up)
    right_half = copysign(fill(a, 1.0), x.real) > 0
    return pair(
        select(right_half, larger_part, smaller_part),
        copysign(select(right_half, smaller_part, larger_part), x.imag),
    )


@_function("pow")
def pow(x, y):
    """exp(y log(x)); anything to the power 0 is 1, and 0 to a positive power is 0."""
    zero = fill(x.real, 0.0)
    of_zero = select((y.real > 0) & (y.imag == 0), zero, fill(zero, NAN))
    result = select((x.real == 0) & (x.imag == 0), pair(of_zero, of_zero), exp(log(x) * y))
    return select((y.real == 0) & (y.imag == 0), pair(fill(zero, 1.0), zero), result)


# ---- trigonometric and hyperbolic


def _times_i(x):
    """The product i x."""
    return pair(-x.imag, x.real)


def _times_minus_i(x):
    """The product -i x."""
    return pair(x.imag, -x.real)


@_function("sinh")
def sinh(x):
    a, cosine, sine = x.real, trigonometric.cos(x.imag), trigonometric.sin(x.imag)
    return pair(
        _polar_part_or_modulus(exponential.sinh(a), cosine, (a == 0) | _is_infinite(a)),
        _polar_part(exponential.cosh(a), sine),
    )


@_function("cosh")
def cosh(x):
    a, cosine, sine = x.real, trigonometric.cos(x.imag), trigonometric.sin(x.imag)
    return pair(
        _polar_part_or_modulus(exponential.cosh(a), cosine, _is_infinite(a)),
        _polar_part_or_modulus(exponential.sinh(a), sine, a == 0),
    )


@_function("tanh")
def tanh(x):
    """Kahan's formula in tan(imag) and sinh(real); the real part is its sign if it is beyond 22."""
    a, b = x.real, x.imag
    large = magnitude(a) > 22.0
    tangent = trigonometric.tan(b)
    beta = 1.0 + tangent * tangent
    s = exponential.sinh(select(large, 0.0, a))
    rho = root(1.0 + s * s)
    denominator = 1.0 + beta * s * s
    steep = magnitude(tangent) == INFINITY
    general = pair(
        select(steep, rho / s, beta * rho * s / denominator),
        select(steep, 1.0 / tangent, tangent / denominator),
    )
    imag_of_large = 4.0 * trigonometric.sin(b) * trigonometric.cos(b) * exponential.exp(-2.0 * magnitude(a))
    infinite = _is_infinite(a) & (imag_of_large != imag_of_large)
    real_of_large = copysign(
        select(infinite | (imag_of_large == imag_of_large), fill(a, 1.0), fill(a, NAN)), a
    )
    real = select(large, real_of_large, select(a == 0, a, general.real))
    imag = select(
        large, select(infinite, copysign(fill(a, 0.0), b), imag_of_large), select(b == 0, b, general.imag)
    )
    return pair(real, imag)


@_function("sin")
def sin(x):
    return _times_minus_i(sinh(_times_i(x)))


@_function("cos")
def cos(x):
    return cosh(_times_i(x))


@_function("tan")
def tan(x):
    return _times_minus_i(tanh(_times_i(x)))


def _is_large(x):
    """Whether 1 is negligible beside the square of `x`, so that asin(x) and acos(x) are ``log(2x)``,
    rotated.
    """
    return (magnitude(x.real) > 1e150) | (magnitude(x.imag) > 1e150)


def _one_minus(x):
    return pair(1.0 - x.real, -x.imag)


def _one_plus(x):
    return pair(1.0 + x.real, x.imag)


@_function("asin")
def asin(x):
    root_minus, root_plus = sqrt(_one_minus(x)), sqrt(_one_plus(x))
    real = inverse.atan2(x.real, (root_minus * root_plus).real)
    imag = inverse.asinh(root_minus.real * root_plus.imag - root_minus.imag * root_plus.real)
    large = _is_large(x)
    real = select(large, inverse.atan2(x.real, magnitude(x.imag)), select(x.real == 0, x.real, real))
    return pair(real, copysign(select(large, _log_modulus(x.real, x.imag) + LN2, imag), x.imag))


@_function("acos")
def acos(x):
    root_minus, root_plus = sqrt(_one_minus(x)), sqrt(_one_plus(x))
    real = 2.0 * inverse.atan2(root_minus.real, root_plus.real)
    imag = inverse.asinh(root_plus.real * root_minus.imag - root_plus.imag * root_minus.real)
    large = _is_large(x)
    real = select(large, inverse.atan2(magnitude(x.imag), x.real), real)
    real = select((x.real == 0) & (x.imag != x.imag), fill(real, PI / 2), real)
    return pair(real, copysign(select(large, _log_modulus(x.real, x.imag) + LN2, imag), -x.imag))


@_function("acosh")
def acosh(x):
    """acos(x), rotated into the right half-plane."""
    y = acos(x)
    return pair(magnitude(y.imag), copysign(y.real, x.imag))


@_function("asinh")
def asinh(x):
    return _times_minus_i(asin(_times_i(x)))


@_function("atanh")
def atanh(x):
    a, b = magnitude(x.real), x.imag
    most = larger(a, magnitude(b))
    large = most > 1e100
    p, q = select(large, a / most, a), select(large, b / most, b)
    one_minus_p = 1.0 - p
    # Near 1 the logarithm is infinite.
    close = larger(magnitude(one_minus_p), magnitude(q)) < 1e-100
    general = 0.25 * logarithm.log1p(4.0 * p / (one_minus_p * one_minus_p + q * q))
    general = select(close, 0.5 * (LN2 - logarithm.log(power.hypot(one_minus_p, q))), general)
    real = select(large, p / (p * p + q * q) / most, general)
    angle = 0.5 * inverse.atan2(2.0 * q, one_minus_p * (1.0 + p) - q * q)
    imag = select(large, copysign(fill(b, PI / 2), b), angle)
    infinite = isinf(x)
    real = select(infinite | (a == 0), fill(a, 0.0), real)
    imag = select(infinite & (b == b), copysign(fill(b, PI / 2), b), imag)
    return pair(copysign(real, x.real), imag)


@_function("atan")
def atan(x):
    return _times_minus_i(atanh(_times_i(x)))
