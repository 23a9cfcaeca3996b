"""Orders of start, and memory handed on along time: same results, no longer path, never more memory."""

import functools

import numpy as np
import pytest

from tests.graphs import F4, assert_same, fuse, outcome, random_graph, random_inputs
from tests.passes.memory.test_plan import multilayer, wrapped
from tests.passes.models import mlp_step
from tests.passes.simulate import run_plan
from tracejit import ops
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.memory import pack, plan
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.timing import earliest, in_order_of_start, reordered
from tracejit.passes.simplify import simplify


@pytest.fixture
def eager_to_share(monkeypatch):
    """Small buffers are handed on along time too, also where that saves nothing."""
    monkeypatch.setattr(pack, "LARGE", 1)
    monkeypatch.setattr(plan, "LARGE", 0)
    monkeypatch.setattr(plan, "SAVING", -1)


def in_users_order(graph, monkeypatch):
    """The plan without a timetable."""
    with monkeypatch.context() as patch:
        patch.setattr(plan, "SAVING", 1)
        return plan.plan(graph)


def paths(planned):
    """For each task: all tasks that it waits for, as a set of nodes."""
    ancestors = []
    for task in planned.tasks:
        ancestors.append(
            {planned.tasks[t].node for t in task.after}.union(*(ancestors[t] for t in task.after))
        )
    return dict(zip((task.node for task in planned.tasks), ancestors, strict=True))


def starts(planned):
    """When each node starts at the earliest."""
    nodes, costs, after = zip(*((t.node, t.cost, t.after) for t in planned.tasks), strict=True)
    return {node: start for node, (start, _) in zip(nodes, earliest(nodes, costs, after), strict=True)}


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs(seed, eager_to_share, monkeypatch):
    """Any order that the edges allow gives the evaluator's results; the edges that came lengthen no path."""
    graph = dce(cse(simplify(random_graph(seed, nodes=40))))
    for make in (wrapped, fuse):
        legal = legalize(make(graph))
        planned, plain = plan.plan(legal), in_users_order(legal, monkeypatch)
        if not planned.tasks:
            continue
        assert starts(planned) == starts(plain)
        waits, before = paths(planned), paths(plain)
        assert all(before[node] <= waits[node] for node in waits)
        arrays = random_inputs(graph, seed)
        outputs, storages = outcome(graph, arrays)
        for order in range(3):
            got, after = run_plan(planned, arrays, np.random.default_rng([seed, order]))
            assert_same(got, outputs)
            assert_same(after, storages)


@pytest.mark.parametrize("seed", range(200))
def test_never_more_memory_than_in_the_users_order(seed, monkeypatch):
    monkeypatch.setattr(pack, "LARGE", 1)
    monkeypatch.setattr(plan, "LARGE", 0)
    legal = legalize(fuse(dce(cse(simplify(random_graph(seed, nodes=60))))))
    assert plan.plan(legal).arena_bytes <= in_users_order(legal, monkeypatch).arena_bytes


def test_a_deep_network_holds_two_cotangents_at_a_time(eager_to_share, monkeypatch):
    """In the user's order all cotangents wait for the gradients of the weights, which come last."""
    graph = legalize(fuse(dce(simplify(multilayer(16)))))
    users = in_users_order(graph, monkeypatch)
    ordered = plan.plan(graph)
    layer = 32 * 64 * 4
    assert users.arena_bytes > 28 * layer  # 15 activations, and the cotangents
    assert ordered.arena_bytes <= 20 * layer
    assert starts(ordered) == starts(users)


def test_independent_branches_stay_independent(eager_to_share):
    """The error that goes back, and the gradients of weight and bias."""
    graph, inputs = mlp_step()
    legal = legalize(fuse(graph))
    of = {effect.target: effect.value for effect in legal.effects}
    waits = paths(plan.plan(legal))
    producers = {value: node for node in waits for value in node.outputs}
    weight, bias = producers[of[inputs["vw2"]]], producers[of[inputs["b2"]]]
    (error,) = [n for n in waits if "where" in operators(n) and n.attrs["kind"] == "panel"]
    for one in (weight, bias, error):
        for other in (weight, bias, error):
            assert one not in waits[other]


def operators(node):
    return [inner.op.name for inner in node.attrs["body"].nodes] if node.op is ops.fused else [node.op.name]


def test_nobody_waits_for_what_comes_after_a_python_task(eager_to_share):
    """A callback may take any time, so what reads its operand later has not ended when others start."""
    b = Builder()
    x = b.input(ArrayType((1000,), F4))
    first = b.emit(ops.exp, x)
    number = ops.structural.keep_callback(lambda array: None)
    b.emit(ops.callback, first, id=number)
    second = functools.reduce(lambda value, _: b.emit(ops.sin, value), range(50), x)
    planned = plan.plan(legalize(b.graph([b.emit(ops.copy, second)])))
    waits = paths(planned)
    (callback,) = [node for node in waits if node.op is ops.callback]
    assert not any(callback in found for found in waits.values())


def test_the_order_of_start_keeps_the_users_order_where_it_can():
    assert in_order_of_start([(0, 5), (0, 1), (5, 9), (1, 2)]) == [0, 1, 3, 2]
    assert reordered([(), (), (0,), (1,)], [0, 1, 3, 2]) == [(), (), (1,), (0,)]
