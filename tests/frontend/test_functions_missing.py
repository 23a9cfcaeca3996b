"""Reductions that leave nan out, against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.test_functions_gradients import check as gradients
from tests.frontend.test_functions_quantiles import agrees, data

MASK = np.random.default_rng(3).random((3, 5, 4)) < 0.6
REDUCTIONS = ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    extra = {"initial": 0.5} if name in ("nansum", "nanprod", "nanmax", "nanmin") else {}
    for x in (data("float32", with_nan=True), data(with_nan=True) * 0.1, data("int16"), data() > 0):
        for axis in (None, 1, (0, 2)):
            agrees(name, x, axis=axis, traces=axis == 1 and x.dtype == np.float32, tolerance=2e-5)
        agrees(name, x, axis=-1, keepdims=True, where=MASK, traces=False, tolerance=2e-5, **extra)
    if name in ("nanvar", "nanstd"):
        agrees(name, data(with_nan=True), axis=1, ddof=3, traces=False)
        agrees(name, data(with_nan=True), axis=1, correction=1, mean=np.ones((3, 1, 4)), traces=False)
    if name not in ("nanmax", "nanmin"):
        agrees(name, data(with_nan=True) * 0.1 * (1 + 2j), axis=0, traces=False)
        agrees(name, data("float32", with_nan=True), axis=0, dtype="float64", traces=False, tolerance=1e-6)


@pytest.mark.parametrize("name", ["nancumsum", "nancumprod"])
def test_running_results(name):
    for x in (data(with_nan=True) * 0.1, data("int8")):
        for axis in (None, 0, -1):
            agrees(name, x, axis=axis, traces=axis == 0)


@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_positions(name):
    x = data(with_nan=True)
    x[:, :, 2] = 7
    x[0, 1, 0] = x[0, 1, 3] = 2
    for axis in (None, 1, -1):
        agrees(name, x, axis=axis, traces=axis == 1)
        agrees(name, np.nan_to_num(x), axis=axis, keepdims=True, traces=False)
    function = getattr(tj, name)
    step = tj.jit(lambda x: function(x, axis=1) + 1, strict=True)
    assert step(tj.asarray([[1.0, tj.nan]])).item() == 1
    for call in (step, lambda x: function(x)):
        with pytest.raises(tj.errors.OutOfBoundsError, match=rf"{name}: (?s:.*)test_functions_missing"):
            call(tj.asarray([[tj.nan, tj.nan]])).wait()
    with pytest.raises(tj.errors.ShapeError, match="no elements"):
        function(tj.zeros(0))


def test_gradients_do_not_meet_nan():
    rng = np.random.default_rng(4)
    x = rng.permutation(24).reshape(4, 6) / 7.0
    hole = np.zeros((4, 6))
    hole[1, 2:] = hole[3, 0] = np.nan
    for name in ("nanprod", "nanmean", "nanvar", "nanmax", "nancumprod"):
        function = getattr(tj, name)
        if name in ("nanvar", "nanmax"):
            gradients(lambda x, f=function: f(tj.where(tj.isnan(hole), tj.nan, x), axis=1), [x], rng)
        slope = tj.grad(lambda x, f=function: f(x, axis=1).sum())(tj.asarray(x + hole))
        assert not tj.isnan(slope).any(), name


def test_bad_arguments_are_refused():
    x = tj.ones((2, 3))
    with pytest.raises(tj.errors.AxisError, match=r"axis 2(?s:.*)test_functions_missing"):
        tj.nansum(x, axis=2)
    with pytest.raises(tj.errors.ArgumentError, match="where leaves elements out"):
        tj.nanmax(x, where=x > 1)
    with pytest.raises(tj.errors.ShapeError, match="nanmean: where of shape"):
        tj.nanmean(x, where=tj.ones((4, 2, 3)))
    with pytest.raises(tj.errors.ArgumentError, match="correction and ddof"):
        tj.nanstd(x, ddof=1, correction=1)
