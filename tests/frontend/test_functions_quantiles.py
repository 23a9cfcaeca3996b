"""Medians and quantiles against NumPy: every method, with nan, weights, and quantiles in every form."""

import warnings

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_functions_gradients import check as gradients
from tracejit.frontend.arrays.functions.quantiles import METHODS


def close(got, expected, tolerance=None):
    """Dtype, shape and elements, of arrays or tuples of them."""
    if isinstance(expected, tuple | list):
        for g, e in zip(got, expected, strict=True):
            close(g, e, tolerance)
        return
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape
    tolerance = tolerance or (3e-6 if got.dtype in (np.float32, np.complex64) else 1e-12)
    np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)


def moved(value):
    """NumPy arrays as arrays."""
    return tj.asarray(value) if isinstance(value, np.ndarray) else value


def agrees(name, *args, traces=True, tolerance=None, **options):
    """`tj.name`, `np.name` on arrays, and replays of it give what NumPy gives."""
    ours, theirs = getattr(tj, name), getattr(np, name)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(*args, **options)
    given, named = [moved(x) for x in args], {k: moved(x) for k, x in options.items()}
    close(ours(*given, **named), expected, tolerance)
    close(theirs(*given, **named), expected, tolerance)
    if traces:
        traced = tj.jit(lambda given, named: ours(*given, **named), strict=True)
        traced(given, named)
        close(traced(given, named), expected, tolerance)
        assert traced.cache_info().traces == 1


def data(dtype="float64", with_nan=False):
    x = (np.random.default_rng(0).normal(size=(3, 5, 4)) * 10).astype(dtype)
    if with_nan:
        x[0, 1] = x[1, 2, 3] = x[:, :, 2] = np.nan
    return x


SOME = np.array([0, 0.25, 0.5, 0.9, 1])
REPLAYED = ("linear", "inverted_cdf")


@pytest.mark.parametrize("method", METHODS)
def test_methods(method):
    for x in (data(), data(with_nan=True)):
        for name in ("quantile", "nanquantile"):
            traces = np.isnan(x).any() == (name == "nanquantile")
            agrees(name, x, SOME, axis=1, method=method, traces=traces and method in REPLAYED)
            agrees(name, x, 0.3, method=method, traces=False)


@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_quantiles_in_every_form(dtype):
    x = data(dtype)
    for q in (0.3, 1, np.array([0, 1]), np.array([[0.1, 0.2], [0.3, 0.7]])):
        agrees("quantile", x, q, axis=(0, 2), keepdims=True, traces=dtype == "int16" and np.ndim(q) < 2)
    agrees("percentile", x, 30, axis=0, traces=False)
    agrees("percentile", x, np.array([30, 45.5]), traces=False)
    agrees("nanpercentile", x, 30.0, axis=-1, keepdims=True, traces=dtype == "float32")
    assert tj.quantile(tj.asarray(x), [0.25, 0.5]).dtype == (np.float32 if dtype == "float32" else np.float64)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians(name):
    for x in (data(), data("float32", with_nan=True), data("int8"), data() > 0, np.full((2, 2), np.inf)):
        for axis in (None, 0, (-1, 0)):
            agrees(name, x, axis=axis, keepdims=axis == 0, traces=axis == 0 and x.dtype.kind == "f")
    agrees(name, np.zeros((0, 3)), axis=1, traces=False)
    agrees(name, np.zeros((2, 0)), axis=1, traces=False)


def test_weights():
    weights = np.random.default_rng(1).integers(0, 3, (3, 5, 4)) + 0.5
    weights[0, :2] = 0
    for x in (data("float32"), data(with_nan=True), data("int32")):
        for q in (0.0, np.array([0.2, 0.5, 1])):
            options = {"method": "inverted_cdf", "traces": np.ndim(q) == 1 and x.dtype == np.float64}
            agrees("quantile", x, q, axis=1, weights=np.array([1, 0, 2, 0, 1.0]), **options)
            agrees("percentile", x, q, axis=(1, 0), weights=weights[:, :, 0].T.copy(), **options)
            agrees("nanquantile", x, q, axis=1, weights=weights, keepdims=True, **options)


def test_a_quantile_that_changes_is_one_trace():
    step = tj.jit(lambda x, q: tj.quantile(x, q), strict=True)
    x = tj.asarray([1.0, 2.0, 4.0])
    assert [step(x, q).item() for q in (0.5, 0.25, 0.75)] == [2, 1.5, 3]
    assert step.cache_info().traces == 1
    with pytest.raises(
        tj.errors.OutOfBoundsError, match=r"in the range 0 to 1(?s:.*)test_functions_quantiles"
    ):
        step(x, 1.5).item()


def test_gradients():
    rng = np.random.default_rng(2)
    x = rng.permutation(24).reshape(4, 6) / 7.0
    gradients(lambda x, q: tj.quantile(x, q, axis=1), [x, np.array([0.33, 0.61])], rng)
    gradients(lambda x: tj.median(x, axis=0), [x], rng, call=lambda f, *a: tj.jit(f)(*a))
    gradients(lambda x: tj.nanquantile(tj.where(x > 2.9, tj.nan, x), 0.3, axis=1), [x], rng)
    with_nan = tj.asarray([3.0, tj.nan, 1.0])
    np.testing.assert_array_equal(tj.grad(tj.nanmedian)(with_nan).numpy(), [0.5, 0, 0.5])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.quantile(x, 1.5), tj.errors.ArgumentError, "quantiles must lie in the range 0 to 1"),
        (lambda x: tj.percentile(x, [-1, 5]), tj.errors.ArgumentError, "in the range 0 to 100"),
        (lambda x: tj.nanquantile(x, tj.nan), tj.errors.ArgumentError, "in the range 0 to 1"),
        (lambda x: tj.quantile(x, tj.asarray(2.0)).item(), tj.errors.OutOfBoundsError, "range 0 to 1"),
        (lambda x: tj.quantile(x, 0.5, method="best"), tj.errors.ArgumentError, "'best' is none of"),
        (lambda x: tj.quantile(x, 0.5, axis=3), tj.errors.AxisError, "axis 3"),
        (lambda x: tj.quantile(x, np.zeros((1, 1, 1))), tj.errors.ShapeError, "0 to 2 dimensions"),
        (lambda x: tj.quantile(x[:0], 0.5), tj.errors.ShapeError, "no elements"),
        (lambda x: tj.quantile(x * 1j, 0.5), tj.errors.DTypeError, "complex"),
        (lambda x: tj.quantile(x, 0.5, weights=x), tj.errors.ArgumentError, "inverted_cdf"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(tj.ones((2, 3)))
    assert __file__ in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "axis", "error"),
    [
        ([1, -1, 1], 1, tj.errors.ArgumentError),
        ([0, 0, 0], 1, tj.errors.ArgumentError),
        ([1, 1, 1], None, tj.errors.ArgumentError),
        ([1, 1, 1], 0, tj.errors.ShapeError),
    ],
)
def test_weights_that_do_not_fit(weights, axis, error):
    with pytest.raises(error, match=r"quantile: (?s:.*)test_functions_quantiles"):
        tj.quantile(tj.ones((2, 3)), 0.5, axis=axis, weights=weights, method="inverted_cdf")
