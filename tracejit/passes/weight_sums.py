"""Weight gradients of convolutions as partial sums, where a single sum has too few units for all workers.

    %2: float32[64,64,1,1] = conv2d_weight_gradient(%0, %1) [...]
        =>
    %3: float32[8,64,64,1,1] = conv2d_weight_sums(%0, %1) [rows=56, ...]
    %2: float32[64,64,1,1] = sum(%3) [axes=(0,)]

A unit of work of such a gradient sums over all positions of all images, for a slice of the weight's depth. A
weight of small depth has few slices, and narrow slices make slow products; so the positions are split, too.
The split depends on shapes only, and partial sums are added in order. The final reduction is fused with the
operators that use the gradient.
"""

from __future__ import annotations

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.types import name_of
from tracejit.kernels.images.windows import ENTRIES, weight_sum_rows
from tracejit.tuning import tuning_of


def weight_sums(graph: Graph) -> Graph:
    """Rewrite weight gradients in `graph` as partial sums where that is profitable."""
    if not any(node.op is ops.conv2d_weight_gradient for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _split(node) if node.op is ops.conv2d_weight_gradient else [node]
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _split(node: Node) -> list[Node]:
    (x, y), w, dtype = node.inputs, node.output.type, name_of(node.output.type.dtype)
    if "weight_sums" not in tuning_of(w.device).passes or dtype not in ENTRIES:
        return [node]
    rows = weight_sum_rows(x.type.shape, w.shape, y.type.shape, node.attrs, dtype)
    if rows >= y.type.shape[0] * y.type.shape[2]:
        return [node]
    attrs = {**node.attrs, "rows": rows}
    sums = Value(ops.conv2d_weight_sums.infer(x.type, y.type, **attrs))
    return [
        Node(ops.conv2d_weight_sums, node.inputs, (sums,), attrs, node.location),
        Node(ops.sum, (sums,), (node.output,), {"axes": (0,)}, node.location),
    ]
