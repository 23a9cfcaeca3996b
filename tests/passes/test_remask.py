"""remask: comparisons are made again of what they masked, bit for bit, where that lives anyway."""

import numpy as np
import pytest

from tests.graphs import F4, assert_same, assert_same_meaning, random_graph
from tracejit import ops
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, constant_of
from tracejit.ir.types import ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes.driver import optimize
from tracejit.passes.remask import remask

BOUNDS = [0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")]
TURNED = View.of_shape((8, 8)).permute((1, 0))


def layer(compare=ops.less_equal, bound=0.0, other=None, products=2):
    """A cut array, `products` products of it, and its gradient with the same mask."""
    b = Builder()
    x, w, dy = (b.input(ArrayType((8, 8), F4)) for _ in range(3))
    limit = b.emit(ops.constant, **constant_of(bound, F4))
    filler = b.emit(ops.constant, **constant_of(bound if other is None else other, F4))
    mask = b.emit(compare, x, limit)
    y = b.emit(ops.where, mask, filler, x)
    results = [b.emit(ops.matmul, y, w)]
    if products > 1:
        results.append(b.emit(ops.matmul, b.emit(ops.view, y, view=TURNED), dy))
    dx = b.emit(ops.where, mask, limit, dy)
    return b.graph([*results, dx]), mask, y


def compared_again(graph, mask, y):
    """Whether the gradient looks at what was cut, not at the mask."""
    new = remask(graph)
    producers = {value: node for node in new.nodes for value in node.outputs}
    used = producers[new.outputs[-1]].inputs[0]
    assert (used is mask) != (used in producers and producers[used].inputs[0] is y)
    return used is not mask


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("compare", [ops.less_equal, ops.greater_equal])
def test_the_same_bits_for_every_number(compare, bound):
    graph, mask, y = layer(compare, bound)
    assert compared_again(graph, mask, y) == (not np.isnan(bound))
    rng = np.random.default_rng(0)
    special = np.array([*BOUNDS, 1e-45, -1e-45, 3.0], "f")
    arrays = [rng.choice(special, (8, 8)) for _ in graph.inputs]
    with np.errstate(all="ignore"):
        before, after = evaluate(graph, arrays), evaluate(verify(remask(graph)), arrays)
    assert_same(after[0], before[0])


@pytest.mark.parametrize("compare", [ops.less, ops.greater, ops.equal])
def test_comparisons_that_what_was_cut_answers_otherwise(compare):
    assert not compared_again(*layer(compare))


def test_another_filler_hides_where_it_was_cut():
    assert not compared_again(*layer(bound=0.0, other=1.0))


def test_what_nobody_else_keeps_stays_a_mask():
    assert not compared_again(*layer(products=1))


@pytest.mark.parametrize("seed", range(100))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    assert_same_meaning(verify(remask(graph)), graph, seed)


def test_no_kernel_writes_a_mask():
    graph, _, _ = layer()
    fused = optimize(graph)
    assert not any(value.type.dtype == bool for node in fused.nodes for value in node.outputs)
