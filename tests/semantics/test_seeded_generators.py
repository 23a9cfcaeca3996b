"""NumPy's generators that a body creates from a seed (`surroundings.random_module`): NumPy is the oracle."""

from __future__ import annotations

import copy
import types

import numpy as np
import pytest
from numpy.random import default_rng

import tracejit as tj
from tests.frontend.samples import same_tree
from tracejit.errors import ReplayError


def is_recorded(step):
    return "piecewise" not in step.explain()


def weights(x):
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 2)) * 0.1
    return x @ w + rng.uniform(-1, 1, 2), rng.integers(0, 9, 3), rng.random()


def helper():
    return np.random.default_rng(5).normal(1.0, 2.0, size=(3,))


def called(x):
    return x[:, 0] * helper()[0]


def by_name(x):
    return x + default_rng([1, 2]).random(4)


def many(x):
    rng = np.random.default_rng(seed=11)
    order = np.arange(4)
    rng.shuffle(order)
    return (
        x[:, order],
        x * rng.choice([1.0, 2.0, 4.0], 4),
        rng.permutation(4) + x,
        rng.exponential(2.0, 4) * x,
        rng.choice(10, 3, replace=False, p=np.full(10, 0.1)),
    )


def in_a_loop(x):
    rng = np.random.default_rng(7)
    y = x * 1
    for _ in range(30):
        y = y + rng.standard_normal(4)
        if rng.random() < 0.5:
            y = y * 0.5
    return y, rng.random()


def long_loop(x):
    """Only a few iterations of such a loop are recorded if nothing differs between them."""
    rng = np.random.default_rng(1)
    y = np.zeros(8000)
    for i in range(1, 8000):
        y[i] = y[i - 1] * 0.5 + x[0, 0]
        rng.random()
    return y, rng.random()


def looking(x):
    rng = np.random.default_rng(2)
    y, n = x.sum(), 0
    while float(y) < 40:
        y = y + rng.random()
        n += 1
    return y, n, rng.random()


def filled(x):
    """The numbers are stored in an array with recorded ones."""
    rng = np.random.default_rng(4)
    y = rng.random((3, 4))
    y[1] = x[0]
    y[2] += x[1]
    return y


class Model:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.w = rng.standard_normal(4)

    def __call__(self, x):
        return x * self.w


def of_a_class(x):
    return Model(3)(x)


BODIES = [weights, called, by_name, many, in_a_loop, long_loop, looking, filled, of_a_class]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_numbers(body):
    """Recorded calls and replays have NumPy's numbers."""
    step, rng = tj.jit(body), np.random.default_rng(0)
    for _ in range(4):
        x = rng.random((3, 4))
        same_tree(step(x), body(x))
    assert is_recorded(step), step.explain()
    assert step.cache_info().replays > 0


def test_a_long_loop_that_draws_is_rolled():
    """Its iterations are not looks, at which the state would be unknown."""
    step = tj.jit(long_loop)
    step(np.ones((3, 4)))
    assert "looks" not in step.explain()
    assert "became 2 kernels" in step.explain()


def test_a_seed_that_is_an_argument():
    step = tj.jit(lambda x, seed: x + np.random.default_rng(seed).random(3))
    x = np.arange(3.0)
    for seed in (1, 2, 1, 3, 2, 1):
        same_tree(step(x, seed), x + np.random.default_rng(seed).random(3))
    assert step.cache_info().traces == 3


def unseeded(x):
    return x + np.random.default_rng().random(3)


def of_an_array(x):
    return np.random.default_rng(1).normal(x)


def global_stream(x):
    return x + np.random.rand(3) + np.random.default_rng(1).random(3)


def alias(x):
    module = np
    return x + module.random.random(3) + np.random.default_rng(1).random(3)


def own_import(x):
    import numpy.random

    return x + numpy.random.random(3) + np.random.default_rng(1).random(3)


def state(x):
    rng = np.random.default_rng(1)
    rng.bit_generator.advance(3)
    return x + rng.random(3)


def children(x):
    return x + np.random.default_rng(1).spawn(1)[0].random(3)


def copied(x):
    rng = np.random.default_rng(1)
    other = copy.copy(rng)
    return x + other.random(3) + rng.random(3)


REFUSED = [unseeded, of_an_array, global_stream, alias, own_import, state, children, copied]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_piecewise(body):
    """Each is as in NumPy, and no draw is frozen."""
    step, x = tj.jit(body), np.arange(3.0)
    before = np.random.get_state()
    results = [np.asarray(step(x.copy())) for _ in range(4)]
    np.random.set_state(before)
    if body is unseeded:
        assert len({result.tobytes() for result in results}) == 4
    else:
        np.testing.assert_allclose(results, [body(x.copy()) for _ in range(4)])
    assert not is_recorded(step)
    with pytest.raises(ReplayError, match=r"(?i)numpy"):
        tj.jit(body, strict=True)(x)


def test_a_generator_that_outlives_the_call():
    """Each call returns a new one, or stores one, that goes on after the draws of the body."""
    holder = types.SimpleNamespace(rng=None)

    def stored(x):
        holder.rng = np.random.default_rng(1)
        return x + holder.rng.random(3)

    def returned(x):
        rng = np.random.default_rng(1)
        return rng, x + rng.random(3)

    keeps, gives, x = tj.jit(stored), tj.jit(returned), np.arange(3.0)
    expected = np.random.default_rng(1).random(5)
    for _ in range(3):
        same_tree(keeps(x), x + expected[:3])
        assert holder.rng.random() == expected[3]
        rng, y = gives(x)
        same_tree(y, x + expected[:3])
        assert rng.random() == expected[3]
        assert rng.random() == expected[4]


POPULATION = np.arange(1.0, 9)


def test_draws_that_depend_on_arrays_from_outside():
    """They are guarded by content, and may be changed in place."""

    def chosen(x):
        return x + np.random.default_rng(1).choice(POPULATION, 3)

    def shuffled(x):
        rng = np.random.default_rng(1)
        rng.shuffle(POPULATION)
        return x * rng.random(3)

    def filled(x):
        np.random.default_rng(1).random(out=POPULATION)
        return x

    x = np.arange(3.0)
    for body in (chosen, shuffled, filled):
        step = tj.jit(body)
        for k in range(4):
            POPULATION[:] = np.arange(8.0) + k // 2
            before = POPULATION.copy()
            result, after = np.asarray(step(x)), POPULATION.copy()
            POPULATION[:] = before
            same_tree(result, body(x))
            same_tree(after, POPULATION)


def test_shuffling_recorded_values_is_refused():
    """NumPy would swap views of rows."""
    with pytest.raises(ReplayError, match="shuffle of a NumPy generator"):
        tj.jit(lambda x: np.random.default_rng(1).shuffle(x), strict=True)(np.ones((3, 3)))


def test_a_generator_from_outside():
    """The calls draw from it in turn."""
    rng = np.random.default_rng(1)
    step, x = tj.jit(lambda x: x + rng.random(3)), np.arange(3.0)
    expected = np.random.default_rng(1)
    for _ in range(4):
        same_tree(step(x), x + expected.random(3))
