"""gradient: against central differences on random graphs, and the shape of what it emits."""

import pathlib

import numpy as np
import pytest

from tests.golden import check_golden
from tests.graphs import F4, F8, Maker
from tracejit import ops
from tracejit.errors import VerificationError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, Graph, Value, constant_of
from tracejit.ir.types import CPU, ArrayType
from tracejit.ir.verify import verify
from tracejit.passes.dce import dce
from tracejit.passes.gradient import gradient

GOLDEN = pathlib.Path(__file__).parent / "golden"
SMOOTH = ["smooth", "smooth", "smooth", "combine", "combine", "view", "view", "update", "reduce", "product"]


class SmoothMaker(Maker):
    """Random graphs of float64 arrays whose outputs are differentiable functions of their inputs."""

    def smooth(self):
        self.keep(self.emit(self.choose([ops.sin, ops.tanh, ops.square, ops.negative]), self.recent()))

    def combine(self):
        x = self.recent()
        y = self.recent(lambda v: v.type == x.type)
        self.keep(self.emit(self.choose([ops.add, ops.subtract, ops.multiply]), x, y))

    def reduce(self):
        x = self.recent(lambda v: v.type.ndim > 0)
        if x is not None:
            axis = int(self.rng.integers(x.type.ndim))
            self.keep(self.emit(ops.sum, x, axes=(axis,), pieces=0))


def smooth_graph(seed: int) -> tuple[Builder, list[Value], Value]:
    maker = SmoothMaker(np.random.default_rng(seed))
    for shape in ((2, 3), (3,), (2, 3)):
        maker.keep(maker.builder.input(ArrayType(shape, F8)))
    while len(maker.builder.nodes) < 12:
        getattr(maker, maker.choose(SMOOTH))()
    terms = [maker.emit(ops.sum, v, axes=tuple(range(v.type.ndim)), pieces=0) for v in maker.arrays[-3:]]
    loss = terms[0]
    for term in terms[1:]:
        loss = maker.emit(ops.add, loss, maker.emit(ops.sin, term))
    return maker.builder, list(maker.builder.inputs), loss


def one(builder: Builder, like: Value) -> Value:
    number = builder.emit(ops.constant, **constant_of(1.0, like.type.dtype))
    return builder.emit(ops.full, number, shape=like.type.shape, device=CPU)


def differences(graph: Graph, inputs: list[np.ndarray], step: float = 1e-6) -> list[np.ndarray]:
    """Central differences of the first output by every element of every input."""
    results = []
    for position, array in enumerate(inputs):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in inputs]
                moved[position][index] += sign * step
                values.append(float(evaluate(graph, moved)[0][0]))
            slope[index] = (values[0] - values[1]) / (2 * step)
        results.append(slope)
    return results


@pytest.mark.parametrize("seed", range(60))
def test_against_central_differences(seed):
    builder, inputs, loss = smooth_graph(seed)
    forward = builder.graph([loss])
    cotangents = gradient(builder, list(builder.nodes), [loss], [one(builder, loss)], inputs)
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, v.type.shape) for v in inputs]
    wanted = differences(forward, arrays)
    graph = verify(builder.graph([v for v in cotangents if v is not None]))
    found = iter(evaluate(graph, arrays)[0])
    for cotangent, expected in zip(cotangents, wanted, strict=True):
        got = np.zeros_like(expected) if cotangent is None else next(found)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("seed", range(15))
def test_second_order_against_central_differences(seed):
    builder, inputs, loss = smooth_graph(seed)
    firsts = gradient(builder, list(builder.nodes), [loss], [one(builder, loss)], inputs)
    if firsts[0] is None:
        return
    total = builder.emit(ops.sum, builder.emit(ops.sin, firsts[0]), axes=(0, 1), pieces=0)
    forward = builder.graph([total])
    seconds = gradient(builder, list(builder.nodes), [total], [one(builder, total)], inputs)
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, v.type.shape) for v in inputs]
    found = iter(evaluate(builder.graph([v for v in seconds if v is not None]), arrays)[0])
    for cotangent, expected in zip(seconds, differences(forward, arrays), strict=True):
        got = np.zeros_like(expected) if cotangent is None else next(found)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4 * max(1, np.abs(expected).max()))


def test_only_nodes_between_are_visited():
    b = Builder()
    x, y, unrelated = (b.input(ArrayType((3,), F4)) for _ in range(3))
    apart = b.emit(ops.exp, y, location="model.py:1")
    z = b.emit(ops.multiply, b.emit(ops.sin, x, location="model.py:2"), apart, location="model.py:3")
    ct, before = one(b, z), len(b.nodes)
    dx, none = gradient(b, list(b.nodes), [z], [ct], [x, unrelated])
    assert none is None
    assert dx is not None
    assert {node.location for node in b.nodes[before:]} == {"model.py:2", "model.py:3"}


def test_stop_gradient_and_integers_stop():
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    stopped = b.emit(ops.stop_gradient, x)
    positions = b.emit(ops.argmax, x, axis=0)
    assert gradient(b, list(b.nodes), [stopped], [one(b, stopped)], [x]) == [None]
    as_float = b.emit(ops.astype, positions, dtype=F4)
    assert gradient(b, list(b.nodes), [as_float], [one(b, as_float)], [x]) == [None]


def test_an_output_that_is_its_own_input_and_is_named_twice():
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    ct = one(b, x)
    (dx,) = gradient(b, [], [x, x], [ct, ct], [x], "model.py:1")
    np.testing.assert_array_equal(evaluate(b.graph([dx]), [np.zeros(3, F4)])[0][0], np.full(3, 2, F4))
    assert b.nodes[-1].location == "model.py:1"


def test_wrong_cotangent_is_named():
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    wrong = b.input(ArrayType((4,), F4))
    with pytest.raises(VerificationError, match=r"float32\[4\]"):
        gradient(b, [], [x], [wrong], [x])


def test_nodes_carry_the_forward_location():
    b = Builder()
    x = b.input(ArrayType((3,), F4))
    y = b.emit(ops.sin, x, location="model.py:7")
    ct, before = one(b, y), len(b.nodes)
    gradient(b, list(b.nodes), [y], [ct], [x])
    assert {node.location for node in b.nodes[before:]} - {"model.py:7"} == set()


def test_golden():
    """Mean square of a linear layer, by its weights."""
    b = Builder()
    x, w = b.input(ArrayType((8, 4), F4)), b.input(ArrayType((4, 2), F4))
    y = b.emit(ops.matmul, x, w, location="model.py:1")
    loss = b.emit(
        ops.sum, b.emit(ops.square, y, location="model.py:2"), axes=(0, 1), pieces=0, location="model.py:2"
    )
    (dw,) = gradient(b, list(b.nodes), [loss], [one(b, loss)], [w])
    check_golden(GOLDEN / "gradient.txt", str(dce(b.graph([loss, dw]))))
