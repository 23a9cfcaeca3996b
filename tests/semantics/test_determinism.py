"""Promise 12: bit-identical results for any number of workers and any alignment of the operands."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tracejit.ir.op import OPS, Trait
from tracejit.ops.c_library import C_FUNCTIONS
from tracejit.ops.communicate import BETWEEN_RANKS

WORKERS = (1, 2, 3, 8)


@pytest.fixture
def workers():
    before = tj.engine.workers.count
    yield tj.engine.set_workers
    tj.engine.set_workers(before)


def rng(seed=0):
    return np.random.default_rng(seed)


def values(kind, shape, seed):
    if kind == "b":
        return rng(seed).random(shape) < 0.5
    if kind in "iu":
        return rng(seed).integers(1, 50, shape)
    return (rng(seed).random(shape) * 3 + 0.25).astype(np.float32)


PUBLIC = sorted(
    name for name, op in OPS.items() if Trait.ELEMENTWISE in op.traits and op.arity and hasattr(tj, name)
)


def apply(name, kind, shape):
    op = OPS[name]
    operands = [values(kind, shape, seed) for seed in range(op.arity)]
    if name == "where":
        operands[0] = operands[0] > operands[0].mean() if kind != "b" else operands[0]
    return operands


def kind_of(name):
    kinds = {d.kind for d in OPS[name].admits}
    return next((k for k in "fiub" if k in kinds), "f")


@pytest.mark.parametrize("name", PUBLIC)
def test_elementwise_operators(name, workers):
    kind = kind_of(name)
    plain = apply(name, kind, (3, 20011))
    function = tj.jit(getattr(tj, name))
    results = []
    for count in WORKERS:
        workers(count)
        results.append(function(*map(tj.asarray, plain)).numpy())
    results += [function(*(shifted(a, by) for a in plain)).numpy() for by in (1, 2, 3, 5)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def shifted(array, by):
    """The same elements, `by` elements further on in memory than an array begins."""
    base = tj.zeros(array.size + 16, dtype=array.dtype)
    view = base[by : by + array.size].reshape(array.shape)
    view[...] = tj.asarray(array)
    return view


MADE_BY_PASSES = {
    "fused",
    "loop",
    "case",
    *(op.name for op in C_FUNCTIONS.values()),  # in native loops, see test_c_functions
    "empty",
    "conv2d_weight_sums",
    *(name for name in OPS if name.startswith("winograd_")),
}
ELSEWHERE = {"callback", "copy_to", *(op.name for op in BETWEEN_RANKS)}
"""Operators without a result of their own to compare: a call into Python, a copy between devices, and what
several processes do together.
"""


def test_every_operator_is_among_these():
    recorded = set()
    for function, arguments in programs().values():
        graph = tj.jit(function).graph(*map(tj.asarray, arguments))
        recorded |= {node.op.name for node in graph.nodes}
    assert recorded | set(PUBLIC) | MADE_BY_PASSES | ELSEWHERE == set(OPS)


def programs():
    x = rng(1).normal(size=(257, 515)).astype(np.float32)
    w = rng(2).normal(size=(515, 33)).astype(np.float32)
    index = rng(3).integers(0, 257, 1000)
    images = rng(5).normal(size=(5, 3, 19, 23)).astype(np.float32)
    filters = rng(6).normal(size=(4, 3, 3, 3)).astype(np.float32)
    channels = rng(7).normal(size=(5, 18, 19, 23)).astype(np.float32)
    wide = rng(8).normal(size=(70, 18, 3, 3)).astype(np.float32)
    queries = rng(9).normal(size=(2, 3, 70, 16)).astype(np.float32)
    return {
        "shards": (tj.distributed.data_parallel(lambda w, x: ((x @ w) ** 2).mean(), shards=2), [w, x[:256]]),
        "sorts": (lambda x: (tj.sort(x, axis=1), tj.argsort(x, axis=0)), (x,)),
        "recomputed": (lambda x: tj.grad(lambda v: tj.checkpoint(tj.sin)(v * v).sum())(x), (x,)),
        "systems": (lambda a: (tj.linalg.inv(a), tj.linalg.solve(a, a[:, :2])), (w[:33] + w[40:73].T,)),
        "factors": (
            lambda a: (*tj.linalg.qr(a), *tj.linalg.svd(a), tj.linalg.svdvals(a), *tj.linalg.slogdet(a)),
            (w[:33],),
        ),
        "spectra": (
            lambda a: (*tj.linalg.eigh(a @ a.T), tj.linalg.eigvalsh(a @ a.T), *tj.linalg.eig(a)),
            (w[:33],),
        ),
        "cholesky": (lambda a: tj.linalg.cholesky(a @ a.T + 33.0 * tj.eye(33)), (w[:33],)),
        "transforms": (lambda a: (tj.fft.rfft(a), tj.fft.irfft(tj.fft.fft(a))), (w[:33],)),
        "bits": (lambda x: x.view(tj.int32), (x,)),
        "divisors": (lambda i: tj.gcd(i, 36), (index,)),
        "searches": (lambda x, w: tj.searchsorted(tj.sort(x[0]), w), (x, w)),
        "sum all": (lambda x: x.sum(), (x,)),
        "sum rows": (lambda x: (x * x).sum(axis=1), (x,)),
        "sum columns": (lambda x: (x * 0.5).sum(axis=0), (x,)),
        "sum middle": (lambda x: x.reshape(257, 5, 103).sum(axis=1), (x,)),
        "mean var": (lambda x: (x.mean(axis=1), x.var(axis=0), x.std()), (x,)),
        "max argmax": (lambda x: (x.max(axis=0), x.argmax(axis=1), x.min(), x.argmin()), (x,)),
        "prod any all": (lambda x: ((1 + x * 1e-4).prod(axis=1), (x > 3).any(), (x > -9).all(axis=0)), (x,)),
        "cumulative": (lambda x: tj.cumulative_sum(x, axis=1), (x,)),
        "scans": (
            lambda x: (
                tj.cumulative_prod(1 + x * 1e-4, axis=0),
                *(accumulate(x, axis=1) for accumulate in (np.maximum.accumulate, np.minimum.accumulate)),
            ),
            (x,),
        ),
        "gamma": (lambda x: x[0] + tj.random.gamma(abs(x[0]) + 0.5), (x,)),
        "long sum": (lambda x: x.reshape(-1).sum() + (x.reshape(-1) * 2).max(), (x,)),
        "product": (lambda x, w: x @ w, (x, w)),
        "product transposed": (lambda x, w: (w.T @ x.T, x.T @ x), (x, w)),
        "product epilogue": (lambda x, w: tj.maximum(x @ w + 1.0, 0.0), (x, w)),
        "vector products": (lambda x, w: (x @ w[:, 0], w[:, 1] @ w[:, 2]), (x, w)),
        "batched": (lambda x: x[:256].reshape(8, 32, 515) @ x[:256].reshape(8, 515, 32), (x,)),
        "softmax": (tj.nn.softmax, (x,)),
        "cross entropy": (lambda x: tj.nn.cross_entropy(x, tj.arange(257)), (x,)),
        "gather": (lambda x, i: tj.take(x, i, axis=0).sum(axis=0), (x, index)),
        "scatter": (lambda x, i: tj.grad(lambda x: (tj.take(x, i, axis=0) ** 2).sum())(x), (x, index)),
        "placed": (lambda x, i: tj.grad(lambda x: _placed(x, i))(x), (x, index)),
        "copies": (lambda x: (x.copy() * x.T.copy().T, tj.full(x.shape, x[0, 0])), (x,)),
        "shifted views": (lambda x: x[1:, ::2] * x[:-1, 1::2].mean(axis=0)[None, :1] + x.T[:1, 1:].T, (x,)),
        "random": (lambda x: x + tj.random.normal(shape=x.shape), (x,)),
        "in place": (lambda x: _in_place(x), (x,)),
        "convolution": (_gradients_of(_convolution), (images, filters)),
        "tiles": (_gradients_of(lambda x, w: tj.nn.conv2d(x, w, padding=1)), (channels, wide)),
        "depthwise": (
            _gradients_of(lambda x, w: tj.nn.conv2d(x, w, stride=2, groups=18)),
            (channels, wide[:18, :1]),
        ),
        "max pool": (_curvature_of(lambda x: tj.nn.max_pool2d(x, 3, stride=2)), (images,)),
        "attention": (_gradients_of(tj.nn.attention), (queries, queries + 1, queries * 2)),
        "average pool": (_gradients_of(lambda x: tj.nn.avg_pool2d(x, 3, padding=1)), (images,)),
    }  # fmt: skip


def _convolution(x, w):
    return tj.nn.conv2d(x, w, stride=2, padding=1)


def _gradients_of(function):
    """The function's value, and the gradients of its squares by all arguments."""

    def both(*args):
        loss = tj.grad(lambda *args: (function(*args) ** 2).sum(), argnums=tuple(range(len(args))))
        return (function(*args), *loss(*args))

    return both


