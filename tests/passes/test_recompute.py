"""recompute: what is cheap to compute again is not kept until the backward pass."""

import numpy as np
import pytest

import tracejit as tj
from tests.graphs import F4, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.config import config
from tracejit.ir.graph import Builder, constant_of
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes import recompute as module
from tracejit.passes.recompute import recompute

SIDE = 256  # of arrays that are large enough
TURNED = View.of_shape((SIDE, SIDE)).permute((1, 0))


def layers(make, side=SIDE, results=(), again=()):
    """``y = make(builder, x)`` of a product x, a product of y, and late products of y and the values `again`;
    `results` are more results, as names of values that `make` returns.
    """
    b = Builder()
    x, w, v = (b.input(ArrayType((side, side), F4)) for _ in range(3))
    known = {"x": b.emit(ops.matmul, x, w)}
    known |= make(b, known["x"])
    deep = b.emit(ops.matmul, b.emit(ops.matmul, known["y"], w), v)
    turned = View.of_shape((side, side)).permute((1, 0))
    late = [b.emit(ops.matmul, b.emit(ops.view, known[name], view=turned), deep) for name in ("y", *again)]
    return b.graph([deep, *late, *(known[name] for name in results)])


def tanh(b, x):
    return {"y": b.emit(ops.tanh, x)}


def half_of_tanh(b, x):
    half = b.emit(ops.constant, **constant_of(0.5, F4))
    middle = b.emit(ops.tanh, x)
    return {"middle": middle, "y": b.emit(ops.multiply, middle, half)}


def count(graph, op=ops.tanh):
    return sum(node.op is op for node in graph.nodes)


def test_a_value_is_computed_again_from_one_that_is_kept():
    graph = layers(half_of_tanh, again=["x"])
    new = verify(recompute(graph))
    assert count(graph) == 1
    assert count(new) == 2
    copy = [node for node in new.nodes if node.op is ops.tanh][1]
    late = [node for node in new.nodes if node.op is ops.after]
    assert [node.output for node in late] == list(copy.inputs)  # and one copy for all late uses


@pytest.mark.parametrize(
    "graph",
    [
        layers(tanh),  # x is not kept
        layers(half_of_tanh, again=["x"], results=["y", "middle"]),
        layers(tanh, side=128, again=["x"]),
        layers(lambda b, x: {"y": b.emit(ops.view, x, view=TURNED)}, again=["x"]),
    ],
    ids=["nothing kept", "results", "small", "views"],
)
def test_others_stay_as_they_are(graph):
    assert recompute(graph) is graph


def test_a_chain_that_costs_too_much_stays(monkeypatch):
    graph = layers(half_of_tanh, again=["x"])
    monkeypatch.setattr(module, "MAX_CHAIN_COST", module.EXPENSIVE_COST)
    assert recompute(graph) is graph
    monkeypatch.setattr(module, "MAX_CHAIN_COST", module.EXPENSIVE_COST + 1)
    assert recompute(graph) is not graph


def test_a_product_of_a_product_is_not_late():
    b = Builder()
    x, w = (b.input(ArrayType((SIDE, SIDE), F4)) for _ in range(2))
    y = b.emit(ops.tanh, b.emit(ops.matmul, x, w))
    graph = b.graph([b.emit(ops.add, y, b.emit(ops.matmul, y, w))])
    assert recompute(graph) is graph


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_meaning(seed, monkeypatch):
    monkeypatch.setattr(module, "MIN_BYTES", 0)
    monkeypatch.setattr(module, "MIN_DEPTH_DIFFERENCE", 1)
    graph = random_graph(seed)
    assert_same_meaning(verify(recompute(graph)), graph, seed)


def step(params, x, y):
    """Two perceptrons with GELU and layer norms; the loss and the gradients."""

    def loss_of(p):
        h = x
        for n in range(2):
            wide = tj.nn.gelu(tj.nn.layer_norm(h, p["gain"], p["shift"]) @ p[f"w{n}"], approximate="tanh")
            h = h + wide @ p[f"v{n}"]
        return ((h - y) ** 2).mean()

    return tj.value_and_grad(loss_of)(params)


def operands(rows=256, width=256):
    rng = np.random.default_rng(0)
    shapes = {"gain": (width,), "shift": (width,), **{f"w{n}": (width, 2 * width) for n in range(2)}}
    shapes |= {f"v{n}": (2 * width, width) for n in range(2)}
    params = {k: tj.asarray(rng.normal(size=s).astype("f") * width**-0.5) for k, s in shapes.items()}
    return params, *(tj.asarray(rng.normal(size=(rows, width)).astype("f")) for _ in range(2))


def arrays_of(result):
    loss, gradients = result
    return [np.asarray(a) for a in (loss, *gradients.values())]


def test_a_step_needs_less_memory(monkeypatch):
    """What a kernel rounds may change; it does not depend on workers."""
    arguments, before = operands(), tj.engine.workers.count
    again, found = tj.jit(step), set()
    planned = again.plan(*arguments).planned_bytes
    try:
        for workers in (0, 1, 3):
            tj.engine.set_workers(workers)
            results = arrays_of(again(*arguments))
            found.add(tuple(a.tobytes() for a in results))
    finally:
        tj.engine.set_workers(before)
    assert len(found) == 1
    monkeypatch.setattr(config, "disable", frozenset({"recompute"}))
    kept = tj.jit(step)
    for a, b in zip(results, arrays_of(kept(*arguments)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
    assert planned <= 0.75 * kept.plan(*arguments).planned_bytes
