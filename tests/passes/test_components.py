"""Components of a graph that are equal: one of each kind goes through the passes, the others are copied."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import F4, assert_same, assert_same_meaning, random_graph, random_inputs
from tests.launching import launch
from tracejit import compile, ops
from tracejit.compile import compile_graph, plan_graph
from tracejit.config import config
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.ops.structural import keep_callback
from tracejit.passes import components
from tracejit.passes.components import Twins
from tracejit.passes.driver import optimize
from tracejit.passes.memory.aliases import is_task

X = ArrayType((3,), F4)


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch):
    monkeypatch.setattr(components, "MIN_NODES", 1)


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


def updates(count: int, change=lambda b, k, x: x, *, returns: bool = True) -> Graph:
    b = Builder()
    rate = b.input(ArrayType((), F4, HOST))
    effects = []
    for k in range(count):
        w, g = b.input(X), b.input(X)
        half = b.emit(ops.constant, **constant_of(0.5, F4))
        step = b.emit(ops.multiply, b.emit(ops.multiply, change(b, k, g), half), rate)
        effects.append(Effect(w, b.emit(ops.subtract, w, step, location="model.py:7")))
    return b.graph([effects[-1].value] if returns else [], effects)


def test_one_of_each_kind_is_left():
    """The last update is also an output: it is of a kind of its own."""
    graph = updates(5)
    twins = Twins(graph)
    assert [len(kind.twins) for kind in twins.kinds] == [3]
    assert len(twins.reduced.nodes) == 8
    assert twins.reduced.inputs == (*graph.inputs[:3], *graph.inputs[-2:])
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
    graph = updates(8, change, returns=False)
    found = plan_graph(graph)
    assert len(seen) == looks
    monkeypatch.setattr(config, "disable", frozenset({"components"}))
    wanted = plan_graph(graph)
    assert len(found.memory.tasks) == len(wanted.memory.tasks)
    assert found.planned_bytes == wanted.planned_bytes
    assert_same_meaning(verify(found.memory.graph), graph)


def counted(function, given: list[Graph]):
    """`function`, which notes the graphs that it is given."""
    return lambda graph, *more: given.append(graph) or function(graph, *more)


def results(count: int) -> Graph:
    """A new array of each of some arrays, and a product in its place of two of three."""
    b = Builder()
    outputs, effects = [], []
    rate = b.input(ArrayType((), F4, HOST))
    for k in range(count):
        x = b.input(X)
        outputs.append(b.emit(ops.exp, x))
        if k % 3:
            effects.append(Effect(x, b.emit(ops.multiply, x, rate)))
    return b.graph(outputs, effects)


def callbacks(count: int) -> Graph:
    """Updates behind a node that can fail, and one that keeps an order."""
    updated = updates(count, returns=False)
    b = Builder()
    b.inputs = list(updated.inputs)
    b.emit(ops.check_index, b.input(ArrayType((3,), np.dtype("int64"))), extent=3, axis=0)
    b.emit(ops.callback, b.input(X), id=keep_callback(lambda x: None))
    b.nodes += updated.nodes
    return b.graph(updated.outputs, updated.effects)


@pytest.mark.parametrize(
    "graph", [updates(9, returns=False), updates(8, attribute, returns=False), results(9), callbacks(5)]
)
def test_the_program_with_copies_is_that_of_the_whole_graph(graph, monkeypatch):
    planned = []
    monkeypatch.setattr(compile, "plan", counted(compile.plan, planned))
    copied = compile_graph(graph)
    assert sum(map(is_task, planned[0].nodes)) <= 4 < len(copied.tasks)
    monkeypatch.setattr(compile, "are_copyable", lambda memory: False)
    whole = compile_graph(graph)
    assert [t._replace(callable=None) for t in copied.tasks] == [
        t._replace(callable=None) for t in whole.tasks
    ]
    assert list(copied.program.template) == list(whole.program.template)
    assert copied.program.patches == whole.program.patches
    assert copied.program.arguments == whole.program.arguments
    assert copied.text() == whole.text()
    assert (copied.lines, copied.segments) == (whole.lines, whole.segments)
    assert (copied.naive_bytes, copied.operations) == (whole.naive_bytes, whole.operations)
    assert [kernel.locations for kernel in copied.kernels] == [kernel.locations for kernel in whole.kernels]


def test_the_whole_graph_is_planned_when_somebody_asks_for_it(monkeypatch):
    planned = []
    monkeypatch.setattr(config, "verify", False)
    monkeypatch.setattr(compile, "plan", counted(compile.plan, planned))
    schedule = compile_graph(updates(9, returns=False))
    assert [sum(map(is_task, graph.nodes)) for graph in planned] == [1]
    assert len(schedule.plan.tasks) == len(schedule.tasks) == 9
    assert schedule.graph is schedule.plan.graph is planned[1]


def test_tasks_that_need_memory_of_the_launch_are_planned_together():
    graph = updates(5, lambda b, k, x: b.emit(ops.sort, b.emit(ops.exp, x), axis=0), returns=False)
    schedule = compile_graph(graph)
    assert schedule.planned_bytes > 0
    assert len(schedule.tasks) == len(schedule.plan.tasks) == 15


@pytest.mark.parametrize("seed", range(30))
def test_copied_tasks_compute_the_same(seed, monkeypatch):
    graph = copies(random_graph(seed, nodes=6), 3)
    arrays = random_inputs(graph, seed)
    found = launch(compile_graph(graph), arrays)
    monkeypatch.setattr(compile, "are_copyable", lambda memory: False)
    for got, expected in zip(found, launch(compile_graph(graph), arrays), strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_have_legal_copies(seed):
    graph = copies(random_graph(seed), 3)
    assert_same_meaning(verify(plan_graph(graph).memory.graph), graph, seed)