def _curvature_of(function):
    """The value, and what the second derivative of the squares makes of x itself."""

    def slope(x):
        return tj.grad(lambda x: (function(x) ** 2).sum())(x)

    return lambda x: (function(x), slope(x), tj.grad(lambda y: (slope(y) * x).sum())(x))


def _in_place(x):
    y = x * 1.0
    y[1:] += y[:-1] * 0.5
    y *= y.sum(axis=0)
    return y.cumulative_sum(axis=0) if hasattr(y, "cumulative_sum") else y


def _placed(x, i):
    y = x * 2.0
    y[i[: len(x)]] = x
    return (y**2).sum()


def leaves(tree):
    return [leaf.numpy() for leaf in (tree if isinstance(tree, tuple) else (tree,))]


@pytest.mark.cpu("workers of the CPU")
@pytest.mark.parametrize("name", programs())
def test_any_number_of_workers(name, workers):
    function, arguments = programs()[name]
    jitted, results = tj.jit(function), []
    for count in WORKERS:
        workers(count)
        for f in (jitted, jitted, function):
            tj.random.seed(7)
            results.append(leaves(f(*map(tj.asarray, arguments))))
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.cpu("lines of the CPU's cache")
@pytest.mark.parametrize("name", programs())
def test_any_alignment(name):
    """Operands that start at 0, 4, 8, ... bytes into a line of the cache give the same bits."""
    function, arguments = programs()[name]
    jitted, results = tj.jit(function), []
    for by in (0, 1, 2, 3, 5, 8, 13):
        moved = [shifted(a, by) for a in arguments]
        tj.random.seed(7)
        results.append(leaves(jitted(*moved)))
    assert jitted.cache_info().traces == 1
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


