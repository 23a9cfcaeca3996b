"""Histograms, occurrences of integers and bins against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_functions_quantiles import agrees, close

X = np.abs(np.random.default_rng(0).normal(size=(7, 8))) * 20
WEIGHTS = np.random.default_rng(1).random((7, 8))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_histogram(dtype):
    x, is_double = X.astype(dtype), dtype == "float64"
    agrees("histogram", x, traces=False)
    agrees("histogram", x, 5, (2.5, 15), density=True, traces=is_double)
    agrees("histogram", x, bins=np.array([1, 3, 4, 9]), traces=False)
    agrees("histogram", x, bins=np.array([1, 3, 4, 9.5]), weights=WEIGHTS, traces=is_double)
    agrees("histogram", x, 6, weights=WEIGHTS.astype("float32"), density=True, traces=False, tolerance=1e-6)
    agrees("histogram", x, 6, weights=WEIGHTS * (1 + 1j), traces=False)
    agrees("histogram", x[:0], 3, traces=False)
    agrees("histogram", x * 0 + 3, 3, traces=False)
    agrees("histogram_bin_edges", x, 4, traces=False)
    close(np.histogram(tj.asarray(x), "auto"), np.histogram(x, "auto"))


def test_edges_belong_to_the_bins_that_they_begin():
    x = np.array([0.0, 1, 1, 2, 3, -1, 4, np.nan, np.inf])
    agrees("histogram", x, bins=np.array([0.0, 1, 2, 3]), traces=False)
    agrees("histogram", x, bins=[0, 1, 1, 3], traces=False)
    agrees("histogram", x[:-2], 3, (0, 3))
    agrees("histogram", np.linspace(0, 1, 41), 40, traces=False)


def test_bins_of_equal_width_need_no_search():
    edges = np.linspace(0.1, 0.7, 50)
    x = np.concatenate([edges, np.nextafter(edges, 1), np.nextafter(edges, 0), [np.nan, np.inf, -5, 9]])
    for kind in ("float64", "float32"):
        agrees("histogram", x.astype(kind), 49, (0.1, 0.7), traces=False)
    agrees("histogram", np.array([-(2**62), 5, 2**62]), 7, traces=False)
    agrees("histogram", np.array([0.0, 1e300, 1.5e308]), 3, traces=False)
    step = tj.jit(lambda x: tj.histogram(x, 4)[0], strict=True)
    assert [step(tj.asarray(X)).numpy().tolist() for _ in range(2)] == [np.histogram(X, 4)[0].tolist()] * 2
    assert "search_sorted" not in step.explain()


def test_histograms_of_several_dimensions():
    x, y, w = X.ravel(), WEIGHTS.ravel(), np.arange(56.0)
    agrees("histogram2d", x, y, 4, traces=False)
    agrees("histogram2d", x.astype("float32"), y, [3, 4], [[0, 10], [0, 1]], True, w)
    agrees("histogram2d", x, y, [np.array([0, 10.0, 20]), 3], traces=False)
    agrees("histogram2d", x, y, np.array([0, 0.2, 0.5]), traces=False)
    agrees("histogramdd", np.stack([x, x[::-1], y], 1), (2, 3, 4), weights=w)
    agrees("histogramdd", np.stack([x, y], 1), 2, [None, (0, 0.5)], True, traces=False)
    close(tj.histogramdd([tj.asarray(x), tj.asarray(y)], 3), np.histogramdd([x, y], 3))


def test_bincount():
    n = np.random.default_rng(2).integers(0, 9, 30)
    for x in (n, n.astype("uint8"), n > 4, n[:0]):
        agrees("bincount", x, traces=False)
        agrees("bincount", x, minlength=20)
        agrees("bincount", x, minlength=1, traces=False)
    agrees("bincount", n, n * 0.5, traces=False)
    step = tj.jit(lambda n, w: (tj.bincount(n, length=5), tj.bincount(n, w, length=12)), strict=True)
    for _ in range(2):
        few, many = step(tj.asarray(n), tj.asarray(n * 0.5))
    close(few, np.bincount(n)[:5])
    close(many, np.bincount(n, n * 0.5, 12))
    slope = tj.grad(lambda w: tj.bincount([0, 1, 1, 7], w, length=3) @ tj.asarray([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(slope(tj.zeros(4)).numpy(), [1, 2, 2, 0])


@pytest.mark.parametrize("right", [False, True])
def test_digitize(right):
    for bins in (np.array([1, 3, 9, 20.0]), np.array([20.0, 9, 3, 1])):
        agrees("digitize", X, bins, right=right)
        close(tj.digitize(tj.asarray(X), bins, right), np.digitize(X, bins, right))
    close(tj.digitize(2.0, [1, 2, 3], right), np.digitize(2.0, [1, 2, 3], right))


NAN = [1.0, np.nan]
ARGUMENT, SHAPE = tj.errors.ArgumentError, tj.errors.ShapeError


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tj.histogram(tj.asarray(NAN))[0].wait(), tj.errors.OutOfBoundsError, "is not finite"),
        (lambda: tj.histogram(NAN, tj.asarray([2.0, 1.0]))[0].wait(), tj.errors.OutOfBoundsError, "decrease"),
        (lambda: tj.histogram(NAN, 0), ARGUMENT, "at least one bin"),
        (lambda: tj.histogram(NAN, [1, 3, 2]), ARGUMENT, "must not decrease"),
        (lambda: tj.histogram(NAN, 3, (2, 1)), ARGUMENT, "must not end before"),
        (lambda: tj.histogram(NAN, 3, (0, np.inf)), ARGUMENT, "is not finite"),
        (lambda: tj.histogram(NAN, "best"), ARGUMENT, "'best' is not a valid"),
        (lambda: tj.histogram(NAN, "auto", weights=NAN), ARGUMENT, "do not know weights"),
        (lambda: tj.histogram(NAN, 3, weights=[1]), SHAPE, "weights of shape"),
        (lambda: tj.histogram(NAN, tj.ones((2, 2))), SHAPE, "one dimension"),
        (lambda: tj.histogram([1j], 3), tj.errors.DTypeError, "complex"),
        (lambda: tj.histogramdd(tj.ones((2, 3)), bins=[2, 3]), ARGUMENT, "2 of them for 3"),
        (lambda: tj.histogram2d([1], [1, 2]), SHAPE, "must agree"),
        (lambda: tj.bincount([1, -1]), ARGUMENT, "negative integers"),
        (lambda: tj.bincount([1, -1], length=2).wait(), tj.errors.OutOfBoundsError, "negative integers"),
        (lambda: tj.bincount([1.5]), tj.errors.DTypeError, "counts integers"),
        (lambda: tj.bincount([[1]]), SHAPE, "one dimension"),
        (lambda: tj.bincount([1], [1, 2]), SHAPE, "weights of shape"),
        (lambda: tj.bincount([1], minlength=-1), ARGUMENT, "minlength"),
        (lambda: tj.digitize(NAN, [1, 3, 2]), ARGUMENT, "must rise or fall"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert __file__ in str(caught.value)
