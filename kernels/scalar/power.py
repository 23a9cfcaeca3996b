"""Powers, `hypot` and `logaddexp`.

``x**y`` is ``2**(y log2(x))``. An error of the exponent becomes an error of the result's significand,
magnified by the size of the exponent. So float32 is computed entirely in float64, and in float64 the
logarithm and its product with y are pairs of floats.
"""

from tracejit.kernels.compiler import intrinsics
from tracejit.kernels.compiler.intrinsics import (
    bits,
    convert,
    fill,
    floating,
    fma,
    larger,
    magnitude,
    select,
    smaller,
    sqrt,
)
from tracejit.kernels.compiler.typed_values import WIDTH, dtype_of, is_float
from tracejit.kernels.scalar.building_blocks import (
    clamped,
    fast_two_sum,
    format_of,
    is_double,
    nearest_multiple,
    polynomial,
    power_of_two,
    scaled,
    split,
    two_product,
    two_sum,
)
from tracejit.kernels.scalar.declare import scalar
from tracejit.kernels.scalar.exponential import exp2_reduced, exp_negative, exp_reduced
from tracejit.kernels.scalar.logarithm import log1p

INFINITY, NAN = float("inf"), float("nan")

# (log2((1 + s) / (1 - s)) - 2 s log2(e)) / s**3 in s**2, relative error of the logarithm below 2**-37
LOG2_MEDIUM = (0.9617966791329651, 0.5770828669723544, 0.4117053222408805, 0.3402389770369577)
# (atanh(s) - s - s**3 / 3) / s**5 in s**2, relative error of log(m) below 2**-66
ATANH = (
    0.20000000000001136,
    0.14285714285045614,
    0.11111111260739177,
    0.09090892112844341,
    0.07693382037425535,
    0.06628327873840764,
    0.06598937742707928,
)
THIRD = (0.3333333333333333, 1.850371707708594e-17)


@scalar()
def pow(x, y):
    if not is_float(x):
        return _integer_power(x, y)
    power = _power_f64(magnitude(x), y) if is_double(x) else _power_f32(magnitude(x), y)
    integral = intrinsics.floor(y) == y
    odd = integral & (intrinsics.floor(0.5 * y) != 0.5 * y)
    power = select(magnitude(x) == 1.0, select(y == y, 1.0, y), power)
    power = select((x < 0.0) & (x > -INFINITY) & ~integral & (y == y), NAN, power)
    power = select((bits(x) < 0) & odd, -power, power)
    return select((y == 0.0) | (x == 1.0), 1.0, power)


def _power_f32(a, y):
    """a**y for a >= 0."""
    y = convert(y, "float64")
    k, m = split(convert(a, "float64"))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    log2 = convert(k, "float64") + s * fma(z, polynomial(z, LOG2_MEDIUM), 2.0 * format_of(y).log2e)
    log2 = select(a == 0.0, -INFINITY, select(a < INFINITY, log2, convert(a, "float64")))
    t = clamped(y * log2, -200.0, 200.0)
    n, i = nearest_multiple(t, 1.0)
    r = t - n
    return convert(exp2_reduced(r) * power_of_two(i), "float32")


def _product(a, b):
    """The product of two numbers, each a pair of floats."""
    high, low = two_product(a[0], b[0])
    return high, low + fma(a[0], b[1], a[1] * b[0])


def _log2_f64(a):
    """log2(a) as a pair of floats for positive finite a, relative error below 2**-64."""
    k, m = split(a)
    f = m - 1.0
    d, d_low = two_sum(m, fill(m, 1.0))
    s = f / d
    s_low = fma(-s, d_low, fma(-s, d, f)) / d
    z, z_low = two_product(s, s)
    z_low = fma(2.0 * s, s_low, z_low)
    series = fast_two_sum(fill(z, THIRD[0]), fma(z, polynomial(z, ATANH), THIRD[1]))
    cubic = _product((s, s_low), _product((z, z_low), series))
    total, total_low = fast_two_sum(s, cubic[0])
    form = format_of(a)
    twice_log2e = fill(a, 2.0 * form.log2e), fill(a, 2.0 * form.log2e_low)
    total, total_low = _product((total, total_low + (s_low + cubic[1])), twice_log2e)
    high, low = two_sum(convert(k, "float64"), total)
    return fast_two_sum(high, low + total_low)


def _power_f64(a, y):
    """a**y for a >= 0."""
    high, low = _log2_f64(a)
    high = select(a == 0.0, -INFINITY, select(a < INFINITY, high, a))
    low = select((a == 0.0) | ~(a < INFINITY), 0.0, low)
    t, t_low = two_product(y, high)
    finite = magnitude(t) < 1100.0
    t = clamped(t, -1100.0, 1100.0)
    t_low = select(finite, fma(y, low, t_low), 0.0)
    n, i = nearest_multiple(t, 1.0)
    r = t - n
    form = format_of(a)
    return scaled(exp_reduced(fma(r, form.ln2, fma(r, form.ln2_low, t_low * form.ln2))), i)


def _integer_power(x, y):
    """Square and multiply over all bits of the exponent, which must not be negative; the result wraps."""
    result = fill(x, 1)
    for _ in range(WIDTH[dtype_of(x)] - dtype_of(x).startswith("int")):
        result = select((y & 1) != 0, result * x, result)
        x, y = x * x, y >> 1
    return result


@scalar()
def hypot(x, y):
    if not is_double(x):
        a, b = convert(x, "float64"), convert(y, "float64")
        result = convert(sqrt(fma(a, a, b * b)), "float32")
    else:
        result = _hypot_f64(magnitude(x), magnitude(y))
    infinite = (magnitude(x) == INFINITY) | (magnitude(y) == INFINITY)
    return select(infinite, INFINITY, result)


def _hypot_f64(a, b):
    """hypot(a, b), computed after scaling both by a power of two so that the larger is near 1."""
    exponent = bits(larger(a, b)) >> 52
    exponent = select(exponent < 1, 1, select(exponent > 2045, 2045, exponent))
    scale = floating((2046 - exponent) << 52)
    a, b = a * scale, b * scale
    a, b = larger(a, b), smaller(a, b)
    square, error = two_product(a, a)
    return sqrt(square + fma(b, b, error)) * floating(exponent << 52)


@scalar()
def logaddexp(x, y):
    """log(e**x + e**y); if the operands nearly cancel, the error is relative to the larger operand."""
    top = larger(x, y)
    step = magnitude(x - y)
    result = top + log1p(exp_negative(-step))
    return select(magnitude(top) == INFINITY, top, result)
