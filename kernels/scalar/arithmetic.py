"""Arithmetic, comparison, rounding and classification, with exactly NumPy's results, bit for bit.

Integers wrap in their own width. For bools `add` and `maximum` are "or", `multiply` and `minimum` are "and".
Integer division by zero results in 0, and the most negative integer divided by -1 wraps, as in NumPy.
"""

from tracejit.kernels.compiler import intrinsics
from tracejit.kernels.compiler.intrinsics import (
    bitcast,
    bits,
    convert,
    copysign,
    fill,
    floating,
    fmod,
    larger,
    magnitude,
    quotient,
    select,
    smaller,
)
from tracejit.kernels.compiler.typed_values import PART_DTYPES, WIDTH, dtype_of, is_float
from tracejit.kernels.scalar.declare import on_half, scalar

scalar()(copysign)


def is_bool(x):
    return dtype_of(x) == "bool"


def is_unsigned(x):
    return dtype_of(x).startswith("uint")


def real_dtype(dtype):
    """The dtype of the real and imaginary parts of a complex dtype; any other dtype itself."""
    return PART_DTYPES.get(dtype, dtype)


@scalar()
def add(x, y):
    return x | y if is_bool(x) else x + y


@scalar()
def subtract(x, y):
    return x - y


@scalar()
def multiply(x, y):
    return x & y if is_bool(x) else x * y


@scalar()
def divide(x, y):
    return x / y


@scalar()
def negative(x):
    return -x


@scalar(moves=True)
def positive(x):
    return x


@scalar(moves=True)
def copy(x):
    return x


@scalar()
def square(x):
    return x & x if is_bool(x) else x * x


@scalar()
def reciprocal(x):
    return 1 / x if is_float(x) else _integer_quotient(fill(x, 1), x)


@scalar(real_dtype)
def abs(x):
    if is_float(x):
        return magnitude(x)
    return x if is_bool(x) or is_unsigned(x) else select(x < 0, -x, x)


@scalar()
def sign(x):
    if is_float(x):
        return select(x > 0, 1.0, select(x < 0, -1.0, select(x == 0, 0.0, x)))
    return convert(x > 0, dtype_of(x)) - convert(x < 0, dtype_of(x))


@on_half("sign")
def sign_half(x):
    """The sign, computed in float32; a zero of bfloat16 keeps its sign, as in ml_dtypes."""
    single = convert(x, "float32")
    zero = single if dtype_of(x) == "bfloat16" else fill(single, 0.0)
    return convert(select(single == 0, zero, sign(single)), dtype_of(x))


@scalar()
def floor_divide(x, y):
    return _float_floor_divide(x, y) if is_float(x) else _integer_floor_divide(x, y)


@scalar()
def remainder(x, y):
    if is_float(x):
        return _float_remainder(x, y)
    r = x - _integer_quotient(x, y) * y
    wrong_sign = (r != 0) & ((r < 0) != (y < 0))
    return select(y == 0, 0, select(wrong_sign, r + y, r))


def _integer_quotient(x, y):
    """``x / y`` rounded towards zero; 0 if y is zero; the most negative integer divided by -1 wraps."""
    needs_no_division = y == 0 if is_unsigned(x) else (y == 0) | (y == -1)
    q = quotient(x, select(needs_no_division, 1, y))
    if not is_unsigned(x):
        q = select(y == -1, -x, q)
    return select(y == 0, 0, q)


def _integer_floor_divide(x, y):
    q = _integer_quotient(x, y)
    if is_unsigned(x):
        return q
    inexact = (x - q * y != 0) & ((x < 0) != (y < 0)) & (y != 0)
    return q - convert(inexact, dtype_of(x))


def _float_remainder(x, y):
    r = fmod(x, y)
    adjusted = select((r != 0) & ((r < 0) != (y < 0)), r + y, r)
    return select(r == 0, copysign(fill(y, 0.0), y), adjusted)


def _float_floor_divide(x, y):
    r = fmod(x, y)
    q = (x - r) / y
    q = select((r != 0) & ((r < 0) != (y < 0)), q - 1.0, q)
    floored = intrinsics.floor(q)
    floored = select(q - floored > 0.5, floored + 1.0, floored)
    return select(y == 0, x / y, select(q == 0, copysign(fill(x, 0.0), x / y), floored))


