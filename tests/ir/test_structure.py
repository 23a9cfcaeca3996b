"""The structure of a graph, by which kernels and what is known of them are found again."""

import time

import pytest

from tests.counting import calls
from tests.graphs import F4, F8, random_graph
from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Value, constant_of
from tracejit.ir.structure import structure
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View


@pytest.mark.parametrize("seed", range(30))
def test_equal_graphs_have_equal_keys(seed):
    assert structure(random_graph(seed)) == structure(random_graph(seed))
    assert hash(structure(random_graph(seed))) == hash(structure(random_graph(seed)))


def test_different_graphs_have_different_keys():
    keys = {structure(random_graph(seed)) for seed in range(200)}
    assert len(keys) == 200


def variant(number=0.0, *, swap=False, op=ops.subtract, shape=(3,), effect=False, twice=False, dtype=F4):
    b = Builder()
    x, y = b.input(ArrayType(shape, dtype)), b.input(ArrayType(shape, dtype))
    z = b.emit(op, *((y, x) if swap else (x, y)), location=str(time.perf_counter_ns()))
    z = b.emit(ops.add, z, b.emit(ops.constant, **constant_of(number, dtype)))
    return b.graph([z, z] if twice else [z], [Effect(x, z)] if effect else [])


def test_what_the_key_sees():
    variants = [
        *(variant(n) for n in (0.0, -0.0, 1.0, float("nan"))),
        *(variant(shape=s) for s in ((4,), (3, 1))),
        *(variant(**{name: True}) for name in ("swap", "effect", "twice")),
        variant(op=ops.multiply),
        variant(dtype=F8),
    ]
    assert len({structure(g) for g in variants}) == len(variants)
    assert structure(variant()) == structure(variant())
    assert structure(variant(float("nan"))) == structure(variant(float("nan")))


def test_the_key_costs_a_few_calls_for_each_node():
    costs = []
    for size in (64, 128):
        b = Builder()
        value: Value = b.input(ArrayType((40, 60), F4))
        for n in range(32):
            value = b.emit(ops.negative, b.emit(ops.multiply, value, value) if n % 2 else value)
        for _ in range(size - len(b.nodes)):
            value = b.emit(ops.view, value, view=View.of_shape((40, 60)).slice_axis(0, None, None, -1))
        graph = b.graph([value])
        assert len(graph.nodes) == size
        costs.append(calls(lambda graph=graph: hash(structure(graph))))
    assert costs[1] - costs[0] <= 64 * 8