def train(steps=6):
    tj.random.seed(11)
    source = rng(4)
    shapes = {"w1": (37, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
    params = {k: tj.asarray((source.normal(size=s) * 0.1).astype(np.float32)) for k, s in shapes.items()}
    state = tj.optim.adam_state(params)

    def loss_fn(params, x, y):
        h = tj.nn.gelu(x @ params["w1"] + params["b1"])
        h = tj.where(tj.random.bernoulli(0.8, shape=h.shape), h / 0.8, 0.0)
        return tj.nn.cross_entropy(h @ params["w2"] + params["b2"], y)

    @tj.jit(strict=True)
    def step(params, state, x, y, lr):
        loss, grads = tj.value_and_grad(loss_fn)(params, x, y)
        tj.optim.adam(params, grads, state, lr)
        return loss

    losses = []
    for i in range(steps):
        x, y = source.normal(size=(129, 37)).astype(np.float32), source.integers(0, 10, 129)
        losses.append(step(params, state, tj.asarray(x), tj.asarray(y), 0.01 / (i + 1)))
    return [loss.numpy() for loss in losses] + [p.numpy() for p in params.values()]


@pytest.mark.cpu("workers of the CPU")
def test_whole_training_runs(workers):
    results = []
    for count in (*WORKERS, 2):
        workers(count)
        results.append(train())
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 256), (128, 256, 256), (300, 784, 128), (128, 128, 4)])
def test_products_have_the_same_bits_with_and_without_an_epilogue(m, k, n):
    """On any processor: where BLAS computes products, their bits depend on the split into panels."""
    rng = np.random.default_rng(m + n)
    x, w, y = (tj.asarray(rng.standard_normal(s).astype("float32")) for s in ((m, k), (k, n), (m, n)))
    product, negated = tj.jit(lambda x, w: x @ w), tj.jit(lambda x, w: -(x @ w))
    gradient, step = tj.jit(lambda x, y: x.T @ y), tj.jit(lambda x, y, w: w * 0 + (x.T @ y))
    np.testing.assert_array_equal(negated(x, w).numpy(), -product(x, w).numpy())
    np.testing.assert_array_equal(step(x, y, w).numpy(), gradient(x, y).numpy())
