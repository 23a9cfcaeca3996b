"""tj.nn against SciPy, PyTorch's definitions written in NumPy float64, and extreme inputs."""

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.samples import assert_close, laid_out, sample

F32, F64 = np.float32, np.float64


def gelu(x):
    return x * scipy.special.ndtr(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "relu": (tj.nn.relu, lambda x: np.maximum(x, 0)),
    "sigmoid": (tj.nn.sigmoid, scipy.special.expit),
    "tanh": (tj.nn.tanh, np.tanh),
    "gelu": (tj.nn.gelu, gelu),
    "gelu_tanh": (lambda x: tj.nn.gelu(x, approximate="tanh"), gelu_tanh),
}


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype, run):
    function, oracle = ACTIVATIONS[name]
    x = sample(np.random.default_rng(1), (7, 33), dtype, low=-6, high=6)
    assert_close(run(function, tj.asarray(x)), oracle(x.astype(F64)).astype(dtype), scale=8)


def test_activations_of_special_values(run):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 100.0, -100.0], F32)
    with np.errstate(all="ignore"):
        assert_close(run(tj.nn.relu, tj.asarray(x)), np.maximum(x, 0))
        assert_close(run(tj.nn.sigmoid, tj.asarray(x)), scipy.special.expit(x.astype(F64)).astype(F32))
        assert_close(run(tj.nn.gelu, tj.asarray(x[3:])), gelu(x[3:].astype(F64)).astype(F32))


def test_integers_become_floats(evaluator):
    assert tj.nn.softmax(tj.asarray([1, 2])).dtype == F64
    assert tj.nn.relu(tj.asarray([-1, 2])).dtype == np.int64


SOFTMAXES = {"softmax": scipy.special.softmax, "log_softmax": scipy.special.log_softmax}


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax(name, dtype, run):
    rng = np.random.default_rng(2)
    cases = [((4, 9), -1), ((2, 3, 5), (0, 2)), ((4, 9), 0), ((2, 3, 5), 1), ((6,), None), ((1, 1), 1)]
    for shape, axis in run.some(cases):
        x = sample(rng, shape, dtype, low=-30, high=30)
        got = run(lambda x, axis=axis: getattr(tj.nn, name)(x, axis), laid_out(rng, x))
        assert_close(got, SOFTMAXES[name](x.astype(F64), axis).astype(dtype), ulps=32, scale=30)


def test_softmax_of_extremes(run):
    x = np.array([[1e30, 0, -1e30], [-np.inf, 0, 0], [3e38, 3e38, -np.inf]], F32)
    np.testing.assert_allclose(run(tj.nn.softmax, tj.asarray(x)), [[1, 0, 0], [0, 0.5, 0.5], [0.5, 0.5, 0]])


def test_logsumexp(run):
    rng = np.random.default_rng(3)
    for axis, keepdims in run.some([(1, False), (None, False), (0, True), ((0, 1), True)]):
        x = sample(rng, (4, 7), F64, low=-50, high=50)
        got = run(lambda x, a=axis, k=keepdims: tj.nn.logsumexp(x, a, keepdims=k), laid_out(rng, x))
        assert_close(got, scipy.special.logsumexp(x, axis, keepdims=keepdims), ulps=16)
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [-np.inf, 1], [1e308, 1e308], [np.nan, 0]])
    with np.errstate(all="ignore"):
        expected = scipy.special.logsumexp(x, axis=1)
    np.testing.assert_allclose(run(lambda x: tj.nn.logsumexp(x, 1), tj.asarray(x)), expected, rtol=1e-14)


def test_one_hot(run):
    labels = np.array([[0, 2], [3, 1]])
    got = run(lambda i: tj.nn.one_hot(i, 4), tj.asarray(labels))
    np.testing.assert_array_equal(got, np.eye(4, dtype=F32)[labels])
    assert got.dtype == F32
    first = run(lambda i: tj.nn.one_hot(i, 4, axis=0, dtype=tj.int8), tj.asarray(labels.astype(np.uint8)))
    np.testing.assert_array_equal(first, np.moveaxis(np.eye(4, dtype=np.int8)[labels], -1, 0))
    np.testing.assert_array_equal(run(lambda i: tj.nn.one_hot(i, 2), tj.asarray([-1, 2])), np.zeros((2, 2)))
    with pytest.raises(tj.errors.DTypeError, match=r"labels must be integers(?s:.*)test_nn"):
        tj.nn.one_hot(tj.ones(2), 2)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_cross_entropy(axis, reduction, run):
    rng = np.random.default_rng(4)
    logits = sample(rng, (5, 6, 7), F64, low=-20, high=20)
    classes = logits.shape[axis]
    labels = rng.integers(0, classes, np.delete(logits.shape, axis))
    rows = -np.take_along_axis(
        scipy.special.log_softmax(logits, axis), np.expand_dims(labels, axis), axis
    ).squeeze(axis)
    expected = {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](rows)

    def loss(x, t):
        return tj.nn.cross_entropy(x, t, axis=axis, reduction=reduction)

    assert_close(run(loss, laid_out(rng, logits), tj.asarray(labels)), expected, ulps=64)
    probabilities = np.moveaxis(np.eye(classes)[labels], -1, axis)
    assert_close(run(loss, tj.asarray(logits), tj.asarray(probabilities)), expected, ulps=64)


def test_cross_entropy_of_large_logits(run):
    logits = np.array([[1e4, 0, 0], [0, 1e4, 0], [-1e308, 0, 1e308]])
    got = run(
        lambda x, t: tj.nn.cross_entropy(x, t, reduction="none"), tj.asarray(logits), tj.asarray([0, 0, 2])
    )
    np.testing.assert_allclose(got, [0, 1e4, 0])


@pytest.mark.parametrize("label", [3, -1])
def test_labels_out_of_range_fail(label, run):
    def look(x, t):
        return tj.nn.cross_entropy(x, t).numpy()

    with pytest.raises(IndexError, match="test_nn"):
        run(look, tj.ones((2, 3)), tj.asarray([0, label]))


def test_errors():
    logits = tj.ones((2, 3))
    with pytest.raises(tj.errors.ShapeError, match=r"labels of shape \(3,\) for logits of shape \(2, 3\)"):
        tj.nn.cross_entropy(logits, tj.asarray([0, 1, 2]))
    with pytest.raises(tj.errors.ArgumentError, match="reduction"):
        tj.nn.cross_entropy(logits, tj.asarray([0, 1]), reduction="max")
    with pytest.raises(tj.errors.ArgumentError, match="approximate"):
        tj.nn.gelu(logits, approximate="erf")
    for rate in (-0.1, 1, 1.0):
        with pytest.raises(tj.errors.ArgumentError, match="rate"):
            tj.nn.dropout(logits, rate)


def test_dropout(run):
    tj.random.seed(3)
    drop = tj.jit(tj.nn.dropout) if run.mode == "jit" else tj.nn.dropout
    got = drop(tj.ones((100, 100)), 0.25).numpy()
    assert set(np.unique(got)) == {F32(0), F32(1 / 0.75)}
    assert abs((got == 0).mean() - 0.25) < 0.02
