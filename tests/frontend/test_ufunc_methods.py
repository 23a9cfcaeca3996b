"""NumPy's ufuncs on arrays: reduce, accumulate, outer, at, and the keywords out and where."""

import numpy as np
import pytest

import tracejit as tj
import tracejit.numpy as tjnp

REDUCED = {
    "add": ("?bBhil", "fdFD"),
    "multiply": ("bBl", "fdF"),
    "maximum": ("?bBl", "fd"),
    "minimum": ("?bBl", "fd"),
    "logical_and": ("?bl", "fd"),
    "logical_or": ("?l", "fd"),
    "logical_xor": ("?l", "d"),
    "bitwise_and": ("?bBl", ""),
    "bitwise_or": ("?bBl", ""),
    "bitwise_xor": ("?bBl", ""),
    "subtract": ("bBl", "fdF"),
    "divide": ("bl", "fdF"),
    "logaddexp": ("l", "fd"),
    "hypot": ("l", "fd"),
}
CASES = [(name, dtype) for name, kinds in REDUCED.items() for dtype in "".join(kinds)]


def drawn(rng, shape, dtype):
    """Numbers that are not 0 and not large."""
    numbers = rng.integers(1, 4, shape) * np.where(
        np.dtype(dtype).kind in "?u", 1, rng.choice([-1, 1], shape)
    )
    if np.dtype(dtype).kind in "fc":
        numbers = numbers * rng.uniform(0.5, 1.5, shape)
    return (numbers * (1 + 0.5j) if np.dtype(dtype).kind == "c" else numbers).astype(dtype)


def close(got, expected, rtol=2e-5):
    got = got.numpy() if isinstance(got, tj.NDArray) else got
    expected = np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    rtol = 2e-3 if expected.dtype == np.float16 else rtol
    np.testing.assert_allclose(got, expected, rtol=rtol if expected.dtype.kind in "fc" else 0, atol=1e-6)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_reduce_and_accumulate(name, dtype, evaluator):
    ufunc = getattr(np, name)
    rng = np.random.default_rng(len(name))
    for shape, axis in (((5,), 0), ((3, 6), 1), ((4, 1, 3), -3), ((2, 7), 0)):
        a = drawn(rng, shape, dtype)
        x = tj.asarray(a)
        close(ufunc.reduce(x, axis), ufunc.reduce(a, axis), 1e-3)
        close(ufunc.reduce(x, axis=axis, keepdims=True), ufunc.reduce(a, axis=axis, keepdims=True), 1e-3)
        close(ufunc.accumulate(x, axis), ufunc.accumulate(a, axis), 1e-3)


@pytest.mark.parametrize("name", ["add", "divide", "logical_or", "bitwise_xor", "hypot"])
def test_reduceat(name, run):
    ufunc, dtype = getattr(np, name), (REDUCED[name][1] or "l")[-1]
    rng = np.random.default_rng(3)
    for shape, axis, indices in (
        ((11,), 0, [0, 3, 3, 9, 2, 10]),
        ((7, 2), 0, [6, 1]),
        ((2, 9), -1, np.array([2])),
        ((4,), 0, []),
    ):
        a = drawn(rng, shape, dtype)
        found = run(lambda x, i=indices, axis=axis: ufunc.reduceat(x, i, axis), tj.asarray(a))
        close(found, ufunc.reduceat(a, indices, axis), 1e-3)


def test_reduceat_elsewhere():
    x = tj.asarray(np.arange(10.0))
    slope = tj.grad(lambda x: np.multiply.reduceat(x, [1, 3])[0])(x)
    close(slope, np.eye(10)[1] * 2 + np.eye(10)[2])
    traced = tj.jit(lambda x, i: np.add.reduceat(x, i))  # looks at the indices
    for indices in ([0, 5], [5, 0], [2, 3]):
        close(traced(x, tj.asarray(indices)), np.add.reduceat(np.arange(10.0), indices))
    ours = tjnp.add.reduceat([1, 2, 3, 4], [0, 2])
    close(ours, np.array([3, 7]))
    out = tj.zeros(2, dtype=tj.float64)
    assert np.add.reduceat(x, [0, 5], out=out) is out
    close(out, np.array([10.0, 35.0]))


@pytest.mark.parametrize("name", [n for n in REDUCED if n not in ("subtract", "divide")])
def test_reduce_with_keywords(name, run):
    ufunc, dtype = getattr(np, name), (REDUCED[name][1] or "l")[-1]
    a = drawn(np.random.default_rng(5), (3, 4, 5), dtype.replace("D", "d"))
    mask = np.random.default_rng(6).random((4, 5)) > 0.4

    def reduced(x, mask):
        known = ufunc.reduce(x, axis=1, where=mask, initial=a.dtype.type(2))
        return ufunc.reduce(x, axis=None), ufunc.reduce(x, axis=(0, 2)), known

    for got, expected in zip(run(reduced, tj.asarray(a), tj.asarray(mask)), reduced(a, mask), strict=True):
        close(got, expected, 1e-4)


