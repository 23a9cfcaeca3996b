"""Complex numbers against NumPy: elementwise functions, reductions, products, indexing, gradients, errors."""

from __future__ import annotations

import cmath

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.errors import ArgumentError, DTypeError

DTYPES = ("complex64", "complex128")
TOLERANCE = {"complex64": 2e-6, "complex128": 4e-15, "float32": 2e-6, "float64": 4e-15}


def numbers(shape, dtype, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return (scale * (rng.normal(size=shape) + 1j * rng.normal(size=shape))).astype(dtype)


def assert_close(result, expected, tolerance=None):
    expected = np.asarray(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    near = tolerance or TOLERANCE[str(expected.dtype)]
    error = np.abs(result.numpy() - expected)
    assert (error <= near * (np.abs(expected) + 1e-300)).all(), error.max()


UNARY = [
    *("positive", "negative", "abs", "sign", "square", "sqrt", "reciprocal", "real", "imag", "conj"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
]


def of_numpy(name):
    return getattr(np, name)


@pytest.mark.parametrize("dtype", some(DTYPES, 1))
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    for scale in (0.01, 1.0, 4.0):
        x = numbers((7, 33), dtype, scale=scale)
        expected = of_numpy(name)(x.astype("complex128"))
        kind = of_numpy(name)(x).dtype
        function = tj.jit(getattr(tj, name))
        tolerance = 20 * TOLERANCE[dtype]
        for result in (getattr(tj, name)(tj.asarray(x)), *(function(tj.asarray(x)) for _ in range(2))):
            assert_close(result, expected.astype(kind), tolerance)
        strided = tj.asarray(x).T[::-2, 1:]
        assert_close(getattr(tj, name)(strided), expected.T[::-2, 1:].astype(kind), tolerance)


PARTS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 30.0, -800.0, 1e200, -1.6e308, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in UNARY if name not in ("square", "exp2", "expm1")])
def test_infinities_and_nan(name, dtype):
    """The values of C's functions, Annex G, signs of zeros included where it says them; NumPy's too."""
    with np.errstate(all="ignore"):
        x = np.array([complex(a, b) for a in PARTS for b in PARTS], dtype)
        expected = getattr(np, name)(x)
    if name == "sign":  # NumPy's loses a part of what is nearly infinite
        huge = (np.abs(x.real) > np.float64(1e300)) & (np.abs(x.imag) > np.float64(1e300)) & np.isfinite(x)
        x, expected = x[~huge], expected[~huge]
    result = getattr(tj, name)(tj.asarray(x)).numpy()
    for part in ("real", "imag"):
        mine, theirs = getattr(result, part), getattr(expected, part)
        with np.errstate(invalid="ignore"):
            near = np.abs(mine - theirs) <= 20 * TOLERANCE[dtype] * np.abs(theirs)
        equal = near | (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        assert equal.all(), (part, x[~equal], mine[~equal], theirs[~equal])
        zeros = (theirs == 0) & np.isfinite(x) & np.isfinite(expected)
        assert (np.signbit(mine) == np.signbit(theirs))[zeros].all(), part


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (complex(np.inf, 0.0), complex(np.inf, 0.0)),
        (complex(np.inf, np.inf), complex(np.inf, np.nan)),
        (complex(-np.inf, np.nan), complex(-1.0, 0.0)),
        (complex(np.nan, 0.0), complex(np.nan, 0.0)),
        (complex(800.0, 0.0), complex(np.inf, 0.0)),
    ],
)
def test_expm1_at_infinity_is_exp_less_one(x, expected):
    """As the array API has it; NumPy multiplies infinity by 0 there."""
    result = complex(tj.expm1(tj.asarray(np.array(x))))
    np.testing.assert_array_equal([result.real, result.imag], [expected.real, expected.imag])


def test_round():
    x = numbers((3, 5), "complex64", scale=9)
    for decimals in (0, 1):
        for result in (tj.round(tj.asarray(x), decimals), tj.jit(tj.round)(tj.asarray(x), decimals)):
            assert_close(result, np.round(x, decimals))


def test_products_of_vectors_conjugate_as_numpys():
    x, y, m = (numbers(shape, "complex128", seed) for seed, shape in enumerate([(3, 5), (3, 5), (5, 2)]))
    for name, *operands in (
        ("vecdot", x, y), ("vdot", x, y), ("inner", x, y), ("inner", x[0], y[0]), ("vecmat", x, m),
        ("matvec", m.T, y), ("vecdot", x.real, y),
    ):  # fmt: skip
        function, arrays = getattr(tj, name), [tj.asarray(a) for a in operands]
        for result in (function(*arrays), *(tj.jit(function)(*arrays) for _ in range(2))):
            assert_close(result, getattr(np, name)(*operands), 1e-13)


