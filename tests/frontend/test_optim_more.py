"""Optimizers against PyTorch's formulas in NumPy float64; schedules; clipping; trees of more than arrays."""

import math

import numpy as np
import pytest

import tracejit as tj

optim = tj.optim


class Reference:
    """One array's updates by definition; `t` counts from 1."""

    def __init__(self, p):
        self.p, self.a, self.b, self.c = p.copy(), 0 * p, 0 * p, 0 * p

    def sgd_decay(self, g, t):
        self.p -= 0.1 * (g + 0.2 * self.p)

    def momentum_decay(self, g, t):
        g = g + 0.2 * self.p
        self.a = 0.8 * self.a + g
        self.p -= 0.1 * (g + 0.8 * self.a)

    def lion(self, g, t):
        update = np.sign(0.9 * self.a + 0.1 * g)
        self.a = 0.99 * self.a + 0.01 * g
        self.p -= 0.1 * (update + 0.2 * self.p)

    def _moments(self, g, t):
        self.a, self.b = 0.9 * self.a + 0.1 * g, 0.999 * self.b + 0.001 * g * g
        return self.a / (1 - 0.9**t), np.sqrt(self.b / (1 - 0.999**t))

    def adamw(self, g, t):
        first, root = self._moments(g, t)
        self.p -= 0.1 * (first / (root + 1e-8) + 0.01 * self.p)

    def lamb(self, g, t):
        first, root = self._moments(g, t)
        update = first / (root + 1e-6) + 0.01 * self.p
        length, reach = np.linalg.norm(self.p), np.linalg.norm(update)
        self.p -= 0.1 * update * (length / reach if length and reach else 1)

    def rmsprop(self, g, t):
        self.a = 0.99 * self.a + 0.01 * g * g
        self.p -= 0.1 * g / (np.sqrt(self.a) + 1e-8)

    def rmsprop_all(self, g, t):
        g = g + 0.2 * self.p
        self.a, self.b = 0.99 * self.a + 0.01 * g * g, 0.99 * self.b + 0.01 * g
        self.c = 0.5 * self.c + g / (np.sqrt(self.a - self.b**2) + 1e-8)
        self.p -= 0.1 * self.c

    def adagrad(self, g, t):
        g = g + 0.2 * self.p
        self.a = self.a + g * g
        self.p -= 0.1 * g / (np.sqrt(self.a) + 1e-10)

    def adadelta(self, g, t):
        self.a = 0.9 * self.a + 0.1 * g * g
        update = np.sqrt(self.b + 1e-6) / np.sqrt(self.a + 1e-6) * g
        self.b = 0.9 * self.b + 0.1 * update**2
        self.p -= 0.5 * update


OPTIMIZERS = {
    "sgd_decay": (lambda p: None, lambda p, g, s: optim.sgd(p, g, 0.1, weight_decay=0.2)),
    "momentum_decay": (
        optim.zeros_like,
        lambda p, g, s: optim.momentum(p, g, s, 0.1, 0.8, nesterov=True, weight_decay=0.2),
    ),
    "lion": (optim.zeros_like, lambda p, g, s: optim.lion(p, g, s, 0.1, weight_decay=0.2)),
    "adamw": (optim.adam_state, lambda p, g, s: optim.adamw(p, g, s, 0.1)),
    "lamb": (optim.adam_state, lambda p, g, s: optim.lamb(p, g, s, 0.1)),
    "rmsprop": (optim.rmsprop_state, lambda p, g, s: optim.rmsprop(p, g, s, 0.1)),
    "rmsprop_all": (
        lambda p: optim.rmsprop_state(p, momentum=True, centered=True),
        lambda p, g, s: optim.rmsprop(p, g, s, 0.1, momentum=0.5, weight_decay=0.2),
    ),
    "adagrad": (optim.zeros_like, lambda p, g, s: optim.adagrad(p, g, s, 0.1, weight_decay=0.2)),
    "adadelta": (optim.adadelta_state, lambda p, g, s: optim.adadelta(p, g, s, 0.5)),
}
SHAPES = [(3, 4), (4,), ()]


