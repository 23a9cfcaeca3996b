"""Elementwise functions composed of other elementwise functions; a composition is fused like one operator.

Functions with several results return a tuple.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, clip, imag, pow, real, where
from tracejit.frontend.arrays.functions.manipulation import broadcast_arrays
from tracejit.frontend.arrays.public import declare, public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_floating, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BOOL, UINT8, UINT64, INT32, FLOAT64 = map(np.dtype, ("bool", "uint8", "uint64", "int32", "float64"))
maximum, minimum, isnan, isinf, isfinite = (
    FUNCTIONS[name] for name in ("maximum", "minimum", "isnan", "isinf", "isfinite")
)
absolute, copysign, remainder, floor_divide = (
    FUNCTIONS[name] for name in ("abs", "copysign", "remainder", "floor_divide")
)


def floating(name: str, x: Any) -> Any:
    """Return `x` as an array of the dtype in which NumPy computes floating-point functions of it."""
    array = dispatch.as_array(name, x)
    return dispatch.cast(array, promotion.promoted(ops.sqrt, (array.dtype,))[0])


def _alike(name: str, op: Any, *operands: Any) -> tuple[Any, ...]:
    """Return operands as arrays of the broadcast shape and of the dtype in which `op` computes them."""
    converted = [dispatch.as_operand(name, x) for x in operands]
    dtypes = promotion.promoted(op, tuple(promotion.kind_of(x) for x in converted))
    arrays = (
        dispatch.cast(dispatch.as_array(name, x), dtype)
        if hasattr(x, "dtype")
        else dispatch.full(x, (), dtype, dispatch.device_of(converted), name)
        for x, dtype in zip(converted, dtypes, strict=True)
    )
    return tuple(broadcast_arrays(*arrays))


def _refuse(name: str, x: Any, kinds: str, what: str) -> None:
    """Raise DTypeError, with the advice `what`, unless the kind of the dtype is in `kinds`."""
    kind = "f" if is_floating(x.dtype) else x.dtype.kind
    if kind not in kinds:
        raise locate(DTypeError(f"{name}: not defined for {x.dtype}; {what}"), user_location())


# -- extremes, remainders ------------------------------------------------------------------------------------


@public
def fmax(x1: Any, x2: Any, /) -> NDArray:
    """The larger operand; the other one if one is nan.

    The result has the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.fmax(tj.asarray([1.0, tj.nan]), 2.0)
    NDArray([2., 2.], dtype=float32)
    """
    return where(isnan(x1), x2, where(isnan(x2), x1, maximum(x1, x2)))


@public
def fmin(x1: Any, x2: Any, /) -> NDArray:
    """The smaller operand; the other one if one is nan.

    The result has the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.fmin(tj.asarray([1.0, tj.nan]), 2.0)
    NDArray([1., 2.], dtype=float32)
    """
    return where(isnan(x1), x2, where(isnan(x2), x1, minimum(x1, x2)))


@public
def fmod(x1: Any, x2: Any, /) -> NDArray:
    """The remainder of a division rounded towards zero, with the sign of the dividend (C's fmod).

    The result has the broadcast shape and the common dtype. For a division of integers by 0 it is 0.
    Raises ShapeError if shapes do not broadcast, DTypeError for bool and complex numbers.

    >>> import tracejit as tj
    >>> tj.fmod(tj.asarray([-7, 7]), 3)
    NDArray([-1,  1], dtype=int64)
    """
    a, b = _alike("fmod", ops.remainder, x1, x2)
    if is_floating(a.dtype):
        return copysign(remainder(absolute(a), absolute(b)), a)
    floored = remainder(a, b)
    return where((floored != 0) & ((a < 0) != (b < 0)), floored - b, floored)


@public
def rint(x: Any, /) -> NDArray:
    """Round to the nearest integer, ties to even, as a floating-point number.

    The shape is unchanged; integers become floats.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.rint(tj.asarray([0.5, 1.5, -2.7]))
    NDArray([ 0.,  2., -3.], dtype=float32)
    """
    array = dispatch.as_array("rint", x)
    if is_floating(array.dtype):
        return FUNCTIONS["round"](array)
    return dispatch.cast(array, np.dtype(np.float64 if array.dtype.itemsize > 2 else np.float32))


@public
def divmod(x1: Any, x2: Any, /) -> tuple[NDArray, NDArray]:
    """Quotient rounded down, and remainder: `floor_divide` and `remainder`.

    Both have the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for bool and complex numbers.

    >>> import tracejit as tj
    >>> tj.divmod(tj.asarray([7, -7]), 3)
    (NDArray([ 2, -3], dtype=int64), NDArray([1, 2], dtype=int64))
    """
    return floor_divide(x1, x2), remainder(x1, x2)


@public
def modf(x: Any, /) -> tuple[NDArray, NDArray]:
    """The fractional and the integral part, both with the sign of the operand.

    Shapes are unchanged; integers become floats.
    Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.modf(tj.asarray([1.5, -2.25]))
    (NDArray([ 0.5 , -0.25], dtype=float32), NDArray([ 1., -2.], dtype=float32))
    """
    array = floating("modf", x)
    _refuse("modf", array, "f", "take the parts of complex numbers")
    integral = FUNCTIONS["trunc"](array)
    return copysign(where(isinf(array), 0.0, array - integral), array), integral


@public
def gcd(x1: Any, x2: Any, /) -> NDArray:
    """The greatest common divisor of integers, non-negative; for 0 and 0 it is 0.

    The result has the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.gcd(tj.asarray([12, -20]), 18)
    NDArray([6, 2], dtype=int64)
    """
    return dispatch.emit(ops.gcd, *_integers("gcd", x1, x2))


@public
def lcm(x1: Any, x2: Any, /) -> NDArray:
    """The least common multiple of integers, non-negative; if one is 0, it is 0.

    The result has the broadcast shape and the common dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for a value that is not an integer.

    >>> import tracejit as tj
    >>> tj.lcm(tj.asarray([4, 6]), 10)
    NDArray([20, 30], dtype=int64)
    """
    a, b = _integers("lcm", x1, x2)
    return absolute(floor_divide(a, dispatch.emit(ops.gcd, a, b)) * b)


def _integers(name: str, x1: Any, x2: Any) -> tuple[Any, ...]:
    pair = _alike(name, ops.maximum, x1, x2)
    _refuse(name, pair[0], "iu", "it takes integers")
    return pair


@public
def bitwise_count(x: Any, /) -> NDArray:
    """The number of set bits in the magnitude of integers: uint8.

    The shape is unchanged. Raises DTypeError for a value that is not an integer.

    Source: Warren, Hacker's Delight, 2nd edition, section 5-1 (sums of neighbouring fields).

    >>> import tracejit as tj
    >>> tj.bitwise_count(tj.asarray([7, -8, 0]))
    NDArray([3, 1, 0], dtype=uint8)
    """
    array = dispatch.as_array("bitwise_count", x)
    _refuse("bitwise_count", array, "biu", "it takes integers")
    same_width = np.dtype(f"uint{8 * array.dtype.itemsize}")
    n = dispatch.cast(dispatch.cast(absolute(array), same_width), UINT64)
    n = n - ((n >> 1) & 0x5555555555555555)
    n = (n & 0x3333333333333333) + ((n >> 2) & 0x3333333333333333)
    n = (n + (n >> 4)) & 0x0F0F0F0F0F0F0F0F
    return dispatch.cast((n * 0x0101010101010101) >> 56, UINT8)


# -- powers, logarithms, angles ------------------------------------------------------------------------------


@public
def float_power(x1: Any, x2: Any, /) -> NDArray:
    """The first operand to the power of the second, in float64 or complex128.

    The result has the broadcast shape.
    Raises ShapeError if shapes do not broadcast, ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.float_power(tj.asarray([1, 2, 3]), -2)
    NDArray([1.        , 0.25      , 0.11111111], dtype=float64)
    """
    a, b = _alike("float_power", ops.multiply, x1, x2)
    dtype = promotion.result_type(a.dtype, FLOAT64)
    return pow(dispatch.cast(a, dtype), dispatch.cast(b, dtype))


@public
def cbrt(x: Any, /) -> NDArray:
    """The cube root, also of negative numbers.

    The shape is unchanged; integers become floats.
    Method: a power and one step of Newton's method.
    Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.cbrt(tj.asarray([-8.0, 27.0]))
    NDArray([-2.,  3.], dtype=float32)
    """
    array = floating("cbrt", x)
    _refuse("cbrt", array, "f", "use pow")
    magnitude = absolute(array)
    is_regular = (magnitude > 0) & isfinite(magnitude)
    radicand = where(is_regular, magnitude, 1.0)
    root = pow(radicand, 1 / 3)
    root = root - (root - radicand / (root * root)) / 3.0
    return copysign(where(is_regular, root, magnitude), array)


@public
def logaddexp2(x1: Any, x2: Any, /) -> NDArray:
    """``log2(2**x1 + 2**x2)`` without overflow.

    The result has the broadcast shape and the common floating dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.logaddexp2(tj.asarray([1.0, 2000.0]), 1.0)
    NDArray([   2., 2000.], dtype=float32)
    """
    a, b = _alike("logaddexp2", ops.logaddexp, x1, x2)
    distance = where(a == b, 0.0, absolute(a - b))  # avoids inf - inf
    return maximum(a, b) + FUNCTIONS["log1p"](FUNCTIONS["exp2"](-distance)) / math.log(2)


@public
def heaviside(x1: Any, x2: Any, /) -> NDArray:
    """The Heaviside step function: 0 for negative x1, 1 for positive x1, x2 where x1 is 0; nan for nan.

    The result has the broadcast shape and the common floating dtype.
    Raises ShapeError if shapes do not broadcast, DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.heaviside(tj.asarray([-1.5, 0.0, 2.0]), 0.5)
    NDArray([0. , 0.5, 1. ], dtype=float32)
    """
    a, b = _alike("heaviside", ops.logaddexp, x1, x2)
    return where(isnan(a), a, where(a < 0, 0.0, where(a > 0, 1.0, b)))


@public
def fabs(x: Any, /) -> NDArray:
    """The absolute value as a floating-point number.

    The shape is unchanged. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.fabs(tj.asarray([-1, 2]))
    NDArray([1., 2.], dtype=float64)
    """
    array = floating("fabs", x)
    _refuse("fabs", array, "f", "use abs")
    return absolute(array)


@public
def sinc(x: Any, /) -> NDArray:
    """``sin(pi x) / (pi x)``, which is 1 at 0.

    The shape is unchanged; integers become float64.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.sinc(tj.asarray([0.0, 0.5]))
    NDArray([1.        , 0.63661975], dtype=float32)
    """
    array = dispatch.as_array("sinc", x)
    array = array if is_inexact(array.dtype) else dispatch.cast(array, FLOAT64)
    angles = where(array == 0, 1.0, array * math.pi)
    return where(array == 0, 1.0, FUNCTIONS["sin"](angles) / angles)


@public(names="rad2deg")
def degrees(x: Any, /) -> NDArray:
    """Convert radians to degrees.

    The shape is unchanged; integers become floats. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.degrees(tj.asarray([0.0, tj.pi]))
    NDArray([  0., 180.], dtype=float32)
    """
    array = floating("degrees", x)
    _refuse("degrees", array, "f", "angles are real")
    return array * (180 / math.pi)


@public(names="deg2rad")
def radians(x: Any, /) -> NDArray:
    """Convert degrees to radians.

    The shape is unchanged; integers become floats. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.radians(tj.asarray([0.0, 180.0]))
    NDArray([0.       , 3.1415927], dtype=float32)
    """
    array = floating("radians", x)
    _refuse("radians", array, "f", "angles are real")
    return array * (math.pi / 180)


@public
def angle(z: Any, deg: bool = False) -> NDArray:
    """The angle of complex numbers with the positive real axis, in radians or (`deg`) degrees.

    It is between -pi and pi; for real numbers 0 or pi. The shape is unchanged, the dtype is that of the real
    part.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.angle(tj.asarray([1j, -1.0]), deg=True)
    NDArray([ 90., 180.], dtype=float32)
    """
    array = floating("angle", z)
    angles = FUNCTIONS["atan2"](imag(array), real(array))
    return degrees(angles) if deg else angles


# -- representation ------------------------------------------------------------------------------------------


def _power_of_two(exponent: Any, dtype: np.dtype) -> tuple[Any, ...]:
    """Return factors, all of them normal numbers, whose product is two to the power of an integer array."""
    limit = 2 * (ml_dtypes.finfo(dtype).maxexp - ml_dtypes.finfo(dtype).minexp)
    bounded = dispatch.cast(clip(exponent, -limit, limit), np.dtype("int64"))
    quarter = bounded // 4
    parts = (quarter, quarter, quarter, bounded - 3 * quarter)
    return tuple(FUNCTIONS["exp2"](dispatch.cast(part, dtype)) for part in parts)


@public
def ldexp(x1: Any, x2: Any, /) -> NDArray:
    """``x1 * 2**x2`` for integers x2.

    The result has the broadcast shape and the floating dtype of x1.
    Raises ShapeError if shapes do not broadcast, DTypeError for an exponent that is not an integer.

    >>> import tracejit as tj
    >>> tj.ldexp(tj.asarray([0.5, 3.0]), tj.asarray([2, -1]))
    NDArray([2. , 1.5], dtype=float32)
    """
    result, exponent = floating("ldexp", x1), dispatch.as_array("ldexp", x2)
    _refuse("ldexp", result, "f", "the first operand is real")
    if exponent.dtype.kind not in "biu":
        raise locate(
            DTypeError(f"ldexp: exponents are integers, got {exponent.dtype}; use exp2"), user_location()
        )
    for factor in _power_of_two(exponent, result.dtype):
        result = result * factor
    return result


@public
def frexp(x: Any, /) -> tuple[NDArray, NDArray]:
    """Fractions f with magnitudes in [0.5, 1) and exponents e (int32): the operand is f * 2**e.

    Shapes are unchanged. For 0, infinities and nan the fraction is the operand, and the exponent 0.
    Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.frexp(tj.asarray([3.0, -0.25]))
    (NDArray([ 0.75, -0.5 ], dtype=float32), NDArray([ 2, -1], dtype=int32))
    """
    array = floating("frexp", x)
    _refuse("frexp", array, "f", "take the parts of complex numbers")
    is_regular = isfinite(array) & (array != 0)
    fraction = where(is_regular, array, 1.0)
    exponent = dispatch.cast(FUNCTIONS["floor"](FUNCTIONS["log2"](absolute(fraction))), INT32) + 1
    for factor in _power_of_two(-exponent, array.dtype):
        fraction = fraction * factor
    is_high, is_low = absolute(fraction) >= 1, absolute(fraction) < 0.5  # if the logarithm was rounded
    fraction = where(is_high, fraction * 0.5, where(is_low, fraction * 2.0, fraction))
    exponent = exponent + dispatch.cast(is_high, INT32) - dispatch.cast(is_low, INT32)
    return where(is_regular, fraction, array), where(is_regular, exponent, 0)


@public
def spacing(x: Any, /) -> NDArray:
    """The distance to the next number away from zero, with the sign of the operand.

    The shape is unchanged. The result is nan for infinities and nan. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.spacing(tj.asarray([1.0])) == tj.finfo(tj.float32).eps
    NDArray([ True], dtype=bool)
    """
    array = floating("spacing", x)
    _refuse("spacing", array, "f", "take the parts of complex numbers")
    magnitude = absolute(array)
    distance = FUNCTIONS["nextafter"](magnitude, math.inf) - magnitude
    return where(array < 0, -distance, distance)


@public
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> NDArray:
    """Replace nan by `nan`, and infinities by `posinf` and `neginf`, by default the largest finite numbers.

    Shape and dtype are unchanged; complex numbers are treated by their parts. ``copy=False`` modifies the
    array itself and returns it.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.nan_to_num(tj.asarray([tj.nan, 1.0, tj.inf]), posinf=9.0)
    NDArray([0., 1., 9.], dtype=float32)
    """
    array = dispatch.as_array("nan_to_num", x)
    if array.dtype.kind == "c":
        parts = (nan_to_num(part, True, nan, posinf, neginf) for part in (real(array), imag(array)))
        result = FUNCTIONS["complex"](*parts)
    elif is_floating(array.dtype):
        limits = ml_dtypes.finfo(array.dtype)
        above = float(limits.max) if posinf is None else posinf
        below = float(limits.min) if neginf is None else neginf
        result = where(isnan(array), nan, where(array == math.inf, above, array))
        result = dispatch.cast(where(array == -math.inf, below, result), array.dtype)
    else:
        result = array.copy()
    if copy:
        return result
    dispatch.write(array, result, "nan_to_num")
    return array


# -- tests ---------------------------------------------------------------------------------------------------


@public
def isposinf(x: Any, /) -> NDArray:
    """Test each number for plus infinity.

    The shape is unchanged. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.isposinf(tj.asarray([1.0, tj.inf, -tj.inf]))
    NDArray([False,  True, False], dtype=bool)
    """
    return _infinite("isposinf", x, math.inf)


@public
def isneginf(x: Any, /) -> NDArray:
    """Test each number for minus infinity.

    The shape is unchanged. Raises DTypeError for complex numbers.

    >>> import tracejit as tj
    >>> tj.isneginf(tj.asarray([1.0, tj.inf, -tj.inf]))
    NDArray([False, False,  True], dtype=bool)
    """
    return _infinite("isneginf", x, -math.inf)


def _infinite(name: str, x: Any, which: float) -> Any:
    array = dispatch.as_array(name, x)
    _refuse(name, array, "biuf", "complex numbers have no order")
    return array == which if is_floating(array.dtype) else _everywhere(array, False)


def _everywhere(x: Any, truth: bool) -> Any:
    return dispatch.full(truth, x.shape, BOOL, x.device)


@public
def isreal(x: Any, /) -> NDArray:
    """Test each number for an imaginary part of 0.

    The shape is unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.isreal(tj.asarray([1 + 1j, 2]))
    NDArray([False,  True], dtype=bool)
    """
    array = dispatch.as_array("isreal", x)
    return imag(array) == 0 if array.dtype.kind == "c" else _everywhere(array, True)


@public
def iscomplex(x: Any, /) -> NDArray:
    """Test each number for an imaginary part other than 0.

    The shape is unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.iscomplex(tj.asarray([1 + 1j, 2]))
    NDArray([ True, False], dtype=bool)
    """
    array = dispatch.as_array("iscomplex", x)
    return imag(array) != 0 if array.dtype.kind == "c" else _everywhere(array, False)


@public
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> NDArray:
    """Test ``|a - b| <= atol + rtol * |b|``; equal infinities are close, and nan and nan with `equal_nan`.

    The result is bool and has the broadcast shape of `a` and `b`; the difference is computed in their common
    floating dtype.
    Raises ShapeError if shapes do not broadcast.

    >>> import tracejit as tj
    >>> tj.isclose(tj.asarray([1.0, 2.0]), tj.asarray([1.000001, 2.1]))
    NDArray([ True, False], dtype=bool)
    """
    x, y = _alike("isclose", ops.divide, *(asarray(v) if isinstance(v, (list, tuple)) else v for v in (a, b)))
    distance = where(isfinite(x) & isfinite(y), absolute(x - y), math.inf)
    close = (distance <= atol + rtol * absolute(y)) & isfinite(y) | (x == y)
    return close | (isnan(x) & isnan(y)) if equal_nan else close


@public
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> NDArray:
    """Whether all elements are close, as defined by `isclose`: a 0-d array, usable as a bool.

    Raises ShapeError if shapes do not broadcast.

    >>> import tracejit as tj
    >>> bool(tj.allclose(tj.asarray([1.0, 2.0]), tj.asarray([1.0, 2.00001])))
    True
    """
    return isclose(a, b, rtol, atol, equal_nan).all()


@public
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> NDArray:
    """Whether shapes and all elements are equal: a 0-d array, usable as a bool.

    equal_nan: whether nan equals nan.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> bool(tj.array_equal(tj.asarray([1, 2]), [1, 2]))
    True
    """
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return dispatch.full(False, (), BOOL, x.device)
    return _same(x, y, equal_nan).all()


def _same(x: Any, y: Any, equal_nan: bool) -> Any:
    same = x == y
    return same | (isnan(x) & isnan(y)) if equal_nan else same


@public
def array_equiv(a1: Any, a2: Any) -> NDArray:
    """Whether shapes broadcast and all broadcast elements are equal: a 0-d array.

    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> bool(tj.array_equiv(tj.asarray([1, 1]), [[1, 1], [1, 1]]))
    True
    """
    x, y = asarray(a1), asarray(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return dispatch.full(False, (), BOOL, x.device)
    return (x == y).all()


@public
def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex.

    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.isrealobj(tj.ones(2))
    True
    """
    return not iscomplexobj(x)


@public
def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex.

    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.iscomplexobj(tj.asarray([1j]))
    True
    """
    return bool(dispatch.as_array("iscomplexobj", x).dtype.kind == "c")


@public
def real_if_close(x: Any, tol: float = 100) -> NDArray:
    """The real part if all imaginary parts are small, otherwise the array itself.

    The bound is `tol` machine epsilons, or `tol` itself if that is at most 1. This is a look at the values,
    which makes a traced function piecewise.
    Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.real_if_close(tj.asarray([1 + 1e-9j]))
    NDArray([1.], dtype=float32)
    """
    array = dispatch.as_array("real_if_close", x)
    if array.dtype.kind != "c":
        return array
    bound = tol * float(ml_dtypes.finfo(array.dtype).eps) if tol > 1 else tol
    return real(array) if bool((absolute(imag(array)) < bound).all()) else array


# -- choosing ------------------------------------------------------------------------------------------------


@public
def select(condlist: Any, choicelist: Any, default: Any = 0) -> NDArray:
    """Elements of the first choice whose condition is true, otherwise of `default`.

    condlist, choicelist: equal numbers of conditions (bool) and choices; all broadcast.
    The result has their common shape and dtype.
    Raises ArgumentError for other numbers of choices or none, DTypeError for conditions that are not bool,
    ShapeError if shapes do not broadcast.

    >>> import tracejit as tj
    >>> x = tj.arange(5)
    >>> tj.select([x < 2, x > 3], [x, x * 10], -1)
    NDArray([ 0,  1, -1, -1, 40], dtype=int64)
    """
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices) or not conditions:
        what = f"select: {len(conditions)} conditions for {len(choices)} choices; give one for each"
        raise locate(ArgumentError(what), user_location())
    masks = [dispatch.as_array("select", c) for c in conditions]
    for mask in masks:
        _refuse("select", mask, "b", "conditions are bool; compare first")
    result: Any = default
    for mask, choice in zip(reversed(masks), reversed(choices), strict=True):
        result = where(mask, choice, result)
    return result


@public
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> NDArray:
    """A piecewise defined function: the last condition that is true selects the function.

    condlist: bool arrays of the shape of `x`, or one; funclist: a function or number for each condition, and
    optionally one more for elements where no condition is true (by default 0). Functions are called with all
    of `x` and the further arguments, and must be elementwise. The result has the shape and dtype of `x`.
    Raises ArgumentError for another number of functions.

    >>> import tracejit as tj
    >>> x = tj.asarray([-2.0, 3.0])
    >>> tj.piecewise(x, [x < 0, x >= 0], [lambda v: -v, 10.0])
    NDArray([ 2., 10.], dtype=float32)
    """
    array = dispatch.as_array("piecewise", x)
    is_single = not isinstance(condlist, (list, tuple)) or isinstance(condlist[0], (bool, np.bool_))
    masks = [dispatch.as_array("piecewise", c) for c in ([condlist] if is_single else condlist)]
    functions = list(funclist)
    if len(functions) not in (len(masks), len(masks) + 1):
        what = f"piecewise: {len(functions)} functions for {len(masks)} conditions; one each, or one more"
        raise locate(ArgumentError(what), user_location())
    values = [f(array, *args, **kw) if callable(f) else f for f in functions]
    result = values[len(masks)] if len(values) > len(masks) else 0
    for mask, value in zip(masks, values, strict=False):
        result = where(mask, value, result)
    return dispatch.cast(result, array.dtype)


declare(__name__, fix=FUNCTIONS["trunc"])
