"""stack: which sums of products become one product, and their meaning."""

import numpy as np
import pytest

import tracejit as tj
from tests.graphs import assert_same_meaning
from tracejit import ops
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.passes.dce import dce
from tracejit.passes.simplify import simplify
from tracejit.passes.stack import stack


class Sums:
    """A graph of sums of products of (rows, terms) and (terms, columns)."""

    def __init__(self, dtype="float64"):
        self.builder, self.dtype = Builder(), np.dtype(dtype)

    def array(self, *shape):
        return self.builder.input(ArrayType(shape, self.dtype))

    def product(self, rows, terms, columns, *, turned=(False, False), seen=False):
        """A product, of transposed factors, or seen transposed."""
        factors = []
        for shape, transposed in zip([(rows, terms), (terms, columns)], turned, strict=True):
            factors.append(self.turn(self.array(*shape[::-1])) if transposed else self.array(*shape))
        made = self.builder.emit(ops.matmul, *factors)
        return self.turn(made) if seen else made

    def turn(self, value):
        view = View.of_shape(value.type.shape).permute((1, 0))
        return self.builder.emit(ops.view, value, view=view)

    def part(self, shape, view, x=None):
        """An array of zeros but for the elements of a view."""
        emit = self.builder.emit
        zeros = emit(ops.full, emit(ops.constant, value=0.0, dtype=self.dtype), shape=shape, device=CPU)
        return emit(ops.update, zeros, self.array(*view.shape) if x is None else x, view=view)

    def add(self, *values):
        total, *others = values
        for value in others:
            total = self.builder.emit(ops.add, total, value)
        return total

    def left(self, *outputs):
        """The shapes of the products after the pass; small integers make all sums exact."""
        graph = self.builder.graph(outputs)
        found = verify(stack(graph))
        assert_same_meaning(found, graph)
        return [tuple(v.type.shape for v in n.inputs) for n in found.nodes if n.op is ops.matmul]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("seen", [False, True])
def test_sum_becomes_one_product(turned, seen):
    s = Sums()
    products = [s.product(6, 2, 8, turned=turned, seen=seen) for _ in range(5)]
    assert s.left(s.add(*products)) == [((6, 10), (10, 8))]


def test_kinds_are_stacked_apart_and_the_rest_is_added():
    s = Sums()
    two, three = ([s.product(6, n, 6) for _ in range(4)] for n in (2, 3))
    few = s.product(6, 1, 6)
    mixed = [v for pair in zip(two, three, strict=True) for v in pair]
    sums = s.left(s.add(s.array(6, 6), *mixed, few))
    assert sorted(sums) == sorted([((6, 8), (8, 6)), ((6, 12), (12, 6)), ((6, 1), (1, 6))])


def test_sums_of_sums():
    """The factors of the second sum are computed from the first."""
    s = Sums()
    first = s.add(*(s.product(4, 1, 4) for _ in range(4)))
    column = s.builder.emit(ops.view, first, view=View(0, (4, 1), (4, 1)))
    more = [s.builder.emit(ops.matmul, column, s.array(1, 4)) for _ in range(4)]
    assert s.left(first, s.add(*more)) == [((4, 4), (4, 4))] * 2


def test_balanced_sums_stay_as_they_are():
    """Ranks add up shards so, with the same bits; sums within shards are stacked on ranks, too."""
    s = Sums()
    halves = [s.add(s.product(4, 1, 4), s.product(4, 1, 4)) for _ in range(4)]
    assert len(s.left(s.add(s.add(*halves[:2]), s.add(*halves[2:])))) == 8
    s = Sums()
    shards = [s.add(*(s.product(6, 2, 8) for _ in range(5))) for _ in range(2)]
    assert s.left(s.add(*shards)) == [((6, 10), (10, 8))] * 2