def numbers(rng, dtype=np.float64):
    return [rng.normal(size=s).astype(dtype) for s in SHAPES]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_steps(name, run):
    rng = np.random.default_rng(1)
    start, gradients = numbers(rng), [numbers(rng) for _ in range(4)]
    references = [Reference(p) for p in start]
    make, update = OPTIMIZERS[name]
    params = [tj.asarray(p) for p in start]
    state, arrays = make(params), list(params)
    step = tj.jit(update) if run.mode == "jit" else update
    for t, gradient in enumerate(gradients, 1):
        step(params, [tj.asarray(g) for g in gradient], state)
        for reference, g in zip(references, gradient, strict=True):
            getattr(reference, name)(g, t)
    for got, reference in zip(params, references, strict=True):
        np.testing.assert_allclose(got.numpy(), reference.p, rtol=1e-11, atol=1e-12)
    assert all(a is b for a, b in zip(params, arrays, strict=True))
    assert run.mode != "jit" or (step.cache_info().traces, step.cache_info().replays) == (1, 3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float32_stays_float32(name, evaluator):
    rng = np.random.default_rng(2)
    start, gradient = numbers(rng, np.float32), numbers(rng, np.float32)
    make, update = OPTIMIZERS[name]
    params = [tj.asarray(p) for p in start]
    update(params, [tj.asarray(g) for g in gradient], make(params))
    for p, before, g in zip(params, start, gradient, strict=True):
        reference = Reference(before.astype(np.float64))
        getattr(reference, name)(g.astype(np.float64), 1)
        assert p.dtype == np.float32
        np.testing.assert_allclose(p.numpy(), reference.p, rtol=1e-4, atol=1e-6)


def test_lamb_of_zeros(evaluator):
    params = [tj.zeros(2)]
    optim.lamb(params, [tj.zeros(2)], optim.adam_state(params))
    assert (params[0].numpy() == 0).all()


def test_what_has_no_gradient_stays(run):
    params = {"w": tj.ones(2), "power": 2, "labels": tj.asarray([1, 2])}

    def step(params, state, x):
        grads = tj.grad(lambda p: (p["w"] ** p["power"] * x).sum())(params)
        optim.adam(params, grads, state, 0.5)
        optim.sgd(params, grads, 0.5)

    traced = tj.jit(step) if run.mode == "jit" else step
    state = optim.adam_state(params)
    for _ in range(2):
        traced(params, state, tj.ones(2))
    assert (params["power"], state["step"]) == (2, 2)
    assert (params["w"].numpy() < 0).all()
    np.testing.assert_array_equal(params["labels"].numpy(), [1, 2])


def test_other_trees_are_refused():
    params = {"w": [tj.ones(2)], "b": tj.ones(2)}
    for grads in ({"w": [None]}, {"w": [tj.ones(2)], "b": [tj.ones(2)]}, {"w": None, "b": tj.ones(2)}):
        with pytest.raises(tj.errors.ArgumentError, match=r"the trees differ(?s:.*)test_optim_more"):
            optim.sgd(params, grads, 0.1)


# ---- schedules


def one_cycle(t, steps=20, highest=0.5):
    def half(start, end, share):
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

    top = 0.3 * steps - 1
    if t <= top:
        return half(highest / 25, highest, t / top)
    return half(highest, highest / 25 / 1e4, min((t - top) / (steps - 1 - top), 1))


SCHEDULES = {
    "linear": (lambda t: optim.linear(t, 8, 1.0, 0.2), lambda t: 1 - 0.8 * min(t / 8, 1)),
    "cosine": (
        lambda t: optim.cosine(t, 8, 1.0, 0.2),
        lambda t: 0.2 + 0.4 * (1 + math.cos(math.pi * min(t / 8, 1))),
    ),
    "warm_up": (lambda t: optim.warm_up(t, 4) * optim.cosine(t, 8, 1.0), None),
    "exponential": (lambda t: optim.exponential(t, 2.0, 0.7, every=3), lambda t: 2 * 0.7 ** (t / 3)),
    "step_decay": (lambda t: optim.step_decay(t, 2.0, 0.7, 3), lambda t: 2 * 0.7 ** (t // 3)),
    "piecewise": (
        lambda t: optim.piecewise_constant(t, [3, 7], [1.0, 0.5, 0.1]),
        lambda t: 1.0 if t < 3 else 0.5 if t < 7 else 0.1,
    ),
    "one_cycle": (lambda t: optim.one_cycle(t, 20, 0.5), one_cycle),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    schedule, oracle = SCHEDULES[name]
    traced = tj.jit(lambda x, t: x * schedule(t))
    for step in range(25):
        rate = schedule(step)
        assert type(rate) is float
        if oracle is not None:
            assert rate == pytest.approx(oracle(step), rel=1e-12, abs=1e-15)
        again = traced(tj.ones(1), step)
        assert again.dtype == np.float32
        np.testing.assert_allclose(again.numpy(), rate, rtol=1e-6, atol=1e-7)
    assert traced.cache_info().traces == 1


def test_a_traced_step_with_its_schedule():
    params, state = [tj.ones(3)], None
    state = optim.adam_state(params)

    @tj.jit
    def step(params, state):
        rate = optim.warm_up(state["step"], 4) * optim.cosine(state["step"], 10, 0.1)
        optim.adam(params, optim.clip_by_global_norm([params[0] * 2], 1.0), state, rate)

    for _ in range(6):
        step(params, state)
    assert step.cache_info().traces == 1
    assert state["step"] == 6
    expected, moments = np.ones(3), [np.zeros(3), np.zeros(3)]
    for t in range(6):
        g = expected * 2
        g = g / max(1, np.linalg.norm(g))
        moments = [0.9 * moments[0] + 0.1 * g, 0.999 * moments[1] + 0.001 * g * g]
        first, second = moments[0] / (1 - 0.9 ** (t + 1)), moments[1] / (1 - 0.999 ** (t + 1))
        expected = expected - optim.warm_up(t, 4) * optim.cosine(t, 10, 0.1) * first / (
            np.sqrt(second) + 1e-8
        )
    np.testing.assert_allclose(params[0].numpy(), expected, rtol=1e-5)


# ---- clipping


def test_clipping(run):
    rng = np.random.default_rng(3)
    tree = {"a": rng.normal(size=(3, 2)), "b": [rng.normal(size=4), None]}
    norm = np.sqrt(sum((x**2).sum() for x in (tree["a"], tree["b"][0])))

    def clipped(tree):
        return (
            optim.global_norm(tree),
            optim.clip_by_global_norm(tree, 0.5),
            optim.clip_by_global_norm(tree, 100),
            optim.clip_by_value(tree, 0.5),
        )

    found, small, same, cut = run(clipped, tj.tree.map(tj.asarray, tree))
    np.testing.assert_allclose(found, norm, rtol=1e-13)
    np.testing.assert_allclose(small["a"], tree["a"] * 0.5 / norm, rtol=1e-12)
    np.testing.assert_array_equal(same["b"][0], tree["b"][0])
    np.testing.assert_array_equal(cut["a"], np.clip(tree["a"], -0.5, 0.5))
    assert small["b"][1] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optim.linear(1, 0, 1.0), "steps must be above 0"),
        (lambda: optim.piecewise_constant(1, [2], [1.0]), "1 values for 1 boundaries"),
        (lambda: optim.one_cycle(1, 2, 1.0), "none for one of the halves"),
    ],
)
def test_errors_name_the_line(call, message):
    with pytest.raises(tj.errors.ArgumentError, match=rf"{message}(?s:.*)test_optim_more.py"):
        call()
