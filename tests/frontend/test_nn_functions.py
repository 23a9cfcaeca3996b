"""Activations, losses, norms and tables of tj.nn against their definitions in NumPy float64.

Every function stands in one table, with its arrays and its definition. In compiled modes one traced function
computes a whole table.
"""

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.samples import assert_close, laid_out
from tests.frontend.test_functions_gradients import away_from_kinks, check

F32, F64 = np.float32, np.float64
expit = scipy.special.expit


def softplus(x):
    return np.logaddexp(x, 0)


def elu(x, alpha=1.0, scale=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / scale))


ACTIVATIONS = {
    "relu6": (tj.nn.relu6, lambda x: np.clip(x, 0, 6)),
    "hard_tanh": (lambda x: tj.nn.hard_tanh(x, -2, 0.5), lambda x: np.clip(x, -2, 0.5)),
    "hard_sigmoid": (tj.nn.hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish": (tj.nn.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "leaky_relu": (lambda x: tj.nn.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": (lambda x: tj.nn.elu(x, 0.5), lambda x: elu(x, 0.5)),
    "celu": (lambda x: tj.nn.celu(x, 2.0), lambda x: elu(x, 2.0, 2.0)),
    "selu": (tj.nn.selu, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    "silu": (tj.nn.silu, lambda x: x * expit(x)),
    "softplus": (lambda x: tj.nn.softplus(x, 2.0), lambda x: softplus(2 * x) / 2),
    "log_sigmoid": (tj.nn.log_sigmoid, lambda x: scipy.special.log_expit(x)),
    "mish": (tj.nn.mish, lambda x: x * np.tanh(softplus(x))),
    "softsign": (tj.nn.softsign, lambda x: x / (1 + np.abs(x))),
    "glu": (tj.nn.glu, lambda x: x[:, :4] * expit(x[:, 4:])),
    "prelu": (lambda x: tj.nn.prelu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
}


@pytest.mark.parametrize("dtype", [F32, F64])
def test_activations(dtype, run):
    x = np.random.default_rng(1).uniform(-8, 8, (5, 8)).astype(dtype)
    found = run(lambda x: {name: function(x) for name, (function, _) in ACTIVATIONS.items()}, tj.asarray(x))
    for name, (_, oracle) in ACTIVATIONS.items():
        assert_close(found[name], oracle(x.astype(F64)).astype(dtype), ulps=16, scale=8)


def test_activations_of_special_values(evaluator):
    x = np.array([[np.nan, np.inf, -np.inf, 1000.0, -1000.0, -0.0, 3.0, -3.0]])
    for name, (function, oracle) in ACTIVATIONS.items():
        if name == "glu":
            continue
        with np.errstate(all="ignore"):
            expected = oracle(x)
        np.testing.assert_allclose(function(tj.asarray(x)).numpy(), expected, rtol=1e-14, err_msg=name)
        gradient = tj.grad(lambda x, f=function: f(x).sum())(tj.asarray(x[:, 3:])).numpy()
        assert np.isfinite(gradient).all(), name


def test_prelu_of_channels(run):
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 3, 4)), rng.normal(size=3)
    expected = np.where(x > 0, x, w[:, None] * x)
    assert_close(run(tj.nn.prelu, tj.asarray(x), tj.asarray(w)), expected)
    np.testing.assert_array_equal(tj.nn.prelu(x[0, :, 0], w).numpy(), expected[0, :, 0])


# ---- losses


def rows_of_cross_entropy(logits, labels, weight, smoothing):
    """PyTorch's losses of class numbers with factors for classes, before reduction."""
    found = scipy.special.log_softmax(logits, -1)
    at_label = np.take_along_axis(found, labels[:, None], -1)[:, 0]
    return -(1 - smoothing) * weight[labels] * at_label - smoothing * (found * weight).mean(-1)


def cosine(x, y):
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    return (x * y).sum(-1) / lengths


def huber(d, delta):
    return np.where(np.abs(d) <= delta, d * d / 2, delta * (np.abs(d) - delta / 2))


def entropy(p, t):
    return -(t * np.maximum(np.log(p), -100) + (1 - t) * np.maximum(np.log1p(-p), -100))


RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(2, 6, 5))
LABELS, WEIGHT = np.array([0, 4, 2, 2, 1, 3]), RNG.uniform(0.5, 2, 5)
P, T = expit(X), RNG.uniform(0, 1, (6, 5))
Q = scipy.special.softmax(Y, -1)

