"""Promise 8: jit, gradients, methods, partials and all kinds of parameters nest and combine."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Keywords, Program, check
from tracejit.config import config


def close(given, expected):
    np.testing.assert_allclose(np.asarray(given), np.asarray(expected), rtol=2e-5, atol=1e-6)


def test_jit_in_jit():
    @tj.jit
    def inner(w, x):
        w += x
        return w * 2

    @tj.jit
    def outer(w, x):
        return inner(w, inner(w, x)) + 1

    w, plain = tj.zeros(3), np.zeros(3)
    for i in range(4):
        x = np.full(3, i + 1.0)
        result = outer(w, tj.asarray(x.astype(np.float32)))
        plain += x
        first = plain * 2
        plain += first
        close(result, plain * 2 + 1)
        close(w, plain)
    assert outer.cache_info().traces == 1
    close(inner(w, tj.ones(3)), (plain + 1) * 2)


def test_the_surroundings_of_an_inner_jit_are_guarded():
    settings = {"scale": 2.0}

    @tj.jit
    def inner(x):
        return x * settings["scale"]

    @tj.jit
    def outer(x):
        return inner(x) + 1

    assert outer(tj.ones(1)).tolist() == [3]
    settings["scale"] = 5.0
    assert outer(tj.ones(1)).tolist() == [6]


def cube(x):
    return (x * x * x).sum()


def test_grad_of_jit_jit_of_grad_and_both():
    x = tj.asarray(np.arange(4, dtype=np.float32))
    expected = 3 * np.arange(4.0) ** 2
    for function in (tj.grad(tj.jit(cube)), tj.jit(tj.grad(cube)), tj.jit(tj.grad(tj.jit(cube)))):
        for _ in range(3):
            close(function(x), expected)


def test_second_derivatives():
    def slope(x):
        return tj.grad(cube)(x).sum()

    x = tj.asarray(np.arange(4, dtype=np.float32))
    for function in (tj.grad(slope), tj.jit(tj.grad(slope)), tj.grad(tj.jit(slope))):
        for i in range(3):
            close(function(x + i), 6 * (np.arange(4.0) + i))


def test_the_gradient_of_a_training_step_inside_a_trace():
    def loss(params, x, y):
        return ((x @ params["w"] + params["b"] - y) ** 2).mean()

    @tj.jit
    def step(params, x, y, lr):
        value, grads = tj.value_and_grad(loss)(params, x, y)
        for name in params:
            params[name] -= lr * grads[name]
        return value

    rng = np.random.default_rng(0)
    w, b = np.zeros(3), np.zeros(())
    params = {"w": tj.zeros(3), "b": tj.zeros(())}
    for i in range(5):
        x, y = rng.normal(size=(8, 3)), rng.normal(size=8)
        lr = 0.1 / (i + 1)
        error = x @ w + b - y
        value = step(params, tj.asarray(x.astype(np.float32)), tj.asarray(y.astype(np.float32)), lr)
        close(value, (error**2).mean())
        w, b = w - lr * 2 * x.T @ error / 8, b - lr * 2 * error.mean()
        close(params["w"], w)
        close(params["b"], b)
    assert step.cache_info().traces == 1


def test_gradients_through_in_place_updates_and_captured_arrays():
    scale = tj.asarray(np.float32([1, 2, 3]))

    def loss(x):
        y = x * scale
        y[1:] *= x[:-1]
        y += 1
        return (y * y).sum()

    def expected(x):
        s = np.array([1.0, 2.0, 3.0])
        y = x * s
        y[1:] *= x[:-1]
        y += 1
        d = 2 * y
        out = np.zeros(3)
        out[0] += d[0] * s[0]
        for i in (1, 2):
            out[i] += d[i] * s[i] * x[i - 1]
            out[i - 1] += d[i] * s[i] * x[i]
        return out

    jitted = tj.jit(tj.grad(loss))
    for i in range(4):
        x = np.array([1.0, -2.0, 0.5]) + i
        close(tj.grad(loss)(tj.asarray(x.astype(np.float32))), expected(x))
        close(jitted(tj.asarray(x.astype(np.float32))), expected(x))


def test_recursion():
    def make(xp, array):
        def power(x, n):
            if n == 0:
                return x * 0.0 + 1.0
            return x * power(x, n - 1)

        def step(x, n):
            return power(x, n)

        return Program(step, lambda i: (array([1.0, 2.0]), i % 3))

    check(make, calls=9, traces=3)

    @tj.jit
    def halve(x, n):
        return x if n == 0 else halve(x * 0.5, n - 1)

    for n in (3, 1, 3, 2):
        assert halve(tj.ones(1), n).tolist() == [0.5**n]
    assert halve.cache_info().traces == 3


class Model:
    def __init__(self, scale):
        self.w, self.scale = tj.ones(2), scale

    @tj.jit
    def forward(self, x):
        return self.w * x * self.scale

    @staticmethod
    @tj.jit
    def double(x):
        return x * 2

    @classmethod
    def make(cls):
        return cls(3.0)

    def __call__(self, x):
        return self.forward(x) + 1


def test_methods():
    model = Model.make()
    for i in range(4):
        assert model.forward(tj.ones(2) * i).tolist() == [3 * i] * 2
        assert Model.double(tj.ones(1) * i).tolist() == [2 * i]
    jitted = tj.jit(model.__call__)
    whole = tj.jit(model)
    for i in range(4):
        model.w += 1
        assert jitted(tj.ones(2)).tolist() == whole(tj.ones(2)).tolist() == [3 * (2 + i) + 1] * 2
    assert jitted.cache_info().traces == whole.cache_info().traces == 1
    assert "signature" in model.forward.explain()


def test_partials():
    def step(scale, x, *, shift):
        return x * scale + shift

    function = tj.jit(functools.partial(step, 2.0, shift=1.0))
    for i in range(4):
        assert function(tj.ones(1) * i).tolist() == [2 * i + 1]
    assert function.cache_info().traces == 1
    assert "signature" in function.explain()
    half = functools.partial(tj.jit(step), 0.5)
    for i in range(3):
        assert half(tj.ones(1), shift=i).tolist() == [0.5 + i]


def test_all_kinds_of_parameters():
    def make(xp, array):
        def step(x, /, y, scale=2.0, *rest, shift, bias=0.5, **options):
            total = x * scale + y + shift + bias
            for part in rest:
                total = total + part
            for name in sorted(options):
                total = total * options[name]
            return total

        def arguments(i):
            x = array([1.0, float(i)])
            if i % 3 == 0:
                return x, x * 2.0, Keywords(shift=i)
            if i % 3 == 1:
                return x, x, 3.0, x, i, Keywords(shift=1.0, bias=2.0)
            return x, Keywords(y=x, b=2.0, a=x, shift=0.0)

        return Program(step, arguments)

    check(make, calls=12, traces=3)


def test_a_changed_default_is_seen():
    def step(x, scale=2.0):
        return x * scale

    jitted = tj.jit(step)
    assert jitted(tj.ones(1)).tolist() == [2]
    step.__defaults__ = (5.0,)
    assert jitted(tj.ones(1)).tolist() == [5]


def test_keywords_in_any_order_are_one_signature():
    step = tj.jit(lambda *, a, b: a - b)  # ``**parts`` would see the order
    one, two = tj.ones(1), tj.ones(1) * 2
    assert step(a=one, b=two).tolist() == step(b=two, a=one).tolist() == [-1]
    assert step.cache_info().traces == 1


def test_generators_and_coroutines_are_rejected_clearly():
    def batches(x):
        yield x

    async def later(x):
        return x

    class Steps:
        @tj.jit
        def fine(self, x):
            return x * 2

        def flow(self, x):
            yield x

        @classmethod
        def shared_flow(cls, x):
            yield x

        def __call__(self, x):
            yield x

    async def steps(x):
        yield x

    methods = (Steps().flow, Steps.shared_flow, Steps(), functools.partial(Steps()))
    for function in (batches, later, steps, functools.partial(batches), *methods):
        with pytest.raises(TypeError, match="generator or coroutine"):
            tj.jit(function)
    with pytest.raises(TypeError, match="expected a function"):
        tj.jit(3)


def test_a_generator_as_a_result_is_new_in_every_call():
    @tj.jit
    def step(x, n):
        return (x * i * n for i in range(n))

    for n in (2, 3, 2, 3):
        assert [part.tolist() for part in step(tj.ones(1), n)] == [[i * n] for i in range(n)]
    assert "the result is a generator" in step.explain()


def test_jit_with_options_and_names():
    @tj.jit(strict=True)
    def step(x):
        """Doubles."""
        return x * 2

    assert step.__name__ == "step"
    assert step.__doc__ == "Doubles."
    assert step(tj.ones(1)).tolist() == [2]


def test_without_jit_everything_runs_eagerly(monkeypatch):
    monkeypatch.setattr(config, "jit", False)
    calls = []

    @tj.jit
    def step(x, data):
        calls.append(type(data))
        x += 1
        return x + data

    x = tj.zeros(2)
    for i in range(3):
        assert step(x, np.full(2, 1.0, np.float32)).tolist() == [i + 2] * 2
    assert calls == [tj.NDArray] * 3
    assert step.cache_info().traces == 0


def test_warm_graph_and_schedule_change_nothing():
    w, log = tj.zeros(3), {"t": 0}

    @tj.jit
    def step(w, x, lr):
        w -= lr * x
        log["t"] += 1
        return w.sum()

    step.warm(tj.spec(3), tj.spec(3), 0.1)
    assert "subtract" in str(step.graph(w, tj.ones(3), 0.1))
    assert step.cache_info().traces == 1
    assert (w.tolist(), log) == ([0, 0, 0], {"t": 0})
    step(w, tj.ones(3), 0.5)
    assert step.cache_info().traces == 1
    assert step.cache_info().replays == 1
    assert (w.tolist(), log) == ([-0.5] * 3, {"t": 1})


def test_cache_clear():
    step = tj.jit(lambda x: x * 2)
    step(tj.ones(1))
    step.cache_clear()
    assert step.cache_info().signatures == 0
    assert step(tj.ones(1)).tolist() == [2]
