"""`pad` in all modes against NumPy."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some

OPTIONS = {
    "constant": [{}, {"constant_values": 3}, {"constant_values": ((1, 2), (3, 4))}],
    "edge": [{}],
    "wrap": [{}],
    "reflect": [{}, {"reflect_type": "odd"}],
    "symmetric": [{}, {"reflect_type": "odd"}],
    "linear_ramp": [{}, {"end_values": (5, -7)}],
    "maximum": [{}, {"stat_length": 2}],
    "minimum": [{}, {"stat_length": ((1, 2), (3, 99))}],
    "mean": [{}, {"stat_length": 2}],
    "median": [{}, {"stat_length": (2, 3)}],
}
CASES = [(mode, options) for mode, every in OPTIONS.items() for options in every]
WIDTHS = [2, (1, 3), ((0, 2), (5, 9)), ((0, 0), (0, 1)), {1: (2, 1)}, {-2: 1}]


def same(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("mode", "options"), CASES, ids=str)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "float64"])
def test_modes(mode, options, dtype, evaluator):
    array = np.random.default_rng(1).integers(20, 100, (4, 5)).astype(dtype)
    if options.get("end_values"):
        options = {"end_values": (5, 7)}
    for width in WIDTHS:
        expected = np.pad(array, width, mode, **options)
        same(np.pad(tj.asarray(array.T).T, width, mode, **options).numpy(), expected)


@pytest.mark.parametrize(("mode", "options"), CASES, ids=str)
def test_modes_replay(mode, options, run):
    array = np.random.default_rng(2).normal(size=(4, 5))
    x, width = tj.asarray(array), ((1, 2), (6, 0))
    same(run(lambda x: tj.pad(x, width, mode, **options), x), np.pad(array, width, mode, **options))
    traced = tj.jit(lambda x: tj.pad(x, width, mode, **options))
    traced(x), traced(x)
    assert "piecewise" not in traced.explain()


@pytest.mark.parametrize(("mode", "options"), some(CASES, 9, unpack=True), ids=str)
def test_gradients(mode, options):
    rng = np.random.default_rng(3)
    array = rng.normal(size=(3, 4))
    weights = rng.normal(size=(6, 9))

    def loss(x):
        return (tj.pad(x, ((1, 2), (2, 3)), mode, **options) * weights).sum()

    expected = np.zeros((3, 4))
    for at in np.ndindex(3, 4):
        step = np.zeros((3, 4))
        step[at] = 1e-6
        expected[at] = float(loss(tj.asarray(array + step)) - loss(tj.asarray(array - step))) / 2e-6
    np.testing.assert_allclose(tj.grad(loss)(tj.asarray(array)).numpy(), expected, rtol=1e-6, atol=1e-8)


def test_other_arrays():
    empty = tj.pad(tj.ones((2, 3)), 1, "empty")
    assert empty.shape == (4, 5)
    assert empty.numpy()[1:-1, 1:-1].tolist() == np.ones((2, 3)).tolist()
    array = np.array([1 + 2j, 3])
    same(tj.pad(tj.asarray(array), 1, constant_values=5j).numpy(), np.pad(array, 1, constant_values=5j))
    same(tj.pad(tj.asarray(np.zeros((0, 2))), 1).numpy(), np.pad(np.zeros((0, 2)), 1))
    same(tj.pad(tj.asarray([True]), 1, "edge").numpy(), np.array([True] * 3))
    nan = np.array([1, np.nan, 3])
    same(tj.pad(tj.asarray(nan), 1, "median").numpy(), np.pad(nan, 1, "median"))
    same(tj.pad(tj.asarray(nan[:1]), 2, "reflect", reflect_type="odd").numpy(), np.ones(5))


ERRORS = [
    (lambda x: tj.pad(x, 1, "other"), TypeError, "mode is one of"),
    (lambda x: tj.pad(x, 1, lambda *a: None), TypeError, "mode is one of"),
    (lambda x: tj.pad(x, 1, "edge", constant_values=3), TypeError, "does not take constant_values"),
    (lambda x: tj.pad(x, 1, "reflect", reflect_type="x"), TypeError, "reflect_type"),
    (lambda x: tj.pad(x, -1), ValueError, "must not be negative"),
    (lambda x: tj.pad(x, (1, 2, 3)), ValueError, "does not broadcast"),
    (lambda x: tj.pad(x, 1.5), TypeError, "expected an integer"),
    (lambda x: tj.pad(x[:0], 1, "edge"), ValueError, "axis 0 has no elements"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, error, match = ERRORS[case]
    with pytest.raises(error, match=rf"{match}(?s:.*)test_functions_padding") as raised:
        call(tj.ones((3, 4)))
    assert isinstance(raised.value, tj.TracejitError)
