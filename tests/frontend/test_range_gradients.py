"""Gradients through `tj.range`: a loop in reverse; Python's `range` is the oracle."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some

RNG = np.random.default_rng(0)
ARRAYS = [RNG.normal(size=size).astype(np.float32) * 0.5 for size in ((5, 5), (60, 5), (5,))]


def reads_rows(rounds):
    def loss(w, x, b, n):
        h = b * 1
        for i in rounds(n):
            h = tj.tanh(h @ w + x[i]) * b
        return (h * h).sum()

    return loss


def stores_rows(rounds):
    def loss(w, x, b, n):
        h, out = b * 1, tj.zeros((60, 5))
        for i in rounds(n):
            h = tj.sin(h * b + x[i] - x[i + 1] * i)
            out[i] = h
        return (out * x).sum()

    return loss


def writes_rows_that_it_reads(rounds):
    def loss(w, x, b, n):
        out = x * 1
        for i in rounds(1, n):
            out[i] = out[i - 1] * b + out[i + 1] * 0.25
        return (out * x).sum()

    return loss


def uses_weights_behind_the_loop(rounds):
    def loss(w, x, b, n):
        h, p = b * 1, b * 2
        for _ in rounds(n):
            p, h = h, tj.tanh(h @ w + p * (n * 0.05))
        return (h @ w).sum() + (w * w).sum()

    return loss


def carries_what_is_not_used(rounds):
    def loss(w, x, b, n):
        h, k = b * 1, x[0] * 1
        for _ in rounds(n):
            k = k * 0.5 + h
            h = tj.maximum(h @ w, b)
        return h.sum()

    return loss


def nests(rounds):
    def loss(w, x, b, n):
        h, flat = b * 1, x.reshape(-1)
        for i in rounds(n):
            for j in rounds(5):
                h = tj.tanh(h * 0.5 + flat[5 * i + j] * j) * b
            h = h - x[i] * i
        return (h * h).sum()

    return loss


def computes_again(rounds):
    def loss(w, x, b, n):
        cell = tj.checkpoint(lambda h, w, x: tj.tanh(tj.sin(h @ w) + x))
        h = b * 1
        for i in rounds(n):
            h = cell(h, w, x[i]) * b
        return (h * h).sum()

    return loss


def updates_in_place(rounds):
    def loss(w, x, b, n):
        q, p = b * 1, tj.zeros(5)
        for _ in rounds(n):
            p -= 0.1 * (q * b)
            q += 0.1 * p
            q[1:] *= x[3, 1:]
        return (q * q).sum()

    return loss


LOSSES = [
    reads_rows,
    stores_rows,
    writes_rows_that_it_reads,
    uses_weights_behind_the_loop,
    carries_what_is_not_used,
    nests,
    computes_again,
    updates_in_place,
]


def gradients(make, rounds):
    return tj.jit(lambda w, x, b, n: tj.value_and_grad(make(rounds), argnums=(0, 1, 2))(w, x, b, n))


def expect_equal(traced, plain, n):
    arrays = [tj.asarray(a) for a in ARRAYS]
    expected = [np.asarray(leaf) for leaf in tj.tree.leaves(plain(*arrays, n))]
    for _ in range(2):  # recorded, and replayed
        found = [np.asarray(leaf) for leaf in tj.tree.leaves(traced(*arrays, n))]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("make", some(LOSSES, 4))
def test_gradients_are_those_of_range(make):
    traced = gradients(make, tj.range)
    expect_equal(traced, gradients(make, range), 20)
    assert traced.cache_info().traces == 1
    assert "loop [" in traced.explain()
    assert "not rolled" not in traced.explain()


def test_few_rounds():
    traced, plain = gradients(reads_rows, tj.range), gradients(reads_rows, range)
    for n in (1, 4, 5):
        expect_equal(traced, plain, n)


def test_a_round_is_recorded_a_few_times_whatever_the_count():
    arrays = [tj.asarray(np.resize(a, (2000, 5)) if a.shape == (60, 5) else a) for a in ARRAYS]
    traced = gradients(reads_rows, tj.range)
    few, many = (len(traced.graph(*arrays, n).nodes) for n in (10, 2000))
    assert few == many < 80


def test_only_what_a_gradient_needs_is_kept():
    def kept(step):
        """Rows of 1,000 numbers in intermediate memory, for each of 32 iterations."""

        @tj.jit
        def f(x, d):
            def loss(x):
                y = x * 1
                for _ in tj.range(34):
                    y = step(y, x, d)
                return y.sum()

            return tj.grad(loss)(x)

        x = tj.ones(1000)
        return round(f.plan(x, x * 2).planned_bytes / (32 * 4000))

    assert kept(lambda y, x, d: y + x * d) == 0
    assert kept(lambda y, x, d: y * d + x) == 0
    assert kept(lambda y, x, d: tj.tanh(y) + x) == 1
    assert kept(lambda y, x, d: tj.sin(tj.tanh(tj.exp(-y))) + x) == 2
    assert kept(tj.checkpoint(lambda y, x, d: tj.sin(tj.tanh(tj.exp(-y))) + x)) == 1


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: tj.grad(lambda w: (tj.grad(lambda w: (f(w) ** 2).sum())(w) ** 2).sum()),
        lambda f: lambda w: tj.jvp(f, (w,), (w * 2,)),
        lambda f: tj.jacobian(f),
        lambda f: lambda w: tj.vmap(f)(tj.stack([w, w * 2])),
        lambda f: lambda w: tj.vmap(tj.vjp(f, w)[1])(tj.stack([w, w * 2])),
        lambda f: lambda w: tj.linearize(f, w)[1](w * 3),
        lambda f: tj.grad(lambda w: (tj.checkpoint(f)(w) ** 2).sum()),
    ],
)
def test_other_derivatives(transform):
    def made(rounds):
        def f(w, x, n):
            def inner(w):
                h = w * 1
                for i in rounds(n):
                    h = tj.tanh(h * w + x[i])
                return h

            return transform(inner)(w)

        return tj.jit(f)

    w, x = tj.asarray(ARRAYS[2]), tj.asarray(ARRAYS[1])
    found, expected = (tj.tree.leaves(made(rounds)(w, x, 6)) for rounds in (tj.range, range))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_gradient_in_each_round():
    @tj.jit
    def descend(w, x, n):
        for i in tj.range(n):
            w = w - 0.1 * tj.grad(lambda w: ((w * x[i] - 1) ** 2).sum())(w)  # noqa: B023
        return w

    w, x = np.ones(5, np.float32), ARRAYS[1]
    for n in (8, 20):
        expected = w.copy()
        for i in range(n):
            expected -= np.float32(0.1) * 2 * (expected * x[i] - 1) * x[i]
        np.testing.assert_allclose(descend(tj.asarray(w), tj.asarray(x), n), expected, rtol=1e-5)
    assert descend.cache_info().traces == 1
