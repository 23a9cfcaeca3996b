"""Optimizers against their papers' recurrences written in NumPy float64, and in-place behaviour."""

import numpy as np
import pytest

import tracejit as tj


def trees(rng, dtype=np.float64):
    """Parameters and three steps of gradients, as NumPy arrays."""
    shapes = {"w": (3, 4), "b": [(4,), ()]}

    def make():
        return {
            "w": rng.normal(size=shapes["w"]).astype(dtype),
            "b": [rng.normal(size=s).astype(dtype) for s in shapes["b"]],
        }

    return make(), [make() for _ in range(3)]


def to_arrays(tree):
    return {"w": tj.asarray(tree["w"]), "b": [tj.asarray(x) for x in tree["b"]]}


def leaves(tree):
    return [np.asarray(x) for x in (tree["w"], *tree["b"])]


def reference(name, params, steps, lr):
    """Parameters after all steps, by the definitions."""
    results = []
    for index, p in enumerate(leaves(params)):
        p, v, m = p.astype(np.float64), 0.0, 0.0
        for t, grads in enumerate(steps, 1):
            g = leaves(grads)[index].astype(np.float64)
            if name == "sgd":
                p = p - lr * g
            elif name in ("momentum", "nesterov"):
                v = 0.8 * v + g
                p = p - lr * (g + 0.8 * v if name == "nesterov" else v)
            else:
                decay = 0.1 if name == "adamw" else 0.0
                m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
                p = p - lr * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8) + decay * p)
        results.append(p)
    return results


def update(name, params, grads, state, lr):
    if name == "sgd":
        tj.optim.sgd(params, grads, lr)
    elif name in ("momentum", "nesterov"):
        tj.optim.momentum(params, grads, state, lr, 0.8, nesterov=name == "nesterov")
    else:
        tj.optim.adam(params, grads, state, lr, 0.9, 0.99, weight_decay=0.1 if name == "adamw" else 0.0)


def state_of(name, params):
    return tj.optim.adam_state(params) if name.startswith("adam") else tj.optim.zeros_like(params)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "adamw"])
def test_three_steps(name, run):
    params, steps = trees(np.random.default_rng(1))
    arrays, gradients = to_arrays(params), [to_arrays(g) for g in steps]
    memory = [arrays["w"], *arrays["b"]]
    state = state_of(name, arrays)
    step = tj.jit(update) if run.mode == "jit" else update
    for grads in gradients:
        assert step(name, arrays, grads, state, 0.1) is None
    for got, expected in zip(leaves(arrays), reference(name, params, steps, 0.1), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
    assert all(a is b for a, b in zip(memory, (arrays["w"], *arrays["b"]), strict=True))
    if name.startswith("adam"):
        assert state["step"] == 3


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_float32_stays_float32(name, evaluator):
    params, steps = trees(np.random.default_rng(2), np.float32)
    arrays = to_arrays(params)
    state = state_of(name, arrays)
    for grads in steps:
        update(name, arrays, to_arrays(grads), state, 1e-2)
    for got, expected in zip(leaves(arrays), reference(name, params, steps, 1e-2), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


def test_a_changing_learning_rate_does_not_retrace():
    params, grads = {"w": tj.ones(3)}, {"w": tj.ones(3)}
    state = tj.optim.adam_state(params)
    step = tj.jit(lambda p, g, s, lr: tj.optim.adam(p, g, s, lr))
    for lr in (0.1, 0.2, 0.3):
        step(params, grads, state, lr)
    assert step.cache_info().traces == 1
    assert state["step"] == 3


def test_errors():
    with pytest.raises(tj.errors.ArgumentError, match=r"the trees differ(?s:.*)test_optim"):
        tj.optim.sgd({"w": tj.ones(2)}, {"v": tj.ones(2)}, 0.1)
    with pytest.raises(tj.errors.ArgumentError, match=r"params\['w'\] is a float"):
        tj.optim.sgd({"w": 1.0}, {"w": tj.ones(2)}, 0.1)
    with pytest.raises(tj.errors.ShapeError):
        tj.optim.sgd([tj.ones(2)], [tj.ones(3)], 0.1)
