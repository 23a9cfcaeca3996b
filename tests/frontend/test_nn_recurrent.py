"""Recurrent cells and sequences against their recurrences in NumPy float64."""

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.test_functions_gradients import check
from tests.thorough import some
from tracejit import ops
from tracejit.config import config

BATCH, STEPS, INPUTS, UNITS = 3, 4, 5, 2
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
sigmoid = scipy.special.expit


def parameters(kind, seed=1):
    rng, rows = np.random.default_rng(seed), GATES[kind] * UNITS
    return [rng.normal(size=s) for s in [(rows, INPUTS), (rows, UNITS), (rows,), (rows,)]]


def step(kind, x, state, w, u, b, c):
    """The next state by definition."""
    if kind == "rnn":
        return np.tanh(x @ w.T + b + state @ u.T + c)
    if kind == "lstm":
        hidden, cell = state
        i, f, g, o = np.split(x @ w.T + b + hidden @ u.T + c, 4, -1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(cell), cell
    (r, z, n), (r2, z2, n2) = np.split(x @ w.T + b, 3, -1), np.split(state @ u.T + c, 3, -1)
    z = sigmoid(z + z2)
    return (1 - z) * np.tanh(n + sigmoid(r + r2) * n2) + z * state


def start(kind):
    rng = np.random.default_rng(2)
    state = rng.normal(size=(2, BATCH, UNITS))
    return (state[0], state[1]) if kind == "lstm" else state[0]


X = np.random.default_rng(3).normal(size=(BATCH, STEPS, INPUTS))


def to_arrays(tree):
    return tj.tree.map(tj.asarray, tree)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", GATES)
def test_sequences(kind, reverse, run):
    weights, state = parameters(kind), start(kind)

    def both(x, state, weights):
        cell = getattr(tj.nn, f"{kind}_cell")(x[:, 0], state, *weights)
        return cell, getattr(tj.nn, kind)(x, state, *weights, reverse=reverse)

    cell, (outputs, last) = run(both, *to_arrays((X, state, weights)))
    np.testing.assert_allclose(cell, step(kind, X[:, 0], state, *weights), rtol=1e-12)
    expected = np.zeros((BATCH, STEPS, UNITS))
    for t in range(STEPS)[:: -1 if reverse else 1]:
        state = step(kind, X[:, t], state, *weights)
        expected[:, t] = state[0] if kind == "lstm" else state
    np.testing.assert_allclose(outputs, expected, rtol=1e-11)
    np.testing.assert_allclose(last, state, rtol=1e-11)


@pytest.mark.parametrize("kind", GATES)
def test_without_biases_and_state(kind, evaluator):
    w, u, b, _ = parameters(kind)
    zero = np.zeros((BATCH, UNITS))
    expected = step(kind, X[:, 0], (zero, zero) if kind == "lstm" else zero, w, u, b * 0, b * 0)
    got = tj.tree.map(lambda a: a.numpy(), getattr(tj.nn, f"{kind}_cell")(X[:, 0], None, w, u))
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    got = getattr(tj.nn, f"{kind}_cell")(X[0, 0].astype(np.float32), None, w.astype(np.float32), u)
    np.testing.assert_allclose(
        tj.tree.leaves(got)[0].numpy(), np.asarray(tj.tree.leaves(expected)[0])[0], rtol=1e-5
    )


@pytest.mark.parametrize("kind", GATES)
def test_gradients(kind, evaluator):
    def outputs(x, *weights):
        return getattr(tj.nn, kind)(x, None, *weights)[0]

    check(outputs, [X[:2, :3], *parameters(kind)], np.random.default_rng(4), rtol=2e-5)


@pytest.mark.parametrize("kind", some(GATES, 1))
def test_gradients_of_many_steps(kind):
    """Of few examples, so that the products of the steps are stacked."""
    rng, units, rows = np.random.default_rng(6), 3, 3 * GATES[kind]
    arrays = [rng.normal(size=s) for s in [(1, 6, 2), (rows, 2), (rows, units), (rows,), (rows,)]]

    def outputs(x, *weights):
        return getattr(tj.nn, kind)(x, None, *weights)[0]

    check(outputs, arrays, rng, rtol=2e-5)


@pytest.mark.parametrize("kind", some(GATES, 1))
def test_long_sequences_are_loops_of_the_same_bits(kind, monkeypatch):
    """Forward and backward, with rows of gradients stored in rounds, and one product for the weight."""
    steps, units, rng = 40, 16, np.random.default_rng(7)
    rows = units * GATES[kind]
    shapes = [(8, steps, 6), (rows, 6), (rows, units), (rows,)]
    arrays = [tj.asarray(rng.normal(size=s).astype("float32") / 4) for s in shapes]

    sequence = getattr(tj.nn, kind)

    def loss(x, *weights):
        return (sequence(x, None, *weights)[0] ** 2).sum()

    def gradients():
        traced = tj.jit(tj.grad(loss, argnums=(0, 1, 2, 3)), strict=True)
        found = [[g.numpy() for g in traced(*arrays)] for _ in range(2)]
        np.testing.assert_equal(*found)
        return found[0], [task.node for task in traced.schedules()[0].plan.tasks]

    rolled, tasks = gradients()
    loops = [node for node in tasks if node.op is ops.loop]
    assert len(loops) >= 2
    inner = [n for node in loops for n in node.attrs["body"].nodes if n.op in (ops.add, ops.matmul)]
    assert not {(rows, units), (8, steps, rows)} & {n.output.type.shape for n in inner}  # whole gradients
    monkeypatch.setattr(config, "disable", frozenset({"roll"}))
    unrolled, tasks = gradients()
    assert all(node.op is not ops.loop for node in tasks)
    for one, other in zip(rolled, unrolled, strict=True):
        np.testing.assert_array_equal(one, other)


def test_relu(evaluator):
    w, u, b, c = parameters("rnn")
    got = tj.nn.rnn_cell(X[:, 0], None, w, u, b, c, nonlinearity="relu").numpy()
    np.testing.assert_allclose(got, np.maximum(X[:, 0] @ w.T + b + c, 0), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w, u: tj.nn.lstm(X[0], None, w, u), tj.errors.ShapeError, "expected 3 dimensions"),
        (lambda w, u: tj.nn.lstm(X[:, :0], None, w, u), tj.errors.ShapeError, "no step"),
        (lambda w, u: tj.nn.gru(X, None, w, u), tj.errors.ShapeError, r"3 \* units, units"),
        (lambda w, u: tj.nn.lstm(X, X, w, u), tj.errors.ArgumentError, r"a pair \(hidden, cell\)"),
        (lambda w, u: tj.nn.lstm(X, (X, X), w, u), tj.errors.ShapeError, "state has shape"),
        (
            lambda w, u: tj.nn.rnn_cell(X, None, w[:2], u[:2], nonlinearity="x"),
            tj.errors.ArgumentError,
            "nonlinearity",
        ),
        (lambda w, u: tj.nn.lstm_cell(X[..., 1:], None, w, u), tj.errors.ShapeError, "for an input_weight"),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_nn_recurrent.py"):
        call(*parameters("lstm")[:2])
