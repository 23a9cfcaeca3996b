"""dce: what no result needs is dropped; what does something besides computing stays."""

import pathlib

import pytest

from tests.golden import check_golden
from tests.graphs import F4, I8, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ops.structure import CALLBACKS, keep_callback
from tracejit.passes.dce import dce

GOLDEN = pathlib.Path(__file__).parent / "golden"
X = ArrayType((3,), F4)


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    small = verify(dce(graph))
    assert_same_meaning(small, graph, seed)
    used = set(small.results()).union(*(node.inputs for node in small.nodes))
    assert all(node.op is ops.check_index or used & set(node.outputs) for node in small.nodes)


def test_callbacks_and_index_checks_stay():
    number = keep_callback(print)
    b = Builder()
    x, index = b.input(X), b.input(ArrayType((2,), I8))
    b.emit(ops.negative, x)
    b.emit(ops.check_index, index, extent=3, axis=0)
    b.emit(ops.callback, b.emit(ops.exp, x), id=number)
    assert [n.op.name for n in dce(b.graph([x])).nodes] == ["check_index", "exp", "callback"]
    del CALLBACKS[number]


def test_golden():
    b = Builder()
    x, y = b.input(X), b.input(X)
    unused = b.emit(ops.exp, x)
    b.emit(ops.add, unused, y)
    stored = b.emit(ops.multiply, x, y)
    graph = b.graph([b.emit(ops.negative, y)], [Effect(x, stored)])
    check_golden(GOLDEN / "dce.txt", f"{graph}\n=>\n{dce(graph)}")
