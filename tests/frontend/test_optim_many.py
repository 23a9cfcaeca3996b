"""Optimizers over many parameters: a trace records two updates of each kind, and copies them."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz import running
from tracejit.errors import ReadOnlyError
from tracejit.frontend.arrays import trees
from tracejit.ir.graph import Graph
from tracejit.optim import alike
from tracejit.passes import components
from tracejit.passes.components import Twins

SHAPES = [(3,), (2, 2), (3,), (3,), (2, 2), (2, 2), (), (3,)]


def tree(seed):
    rng = np.random.default_rng(seed)
    return [tj.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in SHAPES]


OPTIMIZERS = {
    "sgd": lambda p, g, s: tj.optim.sgd(p, g, 0.1, weight_decay=0.01),
    "momentum": lambda p, g, s: tj.optim.momentum(p, g, s, 0.1),
    "lion": lambda p, g, s: tj.optim.lion(p, g, s, 0.1),
    "adam": lambda p, g, s: tj.optim.adam(p, g, s),
    "lamb": lambda p, g, s: tj.optim.lamb(p, g, s),
    "rmsprop": lambda p, g, s: tj.optim.rmsprop(p, g, s),
    "adagrad": lambda p, g, s: tj.optim.adagrad(p, g, s),
    "adadelta": lambda p, g, s: tj.optim.adadelta(p, g, s),
}


def state(name, params):
    if name in ("momentum", "lion", "adagrad"):
        return [tj.zeros(p.shape) for p in params]
    make = "adam_state" if name == "lamb" else f"{name}_state"
    return getattr(tj.optim, make)(params) if name != "sgd" else None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_those_of_the_loop(name, monkeypatch):
    def results():
        with running.simulated():
            params = tree(1)
            held = state(name, params)
            step = tj.jit(OPTIMIZERS[name], strict=True)
            for seed in (2, 3):
                step(params, tree(seed), held)
            assert step.cache_info().replays == 1
            return [np.asarray(x) for x in trees.leaves([params, held])]

    found = results()
    with monkeypatch.context() as m:
        m.setattr(alike._Kind, "note", lambda *args: None)
        expected = results()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_of_a_kind_are_recorded():
    def doubled(arrays):
        rows = 0
        for (x,) in alike.each([(x,) for x in arrays]):
            x *= 2
            rows += 1
        return rows

    with running.simulated():
        for count in (2, 3, 20):
            arrays = [tj.full((3,), float(k)) for k in range(count)]
            assert tj.jit(doubled, strict=True)(arrays) == 2
            np.testing.assert_array_equal(np.stack(arrays)[:, 0], 2 * np.arange(count))
        assert doubled(arrays) == len(arrays)
        mixed = [tj.ones(3), tj.ones(4), *(tj.ones(3) for _ in range(2)), *(tj.ones(4) for _ in range(3))]
        assert tj.jit(doubled, strict=True)(mixed) == 4
        np.testing.assert_array_equal(np.concatenate(mixed), 2)


def test_rows_that_are_not_alike_are_recorded():
    def shifted(arrays):
        rows = 0
        for (x,) in alike.each([(x,) for x in arrays]):
            x += arrays[0]
            rows += 1
        return rows

    arrays = [tj.full((3,), float(k + 1)) for k in range(5)]
    with running.simulated():
        assert tj.jit(shifted, strict=True)(arrays) == 5
    np.testing.assert_array_equal(np.stack(arrays)[:, 0], [2, 4, 5, 6, 7])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_rate_that_is_one_of_the_arrays(position):
    """Nodes of its row and of others must not be taken for one another."""

    def step(params, grads):
        tj.optim.sgd(params, grads, grads[position])

    params, grads = ([tj.full((2,), float(3 * k + j)) for k in range(5)] for j in (1, 2))
    expected = [
        np.asarray(p) - np.asarray(g) * np.asarray(grads[position])
        for p, g in zip(params, grads, strict=True)
    ]
    with running.simulated():
        tj.jit(step, strict=True)(params, grads)
    np.testing.assert_array_equal(np.stack(params), expected)


def test_parameters_that_are_given_twice_or_are_their_own_gradient():
    def step(params, grads):
        tj.optim.sgd(params, grads, 0.5)

    def given():
        params = [tj.full((2,), float(k + 1)) for k in range(6)]
        params.append(params[1])
        return params, [
            tj.ones(2),
            params[1],
            *(tj.ones(2) for _ in range(2)),
            params[4],
            tj.ones(2),
            tj.ones(2),
        ]

    eager, traced = given(), given()
    step(*eager)
    with running.simulated():
        tj.jit(step)(*traced)
    np.testing.assert_array_equal(np.stack(traced[0]), np.stack(eager[0]))


def test_gradients_computed_in_the_call():
    def step(params, x):
        grads = tj.grad(lambda ps: sum(((p * x) ** 2).sum() for p in ps))(params)
        tj.optim.sgd(params, grads, 0.1)

    params = [tj.full((2,), float(k)) for k in range(6)]
    with running.simulated():
        tj.jit(step, strict=True)(params, tj.asarray([1.0, 2.0]))
    for k, p in enumerate(params):
        np.testing.assert_allclose(p, k - 0.2 * k * np.array([1.0, 4.0]), rtol=1e-6, atol=1e-6)


def test_a_parameter_that_cannot_be_written():
    def step(params, grads):
        tj.optim.sgd(params, grads, 0.1)

    params = [tj.ones(2) for _ in range(4)] + [np.ones(2, np.float32)]
    with pytest.raises(ReadOnlyError, match=r"params\[4\] is a NumPy array"):
        tj.jit(step)(params, [tj.ones(2) for _ in range(5)])


def test_gradients_computed_in_the_call_are_of_few_kinds():
    """Their types are equal, not the same."""

    def step(params, x):
        grads = tj.grad(lambda ps: sum(((p * x) ** 2).sum() for p in ps))(params)
        rows = 0
        for p, g in alike.each(list(zip(params, grads, strict=True))):
            p -= g
            rows += 1
        return rows

    with running.simulated():
        assert tj.jit(step, strict=True)([tj.ones(2) for _ in range(9)], tj.ones(2)) == 2


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("shared", [False, True])
def test_recorded_copies_are_the_twins_that_a_search_finds(name, shared, monkeypatch):
    """Parts that share an array have no twins, whether their nodes are known to be copies or not."""
    monkeypatch.setattr(components, "MIN_NODES", 1)

    def step(params, grads, held):
        OPTIMIZERS[name](params, [g * grads[0].sum() for g in grads] if shared else grads, held)

    params = [tj.ones(3) for _ in range(6)] + [tj.ones(2) for _ in range(5)]
    graph = tj.jit(step).graph(params, [p + 1 for p in params], state(name, params))
    assert len(graph.notes["copied"]) == 11
    found = Twins(graph)
    searched = Twins(Graph(graph.inputs, graph.nodes, graph.outputs, graph.effects))
    assert [len(kind.twins) for kind in found.kinds] == [len(kind.twins) for kind in searched.kinds]
    assert bool(found.kinds) is not shared
    assert found.reduced.nodes == searched.reduced.nodes
    assert found.reduced.inputs == searched.reduced.inputs
