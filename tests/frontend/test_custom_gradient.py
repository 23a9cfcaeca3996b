"""`custom_gradient`: rules of the user's in eager code, traced, replayed, and in higher derivatives."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, ReadOnlyError, ShapeError


def both(function):
    """A function eagerly, and traced: recorded and replayed."""
    traced = tj.jit(function)

    def call(*args):
        eager, first, second = function(*args), traced(*args), traced(*args)
        for a, b, c in zip(*map(tj.tree.leaves, (eager, first, second)), strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-12)
            np.testing.assert_array_equal(b.numpy(), c.numpy())
        assert traced.cache_info().replays > 0
        return eager

    return call


def doubles(*shape, seed=0):
    return tj.asarray(np.random.default_rng(seed).uniform(-2, 2, shape))


@tj.custom_gradient
def log1p_exp(x):
    e = tj.exp(x)
    return tj.log1p(e), lambda dy: dy * (1 - 1 / (1 + e))


@tj.custom_gradient
def tripled_back(x):
    return x, lambda dy: dy * 3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_rule_is_used():
    x = doubles(3, 4)
    gradient = both(tj.grad(lambda x: log1p_exp(x).sum()))(x)
    np.testing.assert_allclose(gradient.numpy(), sigmoid(x.numpy()), rtol=1e-12)
    assert both(tj.grad(lambda x: (5 * tripled_back(x)).sum()))(x).numpy().tolist() == [[15] * 4] * 3


def test_without_a_gradient_the_function_is_what_it_computes():
    x = doubles(4)
    np.testing.assert_allclose(both(log1p_exp)(x).numpy(), np.log1p(np.exp(x.numpy())), rtol=1e-12)


def test_higher_derivatives_are_those_of_the_rule():
    x = doubles(5)
    first = tj.grad(lambda x: log1p_exp(x).sum())
    second = both(tj.grad(lambda x: first(x).sum()))(x)
    s = sigmoid(x.numpy())
    np.testing.assert_allclose(second.numpy(), s * (1 - s), rtol=1e-12)
    third = both(tj.grad(lambda x: tj.grad(lambda x: first(x).sum())(x).sum()))(x)
    np.testing.assert_allclose(third.numpy(), s * (1 - s) * (1 - 2 * s), rtol=1e-10)


def test_in_a_chain_longer_than_a_recording():
    def chain(x):
        for _ in range(40):
            x = tj.sin(tripled_back(x)) + x
        return x.sum()

    def plain(x):
        for _ in range(40):
            x = 3 * tj.sin(x) - 2 * tj.stop_gradient(tj.sin(x)) + x
        return x.sum()

    x = doubles(3) * 1e-3
    np.testing.assert_allclose(both(tj.grad(chain))(x).numpy(), tj.grad(plain)(x).numpy(), rtol=1e-9)


def test_several_arguments_and_results():
    @tj.custom_gradient
    def scaled(x, scale):
        def backward(cotangents):
            whole, total = cotangents
            return whole * scale + total, None

        return (x * scale, x.sum()), backward

    def loss(x, scale):
        whole, total = scaled(x, scale)
        return (whole * whole).sum() + total * 2

    x, scale = doubles(3), doubles(3, seed=1)
    dx, dscale = both(tj.grad(loss, (0, 1)))(x, scale)
    np.testing.assert_allclose(dx.numpy(), 2 * x.numpy() * scale.numpy() ** 2 + 2, rtol=1e-12)
    assert not dscale.numpy().any()


def test_a_result_that_is_not_used_has_a_zero_cotangent():
    @tj.custom_gradient
    def pair(x):
        return (x * 2, x * 3), lambda dy: dy[0] + dy[1] * 100 + 1

    assert tj.grad(lambda x: pair(x)[0].sum())(tj.ones(2)).tolist() == [2, 2]


def test_trees_and_what_has_no_cotangent():
    @tj.custom_gradient
    def dense(params, x, name):
        assert name == "dense"

        def backward(dy):
            return {"w": x.T @ dy, "b": dy.sum(0), "steps": None}, dy @ params["w"].T, None

        return x @ params["w"] + params["b"], backward

    def plain(params, x, name):
        return x @ params["w"] + params["b"]

    params = {"w": doubles(3, 2), "b": doubles(2), "steps": tj.arange(2)}
    x = doubles(4, 3, seed=2)

    def gradients(layer):
        return tj.grad(lambda p, x: (layer(p, x, "dense") ** 2).sum(), (0, 1))

    got, expected = both(gradients(dense))(params, x), gradients(plain)(params, x)
    for a, b in zip(*map(tj.tree.leaves, (got, expected)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_captured_arrays_have_the_gradient_of_the_body():
    def loss(x, w):
        @tj.custom_gradient
        def scaled(x):
            return tj.sin(x * w), lambda dy: dy * 10

        return scaled(x).sum()

    x, w = doubles(3), doubles(3, seed=1)
    dx, dw = both(tj.grad(loss, (0, 1)))(x, w)
    assert dx.tolist() == [10] * 3
    np.testing.assert_allclose(dw.numpy(), np.cos(x.numpy() * w.numpy()) * x.numpy(), rtol=1e-12)


def test_an_argument_that_views_a_captured_array():
    base = doubles(4)

    def loss(base):
        @tj.custom_gradient
        def head(x):
            return x * base[1], lambda dy: dy * 7

        return head(base[:2]).sum()

    expected = np.zeros(4)
    expected[:2] += 7
    expected[1] += base.numpy()[:2].sum()
    np.testing.assert_allclose(both(tj.grad(loss))(base).numpy(), expected, rtol=1e-12)


def test_nested_rules():
    @tj.custom_gradient
    def outer(x):
        value, pull_back = tj.vjp(tripled_back, x)
        return value * 2, lambda dy: pull_back(dy)[0] * 10

    assert both(tj.grad(lambda x: outer(x).sum()))(doubles(2)).tolist() == [30, 30]


def test_vjp_asks_the_rule_later():
    x = doubles(3)
    _, pull_back = tj.vjp(log1p_exp, x)
    x += 100
    s = sigmoid(x.numpy() - 100)
    for scale in (1.0, 2.0):
        (got,) = pull_back(tj.full(3, scale, dtype="float64"))
        np.testing.assert_allclose(got.numpy(), s * scale, rtol=1e-12)


def test_a_rule_that_looks_at_values_makes_the_call_piecewise():
    @tj.custom_gradient
    def looking(x):
        return x * 1, lambda dy: dy * (2 if float(dy.sum()) > 0 else 3)

    gradient = tj.grad(lambda x: (looking(x) * x).sum())
    traced = tj.jit(gradient)
    x = tj.asarray([1.0, 2.0])
    for function in (gradient, traced, traced):
        assert function(x).tolist() == [3, 6]
    assert traced.cache_info().replays == 0


def test_writing_an_argument_raises():
    @tj.custom_gradient
    def writes(x):
        x += 1
        return x, lambda dy: dy

    with pytest.raises(ReadOnlyError, match=r"test_custom_gradient\.py:\d+"):
        tj.grad(lambda x: writes(x).sum())(tj.ones(2))


RETURNED = r"float32\[\] for an argument float32\[2\]"
BAD = {
    "no pair": (lambda x: x * 2, ArgumentError, r"must return \(value, backward\)"),
    "a shape": (lambda x: (x * 2, lambda dy: dy.sum()), ShapeError, RETURNED),
    "a number": (lambda x: (x * 2, lambda dy: 1.0), ArgumentError, "arrays or None, got float"),
    "a tree": (lambda x: (x * 2, lambda dy: (dy, dy)), ArgumentError, "arrays or None, got tuple"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_line_of_the_function(case):
    function, kind, message = BAD[case]
    line = function.__code__.co_firstlineno
    with pytest.raises(kind, match=message) as raised:
        tj.grad(lambda x: tj.custom_gradient(function)(x).sum())(tj.ones(2))
    assert f"test_custom_gradient.py:{line}" in str(raised.value)


def test_a_backward_that_returns_too_few():
    @tj.custom_gradient
    def two(x, y):
        return x * y, lambda dy: dy

    with pytest.raises(ArgumentError, match="one for each of several"):
        tj.grad(lambda x: two(x, x).sum())(tj.ones(2))
