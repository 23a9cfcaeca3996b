"""Gradients of every public function against central differences in float64."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import thorough
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS
from tracejit.ir.op import OPS

DOMAINS = {
    "acosh": (1.2, 3.0),
    "atanh": (-0.9, 0.9),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "log": (0.2, 3.0),
    "log2": (0.2, 3.0),
    "log10": (0.2, 3.0),
    "log1p": (-0.8, 3.0),
    "sqrt": (0.2, 3.0),
    "pow": (0.2, 3.0),
    "reciprocal": (0.3, 3.0),
    "divide": (0.3, 3.0),
    "floor_divide": (0.3, 3.0),
    "tan": (-1.2, 1.2),
}
COMPOSED = ("where", "clip", "positive", "stop_gradient", "complex")
DIFFERENTIABLE = sorted(name for name in FUNCTIONS if name not in COMPOSED and OPS[name].gradient is not None)


def away_from_kinks(rng, shape, low, high):
    """Distinct values that stay clear of integers and halves, where some functions jump."""
    values = rng.uniform(low, high, shape)
    return np.where(np.abs(values * 2 - np.round(values * 2)) < 0.02, values + 0.03, values)


def central_differences(function, arrays, weights, step=1e-6):
    """The gradient of sum(weights * function(*arrays)) with respect to each array."""
    gradients = []
    for index, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            totals = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[index][place] += sign * step
                totals.append(float(np.sum(weights * function(*map(tj.asarray, moved)).numpy())))
            gradient[place] = (totals[0] - totals[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


def check(function, arrays, rng, call=lambda f, *a: f(*a), rtol=2e-6):
    weights = rng.uniform(0.5, 1.5, function(*map(tj.asarray, arrays)).shape)

    def loss(*xs):
        return tj.sum(function(*xs) * weights)

    argnums = tuple(range(len(arrays)))
    got = call(tj.grad(loss, argnums), *map(tj.asarray, arrays))
    expected = central_differences(function, arrays, weights)
    for ours, theirs in zip(got, expected, strict=True):
        ours = np.asarray(ours)
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=2e-8)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_elementwise(name, evaluator):
    rng = np.random.default_rng(1)
    low, high = DOMAINS.get(name, (-2.0, 2.0))
    shapes = [(2, 3), (3,)][: OPS[name].arity]
    check(FUNCTIONS[name], [away_from_kinks(rng, s, low, high) for s in shapes], rng)


INDEX = np.array([[2, 0], [2, 1]])
LABELS = np.array([0, 3, 1])
FUNCTIONS_OF_ONE = {
    "sum": lambda x: tj.sum(x, 0),
    "prod": lambda x: tj.prod(x, 1),
    "max": lambda x: tj.max(x, 1),
    "min": lambda x: tj.min(x),
    "mean": lambda x: tj.mean(x, 0, keepdims=True),
    "var": lambda x: tj.var(x, 1, correction=1),
    "std": lambda x: tj.std(x, 0),
    "cumulative_sum": lambda x: tj.cumulative_sum(x, 1, include_initial=True),
    "reshape": lambda x: tj.reshape(x.T, (2, 6)),
    "transpose": lambda x: x.T * 2,
    "flip": lambda x: tj.flip(x, 1),
    "roll": lambda x: tj.roll(x, 2, 1),
    "expand": lambda x: tj.squeeze(tj.expand_dims(x, 1)),
    "broadcast": lambda x: tj.broadcast_to(x, (2, 3, 4)),
    "concat": lambda x: tj.concat([x, x * x], axis=1),
    "stack": lambda x: tj.stack([x[0], x[1] * 2]),
    "tril": lambda x: tj.tril(x),
    "take": lambda x: tj.take(x, INDEX, axis=1),
    "take_flat": lambda x: tj.take(x, tj.asarray(INDEX)),
    "index": lambda x: x[[0, 2, 0], 1:],
    "slice": lambda x: x[::-2, 1:3],
    "where": lambda x: tj.where(x > 0, x * x, tj.sin(x)),
    "clip": lambda x: tj.clip(x, -0.51, 0.52),
    "outer": lambda x: tj.outer(x[0], x[1]),
    "vecdot": lambda x: tj.vecdot(x, x[1]),
    "tensordot": lambda x: tj.tensordot(x, x, axes=((0, 1), (0, 1))),
    "matmul": lambda x: x @ x.T,
    "matvec": lambda x: x @ x[0],
    "assign": lambda x: assigned(x),
    "relu": tj.nn.relu,
    "sigmoid": tj.nn.sigmoid,
    "gelu": tj.nn.gelu,
    "gelu_tanh": lambda x: tj.nn.gelu(x, approximate="tanh"),
    "softmax": lambda x: tj.nn.softmax(x),
    "log_softmax": lambda x: tj.nn.log_softmax(x, 0),
    "logsumexp": lambda x: tj.nn.logsumexp(x, 1),
    "cross_entropy": lambda x: tj.nn.cross_entropy(x, LABELS),
    "cross_entropy_rows": lambda x: tj.nn.cross_entropy(x, LABELS, reduction="none"),
    "cross_entropy_probabilities": lambda x: tj.nn.cross_entropy(x, np.full((3, 4), 0.25)),
}


def assigned(x):
    """Assignment to slices of a copy."""
    y = x.copy()
    y[1:] = y[:-1] * 2
    y[0, ::2] += x[2, 1::2]
    y[..., 0] = 1.5
    return y * y


@pytest.mark.parametrize("name", FUNCTIONS_OF_ONE)
def test_functions_of_one_array(name, evaluator):
    rng = np.random.default_rng(2)
    check(FUNCTIONS_OF_ONE[name], [away_from_kinks(rng, (3, 4), -2, 2)], rng)


@pytest.mark.parametrize(
    ("first", "second"), [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3, 2))]
)
def test_matmul(first, second, evaluator):
    rng = np.random.default_rng(3)
    check(tj.matmul, [rng.normal(size=first), rng.normal(size=second)], rng)


@pytest.mark.parametrize(
    "name", ["prod", "softmax", "cross_entropy", "var", "take", "assign", "gelu", "matmul", "max"]
)
def test_in_all_modes(name, run):
    rng = np.random.default_rng(4)
    arrays = [away_from_kinks(rng, (3, 4), -2, 2)]
    check(FUNCTIONS_OF_ONE[name], arrays, rng, call=run)


@thorough
def test_eager_gradients_of_long_programs_keep_numbers_too():
    """More nodes than a recording holds, so the backward pass reads values and numbers of flushed ones."""

    def loss(x):
        y = x
        for i in range(14):
            y = tj.sin(y) / (i + 2) + y * 0.5 + x**3 / 5
        return (y * y).sum() / 7

    def slope(x):
        return (tj.grad(loss)(x) ** 2).sum()

    x = tj.linspace(0.1, 0.9, 5, dtype=tj.float64)
    for function in (loss, slope):
        gradient = tj.grad(function)(x).numpy()
        np.testing.assert_allclose(gradient, tj.jit(tj.grad(function))(x).numpy(), rtol=1e-9)
        for direction in (np.eye(5)[1], np.array([1.0, -2.0, 0.5, 3.0, -1.0])):
            h = tj.asarray(1e-5 * direction)
            central = (float(function(x + h)) - float(function(x - h))) / 2e-5
            np.testing.assert_allclose(gradient @ direction, central, rtol=1e-5, atol=1e-9)


def test_a_power_of_zero_has_no_gradient_wherever_its_base_is():
    x, p = tj.asarray([np.inf, -np.inf, 0.0, 2.0]), tj.asarray([0.0, 0.0, 0.0, 3.0])
    for gradient in (tj.grad(lambda x: (x**p).sum()), tj.jit(tj.grad(lambda x: (x**p).sum()))):
        assert gradient(x).tolist() == [0.0, 0.0, 0.0, 12.0]