LOSSES = {  # reduced by "none"
    "mse_loss": (X, Y, {}, lambda x, y: (x - y) ** 2),
    "l1_loss": (X, Y, {}, lambda x, y: np.abs(x - y)),
    "huber_loss": (X, Y, {"delta": 0.7}, lambda x, y: huber(x - y, 0.7)),
    "smooth_l1_loss": (X, Y, {"beta": 0.7}, lambda x, y: huber(x - y, 0.7) / 0.7),
    "binary_cross_entropy": (P, T, {"weight": WEIGHT}, lambda p, t: entropy(p, t) * WEIGHT),
    "binary_cross_entropy_with_logits": (X, T, {}, lambda x, t: entropy(expit(x), t)),
    "kl_div": (X, Q, {}, lambda x, q: q * (np.log(q) - x)),
    "nll_loss": (X, LABELS, {"weight": WEIGHT}, lambda x, t: -WEIGHT[t] * x[np.arange(6), t]),
    "cross_entropy": (
        *(X, LABELS, {"weight": WEIGHT, "label_smoothing": 0.1}),
        lambda x, t: rows_of_cross_entropy(x, t, WEIGHT, 0.1),
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction, run):
    def all_losses():
        return {n: getattr(tj.nn, n)(x, y, reduction=reduction, **o) for n, (x, y, o, _) in LOSSES.items()}

    found = run(all_losses)
    for name, (x, y, _, oracle) in LOSSES.items():
        losses = oracle(x, y)
        total = WEIGHT[LABELS].sum() if y is LABELS else losses.size
        expected = {"mean": losses.sum() / total, "sum": losses.sum(), "none": losses}[reduction]
        np.testing.assert_allclose(found[name], expected, rtol=1e-13, err_msg=name)


def test_other_forms_of_losses(evaluator):
    nn = tj.nn
    got = nn.smooth_l1_loss(X, Y, beta=0, reduction="none")
    np.testing.assert_allclose(got.numpy(), np.abs(X - Y))
    got = nn.binary_cross_entropy_with_logits(X, T, pos_weight=WEIGHT, reduction="none").numpy()
    np.testing.assert_allclose(got, -(WEIGHT * T * np.log(expit(X)) + (1 - T) * np.log1p(-expit(X))))
    np.testing.assert_allclose(nn.kl_div(X, np.log(Q), log_target=True), nn.kl_div(X, Q), rtol=1e-13)
    np.testing.assert_allclose(
        float(nn.kl_div(X, Q, reduction="batchmean")), (Q * (np.log(Q) - X)).sum() / 6, rtol=1e-13
    )
    np.testing.assert_allclose(nn.cosine_similarity(X, Y).numpy(), cosine(X, Y), rtol=1e-13)
    np.testing.assert_allclose(nn.cosine_similarity(X, Y[0], axis=1).numpy(), cosine(X, Y[0]), rtol=1e-13)
    assert nn.cosine_similarity(np.zeros(3), np.ones(3)).numpy() == 0
    soft = np.eye(5)[LABELS] * 0.9 + 0.02
    hard = nn.cross_entropy(X, LABELS, label_smoothing=0.1)
    np.testing.assert_allclose(nn.cross_entropy(X, soft).numpy(), hard.numpy(), rtol=1e-13)
    smoothed = nn.cross_entropy(X, np.eye(5)[LABELS], label_smoothing=0.1)
    np.testing.assert_allclose(smoothed.numpy(), hard.numpy(), rtol=1e-13)


@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_ignored_labels(weight, ignored, run):
    labels = np.where([1, 0, 1, 1, 0, 0], LABELS, ignored)
    counts = labels != ignored
    factors = (np.ones(5) if weight is None else WEIGHT)[np.where(counts, labels, 0)] * counts
    found = scipy.special.log_softmax(X, -1)
    rows = -factors * found[np.arange(6), np.where(counts, labels, 0)]
    options = {"weight": weight, "ignore_index": ignored}

    def losses(x, log_p, labels):
        return [tj.nn.cross_entropy(x, labels, **options), tj.nn.nll_loss(log_p, labels, **options)]

    for got in run(losses, *map(tj.asarray, (X, found, labels))):
        np.testing.assert_allclose(got, rows.sum() / factors.sum(), rtol=1e-13)


@pytest.mark.parametrize("label", [-1, 5, -7, 9])
def test_a_label_out_of_range_is_told_as_it_is(label, run):
    labels = np.array([0, label, 1])
    functions = {
        "nn.cross_entropy": lambda x, labels: tj.nn.cross_entropy(x, labels),
        "nn.nll_loss": lambda x, labels: tj.nn.nll_loss(x, labels),
        "nn.embedding": lambda x, labels: tj.nn.embedding(labels, x),
    }
    for name, function in functions.items():
        table = X[: 5 if name == "nn.embedding" else 3]
        with pytest.raises(tj.errors.OutOfBoundsError, match=rf"{name}: label {label} is .*expected 0 to 4"):
            run(function, *map(tj.asarray, (table, labels)))


# ---- norms


def normal(x, axes, epsilon):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_norms(dtype, run):
    rng = np.random.default_rng(4)
    x = (rng.normal(size=(3, 6, 4, 5)) + 3).astype(dtype)
    w, b, w2 = (rng.normal(size=s).astype(dtype) for s in [(6,), (6,), (4, 5)])

    def norms(x, w, b, w2):
        return [
            tj.nn.layer_norm(x, w2, w2, axis=(2, 3)),
            tj.nn.layer_norm(x, w, b, axis=1, epsilon=1e-3),
            tj.nn.rms_norm(x, w2, axis=(-2, -1)),
            tj.nn.group_norm(x, 3, w, b),
            tj.nn.instance_norm(x, w, b),
        ]

    found = run(norms, *(laid_out(rng, a) for a in (x, w, b, w2)))
    x, w, b, w2 = (a.astype(F64) for a in (x, w, b, w2))
    grouped = normal(x.reshape(3, 3, 2, 4, 5), (2, 3, 4), 1e-5).reshape(x.shape)
    w, b = w[:, None, None], b[:, None, None]
    expected = [
        normal(x, (2, 3), 1e-5) * w2 + w2,
        normal(x, 1, 1e-3) * w + b,
        x / np.sqrt((x * x).mean((2, 3), keepdims=True) + 1e-6) * w2,
        grouped * w + b,
        normal(x, (2, 3), 1e-5) * w + b,
    ]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs.astype(dtype), ulps=64, scale=4)


