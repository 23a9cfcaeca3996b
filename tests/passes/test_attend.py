"""Attention that is written out: what is found; results and gradients are those of float64."""

import math

import numpy as np
import pytest

import tracejit as tj
from tracejit.passes import attention_patterns as module

ALONE = ["attention", "attention_gradient"]


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(module, "MIN_SCORE_BYTES", 0)


def softmax(scores):
    powers = tj.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def by_root(q, k, v, mask):
    """With the library's softmax; scores are divided."""
    scores = q @ tj.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = tj.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return tj.nn.softmax(scores) @ v


def by_factor(q, k, v, mask):
    """With a softmax of its own; scores are multiplied, masks exchanged."""
    scores = q.shape[-1] ** -0.5 * (q @ tj.swapaxes(k, -1, -2))
    if mask is not None:
        scores = tj.where(~mask, -np.inf, scores) if mask.dtype == bool else mask + scores
    return softmax(scores) @ v


def exact(q, k, v, mask, y):
    """Results and the gradients of ``(result * y).sum()`` in float64."""
    q, k, v, y = (a.astype(float) for a in (q, k, v, y))
    scale = q.shape[-1] ** -0.5
    scores, bools = q @ k.swapaxes(-1, -2) * scale, mask is not None and mask.dtype == bool
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if bools else scores + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        slopes = y @ v.swapaxes(-1, -2)
        slopes = weights * (slopes - (slopes * weights).sum(-1, keepdims=True)) * scale
    slopes = np.where(mask, slopes, 0) if bools else slopes
    return weights @ v, slopes @ k, slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ y


def operators(function, *arrays):
    """The operators of attention, and the products, that a jitted function computes."""
    nodes = [task.node for task in function.plan(*arrays).memory.tasks]
    bodies = [node.attrs["body"].nodes if "body" in node.attrs else [node] for node in nodes]
    names = [node.op.name for body in bodies for node in body]
    return sorted(name for name in names if "attention" in name or name == "matmul")


def with_gradients(attend):
    def loss(q, k, v, y, mask=None):
        result = attend(q, k, v, mask)
        return (result * y).sum(), result

    def both(*operands):
        (_, result), gradients = tj.value_and_grad(loss, (0, 1, 2), has_aux=True)(*operands)
        return (result, *gradients)

    return both


