"""prepare: long reductions in pieces, updates that kernels can do."""

import numpy as np
import pytest

from tests.graphs import assert_same_meaning
from tracejit import ops
from tracejit.ir.graph import Builder, constant_of
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes.dce import dce
from tracejit.passes.fusion.prepare import pieces_of, prepare
from tracejit.tuning import tuning_of

F4 = np.dtype("float32")


def reduced(shape, axes):
    b = Builder()
    return b.graph([b.emit(ops.sum, b.input(ArrayType(shape, F4)), axes=axes)])


@pytest.mark.parametrize(
    ("shape", "axes", "pieces"),
    [
        ((1 << 22,), (0,), 64),
        ((1000,), (0,), 0),
        ((1 << 20, 512), (0,), 16),
        ((4096, 1024), (1,), 0),
        ((128, 512), (0,), 0),
        ((2, 1 << 20), (1,), 16),
        ((999_983,), (0,), 15),
        ((7, 3, 1 << 16), (0, 2), 7),
    ],
)
def test_pieces_follow_from_the_shape(shape, axes, pieces):
    (node,) = reduced(shape, axes).nodes
    assert pieces_of(node) == pieces
    assert pieces <= tuning_of(CPU).units.enough_units


@pytest.mark.parametrize(("shape", "axes"), [((200_003,), (0,)), ((3, 200_000), (1,)), ((50_000, 3), (0, 1))])
def test_pieces_keep_the_meaning(shape, axes):
    """Small integers, so that sums are exact in any order."""
    graph = reduced(shape, axes)
    split = verify(prepare(graph))
    assert [n.attrs.get("pieces", 0) > 1 for n in split.nodes if n.op is ops.sum] == [True, False]
    assert_same_meaning(split, graph)


@pytest.mark.parametrize(
    ("products", "rows", "width", "copies"),
    [
        (4, 16, 64, 1),
        (6, 64, 32, 1),
        (3, 16, 64, 0),
        (4, 65, 64, 0),
        (4, 4, 64, 0),
        (4, 16, 50, 1),
        (4, 16, 4, 0),
    ],
)
def test_transposed_factors_of_several_small_products_are_copied_once(products, rows, width, copies):
    b = Builder()
    weight = b.input(ArrayType((width, 48), F4))
    turned = b.emit(ops.view, weight, view=View.of_shape((width, 48)).permute((1, 0)))
    factors = [b.input(ArrayType((rows, 48), F4)) for _ in range(products)]
    graph = b.graph([b.emit(ops.matmul, x, turned) for x in factors])
    prepared = verify(prepare(graph))
    assert [n.op for n in prepared.nodes].count(ops.copy) == copies
    assert_same_meaning(prepared, graph)


def test_an_overlapping_update_reads_a_copy():
    b = Builder()
    x = b.input(ArrayType((9,), F4))
    whole = View.of_shape((9,))
    moved = b.emit(ops.view, x, view=whole.slice_axis(0, 0, 8))
    graph = b.graph([b.emit(ops.update, x, moved, view=whole.slice_axis(0, 1, 9))])
    prepared = prepare(graph)
    assert [n.op for n in prepared.nodes] == [ops.view, ops.copy, ops.update]
    assert_same_meaning(prepared, graph)


def test_an_update_of_other_elements_reads_them_directly():
    b = Builder()
    x = b.input(ArrayType((9,), F4))
    whole = View.of_shape((9,))
    moved = b.emit(ops.view, x, view=whole.slice_axis(0, 0, 4))
    graph = b.graph([b.emit(ops.update, x, moved, view=whole.slice_axis(0, 5, 9))])
    assert [n.op for n in prepare(graph).nodes] == [ops.view, ops.update]


def spread_parts(views):
    """The sum of updates of zeros with one input each."""
    b = Builder()
    zero = b.emit(ops.constant, **constant_of(0.0, F4))
    zeros = b.emit(ops.full, zero, shape=(8,), device=CPU)
    parts = [b.emit(ops.update, zeros, b.input(ArrayType(v.shape, F4)), view=v) for v in views]
    total = parts[0]
    for part in parts[1:]:
        total = b.emit(ops.add, total, part)
    return b.graph([total])


def test_a_sum_of_parts_is_a_chain_of_updates():
    whole = View.of_shape((8,))
    graph = spread_parts([whole.slice_axis(0, 2 * n, 2 * n + 2) for n in range(4)])
    prepared = dce(prepare(graph))
    assert [n.op for n in prepared.nodes if n.op in (ops.full, ops.empty)] == [ops.empty]
    assert sum(n.op is ops.update for n in prepared.nodes) == 4
    assert_same_meaning(verify(prepared), graph)


def test_a_sum_of_some_parts_keeps_the_zeros():
    whole = View.of_shape((8,))
    graph = spread_parts([whole.slice_axis(0, n, n + 2) for n in (0, 5)])
    prepared = dce(prepare(graph))
    assert [n.op for n in prepared.nodes if n.op in (ops.full, ops.empty)] == [ops.full]
    assert_same_meaning(verify(prepared), graph)


def test_overlapping_parts_are_added():
    whole = View.of_shape((8,))
    graph = spread_parts([whole.slice_axis(0, 0, 5), whole.slice_axis(0, 3, 8)])
    prepared = dce(prepare(graph))
    assert any(n.op is ops.add and n.output in prepared.outputs for n in prepared.nodes)
    assert_same_meaning(verify(prepared), graph)


@pytest.mark.parametrize("rows", [200, 201])
def test_a_long_sum_of_parts_is_one_chain(rows):
    """The gradient of an array that is read row by row. Where no row is missing, nothing is filled."""
    b = Builder()
    zeros = b.emit(ops.full, b.emit(ops.constant, **constant_of(0.0, F4)), shape=(rows, 3), device=CPU)
    whole = View.of_shape((rows, 3))
    total = None
    for n in range(200):
        row = b.emit(ops.update, zeros, b.input(ArrayType((3,), F4)), view=whole.select(0, n))
        total = row if total is None else b.emit(ops.add, total, row)
    graph = b.graph([total])
    prepared = prepare(graph)
    assert len(prepared.nodes) < 9 * 200
    kept = [n.op for n in dce(prepared).nodes]
    assert (kept.count(ops.update), kept.count(ops.full)) == (200, rows - 200)
    assert_same_meaning(prepared, graph)