@scalar()
def maximum(x, y):
    if is_float(x):
        return larger(x, y)
    return x | y if is_bool(x) else select(x > y, x, y)


@scalar()
def minimum(x, y):
    if is_float(x):
        return smaller(x, y)
    return x & y if is_bool(x) else select(x < y, x, y)


@scalar()
def floor(x):
    return intrinsics.floor(x) if is_float(x) else x


@scalar()
def ceil(x):
    return intrinsics.ceil(x) if is_float(x) else x


@scalar()
def trunc(x):
    return intrinsics.trunc(x) if is_float(x) else x


@scalar()
def round(x):
    return intrinsics.rint(x) if is_float(x) else x


@scalar()
def sqrt(x):
    return intrinsics.sqrt(x)


@scalar("bool")
def equal(x, y):
    return x == y


@scalar("bool")
def not_equal(x, y):
    return x != y


@scalar("bool")
def less(x, y):
    return x < y


@scalar("bool")
def less_equal(x, y):
    return x <= y


@scalar("bool")
def greater(x, y):
    return x > y


@scalar("bool")
def greater_equal(x, y):
    return x >= y


@scalar(moves=True)
def where(condition, x, y):
    return select(condition, x, y)


@scalar(moves=True)
def after(mark, x):
    return x


@scalar("bool")
def signbit(x):
    return bits(x) < 0


@scalar("bool")
def isnan(x):
    return x != x


@scalar("bool")
def isinf(x):
    return magnitude(x) == float("inf") if is_float(x) else x != x


@scalar("bool")
def isfinite(x):
    return magnitude(x) < float("inf") if is_float(x) else x == x


@scalar()
def nextafter(x, y):
    """The neighbour of `x` towards `y`: the bits of floats of the same sign are ordered like integers."""
    i = bits(x)
    away = (x < y) == (i >= 0)
    step = floating(select(away, i + 1, i - 1))
    smallest = copysign(floating(fill(i, 1)), y)
    neighbour = select(x == y, y, select(x == 0, smallest, step))
    return select((x != x) | (y != y), x + y, neighbour)


@on_half("nextafter")
def nextafter_half(x, y):
    """`nextafter` on the 16 bits; comparisons are in float32. Between two zeros NumPy returns the first one
    for float16, and the second one for other dtypes.
    """
    dtype, i = dtype_of(x), bits(x)
    a, b = convert(x, "float32"), convert(y, "float32")
    away = (a < b) == (i >= 0)
    step = select(away, i + 1, i - 1)
    smallest = (bits(y) & -(2**15)) | 1
    equal_bits = bits(x if dtype == "float16" else y)
    neighbour = select(a == b, equal_bits, select(a == 0, smallest, step))
    return select((a != a) | (b != b), convert(a + b, dtype), bitcast(neighbour, dtype))


@scalar()
def logical_and(x, y):
    return x & y


@scalar()
def logical_or(x, y):
    return x | y


@scalar()
def logical_xor(x, y):
    return x ^ y


@scalar()
def logical_not(x):
    return ~x


@scalar()
def bitwise_and(x, y):
    return x & y


@scalar()
def bitwise_or(x, y):
    return x | y


@scalar()
def bitwise_xor(x, y):
    return x ^ y


@scalar()
def bitwise_invert(x):
    return ~x


def _fits(y, width):
    """Whether a shift by `y` is less than the width; false for negative shifts."""
    return (y < width) if is_unsigned(y) else (y >= 0) & (y < width)


@scalar()
def bitwise_left_shift(x, y):
    fits = _fits(y, WIDTH[dtype_of(x)])
    return select(fits, x << select(fits, y, 0), 0)


@scalar()
def bitwise_right_shift(x, y):
    width = WIDTH[dtype_of(x)]
    fits = _fits(y, width)
    fill_bits = 0 if is_unsigned(x) else x >> (width - 1)
    return select(fits, x >> select(fits, y, 0), fill_bits)