SPECIAL = [
    *(
        complex(a, b)
        for a in (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e200, 1e-200)
        for b in (0.0, -0.0, 1.0, 1e160)
    ),
]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        *((n, getattr(cmath, n)) for n in ("sqrt", "log", "asin", "acos", "atan", "asinh", "acosh", "atanh")),
    ],
)
def test_branch_cuts_and_ranges(name, function):
    """On the cuts the sign of a zero decides, as in C; large and small operands do not overflow inside."""
    values = [z for z in SPECIAL if not (name == "log" and z == 0)]
    values = [z for z in values if not (name in ("atan", "atanh") and z in (1, -1, 1j, -1j))]
    expected = np.array([function(z) for z in values])
    result = getattr(tj, name)(tj.asarray(np.array(values))).numpy()
    for z, mine, theirs in zip(values, result, expected, strict=True):
        assert abs(mine - theirs) <= 1e-13 * abs(theirs) + 1e-300, (z, mine, theirs)
        for part in ("real", "imag"):
            a, b = getattr(mine, part), getattr(theirs, part)
            assert np.signbit(a) == np.signbit(b) or (a == 0 == b) or abs(a - b) < 1e-200, (z, mine, theirs)


@pytest.mark.parametrize("dtype", some(DTYPES, 1))
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "pow", "equal", "not_equal"])
def test_binary(name, dtype):
    x, y = numbers((5, 8), dtype), numbers((8,), dtype, seed=1)
    numpy_name = {"pow": "power"}.get(name, name)
    for a, b in ((x, y), (x, y[0].item()), (2.5, x), (x, x.real), (x, np.arange(1, 9)), (x, x), (x, 3)):
        expected = of_numpy(numpy_name)(a, b)
        mine = [tj.asarray(v) if isinstance(v, np.ndarray) else v for v in (a, b)]
        if expected.dtype == np.bool_:
            assert np.array_equal(getattr(tj, name)(*mine).numpy(), expected)
        else:
            assert_close(getattr(tj, name)(*mine), expected, 30 * TOLERANCE[dtype])


def test_division_scales_as_smith_does():
    x = np.array([1e300 + 1e300j, 1e-300 + 1e-300j, 0j])
    y = np.array([1e300 + 1e299j, 1e-300 - 1e-301j, 1 + 1j])
    with np.errstate(all="ignore"):
        assert_close(tj.asarray(x) / tj.asarray(y), x / y, 1e-14)


