"""Recomputation of masks from masked values that are materialised anyway.

The backward pass of a rectifier needs its mask, which can be computed from the operand or from the result:

    m = less_equal(x, 0);  y = where(m, 0, x)             y <= 0 exactly where x <= 0, nan included
    dx = where(m, 0, dy)                            =>    dx = where(less_equal(y, 0), 0, dy)

So m needs no array if y is live until the backward pass anyway. It is if two products (or convolutions) read
it, that of the next layer and that of its weight gradient, or if it is a result. Fusion recomputes the new
comparison in the kernels that use it (see `tracejit.passes.fusion.free`).
"""

from __future__ import annotations

from collections import Counter

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.op import Trait
from tracejit.passes.producers import base_of

MIN_READERS = 2
"""The least number of products that read a value which is live until the backward pass."""


def remask(graph: Graph) -> Graph:
    """Rewrite `graph` such that uses of a mask after its `where` recompute the comparison from the result."""
    producers = producers_of(graph.nodes)
    live = long_lived(graph)
    replaced: dict[Value, tuple[Node, Value]] = {}  # by mask: the comparison, and the masked value
    nodes: list[Node] = []
    for node in graph.nodes:
        masks = [v for v in node.inputs if v in replaced]
        if masks:
            fresh = {v: _recomputed(*replaced[v], node) for v in masks}
            nodes += fresh.values()
            inputs = tuple([fresh[v].output if v in fresh else v for v in node.inputs])
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        nodes.append(node)
        if node.op is ops.where and node.output in live:
            comparison = _comparison(node, producers)
            if comparison is not None:
                replaced.setdefault(comparison.output, (comparison, node.output))
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _comparison(node: Node, producers: dict[Value, Node]) -> Node | None:
    """The comparison ``x <= c`` if `node` is ``where(x <= c, c, x)``, or the same with ``>=``; else None."""
    comparison = producers.get(node.inputs[0])
    if comparison is None or comparison.op not in (ops.less_equal, ops.greater_equal):
        return None
    (x, bound), (_, constant, other) = comparison.inputs, node.inputs
    return comparison if other is x and _are_equal(bound, constant, producers) else None


def _are_equal(a: Value, b: Value, producers: dict[Value, Node]) -> bool:
    """Whether two values are identical, or the same literal."""
    if a is b:
        return True
    first, second = producers.get(a), producers.get(b)
    if first is None or second is None or not first.op is second.op is ops.constant:
        return False
    return a.type == b.type and bool(first.attrs["value"] == second.attrs["value"])


def _recomputed(comparison: Node, masked: Value, user: Node) -> Node:
    """A copy of `comparison`, applied to the masked value, for `user`."""
    inputs = (masked, comparison.inputs[1])
    return Node(comparison.op, inputs, (Value(comparison.output.type),), comparison.attrs, user.location)


def long_lived(graph: Graph) -> set[Value]:
    """The values that are stored in memory until the backward pass."""
    producers = producers_of(graph.nodes)
    readers: Counter[Value] = Counter()
    for node in graph.nodes:
        if Trait.LIBRARY in node.op.traits:
            readers.update({base_of(producers, value) for value in node.inputs})
    return {value for value, n_readers in readers.items() if n_readers >= MIN_READERS} | set(graph.results())
