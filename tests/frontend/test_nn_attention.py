"""Attention against its definition with a whole matrix of scores, in one block of rows and in several."""

import numpy as np
import pytest
import scipy.special

import tracejit as tj
from tests.frontend.samples import laid_out
from tests.frontend.test_functions_gradients import check
from tests.thorough import some
from tracejit.frontend.arrays import trees
from tracejit.nn import attend as module


def by_definition(q, k, v, mask=None, causal=False, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    hidden = np.isneginf(scores).all(-1, keepdims=True)
    return np.where(hidden, 0, scipy.special.softmax(np.where(hidden, 0, scores), -1)) @ v


RNG = np.random.default_rng(1)
QUERY, KEY, VALUE = (RNG.normal(size=s) for s in [(2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)])
SEEN = RNG.random((2, 1, 7, 9)) < 0.5
SEEN[0, 0, 2] = False
CASES = {
    "plain": {},
    "scale": {"scale": 0.3},
    "causal": {"causal": True},
    "mask": {"mask": SEEN},
    "bias": {"mask": RNG.normal(size=(3, 7, 9))},
    "one_row": {"mask": RNG.random(9) < 0.8},
    "causal_bias": {"causal": True, "mask": RNG.normal(size=(7, 1))},
    "causal_mask": {"causal": True, "mask": SEEN | np.eye(7, 9, dtype=bool)},
}


@pytest.fixture(params=[1, module.BLOCK], ids=["blocks", "one_block"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", request.param)
    monkeypatch.setattr(module, "MAX_BLOCKS", 3)
    if request.param == 1:
        monkeypatch.setattr(module, "_has_kernel", lambda *operands: False)


def attend(case, q, k, v):
    options = dict(CASES[case])
    return tj.nn.attention(q, k, v, options.pop("mask", None), **options)


@pytest.mark.parametrize("dtype", some([np.float32, np.float64], 1))
def test_against_the_definition(dtype, blocks, run):
    if run.mode == "eager" and dtype == np.float64:
        return  # compiles as much again as in float32
    arrays = [a.astype(dtype) for a in (QUERY, KEY, VALUE)]
    found = run(lambda *a: {case: attend(case, *a) for case in CASES}, *(laid_out(RNG, a) for a in arrays))
    for case, options in CASES.items():
        expected = by_definition(*(a.astype(np.float64) for a in arrays), **options)
        np.testing.assert_allclose(found[case], expected, atol=16 * np.finfo(dtype).eps, err_msg=case)
        assert found[case].dtype == dtype


@pytest.mark.parametrize("case", CASES)
def test_gradients(case, evaluator, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 1)
    monkeypatch.setattr(module, "MAX_BLOCKS", 2)
    options = dict(CASES[case])
    mask = options.pop("mask", None)
    if mask is not None:
        monkeypatch.setattr(module, "_has_kernel", lambda *operands: False)
        mask = mask[:1] if mask.ndim == 4 else mask
    arrays = [a[:1, :, :, :2] for a in (QUERY, KEY, VALUE)]
    check(lambda *a: tj.nn.attention(*a, mask, **options), arrays, np.random.default_rng(2), rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [None, (150, 170), (2, 1, 1, 170), (4, 1, 170), (2, 4, 150, 1)])
def test_the_kernel_equals_blocks_of_rows(causal, shape, monkeypatch):
    """Rows end in the midst of a block; two heads share keys. The mask has a gradient, too."""
    rng = np.random.default_rng(3)
    arrays = [
        rng.normal(size=s).astype(np.float32) for s in [(2, 4, 150, 16), (2, 2, 170, 16), (2, 2, 170, 8)]
    ]
    arrays += [] if shape is None else [rng.normal(size=shape).astype(np.float32)]

    def results(*arrays):
        def attend(*arrays):
            return tj.nn.attention(*arrays, causal=causal)

        axes = tuple([0 if a.ndim == 4 else None for a in arrays])
        gradients = tj.grad(lambda *a: (attend(*a) ** 2).sum(), argnums=tuple(range(len(arrays))))
        return tj.vmap(attend, in_axes=axes)(*arrays), *gradients(*arrays)

    found = tj.jit(results)
    first = found(*map(tj.asarray, arrays))
    assert "attention" in {node.op.name for node in found.graph(*map(tj.asarray, arrays)).nodes}
    monkeypatch.setattr(module, "_has_kernel", lambda *operands: False)
    expected = tj.jit(results)(*map(tj.asarray, arrays))
    for a, b in zip(first, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1, float(abs(b).max())))


@pytest.mark.parametrize("case", ["rows", "keys"])
def test_masks_of_bools_hide_keys_in_the_kernel(case):
    """Some rows see nothing: they give zeros and pass on none of their cotangents."""
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(size=(2, 3, n, 8)) for n in (130, 140, 140))
    mask = rng.random((130, 140) if case == "rows" else (2, 1, 1, 140)) < 0.5
    mask[..., :1, :] &= case == "keys"
    step = tj.jit(tj.value_and_grad(lambda *a: (tj.nn.attention(*a, tj.asarray(mask)) ** 2).sum(), (0, 1, 2)))
    expected = by_definition(q, k, v, mask)
    for _ in range(2):
        loss, gradients = step(*map(tj.asarray, (q, k, v)))
        np.testing.assert_allclose(loss, (expected**2).sum(), rtol=1e-12)
        assert all(np.isfinite(g.numpy()).all() for g in gradients)
    if case == "rows":
        assert not gradients[0].numpy()[:, :, 0].any()
    found = tj.nn.attention(*map(tj.asarray, (q, k, v, mask))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_half_operands_are_computed_in_single():
    arrays = [tj.asarray(a.astype(np.float16)) for a in (QUERY, KEY, VALUE)]
    found = tj.nn.attention(*arrays)
    assert found.dtype == np.float16
    expected = by_definition(*(a.numpy().astype(float) for a in arrays))
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-3, atol=1e-3)


def test_leading_dimensions_broadcast(evaluator):
    got = tj.nn.attention(QUERY, KEY[:1, :1], VALUE[:, :1]).numpy()
    np.testing.assert_allclose(got, by_definition(QUERY, KEY[:1, :1], VALUE[:, :1]), rtol=1e-12)


def test_long_sequences_need_no_matrix_of_scores():
    x = tj.spec((4096, 64), tj.float32)
    planned = tj.jit(lambda q, k, v: tj.nn.attention(q, k, v)).plan(x, x, x).planned_bytes
    assert planned < 4096 * 4096 * 4 / 12


@pytest.mark.parametrize("causal", [False, True])
def test_training_on_long_sequences_needs_no_matrix_of_scores(causal):
    """The backward pass computes the weights of a block again, when those of another one are used up."""
    x = tj.spec((4096, 64), tj.float32)

    def loss(q, k, v):
        return (tj.nn.attention(q, k, v, causal=causal) ** 2).sum()

    planned = tj.jit(tj.grad(loss, argnums=(0, 1, 2))).plan(x, x, x).planned_bytes
    assert planned < 4096 * 4096 * 4 / 2.5


def test_blocks_that_are_computed_again_give_the_same_gradients(run, monkeypatch):
    if run.mode == "eager":
        return  # compiles as much again as the traced function

    def loss(q, k, v):
        return (tj.nn.attention(q, k, v, causal=True) ** 2).sum()

    def gradients(q, k, v):
        first = tj.grad(loss, argnums=(0, 1, 2))
        if run.mode == "jit":
            return first(q, k, v)
        return first(q, k, v), tj.grad(lambda q: (first(q, k, v)[1] ** 2).sum())(q)

    arrays = [tj.asarray(a[0, 0]) for a in (QUERY, KEY, VALUE)]
    expected = trees.leaves(run(gradients, *arrays))
    monkeypatch.setattr(module, "BLOCK", 1)
    monkeypatch.setattr(module, "MAX_BLOCKS", 2)
    for found, wanted in zip(trees.leaves(run(gradients, *arrays)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_a_pull_back_may_be_used_again(monkeypatch, evaluator):
    monkeypatch.setattr(module, "BLOCK", 1)
    monkeypatch.setattr(module, "MAX_BLOCKS", 3)
    q, k, v = (tj.asarray(a[0, 0]) for a in (QUERY, KEY, VALUE))
    value, pull_back = tj.vjp(lambda q: tj.nn.attention(q, k, v), q)
    (first,) = pull_back(value)
    expected = first.numpy()
    tj.wait_all()
    np.testing.assert_array_equal(pull_back(value)[0].numpy(), expected)
    np.testing.assert_array_equal(tj.vmap(pull_back)(value[None])[0].numpy(), expected[None])


def test_the_weights_that_were_dropped_are_dropped_again(blocks, evaluator):
    """What is linear in the values is the product with its gradient."""
    q, k, v = (tj.asarray(a[0, 0]) for a in (QUERY, KEY, VALUE))
    value, gradient = tj.value_and_grad(lambda v: tj.nn.attention(q, k, v, dropout_rate=0.4).sum())(v)
    assert float(value) == pytest.approx(float((gradient * v).sum()), rel=1e-9)


@pytest.mark.parametrize("case", ["causal", "heads_mask", "mask", "one_mask"])
def test_heads_of_queries_share_heads_of_keys(case, blocks, run):
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(size=s) for s in [(2, 6, 7, 4), (2, 3, 9, 4), (2, 3, 9, 5)])
    masks = {
        "causal": None,
        "mask": rng.random((7, 9)) < 0.7,
        "heads_mask": rng.normal(size=(6, 7, 9)),
        "one_mask": rng.random((2, 1, 7, 9)) < 0.7,
    }
    mask, causal = masks[case], case == "causal"
    expected = by_definition(q, k.repeat(2, axis=1), v.repeat(2, axis=1), mask, causal)
    found = run(lambda *a: tj.nn.attention(*a, mask, causal=causal), *map(tj.asarray, (q, k, v)))
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_gradients_of_shared_heads(evaluator):
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s) for s in [(4, 3, 2), (2, 3, 2), (2, 3, 2)]]
    check(lambda *a: tj.nn.attention(*a, causal=True), arrays, rng, rtol=1e-5)


