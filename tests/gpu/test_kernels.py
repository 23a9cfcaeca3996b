"""The tests of generated kernels, with kernels that run on a GPU; and many more random ones."""

import numpy as np
import pytest

from tests.codegen import bodies, runner, test_golden, test_graphs, test_map, test_models, test_reductions
from tests.codegen.cases import CASES, arguments, kernels, spread
from tests.gpu import device
from tests.graphs import random_graph, random_inputs
from tracejit import ops
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType
from tracejit.passes.fusion.fuse import fuse

F4 = np.dtype("float32")
AGAIN = {
    test_golden: ["test_the_cases_compute_what_they_say"],
    **{
        module: [name for name in vars(module) if name.startswith("test_")]
        for module in (test_graphs, test_map, test_models, test_reductions)
    },
}
globals().update(
    (f"{name}_of_{module.__name__.split('.')[-1].removeprefix('test_')}", vars(module)[name])
    for module, names in AGAIN.items()
    for name in names
)


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch):
    monkeypatch.setattr(runner, "run_units", device.run_units)


@pytest.mark.parametrize("seed", range(1000, 1250))
def test_more_random_bodies(seed, monkeypatch):
    """Without what shows the sign of a NaN, which is the processor's choice."""
    chosen = [op for op in bodies.ELEMENTWISE if op not in (ops.signbit, ops.copysign)]
    monkeypatch.setattr(bodies, "ELEMENTWISE", chosen)
    body = bodies.random_body(seed, nodes=10)
    arrays = bodies.random_arguments(body, seed)
    runner.check(runner.fused_node(body), arrays, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_more_random_graphs(seed):
    graph = fuse(random_graph(seed, nodes=40))
    rng = np.random.default_rng(seed)
    values = dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op is ops.fused:
            runner.check(node, inputs, rng=rng, exact=False)
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_any_launch(name):
    """Results do not depend on how many blocks and threads there are, but for the order of sums."""
    for seed in range(12):
        for node in CASES[name]():
            runner.check(node, list(arguments(node)), rng=np.random.default_rng(seed), exact=False)


@pytest.mark.parametrize("shape", [(3, 1000), (1000, 3), (257, 259), (1, 70_001), (4097, 33)])
@pytest.mark.parametrize("name", ["bias_and_relu", "softmax", "layer_norm", "bias_gradient", "index_grid"])
def test_large_and_odd_shapes(name, shape):
    for node in CASES[name](*shape):
        runner.check(node, list(arguments(node)), exact=False, tolerance=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(300, 70), (64, 1000)])
def test_what_is_updated_in_place_is_read_before(shape, axis):
    """All threads of a row read the old value that one of them overwrites, and use the new one afterwards."""
    b = Builder()
    x, state = b.input(ArrayType(shape, F4)), b.input(ArrayType((shape[1 - axis],), F4))
    new = b.emit(ops.subtract, state, b.emit(ops.sum, x, axes=(axis,)))
    y = b.emit(ops.multiply, x, spread(b, new, (axis,), shape))
    (node,) = kernels(b.graph([new, y]))
    outputs = {value.type.shape: n for n, value in enumerate(node.outputs)}
    shared = [(outputs[state.type.shape], node.inputs.index(state))]
    assert set(shared) <= set(node.attrs["inplace"])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        arrays = [rng.normal(size=v.type.shape).astype(F4) for v in node.inputs]
        runner.check(node, arrays, shared, rng=rng, exact=False, tolerance=1e-4)