def test_others_stay_as_they_are():
    s = Sums()
    assert len(s.left(s.add(*(s.product(6, 2, 8) for _ in range(3))))) == 3  # too few
    s = Sums()
    assert len(s.left(s.add(*(s.product(6, 4, 8) for _ in range(4))))) == 4  # factors larger than products
    s = Sums()
    products = [s.product(6, 2, 8) for _ in range(4)]
    assert len(s.left(products[0], s.add(*products))) == 4  # one is read elsewhere
    s = Sums("float16")
    assert len(s.left(s.add(*(s.product(6, 2, 8) for _ in range(4))))) == 4  # rounded after every operator
    s = Sums()
    seen = [s.product(8, 2, 8, seen=i % 2 == 0) for i in range(6)]
    assert len(s.left(s.add(*seen))) == 6  # three of each view


ROWS = [View.of_shape((4, 6)).select(0, i) for i in range(4)]
HALVES = [View.of_shape((4, 6)).slice_axis(1, start, start + 3) for start in (0, 3)]


def counted(graph):
    """How often the operators that matter stand in `graph`."""
    return {op.name: sum(n.op is op for n in graph.nodes) for op in (ops.full, ops.empty, ops.update)}


@pytest.mark.parametrize("views", [ROWS, ROWS[::-1], HALVES])
@pytest.mark.parametrize("dense", [False, True])
def test_sum_of_parts_becomes_stores(views, dense):
    """Without a fill, as they cover the array."""
    s = Sums()
    terms = [s.part((4, 6), view) for view in views] + [s.array(4, 6)] * dense
    graph = s.builder.graph([s.add(*terms)])
    found = verify(stack(graph))
    assert_same_meaning(found, graph)
    assert counted(found) == {"full": 0, "empty": 1, "update": len(views)}


def test_parts_beside_each_other_are_stored_on_zeros():
    s = Sums()
    graph = s.builder.graph([s.add(*(s.part((4, 6), view) for view in ROWS[1:]))])
    found = verify(stack(graph))
    assert_same_meaning(found, graph)
    assert counted(found) == {"full": 1, "empty": 0, "update": 3}


def test_sums_of_parts_that_stay():
    s = Sums()
    same = s.add(*(s.part((4, 6), ROWS[1]) for _ in range(4)))
    several = s.add(*(s.part((4, 6), view) for view in ROWS), s.array(4, 6), s.array(4, 6))
    read = s.part((4, 6), ROWS[0])
    graph = s.builder.graph([same, several, s.add(read, s.part((4, 6), ROWS[1])), read])
    assert stack(graph) is graph


def test_zeros_keep_their_signs():
    s = Sums("float32")
    inner = s.add(*(s.part((4, 6), view) for view in HALVES))
    whole = [View.of_shape((2, 4, 6)).select(0, i) for i in range(2)]
    graph = s.builder.graph([s.add(s.part((2, 4, 6), whole[0], inner), s.part((2, 4, 6), whole[1]))])
    found = verify(simplify(stack(graph)))
    given = [np.full(v.type.shape, -0.0, "float32") for v in graph.inputs]
    (one,), (other,) = (evaluate(g, given)[0] for g in (graph, found))
    assert not np.signbit(one).any()
    assert not np.signbit(other).any()
    assert_same_meaning(found, graph)
    assert counted(verify(dce(found))) == {
        "full": 0,
        "empty": 1,
        "update": 3,
    }  # what is in parts is stored so


def test_loops_by_hand():
    """The gradient of a weight that a loop uses in every step, against the sum written out."""
    rng = np.random.default_rng(5)
    w, xs = rng.normal(size=(6, 9)), rng.normal(size=(7, 2, 6))
    weights = rng.normal(size=(7, 2, 9))

    def loss(w):
        total = 0.0
        for x, weight in zip(xs, weights, strict=True):
            total = total + (tj.tanh(tj.asarray(x) @ w) * tj.asarray(weight)).sum()
        return total

    expected = sum(x.T @ ((1 - np.tanh(x @ w) ** 2) * weight) for x, weight in zip(xs, weights, strict=True))
    gradient = tj.jit(tj.grad(loss))
    for got in (tj.grad(loss)(tj.asarray(w)), gradient(tj.asarray(w)), gradient(tj.asarray(w))):
        np.testing.assert_allclose(got, expected, rtol=1e-11)
