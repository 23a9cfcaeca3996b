"""Reductions, positions of extremes and running sums against NumPy."""

import itertools
import warnings

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import DTYPES, SHAPES, assert_close, laid_out, sample
from tests.frontend.test_functions_gradients import check as gradients
from tests.thorough import some

SUMS = ["sum", "prod", "mean", "var", "std"]
EXTREMES = ["max", "min"]
TRUTHS = ["any", "all"]


def axes_of(ndim):
    """None, each axis from both ends, pairs, and no axis at all."""
    single = [*range(ndim), *range(-ndim, 0)]
    return [None, *single, *itertools.combinations(range(ndim), 2), ()]


def expected_or_error(name, array, **options):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(np, name)(array, **options)
        except (ValueError, TypeError):
            return None


def check(name, call, x, array, **options):
    expected = expected_or_error(name, array, **options)
    if expected is None:
        with pytest.raises((ValueError, TypeError)):
            call(lambda x: getattr(tj, name)(x, **options), x)
        return
    got = call(lambda x: getattr(tj, name)(x, **options), x)
    scale = float(np.abs(array.astype(np.float64)).sum()) + 1 if array.size else 1
    assert_close(
        got, expected, ulps=16, scale=scale if name != "prod" else abs(float(np.max(expected, initial=1)))
    )


@pytest.mark.parametrize("name", SUMS + EXTREMES + TRUTHS)
def test_every_dtype_shape_and_axis(name, evaluator):
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for shape in SHAPES:
            array = sample(rng, shape, dtype)
            for axis in axes_of(len(shape)):
                x = laid_out(rng, array)
                keepdims = bool(rng.integers(2))
                if name in EXTREMES and axis == () and array.size == 0:
                    continue
                check(name, lambda f, x: f(x).numpy(), x, array, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", SUMS + EXTREMES + TRUTHS)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2)])
def test_all_modes(name, axis, run):
    rng = np.random.default_rng(2)
    array = sample(rng, (6, 5, 7), np.float32, low=0.5, high=1.5)
    check(name, run, tj.asarray(array), array, axis=axis)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name, evaluator):
    rng = np.random.default_rng(3)
    for dtype in DTYPES:
        for shape in SHAPES:
            array = sample(rng, shape, dtype, special=True)
            for axis in (None, *range(-len(shape), len(shape))):
                for keepdims in (False, True):
                    check(
                        name,
                        lambda f, x: f(x).numpy(),
                        laid_out(rng, array),
                        array,
                        axis=axis,
                        keepdims=keepdims,
                    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_in_all_modes(name, run):
    array = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 1.0], [-np.inf, 0.0, np.inf]])
    for axis in (None, 0, 1):
        check(name, run, tj.asarray(array), array, axis=axis)


def test_cumulative_sum(evaluator):
    rng = np.random.default_rng(4)
    for dtype in DTYPES:
        for shape in [(5,), (0,), (3, 4), (2, 0, 3), (2, 3, 4)]:
            array = sample(rng, shape, dtype)
            for axis in range(-len(shape), len(shape)):
                for initial in (False, True):
                    expected = np.cumulative_sum(array, axis=axis, include_initial=initial)
                    got = tj.cumulative_sum(laid_out(rng, array), axis=axis, include_initial=initial)
                    assert_close(got.numpy(), expected, scale=50)


def test_cumulative_sum_in_all_modes(run):
    array = sample(np.random.default_rng(5), (9, 11), np.float64)
    for axis in (0, 1):
        assert_close(run(lambda x, axis=axis: tj.cumulative_sum(x, axis), tj.asarray(array)),
                     np.cumulative_sum(array, axis=axis), scale=50)  # fmt: skip


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumulative_prod"])
def test_numpys_running_results(name, run):
    rng = np.random.default_rng(6)
    for dtype in run.some([np.dtype("int8"), np.dtype("float32"), np.dtype("complex64"), np.dtype("bool")]):
        array = sample(rng, (3, 4), dtype) if dtype.kind != "c" else rng.normal(size=(3, 4)).astype(dtype)
        for axis in (0, -1) if name == "cumulative_prod" else (None, 0, -1):
            expected = getattr(np, name)(array, axis=axis)
            for function in (getattr(tj, name), getattr(np, name)):
                got = run(lambda x, f=function, a=axis: f(x, axis=a), tj.asarray(array))
                assert got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=1e-5)
    if name != "cumsum":
        return
    grown = tj.cumulative_prod(tj.asarray([2, 3]), include_initial=True)
    np.testing.assert_array_equal(grown.numpy(), [1, 2, 6])


def test_gradients_of_running_products_and_extremes_have_gradients():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(3, 5))
    x[1, 2:4] = 0  # nothing divides by them
    for axis in (0, 1):
        gradients(lambda x, axis=axis: tj.cumprod(x, axis=axis), [x], rng)
        gradients(lambda x, axis=axis: tj.prod(x, axis=axis), [x], rng)
        slope = tj.grad(lambda x, axis=axis: (tj.cumprod(x, axis=axis) ** 2).sum())
        gradients(lambda x, slope=slope: slope(x), [x], rng, rtol=1e-5)
    y = rng.normal(size=(3, 5))
    for ufunc in (np.maximum, np.minimum):
        gradients(lambda x, f=ufunc: f.accumulate(x, axis=1), [y], rng, call=lambda f, *a: tj.jit(f)(*a))
    first = tj.grad(lambda x: np.maximum.accumulate(x).sum())(tj.asarray([1.0, 3.0, 3.0, 2.0]))
    np.testing.assert_array_equal(first.numpy(), [1, 3, 0, 0])  # the first of equal elements


MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, True, False]])


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "max", "min", "mean", "var", "std"])
def test_what_counts_and_initial_values(name, run):
    rng = np.random.default_rng(8)
    for dtype in run.some([np.dtype("float32"), np.dtype("int16"), np.dtype("float64"), np.dtype("bool")]):
        array = sample(rng, (3, 4), dtype)
        for where in run.some([MASK, MASK[:1], True]):
            for axis in run.some([None, 0, (0, 1)], 1):
                options = [{}] if name not in ("max", "min") or where is True else []
                if name in ("sum", "prod", "max", "min"):
                    options.append({"initial": 2, "keepdims": True})
                for extra in options:
                    extra = extra | {"axis": axis, "where": where}
                    with np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        expected = getattr(np, name)(array, **extra)
                    for function in (getattr(tj, name), getattr(np, name)):
                        got = run(lambda x, f=function, o=extra: f(x, **o), tj.asarray(array))
                        assert_close(got, expected, scale=5)


def test_initial_values_of_nothing_and_known_means():
    x = tj.zeros((0, 2), dtype=tj.int32)
    np.testing.assert_array_equal(x.max(0, initial=3).numpy(), [3, 3])
    np.testing.assert_array_equal(tj.sum(x, initial=3, keepdims=True).numpy(), [[3]])
    y = tj.asarray([[1.0, 2.0], [3.0, 5.0]])
    known = y.mean(0, keepdims=True)
    np.testing.assert_array_equal(np.var(y, axis=0, mean=known, ddof=1).numpy(), y.var(0, ddof=1).numpy())
    np.testing.assert_allclose(tj.std(y, mean=2.0).numpy(), np.sqrt(2.75))
    with pytest.raises(tj.errors.ShapeError, match="where of shape"):
        tj.sum(y, where=tj.ones((3, 2, 2)))
    with pytest.raises(tj.errors.ArgumentError, match=r"max: where leaves elements out(?s:.*)test_functions"):
        tj.max(y, where=y > 1)


def test_options():
    x = tj.asarray([[1.0, 2.0], [3.0, 5.0]])
    array = x.numpy()
    assert x.var(ddof=1).item() == tj.var(x, correction=1).item() == np.var(array, ddof=1)
    assert np.isnan(tj.var(tj.ones(1), correction=1).item())
    assert tj.sum(x, dtype=tj.float64).dtype == np.float64
    assert tj.sum(tj.asarray([True, True]), dtype=tj.int8).dtype == np.int8
    assert tj.mean(tj.asarray([1, 2], dtype=tj.int8), dtype=tj.float32).dtype == np.float32
    assert tj.count_nonzero(x == 1).item() == 1
    np.testing.assert_array_equal(tj.count_nonzero(x, axis=0, keepdims=True).numpy(), [[2, 2]])


def test_errors():
    x = tj.ones((2, 3))
    with pytest.raises(
        tj.errors.AxisError, match=r"sum: axis 2 is out of range for 2 dimensions(?s:.*)test_functions"
    ):
        x.sum(2)
    with pytest.raises(tj.errors.AxisError, match="repeat"):
        x.sum((0, -2))
    with pytest.raises(tj.errors.ShapeError, match=r"max(?s:.*)test_functions_reductions"):
        tj.max(tj.ones((0,)))
    with pytest.raises(tj.errors.ArgumentError, match="correction and ddof"):
        tj.std(x, correction=1, ddof=1)
    with pytest.raises(tj.errors.ArgumentError, match="name the axis"):
        tj.cumulative_sum(x)
    with pytest.raises(tj.errors.DTypeError, match="must be a floating or complex one"):
        tj.mean(x, dtype=tj.int32)


def _table(rng, shape):
    return tj.asarray(rng.integers(-4, 5, shape).astype("float64"))


@pytest.mark.parametrize("shape", some([(2, 3), (3, 3), (4, 6), (2, 3, 4), (1, 5), (4, 1)], 3))
def test_scans_and_reductions_over_different_axes_in_one_function(run, shape):
    x = _table(np.random.default_rng(0), shape)
    axes = [(a, b) for a in range(len(shape)) for b in range(len(shape))]
    for a, b in axes:
        for names in (("scan", "scan"), ("scan", "sum"), ("sum", "scan"), ("scan", "max"), ("max", "scan")):

            def step(x, xp=tj, names=names, a=a, b=b):
                ways = {
                    "scan": xp.cumulative_sum,
                    "sum": lambda x, axis: xp.sum(x, axis=axis, keepdims=True),
                    "max": lambda x, axis: xp.max(x, axis=axis, keepdims=True),
                }
                y, z = ways[names[0]](x, axis=a), ways[names[1]](x, axis=b)
                return y + z, ways[names[1]](x * 2 - y, axis=b), ways[names[1]](x * y, axis=b).reshape(-1) + 1

            for got, expected in zip(run(step, x), step(x.numpy(), np), strict=True):
                assert got.tolist() == expected.tolist(), (a, b, names)
