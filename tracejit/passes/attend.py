"""Replacement of attention that a program computes from primitive operators by the attention operator.

    %10 = exp(subtract(%7, %9))
    %13 = divide(%10, %12)
    %14 = matmul(%13, %2)
        =>
    %14, %15 = attention(%0, %1, %2, %3) [causal=False, cut=False, nan=True, scale=0.125, spread=1]

`attention_patterns` finds the pattern. Its last product is replaced if nothing else reads scores and weights.
A gradient does not read them: `tracejit.passes.gradient` differentiates the operator, which it emits at the
start of the backward pass, and which `cse` merges with the one that replaces the last product. So neither
direction materialises a matrix of scores (see docs/decisions/92-attention-written-out.md).

A mask operand that is causal is removed from the operator and its gradient, and ``causal`` is set instead.
"""

from __future__ import annotations

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Node, Value
from tracejit.ir.view import View
from tracejit.passes.attention_patterns import AttentionSearch, attention_patterns_of, mask_of
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce


def attend(graph: Graph) -> Graph:
    """Replace attention patterns in `graph` by the operator, where nothing else reads scores and weights."""
    if not attention_patterns_of(graph.nodes) and not any(map(mask_of, graph.nodes)):
        return graph
    graph = dce(graph)
    readers: dict[Value, set[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, set()).add(node)
    results, patterns = set(graph.results()), attention_patterns_of(graph.nodes)
    builder = Builder()
    for node in graph.nodes:
        pattern = patterns.get(node)
        if pattern is not None and pattern.is_self_contained(readers, results):
            result, _ = pattern.emit(builder).outputs
            view = {"view": View.of_shape(node.output.type.shape)}
            node = Node(ops.view, (result.value,), node.outputs, view, node.location)
        builder.nodes.append(node)
    search = AttentionSearch(builder.nodes)
    nodes = [search.without_causal_mask(node) for node in builder.nodes]
    return dce(cse(Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)))
