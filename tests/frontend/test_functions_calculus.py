"""Differences and integrals: NumPy is the oracle."""

import numpy as np
import pytest

import tracejit as tj

CASES = [
    ({}, "float32"),
    ({"n": 2}, "int32"),
    ({"n": 0}, "int64"),
    ({"axis": 0}, "float64"),
    ({"axis": 1, "n": 3}, "complex128"),
    ({"prepend": 1}, "int16"),
    ({"append": 2, "axis": 0}, "uint8"),
    ({"prepend": np.zeros((3, 2, 5)), "axis": 1}, "float64"),
    ({"prepend": True, "append": False}, "bool"),
    ({"n": 9}, "float32"),
]


def data(dtype, shape=(3, 4, 5)):
    values = np.random.default_rng(0).normal(size=shape) * 10
    return (values + 1j * values[::-1]).astype(dtype) if "c" in dtype[0] else np.abs(values).astype(dtype)


@pytest.mark.parametrize(("options", "dtype"), CASES)
def test_diff(options, dtype):
    x = data(dtype)
    expected = np.diff(x, **{k: np.asarray(v, x.dtype) if "pend" in k else v for k, v in options.items()})
    traced = tj.jit(lambda x: tj.diff(x, **options))
    for found in (
        tj.diff(tj.asarray(x), **options),
        np.diff(tj.asarray(x), **options),
        traced(tj.asarray(x)),
        traced(tj.asarray(x)),
    ):
        np.testing.assert_array_equal(found.numpy(), expected)
        assert found.dtype == expected.dtype
    assert "piecewise" not in traced.explain()


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3)])
@pytest.mark.parametrize("options", [{}, {"prepend": 1.5}, {"append": 2}])
def test_diff_of_little(shape, options):
    x = np.ones(shape)
    np.testing.assert_array_equal(tj.diff(tj.asarray(x), **options).numpy(), np.diff(x, **options))


def test_diff_of_views_and_its_gradient():
    x = data("float64", (6, 8))[::-2, ::3]
    y = tj.asarray(data("float64", (6, 8)))[::-2, ::3]
    np.testing.assert_array_equal(tj.diff(y, axis=0).numpy(), np.diff(x, axis=0))
    weights = tj.asarray([1.0, 10.0, 100.0], dtype=tj.float64)
    slope = tj.grad(lambda v: (tj.diff(v) * weights).sum())(tj.zeros(4, dtype=tj.float64))
    np.testing.assert_array_equal(slope.numpy(), [-1, -9, -90, 100])


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((tj.ones(3),), {"n": -1}, tj.errors.ArgumentError),
        ((tj.asarray(1.0),), {}, tj.errors.ArgumentError),
        ((tj.ones(3),), {"axis": 2}, tj.errors.AxisError),
        ((tj.ones((3, 2)),), {"prepend": tj.ones((2, 2))}, tj.errors.ShapeError),
    ],
)
def test_diff_refuses(arguments, options, error):
    with pytest.raises(error, match="test_functions_calculus"):
        tj.diff(*arguments, **options)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid(axis):
    y = data("float64")
    points = np.sort(np.random.default_rng(1).normal(size=y.shape[axis]))
    for x, dx in [(None, 1.0), (None, 0.25), (points, 1.0), (data("float64"), 1.0)]:
        expected = np.trapezoid(y, x, dx, axis)
        ours = None if x is None else tj.asarray(x)
        for found in (
            tj.trapezoid(tj.asarray(y), ours, dx, axis),
            np.trapezoid(tj.asarray(y), ours, dx, axis),
        ):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    with pytest.raises(tj.errors.ShapeError, match="2 points"):
        tj.trapezoid(tj.asarray(y), tj.ones(2), axis=axis)
