"""cse: equal expressions are computed once, different ones are kept apart."""

import pathlib

import numpy as np
import pytest

from tests.golden import check_golden
from tests.graphs import F4, I4, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.ir.graph import Builder, constant_of
from tracejit.ir.types import HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ops.structural import CALLBACKS, keep_callback
from tracejit.passes.cse import cse

GOLDEN = pathlib.Path(__file__).parent / "golden"
X = ArrayType((3,), F4)


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    assert_same_meaning(verify(cse(graph)), graph, seed)


@pytest.mark.parametrize("seed", range(30))
def test_doubling_a_graph_adds_nothing(seed):
    graph = random_graph(seed)
    once = cse(graph)
    builder = Builder()
    builder.inputs.extend(graph.inputs)
    builder.nodes.extend(graph.nodes)
    copies = dict(zip(graph.inputs, graph.inputs, strict=True))
    for node in graph.nodes:
        new = builder.copy(node, [copies[v] for v in node.inputs])
        copies.update(zip(node.outputs, new, strict=True))
    twice = cse(builder.graph([*graph.outputs, *(copies[v] for v in graph.outputs)], graph.effects))
    assert len(twice.nodes) == len(once.nodes)
    assert twice.outputs == once.outputs * 2


def merged(builder, *values):
    """How many values are left of `values`."""
    return len(set(cse(builder.graph(values)).outputs))


def test_commutative_operands_may_be_exchanged():
    b = Builder()
    x, y = b.input(X), b.input(X)
    assert merged(b, b.emit(ops.add, x, y), b.emit(ops.add, y, x)) == 1
    assert merged(b, b.emit(ops.subtract, x, y), b.emit(ops.subtract, y, x)) == 2


@pytest.mark.parametrize(
    ("one", "other", "dtype", "left"),
    [
        (0.0, -0.0, F4, 2),
        (float("nan"), float("nan"), F4, 1),
        (1, 1, I4, 1),
        (2.5, 2.5, F4, 1),
    ],
)
def test_constants_are_compared_exactly(one, other, dtype, left):
    b = Builder()
    values = [b.emit(ops.constant, **constant_of(number, dtype)) for number in (one, other)]
    assert merged(b, *values) == left


def test_dtypes_tell_constants_apart():
    b = Builder()
    dtypes = map(np.dtype, ("float32", "float64", "int32", "bool"))
    assert merged(b, *(b.emit(ops.constant, **constant_of(1, d)) for d in dtypes)) == 4


def test_draws_are_told_apart_by_their_counter():
    b = Builder()
    number = ArrayType((), np.dtype("uint64"), HOST)
    key, first, second = (b.input(number) for _ in range(3))
    index = b.input(ArrayType((3,), np.dtype("int64")))
    draws = [b.emit(ops.random_bits, key, c, index, dtype=np.dtype("uint32")) for c in (first, second, first)]
    assert merged(b, *draws) == 2


def test_callbacks_are_never_merged():
    number = keep_callback(print)
    b = Builder()
    x = b.input(X)
    for _ in range(2):
        b.emit(ops.callback, x, id=number)
    assert len(cse(b.graph([x])).nodes) == 2
    del CALLBACKS[number]


def test_golden():
    b = Builder()
    x, y = b.input(X), b.input(X)
    first = b.emit(ops.multiply, b.emit(ops.add, x, y), x)
    second = b.emit(ops.multiply, x, b.emit(ops.add, y, x))
    graph = b.graph([b.emit(ops.subtract, first, second)])
    check_golden(GOLDEN / "cse.txt", f"{graph}\n=>\n{cse(graph)}")
