"""dce: what no result needs is dropped; what does something besides computing stays."""

import functools
import pathlib

import pytest

from tests.counting import calls
from tests.golden import check_golden
from tests.graphs import F4, I8, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.ir.graph import Builder, Effect
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.ops.structural import CALLBACKS, keep_callback
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


def _joined(apart):
    """Rows of a cotangent, each set to zero when it was read; the second part starts where `apart` says."""
    b = Builder()
    x, zero = b.input(ArrayType((4, 6), F4)), b.input(ArrayType((2, 6), F4))
    parts = [View.of_shape((4, 6)).slice_axis(0, start, start + 2) for start in (2, 2 - apart)]
    first = b.emit(ops.view, x, view=parts[0])
    rest = b.emit(ops.update, x, zero, view=parts[0])
    second = b.emit(ops.view, rest, view=parts[1])
    b.emit(ops.update, rest, zero, view=parts[1])
    return b.graph([first, second])


def test_stores_of_elements_that_nobody_reads():
    joined = _joined(2)
    small = dce(joined)
    assert [n.op.name for n in small.nodes] == ["view", "view"]
    assert_same_meaning(small, joined)
    assert [n.op.name for n in dce(_joined(1)).nodes] == ["view", "update", "view"]


@pytest.mark.parametrize("read", ["beside", "inside", "all"])
def test_a_store_that_is_overwritten(read):
    b = Builder()
    x, y = b.input(ArrayType((4, 6), F4)), b.input(ArrayType((6,), F4))
    row, other = (View.of_shape((4, 6)).select(0, n) for n in (1, 3))
    once = b.emit(ops.update, x, y, view=row)
    seen = {"beside": other, "inside": row, "all": View.of_shape((4, 6))}[read]
    found = b.emit(ops.view, once, view=seen)
    twice = b.emit(ops.update, once, b.emit(ops.negative, y), view=row)
    graph = b.graph([twice, found])
    small = dce(graph)
    assert [n.op.name for n in small.nodes].count("update") == (1 if read == "beside" else 2)
    assert_same_meaning(small, graph)
    kept = dce(b.graph([once, twice]))
    assert [n.op.name for n in kept.nodes].count("update") == 2


def test_long_chains_of_dead_stores():
    def chain(count):
        b = Builder()
        x, zero = b.input(ArrayType((count, 2), F4)), b.input(ArrayType((2,), F4))
        rows = [View.of_shape((count, 2)).select(0, n) for n in range(count)]
        found = []
        for row in rows:
            found.append(b.emit(ops.view, x, view=row))
            x = b.emit(ops.update, x, zero, view=row)
        return b.graph(found)

    assert {n.op for n in dce(chain(50)).nodes} == {ops.view}
    few, many = (calls(functools.partial(dce, chain(n))) for n in (200, 400))
    assert many < 2.1 * few


def test_golden():
    b = Builder()
    x, y = b.input(X), b.input(X)
    unused = b.emit(ops.exp, x)
    b.emit(ops.add, unused, y)
    stored = b.emit(ops.multiply, x, y)
    graph = b.graph([b.emit(ops.negative, y)], [Effect(x, stored)])
    check_golden(GOLDEN / "dce.txt", f"{graph}\n=>\n{dce(graph)}")