# ---- products and tables


def test_linear(run):
    rng = np.random.default_rng(5)
    x, w, b = (rng.normal(size=s) for s in [(2, 3, 4), (5, 4), (5,)])
    assert_close(run(tj.nn.linear, *(laid_out(rng, a) for a in (x, w, b))), x @ w.T + b, ulps=64, scale=4)
    assert_close(tj.nn.linear(x[0, 0], w).numpy(), w @ x[0, 0], ulps=64, scale=4)


def test_embedding_and_its_gradient(run):
    labels, table = np.array([[0, 2, 2], [4, 0, 2]]), RNG.normal(size=(5, 3))
    factors = RNG.normal(size=(2, 3, 3))

    def both(labels, table):
        return tj.value_and_grad(lambda t: (tj.nn.embedding(labels, t) * factors).sum())(table)

    value, gradient = run(both, tj.asarray(labels), tj.asarray(table))
    np.testing.assert_allclose(value, (table[labels] * factors).sum())
    expected = np.zeros_like(table)
    np.add.at(expected, labels, factors)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
    with pytest.raises(IndexError):
        tj.nn.embedding(tj.asarray([-1]), tj.asarray(table)).numpy()


def test_dropout_when_evaluating(evaluator):
    x = tj.ones(100)
    assert (tj.nn.dropout(x, 0.5, training=False).numpy() == 1).all()


# ---- gradients and errors

GRADIENTS = {
    **{name: function for name, (function, _) in ACTIVATIONS.items()},
    **{
        name: lambda x, n=name, y=y, o=o: getattr(tj.nn, n)(x, y, **o)
        for name, (_, y, o, _) in LOSSES.items()
        if name != "binary_cross_entropy"
    },
    "binary_cross_entropy": lambda x: tj.nn.binary_cross_entropy(tj.sigmoid(x), T),
    "ignored": lambda x: tj.nn.cross_entropy(x, LABELS, ignore_index=2),
    "cosine": lambda x: tj.nn.cosine_similarity(x, Y),
    "layer_norm": lambda x: tj.nn.layer_norm(x, x[0], x[1]),
    "rms_norm": lambda x: tj.nn.rms_norm(x, x[0]),
    "group_norm": lambda x: tj.nn.group_norm(x.reshape((3, 2, 5)), 1),
    "instance_norm": lambda x: tj.nn.instance_norm(x.reshape((3, 2, 5))),
    "linear": lambda x: tj.nn.linear(x, x[:2], x[0, :2]),
    "prelu_weight": lambda x: tj.nn.prelu(x, x[0]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, evaluator):
    rng = np.random.default_rng(6)
    shape = (6, 8) if name == "glu" else (6, 5)
    check(GRADIENTS[name], [away_from_kinks(rng, shape, -3, 3)], rng, rtol=2e-5)


A = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tj.nn.glu(A), tj.errors.ShapeError, "odd extent"),
        (lambda: tj.nn.prelu(A, np.ones(2)), tj.errors.ShapeError, "one for each channel"),
        (lambda: tj.nn.mse_loss(A, A[0]), tj.errors.ShapeError, "target has shape"),
        (lambda: tj.nn.l1_loss(A, A, reduction="max"), tj.errors.ArgumentError, "reduction is"),
        (
            lambda: tj.nn.cross_entropy(A, A, ignore_index=1),
            tj.errors.ArgumentError,
            "ignore_index is for class numbers",
        ),
        (lambda: tj.nn.cross_entropy(A, LABELS[:2], weight=A[0, :2]), tj.errors.ShapeError, "each class"),
        (lambda: tj.nn.layer_norm(A, np.ones(2)), tj.errors.ShapeError, "weight has shape"),
        (lambda: tj.nn.group_norm(A, 2), tj.errors.ShapeError, "groups of equal size"),
        (lambda: tj.nn.linear(A, A[0]), tj.errors.ShapeError, "expected 2 dimensions"),
        (lambda: tj.nn.embedding(A, A), tj.errors.DTypeError, "must be integers"),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_nn_functions.py"):
        call()
