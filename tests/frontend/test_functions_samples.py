"""Averages, covariances, slopes, interpolation, convolution, angles against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_functions_gradients import check as gradients
from tests.frontend.test_functions_quantiles import agrees, close, data

RNG = np.random.default_rng(0)
OBSERVATIONS = RNG.normal(size=(3, 4)) * 10
WEIGHTS = RNG.random((3, 4))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex128"])
def test_average(dtype):
    x = OBSERVATIONS.astype(dtype)
    for returned in (False, True):
        agrees("average", x, 1, returned=returned, traces=False)
        traces = returned and dtype == "float64"
        agrees("average", x, 1, WEIGHTS[0], returned, keepdims=True, traces=traces)
        agrees("average", x, (1, 0), WEIGHTS.T.copy(), returned, traces=False)
        agrees("average", x, None, WEIGHTS.astype("float32"), returned, traces=False)
    agrees("average", x > 0 if dtype != "complex128" else x, traces=False)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex128"])
def test_covariance(dtype):
    x, counts = OBSERVATIONS.astype(dtype), np.array([1, 2, 0, 3])
    for options in (
        {"rowvar": False},
        {"bias": True},
        {"ddof": 2},
        {"fweights": counts},
        {"aweights": WEIGHTS[0], "ddof": 0},
        {"aweights": WEIGHTS[0], "fweights": counts},
    ):
        agrees("cov", x, traces=dtype == "float64" and "fweights" in options, **options)
    agrees("cov", x, x[:1] * 2, traces=False)
    agrees("cov", x[0], traces=False)
    for args in ((x,), (x[0], x[1]), (x[0],)):
        agrees("corrcoef", *args, traces=len(args) == 1 and dtype == "float64")
    agrees("cov", OBSERVATIONS.astype("float32"), dtype="float32", traces=False)


def test_ptp():
    for x in (OBSERVATIONS, OBSERVATIONS.astype("int8")):
        for options in ({}, {"axis": 0, "keepdims": True}, {"axis": (0, 1)}):
            agrees("ptp", x, traces=False, **options)


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128"])
def test_gradient(dtype, edge_order):
    x, option = data(dtype) if dtype != "complex128" else data() * (1 + 2j), {"edge_order": edge_order}
    uneven = [np.array([0, 1.5, 2]), np.array([0, 1, 3, 4, 9]), np.array([1.0, 2, 4, 4.5])]
    agrees("gradient", x, traces=False, **option)
    agrees("gradient", x, *uneven, traces=dtype == "float32" and edge_order == 2, **option)
    agrees("gradient", x, 2.0, traces=False, **option)
    agrees("gradient", x, 0.5, uneven[1], axis=(2, 1), traces=False, **option)


def test_ediff1d():
    for x in (np.array([1, 4, 9, 3]), np.ones((2, 2), "float32"), np.zeros(0), np.array([3.0])):
        agrees("ediff1d", x, traces=x.size == 4)
        agrees("ediff1d", x, np.array([1, 2], x.dtype), np.array([7], x.dtype), traces=False)


def test_unwrap():
    angles = (np.cumsum(RNG.normal(size=(4, 30)), 1) * 3 + np.pi) % (2 * np.pi) - np.pi
    for x in (angles, angles.astype("float32")):
        agrees("unwrap", x, traces=x.dtype == np.float32)
        agrees("unwrap", x, 4.0, 0, traces=False)
        agrees("unwrap", x, period=3.0, traces=False)
    whole = np.array([0, 3, 6, 1, 4, 8, -3])
    for period in (7, 8):
        agrees("unwrap", whole, period=period, traces=period == 8)


def test_interp():
    xp, fp = np.sort(RNG.normal(size=6) * 3), RNG.normal(size=6)
    x = np.concatenate([RNG.normal(size=9) * 4, xp, [np.nan]])
    agrees("interp", x, xp, fp, traces=False)
    agrees("interp", x.astype("float32"), xp.astype("float32"), fp.astype("float32"), left=-1, right=7.5)
    agrees("interp", x, xp, fp * 1j, traces=False)
    agrees("interp", x, xp[::-1].copy(), fp, period=3.0)
    agrees("interp", x, np.array([1, 1, 2, 2]), np.arange(4), traces=False)
    agrees("interp", x[:-1], xp[:1], fp[:1], traces=False)
    close(tj.interp([0.1, 2.5], [0, 1.1, 3], [3, 2, 0.3]), np.interp([0.1, 2.5], [0, 1.1, 3], [3, 2, 0.3]))
    close(tj.interp(tj.asarray(2.5), xp, fp), np.interp(2.5, xp, fp))


SEQUENCES = [
    RNG.normal(size=7),
    RNG.integers(0, 9, 6),
    RNG.normal(size=4) + 1j * RNG.normal(size=4),
    RNG.random(5) > 0.5,
    np.ones(1, "float32"),
]


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolution(name):
    for a in SEQUENCES:
        for v in SEQUENCES:
            for mode in ("full", "same", "valid"):
                traces = a is SEQUENCES[0] and v is SEQUENCES[1]
                agrees(name, a, v, mode, traces=traces, tolerance=1e-6)


def test_gradients():
    weights = RNG.random(4)
    gradients(lambda x, w: tj.average(x, 1, w), [OBSERVATIONS, weights], RNG)
    gradients(lambda x: tj.cov(x, aweights=weights), [OBSERVATIONS / 10], RNG)
    gradients(lambda x, v: tj.correlate(x, v, "full"), [RNG.normal(size=5), RNG.normal(size=3)], RNG)
    gradients(lambda x: tj.gradient(x, tj.asarray([0.0, 1, 3, 4]), edge_order=2), [weights], RNG)
    points = np.array([0, 0.9, 2.1, 3])
    gradients(tj.interp, [np.array([-0.5, 0.3, 1.2, 2.7]), points, weights], RNG)


ARGUMENT, SHAPE, DTYPE = tj.errors.ArgumentError, tj.errors.ShapeError, tj.errors.DTypeError


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tj.average(x, 1, [0, 0, 0]), ARGUMENT, "add up to 0"),
        (lambda x: tj.average(x, None, [1, 2, 3]), ARGUMENT, "name the axis"),
        (lambda x: tj.average(x, 0, [1, 2, 3]), SHAPE, "do not fit axis 0"),
        (lambda x: tj.ptp(x > 0), DTYPE, "subtract"),
        (lambda x: tj.cov(x[None]), SHAPE, "at most two dimensions"),
        (lambda x: tj.cov(x, fweights=[1.5, 1, 1]), ARGUMENT, "fweights must be integers"),
        (lambda x: tj.cov(x, aweights=[-1, 1, 1]), ARGUMENT, "must not be negative"),
        (lambda x: tj.cov(x, aweights=[1, 1]), SHAPE, "for 3 observations"),
        (lambda x: tj.cov(x, ddof=0.5), ARGUMENT, "ddof"),
        (lambda x: tj.gradient(x[:1]), SHAPE, "at least 2"),
        (lambda x: tj.gradient(x, edge_order=3), ARGUMENT, "edge_order is 1 or 2"),
        (lambda x: tj.gradient(x, 1, 2, 3), ARGUMENT, "3 spacings for 2 axes"),
        (lambda x: tj.gradient(x, [1, 2, 3], axis=0), SHAPE, "3,. for 2 points"),
        (lambda x: tj.ediff1d(tj.asarray([1, 2]), 0.5), DTYPE, "to_end of float32"),
        (lambda x: tj.unwrap(x, axis=2), tj.errors.AxisError, "axis 2"),
        (lambda x: tj.interp(x, [1, 2], [1]), SHAPE, "both need one dimension, and agree"),
        (lambda x: tj.interp(x, [], []), ARGUMENT, "no points"),
        (lambda x: tj.interp(x, [1, 2], [1, 2], period=0), ARGUMENT, "period"),
        (lambda x: tj.convolve(x, [1]), SHAPE, "one dimension"),
        (lambda x: tj.convolve(x[0], []), SHAPE, "at least one element"),
        (lambda x: tj.correlate(x[0], [1], "wrap"), ARGUMENT, "not 'wrap'"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(tj.ones((2, 3)))
    assert __file__ in str(caught.value)
