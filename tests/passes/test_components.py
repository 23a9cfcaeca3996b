"""Components of a graph that are equal: one of each kind goes through the passes, the others are copied."""

from __future__ import annotations

import pytest

from tests.graphs import F4, assert_same_meaning, random_graph
from tracejit import compile, ops
from tracejit.compile import plan_graph
from tracejit.config import config
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes import components
from tracejit.passes.components import Twins
from tracejit.passes.driver import optimize

X = ArrayType((3,), F4)


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch):
    monkeypatch.setattr(components, "FEW", 1)


def copies(graph: Graph, count: int) -> Graph:
    """`count` copies of a graph in one, their nodes in turn; run-time numbers are common to all."""
    b = Builder()
    maps: list[dict[Value, Value]] = [{} for _ in range(count)]
    for value in graph.inputs:
        for k, known in enumerate(maps):
            known[value] = maps[0][value] if k and value.type.on_host else b.input(value.type)
    for node in graph.nodes:
        for known in maps:
            inputs = tuple(known[v] for v in node.inputs)
            outputs = b.append(node.op, inputs, node.location, node.attrs)
            known.update(
                zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True)
            )
    outputs = [known[v] for v in graph.outputs for known in maps]
    return b.graph(
        outputs, [Effect(known[e.target], known[e.value]) for known in maps for e in graph.effects]
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_meaning(seed):
    graph = copies(random_graph(seed), 3)
    twins = Twins(graph)
    passed = optimize(verify(twins.reduced))
    assert_same_meaning(verify(twins.expanded(passed)), graph, seed)


def updates(count: int, change=lambda b, k, x: x) -> Graph:
    b = Builder()
    rate = b.input(ArrayType((), F4, HOST))
    effects = []
    for k in range(count):
        w, g = b.input(X), b.input(X)
        half = b.emit(ops.constant, **constant_of(0.5, F4))
        step = b.emit(ops.multiply, b.emit(ops.multiply, change(b, k, g), half), rate)
        effects.append(Effect(w, b.emit(ops.subtract, w, step, location="model.py:7")))
    return b.graph([effects[-1].value], effects)


def test_one_of_each_kind_is_left():
    """The last update is also an output: it is of a kind of its own."""
    graph = updates(5)
    twins = Twins(graph)
    assert [len(kind.twins) for kind in twins.kinds] == [3]
    assert len(twins.reduced.nodes) == 8
    assert twins.reduced.inputs == graph.inputs
    fused = twins.expanded(optimize(twins.reduced))
    assert [n.op.name for n in fused.nodes if n.op is not ops.constant] == ["fused"] * 5
    assert {n.location for n in fused.nodes if n.op is ops.fused} == {"model.py:7"}
    assert len({id(n.attrs["body"]) for n in fused.nodes[1:-1] if n.op is ops.fused}) <= 2
    assert_same_meaning(fused, graph)


def literal(b, k, x):
    return b.emit(ops.add, x, b.emit(ops.constant, **constant_of(float(k), F4)))


def attribute(b, k, x):
    return b.emit(ops.view, x, view=View(2 * (k % 2), (3,), (1 - 2 * (k % 2),)))


def line(b, k, x):
    return b.emit(ops.exp, x, location=f"model.py:{k}")


def number(b, k, x):
    return b.emit(ops.multiply, b.emit(ops.multiply, x, b.input(ArrayType((), F4, HOST))), b.inputs[0])


def shared(b, k, x):
    return b.emit(ops.add, x, b.inputs[1])


def fails(b, k, x):
    index = b.emit(ops.check_index, b.emit(ops.iota, size=3, device=CPU), extent=3, axis=0)
    return b.emit(ops.gather, x, index, axis=0)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [(literal, []), (attribute, [1, 1]), (line, []), (number, [2]), (shared, []), (fails, [])],
)
def test_what_differs_or_is_shared_has_no_twins(change, kinds):
    graph = updates(4 + (change is attribute), change)
    twins = Twins(graph)
    assert [len(kind.twins) for kind in twins.kinds] == kinds
    assert_same_meaning(twins.expanded(optimize(twins.reduced)), graph)


def test_the_plan_is_that_of_the_whole_graph(monkeypatch):
    graph = updates(6)
    with_twins = plan_graph(graph)
    monkeypatch.setattr(config, "disable", frozenset({"components"}))
    without = plan_graph(graph)
    assert with_twins.naive_bytes == without.naive_bytes > 0
    assert with_twins.operations == without.operations
    assert len(with_twins.memory.tasks) == len(without.memory.tasks) == 7


def reads_others(b, k, x):
    """The update of an element needs the old value of another one."""
    return b.emit(ops.add, x, b.emit(ops.view, b.inputs[-2], view=View(2, (3,), (-1,))))


@pytest.mark.parametrize(("change", "looks"), [(lambda b, k, x: x, 0), (reads_others, 1)])
def test_copies_of_what_is_legal_are_legal(change, looks, monkeypatch):
    """The twins' nodes are looked at only where the first of their kind needs a copy."""
    seen = []
    legalized = compile.legalize
    monkeypatch.setattr(compile, "legalize", lambda *given: seen.append(given) or legalized(*given))
    graph = updates(8, change)
    graph = Graph(graph.inputs, graph.nodes, (), graph.effects)
    found = plan_graph(graph)
    assert len(seen) == looks
    monkeypatch.setattr(config, "disable", frozenset({"components"}))
    wanted = plan_graph(graph)
    assert len(found.memory.tasks) == len(wanted.memory.tasks)
    assert found.planned_bytes == wanted.planned_bytes
    assert_same_meaning(verify(found.memory.graph), graph)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_have_legal_copies(seed):
    graph = copies(random_graph(seed), 3)
    assert_same_meaning(verify(plan_graph(graph).memory.graph), graph, seed)
