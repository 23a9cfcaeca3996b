"""Kernels for GPUs on the simulator: they compute what the evaluator says, however many threads there are."""

import numpy as np
import pytest

from tests.codegen import bodies, runner
from tests.codegen.cases import CASES, arguments
from tests.gpu.simulated import run_units
from tests.gpu.simulator import Simulated, object_code
from tests.graphs import fuse, random_graph, random_inputs
from tracejit import ops
from tracejit.codegen.gpu.launch import EXTRA_SLOTS, LaunchDimensions, shared_bytes
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.ptx import draft
from tracejit.codegen.text import load_source
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Builder
from tracejit.ir.types import ArrayType
from tracejit.targets import emit


@pytest.fixture(autouse=True)
def _simulated(monkeypatch):
    monkeypatch.setattr(runner, "run_units", run_units)


def has_panel(node):
    """Whether a kernel is the epilogue of a product, which only CPUs have."""
    return lower(node).spec.panel >= 0 or lower(node).product is not None


@pytest.mark.parametrize("name", CASES)
def test_the_cases_compute_what_they_say(name):
    for seed in range(1):
        rng = np.random.default_rng(seed)
        for node in CASES[name](**({"n": 3000} if name == "long_sum" else {})):
            if not has_panel(node):
                runner.check(node, list(arguments(node)), rng=rng, exact=False)


@pytest.mark.parametrize("seed", range(6))
def test_random_bodies(seed):
    body = bodies.random_body(seed)
    runner.check(
        runner.fused_node(body), bodies.random_arguments(body, seed), rng=np.random.default_rng(seed)
    )


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs(seed):
    graph = fuse(random_graph(seed))
    rng = np.random.default_rng(seed)
    values = dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op is ops.fused and not has_panel(node):
            runner.check(node, inputs, rng=rng, exact=False)
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 70), 1), ((70, 3), 0), ((2, 9, 40), 2), ((1, 1), 1)])
@pytest.mark.parametrize("op", [ops.cumulative_sum, ops.cumulative_prod], ids=str)
def test_running_sums_of_any_number_of_threads(op, shape, axis, dtype):
    """Longer than a block has threads, and shorter; with a fold, and a store that reads what was summed."""
    rng = np.random.default_rng(5)
    b = Builder()
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    total = b.emit(op, b.emit(ops.negative, x), axis=axis)
    graph = fuse(b.graph([b.emit(ops.subtract, total, x), b.emit(ops.sum, total, axes=(axis,))]))
    given = rng.choice([-1, 1, 1], shape).astype(dtype)
    for seed in range(4):
        values = {x: given}
        for node in graph.nodes:
            inputs = [values[v] for v in node.inputs]
            if node.op is ops.fused:
                runner.check(node, inputs, rng=np.random.default_rng(seed), exact=False)
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))


def test_the_smallest_failure_is_told():
    """Whichever thread comes first."""
    (node,) = CASES["embedding"]()
    index, table = arguments(node)
    index[2], index[4] = 100, -50
    for seed in range(4):
        assert runner.run(node, [index, table], rng=np.random.default_rng(seed))[1] == 3


def test_the_simulator_finds_what_is_wrong():
    """A missing barrier, a thread that leaves the others waiting, a place behind the shared memory."""
    (node,) = CASES["softmax"](3, 40)
    spec, arrays = lower(node).spec, list(arguments(node))
    source, usual = emit(spec, "gpu"), shared_bytes(spec, 8)

    def run_with(text, shared=usual):
        slots = len(spec.slot_names()) + len(EXTRA_SLOTS)
        kernel = Simulated(object_code(draft("kernel", load_source(text), slots)))
        out, scratch, failure = np.zeros((3, 40), np.float32), np.zeros(4096), np.zeros(1, np.int64)
        block = runner.argument_block(lower(node), [*arrays, out]).tolist()
        block = np.array([*block, 3, scratch.ctypes.data, failure.ctypes.data])
        kernel(block.ctypes.data, LaunchDimensions((1, 1), (8, 1), shared), np.random.default_rng(1))
        return np.abs(out - runner.expected(node, arrays)[0]).max()

    assert run_with(source) < 1e-6
    assert not run_with(source.replace("barrier()\n", "thread = thread\n")) < 1e-3
    with pytest.raises(AssertionError, match="barrier"):
        run_with(source.replace("        barrier()\n", "        if thread != 3:\n            barrier()\n", 1))
    with pytest.raises(AssertionError, match="shared memory"):
        run_with(source, shared=8)
