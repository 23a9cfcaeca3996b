"""`checkpoint`: the same results, gradients and random numbers, with less memory in the plan."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some

LAYERS = 8


def doubles(*shape, seed=0):
    return tj.asarray(np.random.default_rng(seed).uniform(-1, 1, shape))


def compared(make, *args, exact=True):
    """Gradients of ``make(tj.checkpoint)`` and of the same without it: eager, recorded, replayed."""
    for jitted in (False, True):
        plain, saving = make(lambda f: f), make(tj.checkpoint)
        if jitted:
            plain, saving = tj.jit(plain), tj.jit(saving)
        for _ in range(1 + 2 * jitted):
            tj.random.seed(1)
            expected = tj.tree.leaves(plain(*[a.copy() for a in args]))
            tj.random.seed(1)
            got = tj.tree.leaves(saving(*[a.copy() for a in args]))
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0 if exact else 1e-12, atol=0)
        if jitted:
            assert saving.cache_info().replays == 2
    return got


def captured_and_given(wrap):
    def gradient(x, w, b):
        def block(x, w):
            return tj.tanh(tj.tanh(x @ w + b) @ w)

        return tj.value_and_grad(lambda x, w, b: (wrap(block)(x, w) ** 2).sum(), (0, 1, 2))(x, w, b)

    return gradient


def deep(wrap):
    def gradient(x, w, b):
        def block(x):
            return tj.sin(tj.exp(tj.sin(x @ w)) * 0.1 + b)

        def loss(w, b):
            y = x
            for _ in range(10):
                y = wrap(block)(y)
            return (y * y).mean()

        return tj.grad(lambda w: loss(w, b))(w)

    return gradient


def nested(wrap):
    def gradient(x, w, b):
        inner = wrap(lambda x: tj.tanh(tj.sin(x @ w) * b))
        outer = wrap(lambda x: inner(tj.sin(inner(x))))
        return tj.grad(lambda x: (outer(x) * outer(x * 2)).sum())(x)

    return gradient


def dropped(wrap):
    def gradient(x, w, b):
        def block(x):
            kept = tj.random.uniform(shape=x.shape) < 0.5
            return tj.where(kept, tj.tanh(x @ w) * 2, 0)

        return tj.grad(lambda x: (wrap(block)(wrap(block)(x)) ** 2).sum())(x)

    return gradient


def in_place(wrap):
    def gradient(x, w, b):
        def block(x, total):
            h = tj.sin(x)
            h[1:] *= h[:-1] + b
            total += h.sum(0)
            return tj.exp(h)

        def loss(x):
            total = b * 1.0
            for _ in range(2):
                x = wrap(block)(x, total)
            return (x.sum() + total * total).sum()

        return tj.grad(loss)(x)

    return gradient


def indexed(wrap):
    def gradient(x, w, b):
        index = tj.asarray([2, 0, 2, -1])

        def block(x):
            y = tj.sin(x)[index]
            y[::2] = y[[1, 3]] * 3
            return tj.cumulative_sum(tj.sort(y, axis=0), axis=1)

        return tj.grad(lambda x: (wrap(block)(x) ** 2).sum())(x)

    return gradient


def with_a_rule(wrap):
    @tj.custom_gradient
    def doubled_back(x):
        e = tj.exp(x)
        return e, lambda dy: dy * e * 2

    def gradient(x, w, b):
        block = wrap(lambda x: tj.sin(doubled_back(tj.sin(x)) * b))
        return tj.grad(lambda x: block(block(x)).sum())(x)

    return gradient


def second(wrap):
    def gradient(x, w, b):
        block = wrap(lambda x: tj.sin(tj.exp(tj.sin(x)) * b))
        first = tj.grad(lambda x: block(block(x)).sum())
        return tj.grad(lambda x: (first(x) ** 2).sum())(x)

    return gradient


def later(wrap):
    def gradient(x, w, b):
        value, pull_back = tj.vjp(wrap(lambda x: tj.sin(tj.exp(x @ w))), x)
        return value, pull_back(value * 2), pull_back(value)

    return gradient


def nothing(wrap):
    def gradient(x, w, b):
        return tj.grad(lambda x: wrap(lambda x: x)(x * x).sum())(x)

    return gradient


CASES = [captured_and_given, deep, nested, dropped, in_place, indexed, with_a_rule, second, later, nothing]


@pytest.mark.parametrize("case", some(CASES, 5))
def test_results_and_gradients_are_the_same(case):
    compared(case, doubles(4, 4), doubles(4, 4, seed=1), doubles(4, seed=2), exact=False)


def test_a_gradient_against_central_differences():
    x = np.random.default_rng(0).uniform(-1, 1, 5)

    def loss(x):
        return tj.checkpoint(lambda x: (tj.sin(x) * tj.exp(x)).sum() ** 2)(x)

    slopes = []
    for i in range(5):
        step = np.eye(5)[i] * 1e-6
        slopes.append(float(loss(tj.asarray(x + step)) - loss(tj.asarray(x - step))) / 2e-6)
    np.testing.assert_allclose(tj.grad(loss)(tj.asarray(x)).numpy(), slopes, rtol=1e-7)


def chain(wrap):
    """The gradient of a deep chain of blocks, of which each has four layers."""

    def block(x, w):
        for _ in range(4):
            x = tj.tanh(x @ w)
        return x

    def loss(ws, x):
        for w in ws:
            x = wrap(block)(x, w)
        return (x * x).sum()

    return tj.jit(tj.grad(loss))


def test_the_plan_of_a_deep_chain_needs_less_memory():
    ws, x = [tj.spec((64, 64))] * LAYERS, tj.spec((256, 64))
    plain, saving = (chain(wrap).plan(ws, x) for wrap in (lambda f: f, tj.checkpoint))
    layer = 256 * 64 * 4
    assert plain.planned_bytes > 4 * LAYERS * layer
    assert saving.planned_bytes < (LAYERS + 8) * layer < plain.planned_bytes / 2
    assert saving.operations > plain.operations


def test_without_a_gradient_nothing_is_recomputed():
    def step(wrap):
        return tj.jit(lambda x: wrap(lambda x: tj.sin(tj.exp(x)))(x))

    plain, saving = (step(wrap).plan(tj.spec(8)) for wrap in (lambda f: f, tj.checkpoint))
    assert plain.operations == saving.operations


def test_an_error_in_the_function_leaves_no_part():
    def fails(x):
        tj.checkpoint(lambda x: tj.sin(x) + tj.ones(7))(x)

    def loss(x):
        with pytest.raises(tj.errors.ShapeError):
            fails(x)
        return tj.sin(x).sum()

    assert tj.grad(loss)(tj.zeros(3)).tolist() == [1, 1, 1]
