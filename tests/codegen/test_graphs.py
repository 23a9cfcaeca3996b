"""Random graphs through fusion and code generation: every kernel against the evaluator."""

import numpy as np
import pytest

from tests.codegen import runner
from tests.graphs import fuse, random_graph, random_inputs
from tests.thorough import some
from tracejit import ops
from tracejit.ir.evaluate import evaluate_node


@pytest.mark.parametrize("seed", some(range(60), 20))
def test_every_kernel_of_a_random_graph(seed):
    graph = fuse(random_graph(seed))
    rng = np.random.default_rng(seed)
    values = dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op is ops.fused:
            runner.check(node, inputs, rng=rng, exact=False)
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))
