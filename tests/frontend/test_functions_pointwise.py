"""Elementwise compositions, NumPy's other names, windows, polynomials, against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, FLOATS, INTEGERS, laid_out, sample
from tracejit.frontend.arrays.functions import UFUNCS

REAL = [*INTEGERS, *FLOATS]
COMPLEX = [np.dtype("complex64"), np.dtype("complex128")]
ONE = {
    "fabs": REAL,
    "cbrt": REAL,
    "sinc": REAL,
    "degrees": REAL,
    "rad2deg": REAL,
    "radians": REAL,
    "deg2rad": REAL,
    "angle": [*REAL, *COMPLEX],
    "modf": REAL,
    "frexp": REAL,
    "spacing": FLOATS,
    "bitwise_count": INTEGERS,
    "fix": REAL,
    "nan_to_num": [*DTYPES, *COMPLEX],
    "isposinf": DTYPES,
    "isneginf": DTYPES,
    "isreal": [*DTYPES, *COMPLEX],
    "iscomplex": [*DTYPES, *COMPLEX],
}
TWO = {
    "fmax": REAL,
    "fmin": REAL,
    "fmod": REAL,
    "divmod": REAL,
    "gcd": INTEGERS,
    "lcm": INTEGERS,
    "float_power": FLOATS,
    "logaddexp2": FLOATS,
    "heaviside": FLOATS,
    "isclose": [*REAL, *COMPLEX],
}
EXACT = {"fmod", "divmod", "gcd", "lcm", "frexp", "modf", "spacing", "bitwise_count", "fix", "fmax", "fmin"}


def elements(rng, shape, dtype, special=True):
    if dtype.kind != "c":
        return sample(rng, shape, dtype, special=special)
    part = np.dtype(f"float{4 * dtype.itemsize}")
    return (sample(rng, shape, part, special=special) + 1j * sample(rng, shape, part)).astype(dtype)


def close(name, got, expected):
    """Compare a result or each of several ones, dtypes included."""
    if isinstance(expected, tuple):
        for g, e in zip(got, expected, strict=True):
            close(name, g, e)
        return
    expected = np.asarray(expected)
    wanted = expected.dtype
    assert got.dtype == wanted, name
    if expected.dtype == np.float16:
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-3, atol=2e-3)
    elif name in EXACT:
        np.testing.assert_array_equal(got.numpy(), expected)
    else:
        tolerance = 2e-6 if wanted.itemsize <= 4 or wanted == np.complex64 else 4e-15
        np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=0)


def check(name, rng, arrays):
    ours, theirs = getattr(tj, name), getattr(np, name)
    with np.errstate(all="ignore"):
        expected = theirs(*arrays)
    given = [laid_out(rng, a) for a in arrays]
    close(name, ours(*given), expected)
    close(name, theirs(*given), expected)
    traced = tj.jit(lambda *xs: ours(*xs))
    for _ in range(2):
        close(name, traced(*given), expected)


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name):
    rng = np.random.default_rng(1)
    for dtype in ONE[name]:
        check(name, rng, [elements(rng, (3, 5), dtype)])
    check(name, rng, [elements(rng, (), ONE[name][-1])])
    check(name, rng, [elements(rng, (0, 2), ONE[name][-1])])


@pytest.mark.parametrize("name", TWO)
def test_two_operands(name):
    rng = np.random.default_rng(2)
    for dtype in TWO[name]:
        arrays = [elements(rng, shape, dtype) for shape in ((3, 5), (5,))]
        if name == "lcm":
            arrays = [a % 7 for a in arrays]
        if name in ("fmod", "divmod") and dtype.kind == "f":
            arrays = [np.where(np.isfinite(a) & (a != 0), a, dtype.type(0.5)) for a in arrays]
        check(name, rng, arrays)


@pytest.mark.parametrize("name", sorted(set(TWO) - {"gcd", "lcm", "isclose", "divmod"}))
def test_numbers_are_weak(name):
    x = tj.asarray(np.linspace(-2, 2, 5, dtype=np.float32))
    for result in (getattr(tj, name)(x, 0.5), getattr(tj, name)(0.5, x)):
        assert result.dtype == (tj.float64 if name == "float_power" else tj.float32)


def test_ldexp_and_frexp_are_inverse():
    rng = np.random.default_rng(3)
    for dtype in FLOATS:
        low, high = (-1070, 1000) if dtype.itemsize == 8 else (-145, 120)
        x = np.ldexp(rng.uniform(-1, 1, 200), rng.integers(low, high, 200)).astype(dtype)
        fraction, exponent = tj.frexp(tj.asarray(x))
        np.testing.assert_array_equal(fraction.numpy(), np.frexp(x)[0])
        np.testing.assert_array_equal(exponent.numpy(), np.frexp(x)[1])
        np.testing.assert_array_equal(np.ldexp(fraction, exponent).numpy(), x)
        by = rng.integers(-40, 40, 200)
        with np.errstate(over="ignore"):
            expected = np.ldexp(x, by)
        normal = np.abs(x) > 1e-20
        scaled = tj.ldexp(tj.asarray(x), tj.asarray(by)).numpy()
        np.testing.assert_array_equal(scaled[normal], expected[normal])


@pytest.mark.parametrize("options", [{}, {"nan": 1.5}, {"posinf": 7.0}, {"neginf": -3.0, "posinf": 2}])
def test_nan_to_num(options):
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    np.testing.assert_array_equal(
        tj.nan_to_num(tj.asarray(x), **options).numpy(), np.nan_to_num(x, **options)
    )
    y = tj.asarray(x)
    assert tj.nan_to_num(y, copy=False, **options) is y
    np.testing.assert_array_equal(y.numpy(), np.nan_to_num(x, **options))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(equal_nan):
    rng = np.random.default_rng(4)
    a = sample(rng, (50,), np.float64, special=True)
    b = np.where(rng.random(50) < 0.5, a * (1 + 1e-6), a + 0.1)
    with np.errstate(all="ignore"):
        expected = np.isclose(a, b, 1e-5, 1e-7, equal_nan)
    np.testing.assert_array_equal(
        tj.isclose(tj.asarray(a), tj.asarray(b), 1e-5, 1e-7, equal_nan).numpy(), expected
    )
    assert bool(np.allclose(tj.asarray(a), tj.asarray(a), equal_nan=equal_nan)) == equal_nan
    assert bool(tj.allclose([1.0, 2.0], tj.asarray([1.0, 2.0])))


def test_equality_of_arrays():
    x = tj.asarray([1.0, np.nan])
    assert bool(np.array_equal(x, x, equal_nan=True))
    assert not bool(tj.array_equal(x, x))
    assert not bool(tj.array_equal(x, x[:1]))
    assert bool(tj.array_equal(tj.ones(2), np.ones(2)))
    assert bool(np.array_equiv(tj.ones((2, 2)), [1, 1]))
    assert not bool(tj.array_equiv(tj.ones(2), tj.ones(3)))


def test_select_and_piecewise():
    rng = np.random.default_rng(5)
    x = rng.integers(-5, 5, (4, 6))
    y = tj.asarray(x)
    expected = np.select([x < -2, x > 1], [x * 2, x + 100], 7)
    np.testing.assert_array_equal(tj.select([y < -2, y > 1], [y * 2, y + 100], 7).numpy(), expected)
    np.testing.assert_array_equal(np.select([y < -2, y > 1], [y * 2, y + 100], 7).numpy(), expected)
    pieces = [lambda v: -v, lambda v: v * 3, 9]
    np.testing.assert_array_equal(
        tj.piecewise(y, [y < -2, y > 1], pieces).numpy(), np.piecewise(x, [x < -2, x > 1], pieces)
    )
    with pytest.raises(tj.errors.ArgumentError, match="select: 1 conditions for 2 choices"):
        tj.select([y < 0], [y, y])


def test_questions_of_dtype():
    z = tj.asarray([1 + 1e-9j])
    assert tj.iscomplexobj(z)
    assert np.isrealobj(tj.ones(1))
    assert not tj.isrealobj(z)
    assert tj.real_if_close(z).dtype == tj.float32
    assert tj.real_if_close(z * 1j).dtype == tj.complex64


def test_every_name_of_a_ufunc_is_a_name_here():
    for name in np.__all__:
        ufunc = getattr(np, name)
        if isinstance(ufunc, np.ufunc) and ufunc in UFUNCS:
            assert callable(getattr(tj, name)), name
    assert tj.arctan2 is tj.atan2
    assert tj.absolute is tj.abs
    assert tj.amax is tj.max


def test_functions_of_attributes():
    x = tj.ones((2, 3))
    assert np.shape(x) == tj.shape(x) == (2, 3)
    assert np.ndim(x) == tj.ndim(x) == 2
    assert np.size(x) == 6
    assert tj.size(x, -1) == 3
    copied = np.copy(x)
    copied += 1
    assert float(x.sum()) == 6
    np.testing.assert_array_equal(np.cumsum(x).numpy(), np.arange(1, 7))
    np.testing.assert_array_equal(tj.cumsum(x, axis=-1).numpy(), np.cumsum(np.ones((2, 3)), -1))


def gradient_of(function, x):
    """Central differences of a sum, and the gradient."""
    step = 1e-6
    expected = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        above, below = x.copy(), x.copy()
        above[index] += step
        below[index] -= step
        values = [float(tj.sum(function(tj.asarray(v)))) for v in (above, below)]
        expected[index] = (values[0] - values[1]) / (2 * step)
    return expected, tj.grad(lambda v: tj.sum(function(v)))(tj.asarray(x)).numpy()


@pytest.mark.parametrize(
    "function",
    [
        tj.cbrt,
        tj.sinc,
        tj.degrees,
        tj.fabs,
        lambda x: tj.logaddexp2(x, x * x),
        lambda x: tj.fmod(x, 0.7),
        lambda x: tj.fmax(x, 0.5) * tj.fmin(x, 2.0),
        lambda x: tj.float_power(tj.abs(x), 1.5),
        lambda x: tj.nan_to_num(x * x),
        lambda x: tj.select([x < 0, x > 1], [x**3, tj.sin(x)], 4.0 * x),
        lambda x: tj.polyval([1.0, -2.0, 0.5], x),
        lambda x: tj.polymul(x, tj.asarray([1.0, 2.0], dtype=tj.float64)) ** 2,
        lambda x: tj.vander(x, 4),
    ],
)
def test_gradients(function):
    x = np.array([-1.3, -0.4, 0.3, 1.7, 2.2])
    expected, got = gradient_of(function, x)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_the_gradient_of_sinc_at_zero_is_finite():
    assert float(tj.grad(lambda x: tj.sinc(x).sum())(tj.asarray([0.0]))) == 0.0


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
def test_windows(name):
    for points in (0, 1, 2, 9):
        np.testing.assert_allclose(getattr(tj, name)(points).numpy(), getattr(np, name)(points), atol=1e-7)
    np.testing.assert_allclose(tj.kaiser(8, 3.0).numpy(), np.kaiser(8, 3.0), atol=1e-7)


@pytest.mark.parametrize("dtype", ["int64", "float64", "float32"])
def test_polynomials(dtype):
    rng = np.random.default_rng(6)
    for n, m in ((1, 1), (2, 5), (4, 3), (6, 6)):
        a, b = (rng.integers(-5, 5, k).astype(dtype) for k in (n, m))
        a[0] = b[0] = 1  # NumPy trims leading zeros of products
        x, y = tj.asarray(a), tj.asarray(b)
        points = rng.integers(-3, 4, (2, 3)).astype(dtype)
        pairs = [
            (tj.polyval(x, tj.asarray(points)), np.polyval(a, points)),
            (np.polyadd(x, y), np.polyadd(a, b)),
            (np.polysub(x, y), np.polysub(a, b)),
            (tj.polymul(x, y), np.polymul(a, b)),
            (tj.polyder(x), np.polyder(a)),
            (np.polyder(y, 2), np.polyder(b, 2)),
            (tj.polyint(x, 2, [1.0, 2.0]), np.polyint(a, 2, [1.0, 2.0])),
            (tj.vander(x), np.vander(a)),
            (np.vander(x, 4, increasing=True), np.vander(a, 4, increasing=True)),
        ]
        for number, (got, expected) in enumerate(pairs):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, err_msg=str(number))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.gcd(x, 2), TypeError, "gcd: not defined for float32"),
        (lambda x: tj.bitwise_count(x), TypeError, "bitwise_count: not defined for float32"),
        (lambda x: tj.ldexp(x, x), TypeError, "exponents are integers"),
        (lambda x: tj.cbrt(x * 1j), TypeError, "cbrt: not defined for complex64"),
        (lambda x: tj.vander(tj.ones((2, 2))), ValueError, "one dimension"),
        (lambda x: tj.polyder(x, -1), tj.errors.ArgumentError, "m is -1"),
        (lambda x: tj.piecewise(x, [x > 0], []), tj.errors.ArgumentError, "0 functions for 1 conditions"),
    ],
)
def test_errors_name_function_and_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(tj.ones(3))
    assert "test_functions_pointwise.py" in str(caught.value)