RNG = np.random.default_rng(3)
LEAD, QUERIES, KEYS, FEATURES, VALUES = (2, 3), 50, 130, 5, 12
SOME = RNG.random((QUERIES, KEYS)) < 0.6
NOTHING = SOME & (np.arange(QUERIES) != 3)[:, None]  # query 3 sees no key
MASKS = {
    "none": None,
    "bools": SOME,
    "nothing": NOTHING,
    "row": RNG.random(KEYS) < 0.5,
    "all": RNG.normal(size=(QUERIES, KEYS)).astype("f"),
    "examples": RNG.normal(size=(2, 1, 1, KEYS)).astype("f"),
    "heads": RNG.normal(size=(3, QUERIES, 1)).astype("f") + np.zeros(KEYS, "f"),
    "minus_infinity": np.where(NOTHING, 0, -np.inf).astype("f"),
}


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("attend", [by_root, by_factor])
def test_results_and_gradients(attend, case):
    lead = LEAD if attend is by_root or case in ("examples", "heads") else ()
    shapes = ((QUERIES, FEATURES), (KEYS, FEATURES), (KEYS, VALUES), (QUERIES, VALUES))
    arrays = [RNG.normal(size=(*lead, *s)).astype("f") for s in shapes]
    arrays += [MASKS[case]] if MASKS[case] is not None else []
    expected = exact(*arrays[:3], MASKS[case], arrays[3])
    function, operands = with_gradients(attend), [tj.asarray(a) for a in arrays]
    jitted = tj.jit(function)
    assert operators(jitted, *operands) == ALONE
    for run in (function, jitted, jitted):
        for found, wanted in zip(run(*operands), expected, strict=True):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_second_derivatives_and_vmap():
    rng = np.random.default_rng(4)
    q, k, v, y = (tj.asarray(rng.normal(size=(3, 34, 4)).astype("f")) for _ in range(4))

    def slope(attend):
        def loss(q, k, v):
            return (attend(q, k, v) * y[0]).sum()

        def length(q, k, v):
            return sum((g * g).sum() for g in tj.grad(loss, (0, 1, 2))(q, k, v))

        return tj.vmap(tj.grad(length, (0, 1, 2)))(q, k, v)

    found = slope(lambda *operands: by_root(*operands, None))
    wanted = slope(tj.nn.attention)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_gradients_of_masks_and_weights_are_those_of_the_nodes():
    """Where the matrix is asked for, it is computed; results are the same."""
    rng = np.random.default_rng(5)
    q, k, v, mask = (tj.asarray(rng.normal(size=s).astype("f")) for s in [(40, 4)] * 3 + [(40, 40)])

    def loss(attend):
        return lambda *operands: (attend(*operands) ** 2).sum()

    trained = tj.jit(tj.grad(loss(by_root), (0, 3)))
    assert operators(trained, q, k, v, mask) == 4 * ["matmul"]
    expected = tj.grad(loss(tj.nn.attention), (0, 3))(q, k, v, mask)
    for found, wanted in zip(trained(q, k, v, mask), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    shown = tj.jit(lambda q, k, v: (weights := softmax(q @ k.T), weights @ v))
    assert operators(shown, q, k, v) == 2 * ["matmul"]


OTHERS = {  # what is no attention, or not worth it
    "half": lambda q, k, v: by_root(*(x.astype(np.float16) for x in (q, k, v)), None),
    "columns": lambda q, k, v: tj.nn.softmax(q @ k.T, axis=0) @ v,
    "other_maximum": lambda q, k, v: (e := tj.exp((s := q @ k.T) - s.max(0))) / e.sum(-1, keepdims=True) @ v,
    "other_sum": lambda q, k, v: softmax(s := q @ k.T) / tj.exp(s).sum(-1, keepdims=True) @ v,
    "scaled_by_an_array": lambda q, k, v: tj.nn.softmax(q @ k.T * q[0, 0]) @ v,
    "finite": lambda q, k, v: tj.nn.softmax(tj.where(q[:, :1] > 0, q @ k.T, -1e9)) @ v,
}


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_others_stay_as_they_are(function):
    q, k, v = (tj.asarray(np.random.default_rng(6).normal(size=(40, 4)).astype("f")) for _ in range(3))
    assert "attention" not in operators(tj.jit(function), q, k, v)


def test_few_scores_stay_unless_the_mask_is_causal(monkeypatch):
    monkeypatch.undo()

    def attend(x, causal):
        scores = x @ tj.swapaxes(x, 1, 2)
        masked = tj.where(tj.tri(x.shape[1], dtype=bool), scores, -np.inf) if causal else scores
        return softmax(masked) @ x

    expected = {(8, 128, False): False, (8, 128, True): True, (8, 100, True): False, (64, 128, False): True}
    for (batch, tokens, causal), is_found in expected.items():
        found = operators(tj.jit(lambda x, causal=causal: attend(x, causal)), tj.ones((batch, tokens, 4)))
        assert found == (["attention"] if is_found else ["matmul", "matmul"])


COLUMN, ROW = (lambda n: tj.arange(n)[:, None]), (lambda n: tj.arange(n))
CAUSAL = {
    "tri": lambda s, n: tj.where(tj.tri(n, dtype=bool), s, -np.inf),
    "tril": lambda s, n: tj.where(tj.tril(tj.ones((n, n))) == 0, -np.inf, s),
    "triu": lambda s, n: s + tj.triu(tj.full((n, n), -np.inf), 1),
    "not_less": lambda s, n: tj.where(COLUMN(n) >= ROW(n), s, -np.inf),
    "less": lambda s, n: tj.where((COLUMN(n) < ROW(n))[None], -np.inf, s),
    "later": lambda s, n: tj.where(COLUMN(n) + 1 > ROW(n), s, -np.inf),
    "both": lambda s, n: tj.where(COLUMN(n) >= ROW(n), tj.where(ROW(n) % 3 < 2, s, -np.inf), -np.inf),
}
NEARLY = {
    "more": lambda s, n: tj.where(COLUMN(n) + 1 >= ROW(n), s, -np.inf),
    "turned": lambda s, n: tj.where(COLUMN(n) <= ROW(n), s, -np.inf),
    "half": lambda s, n: tj.where(2 * COLUMN(n) >= ROW(n), s, -np.inf),
    "inverse": lambda s, n: tj.where(COLUMN(n) >= ROW(n), -np.inf, s),
    "finite": lambda s, n: s + tj.triu(tj.full((n, n), -9.0), 1),
    "one": lambda s, n: tj.where((COLUMN(n) >= ROW(n)) & (ROW(n) > 0), s, -np.inf),
}


@pytest.mark.parametrize("case", [*CAUSAL, *NEARLY])
def test_causal_masks_are_known(case):
    q, k, v = (tj.asarray(np.random.default_rng(8).normal(size=(2, 40, 4)).astype("f")) for _ in range(3))
    mask = CAUSAL.get(case) or NEARLY[case]

    def attend(q, k, v):
        return softmax(mask(q @ tj.swapaxes(k, 1, 2), q.shape[1])) @ v

    jitted = tj.jit(attend)
    (node,) = (t.node for t in jitted.plan(q, k, v).memory.tasks if t.node.op.name == "attention")
    assert node.attrs["causal"] == (case in CAUSAL)
    assert (len(node.inputs) == 3) == (case in CAUSAL and case != "both")
    np.testing.assert_allclose(jitted(q, k, v), attend(q, k, v), rtol=1e-4, atol=1e-5)


def test_a_causal_mask_of_the_operator_is_none():
    """Made outside of the gradient, too: the operator is there once."""
    x = tj.asarray(np.random.default_rng(9).normal(size=(40, 4)).astype("f"))

    def step(attend, x):
        mask = tj.tril(tj.ones((len(x), len(x)), dtype=bool))
        return tj.grad(lambda q, k, v: (attend(q, k, v, mask) ** 2).sum(), (0, 1, 2))(x, x + 1, x + 2)

    for attend in (by_factor, tj.nn.attention):
        jitted = tj.jit(lambda x, attend=attend: step(attend, x))
        assert operators(jitted, x) == ALONE
        nodes = [t.node for t in jitted.plan(x).memory.tasks if "attention" in t.node.op.name]
        assert [node.attrs["causal"] for node in nodes] == [True, True]


def test_disabled(monkeypatch):
    monkeypatch.setattr(tj.config, "disable", ("attend",))
    operands = [tj.ones((40, 4)) for _ in range(4)]
    assert operators(tj.jit(with_gradients(by_root)), *operands) == 6 * ["matmul"]


def test_no_matrix_of_scores_is_in_memory():
    operands = [tj.ones((1024, 16)) for _ in range(4)]
    planned = tj.jit(with_gradients(by_root)).plan(*operands).memory.arena_bytes
    assert planned < 12 * 1024 * 16 * 4  # scores take 64 times as much as an operand
