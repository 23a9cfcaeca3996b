"""Whole training steps through fusion and code generation: every kernel against the evaluator."""

import numpy as np
import pytest

from tests.codegen import runner
from tests.graphs import fuse
from tests.passes.models import lstm_step, mlp_step
from tracejit import ops
from tracejit.codegen.lower import lower
from tracejit.ir.evaluate import evaluate_node


def some_arrays(graph, rng):
    for value in graph.inputs:
        if value.type.dtype.kind == "f":
            yield rng.normal(size=value.type.shape).astype(value.type.dtype)
        else:
            yield rng.integers(0, 10, value.type.shape).astype(value.type.dtype)


def run_kernels(graph, seed=0):
    """Check every kernel; return the fused graph."""
    rng = np.random.default_rng(seed)
    fused = fuse(graph)
    values = dict(zip(fused.inputs, some_arrays(fused, rng), strict=True))
    for node in fused.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op is ops.fused:
            runner.check(node, inputs, rng=rng, exact=False, tolerance=2e-5)
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))
    return fused


@pytest.mark.parametrize("shape", [(32, (20, 30, 10)), (1, (7, 5, 3)), (50, (33, 64, 10))])
def test_mlp(shape):
    run_kernels(mlp_step(*shape)[0])


def test_a_new_batch_size_needs_no_new_kernel():
    specs = []
    for batch in (32, 64, 128):
        fused = fuse(mlp_step(batch, (20, 30, 10))[0])
        specs.append([lower(node).spec for node in fused.nodes if node.op is ops.fused])
    assert specs[0] == specs[1] == specs[2]


def test_unrolled_steps_share_their_kernels():
    fused = run_kernels(lstm_step(6)[0])
    specs = [lower(node).spec for node in fused.nodes if node.op is ops.fused]
    longer = [lower(node).spec for node in fuse(lstm_step(12)[0]).nodes if node.op is ops.fused]
    assert len(longer) > len(specs) > len(set(specs))
    assert len(set(longer)) <= len(set(specs))
