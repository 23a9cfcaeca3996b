"""`plan` of a traced function: what `warm` would plan, but nothing is compiled, run or kept."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.assembly import link
from tracejit.codegen.objects import loader


def step(w, x, rate):
    loss, gradient = tj.value_and_grad(lambda w: (tj.tanh(x @ w) ** 2).sum())(w)
    w -= rate * gradient
    return loss


def test_plan_is_that_of_the_schedule():
    traced = tj.jit(step)
    plan = traced.plan(tj.spec((40, 30)), tj.spec((50, 40)), 0.1)
    schedule = traced.schedule(tj.spec((40, 30)), tj.spec((50, 40)), 0.1)
    assert plan.planned_bytes == schedule.planned_bytes > 0
    assert plan.naive_bytes == schedule.naive_bytes > plan.planned_bytes
    assert plan.operations == schedule.operations


def test_plan_compiles_runs_and_keeps_nothing(monkeypatch):
    tj.engine.start()

    def refuse(recipes):
        raise AssertionError("a kernel was asked for")

    monkeypatch.setattr(loader, "load", refuse)
    monkeypatch.setattr(link, "load", refuse)
    traced, w = tj.jit(step), tj.asarray(np.ones((40, 30), np.float32))
    plan = traced.plan(w, tj.spec((50, 40)), 0.1)
    assert plan.planned_bytes > 0
    assert traced.cache_info().traces == traced.cache_info().signatures == 0
    np.testing.assert_array_equal(w.numpy(), 1)


def test_plan_of_what_cannot_be_replayed_raises():
    with pytest.raises(tj.errors.ReplayError, match="test_plan"):
        tj.jit(lambda x: x * 2 if x[0] > 0 else x).plan(tj.spec(3))


def test_functions_with_one_name_have_graphs_of_their_own():
    """`graph`, `warm` and others look for an entry that serves the same calls."""
    apply = tj.jit(lambda function, x: function(x))
    for function, name in ((lambda x: x + x, "add"), (lambda x: x * x, "multiply")):
        for _ in range(2):
            graph = apply.graph(function, tj.spec(3))
            assert [node.op.name for node in graph.nodes] == [name]
    assert apply.cache_info().signatures == 2