def test_a_block_with_nan_leaves_the_others_alone(blocks, evaluator):
    query = QUERY[0, 0].copy()
    query[0] = np.nan
    got = tj.nn.attention(query, KEY[0, 0], VALUE[0, 0]).numpy()
    assert np.isnan(got[0]).all()
    np.testing.assert_allclose(got[1:], by_definition(query[1:], KEY[0, 0], VALUE[0, 0]), rtol=1e-12)


def test_dropout_of_weights(evaluator):
    tj.random.seed(1)
    values = np.ones((400, 1))
    got = tj.nn.attention(np.zeros((50, 2)), np.zeros((400, 2)), values, dropout_rate=0.5).numpy()
    assert 0.9 < got.mean() < 1.1
    assert got.std() > 0


def test_multi_head_attention(run):
    batch, queries, keys, features, heads = 2, 5, 6, 8, 2
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(batch, n, features)) for n in (queries, keys, keys))
    w, b, w2, b2 = (rng.normal(size=s) for s in [(24, 8), (24,), (8, 8), (8,)])
    parts = [
        (x @ m.T + c).reshape(batch, -1, heads, 4).swapaxes(1, 2)
        for x, m, c in zip((q, k, v), np.split(w, 3), np.split(b, 3), strict=True)
    ]
    expected = by_definition(*parts).swapaxes(1, 2).reshape(batch, queries, features) @ w2.T + b2
    got = run(
        lambda *a: tj.nn.multi_head_attention(*a, heads=heads), *map(tj.asarray, (q, k, v, w, b, w2, b2))
    )
    np.testing.assert_allclose(got, expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q, k, v: tj.nn.attention(q, k[..., 1:], v), tj.errors.ShapeError, "equal last extents"),
        (lambda q, k, v: tj.nn.attention(q, k, v[..., 1:, :]), tj.errors.ShapeError, "as many rows"),
        (lambda q, k, v: tj.nn.attention(q, k, v, np.ones(9, int)), tj.errors.DTypeError, "bool or floating"),
        (lambda q, k, v: tj.nn.attention(q, k, v, np.ones(8)), tj.errors.ShapeError, "7 queries and 9 keys"),
        (lambda q, k, v: tj.nn.attention(q[:, :2], k, v), tj.errors.ShapeError, "do not broadcast"),
        (
            lambda q, k, v: tj.nn.attention(np.tile(q, (1, 2, 1, 1)), k, v, np.ones((3, 7, 9))),
            tj.errors.ShapeError,
            "mask of shape",
        ),
        (
            lambda q, k, v: tj.nn.multi_head_attention(q, q, q, np.ones((12, 4)), None, KEY, None, heads=3),
            tj.errors.ArgumentError,
            "heads of equal size",
        ),
    ],
)
def test_errors_name_the_line(call, error, message):
    with pytest.raises(error, match=rf"{message}(?s:.*)test_nn_attention.py"):
        call(QUERY, KEY, VALUE)
