"""Attention that is written out becomes the operator with a kernel of its own.

    %10 = exp(subtract(%7, %9))
    %13 = divide(%10, %12)
    %14 = matmul(%13, %2)
        =>
    %14, %15 = attention(%0, %1, %2, %3) [causal=False, cut=False, nan=True, scale=0.125, spread=1]

`attention_patterns` finds it. The last product is replaced if nothing else reads scores and weights. A
gradient, which would read them, has been taken of the operator (`tracejit.passes.gradient`), which was
emitted where the backward pass begins and is the same as what replaces the last product. So neither direction
has a matrix of scores in memory (see docs/decisions/92-attention-written-out.md).

The operator, and its gradient, lose a mask that is causal.
"""

from __future__ import annotations

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Node, Value
from tracejit.ir.view import View
from tracejit.passes.attention_patterns import AttentionSearch, mask_of, written_out
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce


def attend(graph: Graph) -> Graph:
    """`graph` with attention as an operator where nothing else reads scores and weights."""
    if not written_out(graph.nodes) and not any(map(mask_of, graph.nodes)):
        return graph
    graph = dce(graph)
    readers: dict[Value, set[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, set()).add(node)
    results, found = set(graph.results()), written_out(graph.nodes)
    builder = Builder()
    for node in graph.nodes:
        each = found.get(node)
        if each is not None and each.serves_nothing_else(readers, results):
            result, _ = each.emit(builder).outputs
            view = {"view": View.of_shape(node.output.type.shape)}
            node = Node(ops.view, (result.value,), node.outputs, view, node.location)
        builder.nodes.append(node)
    search = AttentionSearch(builder.nodes)
    nodes = [search.without_causal_mask(node) for node in builder.nodes]
    return dce(cse(Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)))