def test_python_complex_numbers_are_weak():
    x = tj.asarray(np.ones(3, np.float32))
    assert (x * 1j).dtype == tj.complex64
    assert (tj.asarray(np.ones(3)) * 1j).dtype == tj.complex128
    assert (tj.asarray([1, 2]) + 1j).dtype == tj.complex128
    assert tj.asarray([1j, 2]).dtype == tj.complex64
    assert tj.asarray(1j, dtype=tj.complex128).numpy() == 1j
    assert tj.asarray([0.1 + 0.2j], dtype=tj.complex128).numpy()[0] == 0.1 + 0.2j
    assert tj.full(2, 1 + 2j).dtype == tj.complex64
    assert complex(tj.asarray(1 + 2j)) == 1 + 2j


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_written_in_a_body_keep_both_parts(dtype):
    x = numbers((3, 50), dtype)

    @tj.jit
    def f(x):
        return tj.exp(x * (0.5 + 0.25j)) + 3.0 - 1j, tj.where(tj.real(x) > 0, x, 1 - 2j)

    for _ in range(3):
        first, second = f(tj.asarray(x))
        assert_close(first, np.exp(x * (0.5 + 0.25j)) + 3.0 - 1j, 20 * TOLERANCE[dtype])
        assert_close(second, np.where(x.real > 0, x, np.array(1 - 2j, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype):
    x = numbers((6, 40, 3), dtype)
    array = tj.asarray(x)
    for axis in (None, 0, 1, (0, 2), -1):
        for name in ("sum", "mean", "prod", "var", "std"):
            mine = getattr(tj, name)(array, axis=axis)
            expected = getattr(np, name)(x, axis=axis)
            assert_close(mine, np.asarray(expected), 3e-5 if dtype == "complex64" else 1e-12)
        assert np.array_equal(tj.all(array, axis=axis).numpy(), np.all(x, axis=axis))
        assert np.array_equal(tj.count_nonzero(array, axis=axis).numpy(), np.count_nonzero(x, axis=axis))
    assert_close(tj.cumulative_sum(array, axis=1), np.cumsum(x, axis=1), 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype):
    a, b = numbers((4, 9, 7), dtype), numbers((7, 5), dtype, seed=1)
    tolerance = 1e-4 if dtype == "complex64" else 1e-12
    assert_close(tj.asarray(a) @ tj.asarray(b), a @ b, tolerance)
    assert_close(tj.asarray(a) @ tj.asarray(b.real), a @ b.real, tolerance)
    assert_close(tj.asarray(b).T @ tj.asarray(b[:, 0]), b.T @ b[:, 0], tolerance)
    product = tj.jit(lambda a, b: tj.tensordot(a, b, axes=1) * 1j)
    for _ in range(2):
        assert_close(product(tj.asarray(a), tj.asarray(b)), np.tensordot(a, b, axes=1) * 1j, tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moving_and_indexing(dtype):
    x = numbers((300, 200), dtype)
    array = tj.asarray(x)
    index = np.array([5, -1, 7, 5])
    assert_close(array + array.T[:200, :1].T * 0 + 0, x + 0)
    assert np.array_equal((array[:200] + array[:200].T).numpy(), x[:200] + x[:200].T)
    assert np.array_equal(array[tj.asarray(index)].numpy(), x[index])
    assert np.array_equal(array[::-3, 5::2].copy().numpy(), x[::-3, 5::2])
    assert np.array_equal(tj.concat([array, array], axis=1).numpy(), np.concatenate([x, x], axis=1))
    assert np.array_equal(tj.roll(array, 7, axis=0).numpy(), np.roll(x, 7, axis=0))
    assert np.array_equal(tj.sort(array, axis=1).numpy(), np.sort(x, axis=1))
    array[2:5, ::3] = 1j
    x[2:5, ::3] = 1j
    array[0] *= 2 - 1j
    x[0] *= 2 - 1j
    assert_close(array, x)


def test_large_arrays_stream_and_transpose():
    """Beyond the last-level cache, with elements of 16 bytes."""
    x = numbers((2500, 2000), "complex128")
    array = tj.asarray(x)
    assert np.array_equal((array + 1j).numpy(), x + 1j)
    assert np.array_equal((array[:2000] + array[:2000].T).numpy(), x[:2000] + x[:2000].T)


def test_parts_are_assigned():
    known = np.arange(6).reshape(2, 3) * (1 + 2j)
    x = tj.asarray(known)
    for array in (x, known):
        array.real = np.arange(3)
        array.imag = 3
        array[:, 1].real = 9
        array.T[2].imag = [7, 8]
    np.testing.assert_array_equal(x, known)

    @tj.jit(strict=True)
    def turn(z, imaginary):
        z.imag = imaginary
        z.real *= 2

    for _ in range(3):
        turn(x, tj.ones(3))
        known.imag = 1
        known.real *= 2
        np.testing.assert_array_equal(x, known)
    assert turn.cache_info().traces == 1


def test_casts():
    x = tj.asarray(np.array([1 + 2j, 0j, 3]))
    assert x.astype(tj.complex64).dtype == tj.complex64
    assert np.array_equal(x.astype(tj.bool).numpy(), [True, False, True])
    assert np.array_equal(tj.asarray([1, 2]).astype(tj.complex128).numpy(), [1, 2])
    with pytest.raises(DTypeError, match=r"imaginary parts would be lost; take real\(x\)"):
        x.astype(tj.float64)
    y = tj.zeros(3, dtype=tj.float64)
    with pytest.raises(DTypeError, match="cannot store complex128 values in an array of dtype float64"):
        y += x
    with pytest.raises(DTypeError, match="imaginary parts would be lost"):
        y[...] = x
    with pytest.raises(DTypeError):
        y[0] = 1j
    with pytest.raises((DTypeError, TypeError)):
        float(x[0])


@pytest.mark.parametrize(
    "call", [lambda x: x < x, lambda x: tj.maximum(x, x), tj.floor, tj.max, tj.argmax, tj.atan2]
)
def test_what_has_no_order_says_so(call):
    x = tj.asarray([1j, 2])
    with pytest.raises((DTypeError, ArgumentError, TypeError)):
        call(x)


def test_numpy_functions_dispatch():
    x = tj.asarray(numbers((4,), "complex128"))
    for name in ("real", "imag", "conj", "conjugate", "exp", "absolute"):
        assert isinstance(getattr(np, name)(x), tj.NDArray)
    assert np.array_equal(x.real.numpy(), x.numpy().real)
    assert np.array_equal(x.imag.numpy(), x.numpy().imag)
    assert np.array_equal(x.conj().numpy(), x.numpy().conj())
    y = tj.asarray([1.5, 2.5])
    assert np.array_equal(y.imag.numpy(), [0, 0])
    assert tj.real(y) is y


# ---- gradients


def difference(f, z, step=1e-6):
    """dL/dx - i dL/dy by central differences."""
    result = np.zeros_like(z)
    for place in np.ndindex(z.shape):
        for unit, weight in ((1, 1), (1j, -1j)):
            moved = [z.copy(), z.copy()]
            moved[0][place] += unit * step
            moved[1][place] -= unit * step
            high, low = (float(f(tj.asarray(m))) for m in moved)
            result[place] += weight * (high - low) / (2 * step)
    return result


def loss(w):
    weight = tj.asarray(np.arange(1.0, 1 + w.size).reshape(w.shape))
    return (weight * (w.real**2 + 0.5 * w.imag * w.real + w.imag)).sum()


GRADIENTS = {
    **{n: getattr(tj, n) for n in UNARY if n not in ("positive", "real", "imag", "conj")},
    "conj": lambda z: tj.conj(z) * z**2,
    "parts": lambda z: z.real * tj.exp(1j * z.imag) + z.imag,
    "divide": lambda z: (1 + z) / (2j - z * z),
    "pow": lambda z: z**1.5 + tj.pow(2.0, z) + z**z,
    "matmul": lambda z: z @ z.T @ (z * 1j) + tj.conj(z) @ z.T @ z,
    "gather": lambda z: z[tj.asarray([0, 1, 1])] * z[0],
    "sum": lambda z: z * z.sum(0) + z.mean() * z.prod(axis=1, keepdims=True),
    "abs": lambda z: abs(z) * (1 + 0j) + abs(z.sum()),
    "cast": lambda z: (
        z.astype(tj.complex64).astype(tj.complex128) * 1.0 if False else z.real.astype(tj.complex128) * z
    ),
    "where": lambda z: tj.where(z.real > 0, z * z, 1j),
    "write": lambda z: _written(z),
    "cumulative_sum": lambda z: tj.cumulative_sum(z, axis=1) * z,
}


def _written(z):
    w = z * 2
    w[0, 1:] = z[1, 1:] * 1j
    return w


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    z = numbers((2, 2), "complex128", seed=3, scale=0.6) + 0.1
    f = lambda x: loss(GRADIENTS[name](x) * (1 + 0j))  # noqa: E731
    expected = difference(f, z)
    eager = [] if name in UNARY[::2] else [tj.grad(f)]
    for g in (*eager, *[tj.jit(tj.grad(f))] * 2):
        mine = g(tj.asarray(z))
        assert mine.dtype == tj.complex128
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_a_real_argument_of_a_complex_computation_has_a_real_gradient():
    x = np.linspace(0.1, 1, 5)
    f = lambda x: tj.abs(tj.exp(1j * x) + x).sum()  # noqa: E731
    mine = tj.grad(f)(tj.asarray(x))
    assert mine.dtype == tj.float64
    step = 1e-6
    expected = [
        (float(f(tj.asarray(x + step * e))) - float(f(tj.asarray(x - step * e)))) / (2 * step)
        for e in np.eye(5)
    ]
    np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-7, atol=1e-7)


def test_a_training_step_with_complex_weights_learns_in_place():
    inputs = numbers((64, 3), "complex64", seed=1)
    truth = numbers((3,), "complex64", seed=2)
    targets = tj.asarray(inputs @ truth)
    data, w = tj.asarray(inputs), tj.asarray(numbers((3,), "complex64", seed=4))

    @tj.jit
    def step(w):
        value, g = tj.value_and_grad(lambda w: (tj.abs(data @ w - targets) ** 2).mean())(w)
        w -= 0.2 * tj.conj(g)
        return value

    losses = [float(step(w)) for _ in range(60)]
    assert losses[-1] < 1e-6 * losses[0]
    np.testing.assert_allclose(w.numpy(), truth, atol=1e-3)