def test_reduce_of_nothing():
    for a in (np.ones((0, 3)), np.ones((2, 0))):
        for ufunc in (np.add, np.multiply, np.logical_and, np.logaddexp):
            close(ufunc.reduce(tj.asarray(a), 0), ufunc.reduce(a, 0))
        close(np.maximum.reduce(tj.asarray(a), 1, initial=3.0), np.maximum.reduce(a, 1, initial=3.0))
    close(np.add.reduce(tj.asarray(3.5, dtype=tj.float64)), np.add.reduce(np.array(3.5)))
    with pytest.raises(tj.errors.ShapeError):
        np.minimum.reduce(tj.ones((0, 3)))
    with pytest.raises(tj.errors.ShapeError, match="no elements along axis 0"):
        np.subtract.reduce(tj.ones((0, 3)))


def test_reduce_and_accumulate_into_out_and_in_a_dtype():
    a = np.arange(1, 7, dtype=np.int8).reshape(2, 3)
    x = tj.asarray(a)
    close(np.add.reduce(x, 0, np.int8), np.add.reduce(a, 0, np.int8))
    close(np.multiply.accumulate(x, 1, dtype=np.float32), np.multiply.accumulate(a, 1, dtype=np.float32))
    out = tj.zeros(3, dtype=tj.float64)
    assert np.add.reduce(x, axis=0, out=out) is out
    close(out, a.sum(0) * 1.0)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "less", "arctan2", "power"])
def test_outer(name, run):
    ufunc = getattr(np, name)
    a, b = np.arange(1.0, 7.0).reshape(2, 3), np.arange(4.0)
    close(run(lambda x, y: ufunc.outer(x, y), tj.asarray(a), tj.asarray(b)), ufunc.outer(a, b))
    close(ufunc.outer(tj.asarray(a), b), ufunc.outer(a, b))
    close(ufunc.outer(b, tj.asarray(a)), ufunc.outer(b, a))
    close(ufunc.outer(tj.asarray(a), 2.0), ufunc.outer(a, 2.0))


INDICES = {
    "integers": np.array([0, 2, 0, -1, 0]),
    "grid": (np.array([[0], [2]]), np.array([1, 1, 3])),
    "slice": (slice(None, None, 2), [0, 0, 3]),
    "mask": np.arange(12).reshape(3, 4) % 5 > 1,
    "basic": (slice(1, None), 2),
    "one": (1, 2),
    "nothing": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "maximum", "minimum", "divide", "power", "fmax", "logaddexp"]
)
def test_at(name, index, evaluator):
    ufunc, index = getattr(np, name), INDICES[index]
    rng = np.random.default_rng(7)
    a = rng.uniform(0.5, 2, (3, 4))
    values = rng.uniform(0.5, 3, a[index].shape)
    for given in (values, values[..., :1] if values.ndim else values, 1.5):
        a, x = a.copy(), tj.asarray(a.T).T
        if name == "fmax" and np.fmax not in tj.frontend.arrays.interop.UFUNCS:
            return
        ufunc.at(a, index, given)
        assert ufunc.at(x, index, given) is None
        close(x, a, 1e-13)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "bool", "complex64"])
def test_at_of_dtypes(dtype):
    rng = np.random.default_rng(8)
    index = rng.integers(0, 5, 40)
    a, values = drawn(rng, 5, dtype), drawn(rng, 40, dtype)
    kinds = {"b": (np.logical_or, np.maximum, np.bitwise_xor), "c": (np.add, np.subtract, np.multiply)}
    for ufunc in kinds.get(a.dtype.kind, (np.add, np.maximum, np.minimum, np.multiply)):
        x, expected = tj.asarray(a), a.copy()
        with np.errstate(all="ignore"):
            ufunc.at(expected, index, values)
        ufunc.at(x, tj.asarray(index), tj.asarray(values))
        close(x, expected, 1e-4)


def test_at_of_numpy_arrays():
    """Indices or values are NDArrays; in a recording, NumPy's functions create recorded arrays."""

    def counted(index, weights):
        counts, most = np.zeros(5), np.full((2, 5), -1.0)
        np.add.at(counts, index, weights)
        np.add.at(counts, [0, 0], weights[0])
        np.maximum.at(most, (0, index), weights)
        return counts, most

    rng, step = np.random.default_rng(0), tj.jit(counted)
    for _ in range(3):
        index, weights = rng.integers(0, 5, 9), rng.random(9)
        expected = counted(index, weights)
        for results in (counted(tj.asarray(index), tj.asarray(weights)), step(index, weights)):
            for result, other in zip(results, expected, strict=True):
                np.testing.assert_allclose(np.asarray(result), other)
    assert step.cache_info().traces == 1
    assert "piecewise" not in step.explain()


def test_at_of_one_operand_and_nan():
    x, a = tj.asarray([1.0, 2.0, 3.0]), np.array([1, 2, 3], np.float32)
    np.negative.at(a, [0, 0, 2]), np.negative.at(x, [0, 0, 2])
    values = np.array([np.nan, 5, -7, np.nan], np.float32)
    for ufunc in (np.maximum, np.minimum):
        y, b = x.copy(), a.copy()
        with np.errstate(invalid="ignore"):
            ufunc.at(b, [0, 0, 1, 2], values)
        ufunc.at(y, [0, 0, 1, 2], values)
        close(y, b)


def test_sums_and_extremes_at_indices_replay():
    @tj.jit
    def step(x, index, values):
        np.add.at(x, index, values)
        np.maximum.at(x, index, values * 2)
        np.minimum.at(x, index, values + 1)

    rng = np.random.default_rng(9)
    for _ in range(3):
        a, index, values = rng.normal(size=6), rng.integers(-6, 6, 20), rng.normal(size=20)
        x = tj.asarray(a)
        step(x, tj.asarray(index), tj.asarray(values))
        np.add.at(a, index, values)
        np.maximum.at(a, index, values * 2)
        np.minimum.at(a, index, values + 1)
        close(x, a, 1e-12)
    assert "piecewise" not in step.explain()


def test_gradients():
    def loss(x, v):
        y = x * 1.0
        np.add.at(y, [0, 0, 2], v)
        np.multiply.at(y, [1, 1], 3.0)
        return tj.sum(y * np.maximum.accumulate(v)) + np.logaddexp.reduce(v) + np.subtract.outer(x, v).sum()

    x, v = tj.asarray([1.0, 2.0, 4.0], dtype=tj.float64), tj.asarray([0.5, 0.25, 1.5], dtype=tj.float64)
    for position, gradient in enumerate(tj.grad(loss, (0, 1))(x, v)):
        for i in range(3):
            step = np.eye(2)[position][:, None] * np.eye(3)[i] * 1e-6
            slope = float(loss(x + step[0], v + step[1]) - loss(x - step[0], v - step[1])) / 2e-6
            assert float(gradient[i]) == pytest.approx(slope, rel=1e-6)


def test_out_and_where(run):
    a, mask = np.arange(6.0).reshape(2, 3), np.array([True, False, True])

    def results(xp, x, mask):
        out = xp.full((2, 3), 7, dtype=np.float64)
        np.add(x, 1, out=out, where=mask)
        np.sqrt(x[:, 1:], out=out[:, 1:], where=mask[1:])
        wide = xp.zeros((2, 2, 3), dtype=np.float64)
        np.multiply(x, x, wide)
        return out, wide

    got = run(lambda x, m: results(tj, x, m), tj.asarray(a), tj.asarray(mask))
    for ours, numpys in zip(got, results(np, a, mask), strict=True):
        close(ours, numpys)


def test_where_without_out_gives_zeros_elsewhere():
    got = np.add(tj.asarray([1, 2, 3]), 1, where=np.array([True, False, True]))
    np.testing.assert_array_equal(got.numpy(), [2, 0, 4])
    target, x = np.zeros(3), tj.asarray([1.0, 2.0, 3.0])
    assert np.add(x, x, out=target, where=[True, False, True]) is target
    np.testing.assert_array_equal(target, [2, 0, 6])


ERRORS = [
    (lambda x: np.power.reduce(x), TypeError, r"power\.reduce: there is none"),
    (lambda x: np.less.accumulate(x), TypeError, r"less\.accumulate: there is none"),
    (lambda x: np.subtract.reduce(x, axis=None), TypeError, "name one axis"),
    (lambda x: np.maximum.reduce(x, where=x > 0), TypeError, "initial"),
    (lambda x: np.add.reduceat(x, [0, x.shape[0]]), IndexError, r"add\.reduceat: index \d+ is out of bounds"),
    (lambda x: np.add.reduceat(x, [[0]]), TypeError, r"add\.reduceat: indices are one line of integers"),
    (lambda x: np.add.reduceat(x, [0.5]), TypeError, r"got float64"),
    (lambda x: np.greater.reduceat(x, [0]), TypeError, r"greater\.reduceat: there is none"),
    (lambda x: np.bitwise_or.reduce(x), TypeError, "not defined for float32"),
    (lambda x: np.add.at(x, [0, 1], tj.ones(3)), ValueError, "does not fit"),
    (lambda x: np.multiply.at(x, [0, 1], tj.ones(3)), ValueError, "do not broadcast"),
    (lambda x: np.multiply.at(x, [0], tj.ones((2, 4))), ValueError, "do not fit"),
    (lambda x: np.add.at(tj.asarray([1, 2]), [0], 1.5), TypeError, "without losing"),
    (lambda x: np.multiply.at(tj.asarray([1, 2]), [0], 1.5), TypeError, "do not fit int64"),
    (lambda x: np.add(x, x, casting="no"), TypeError, "casting"),
    (
        lambda x: np.add(x, 1.5, out=tj.zeros((3, 4), dtype=tj.int64), where=x > 0),
        TypeError,
        "without losing",
    ),
    (lambda x: np.add.reduce(x, 5), IndexError, "axis 5 is out of range"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_ufunc_methods") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)
