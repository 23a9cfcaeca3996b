"""Recomputation of masks from the masked values, where these are materialised anyway.

The backward pass of a rectifier needs its mask, which its result determines, too:

    m = less_equal(x, 0);  y = where(m, 0, x)             y <= 0 exactly where x <= 0, nan included
    dx = where(m, 0, dy)                            =>    dx = where(less_equal(y, 0), 0, dy)

So m needs no array if y lives until the backward pass anyway: it does if two products (or convolutions) read
it, the next layer's and that of the gradient of its weights, or if it is a result. Fusion computes the new
comparison where it is used (see `free`).
"""

from __future__ import annotations

from collections import Counter

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.op import Trait
from tracejit.passes.producers import base_of

KEEPING = 2
"""The number of products that read a value that lives until the backward pass."""


def remask(graph: Graph) -> Graph:
    """`graph` with comparisons recomputed where they are used after the `where` of their mask."""
    producers = producers_of(graph.nodes)
    kept = lasting(graph)
    cut: dict[Value, tuple[Node, Value]] = {}  # masks: the comparison, and what it masked
    nodes: list[Node] = []
    for node in graph.nodes:
        again = [v for v in node.inputs if v in cut]
        if again:
            fresh = {v: _again(*cut[v], node) for v in again}
            nodes += fresh.values()
            inputs = tuple([fresh[v].output if v in fresh else v for v in node.inputs])
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        nodes.append(node)
        if node.op is ops.where and node.output in kept:
            comparison = _comparison(node, producers)
            if comparison is not None:
                cut.setdefault(comparison.output, (comparison, node.output))
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _comparison(node: Node, producers: dict[Value, Node]) -> Node | None:
    """The comparison ``x <= c`` of ``where(x <= c, c, x)``, or the same with ``>=``."""
    comparison = producers.get(node.inputs[0])
    if comparison is None or comparison.op not in (ops.less_equal, ops.greater_equal):
        return None
    (x, bound), (_, constant, other) = comparison.inputs, node.inputs
    return comparison if other is x and _are_one(bound, constant, producers) else None


def _are_one(a: Value, b: Value, producers: dict[Value, Node]) -> bool:
    """Whether two values are one, or the same literal."""
    if a is b:
        return True
    first, second = producers.get(a), producers.get(b)
    if first is None or second is None or not first.op is second.op is ops.constant:
        return False
    return a.type == b.type and bool(first.attrs["value"] == second.attrs["value"])


def _again(comparison: Node, masked: Value, user: Node) -> Node:
    """A copy of a comparison, of the masked value, for `user`."""
    inputs = (masked, comparison.inputs[1])
    return Node(comparison.op, inputs, (Value(comparison.output.type),), comparison.attrs, user.location)


def lasting(graph: Graph) -> set[Value]:
    """Values that lie in memory until the backward pass."""
    producers = producers_of(graph.nodes)
    readers: Counter[Value] = Counter()
    for node in graph.nodes:
        if Trait.LIBRARY in node.op.traits:
            readers.update({base_of(producers, value) for value in node.inputs})
    return {value for value, count in readers.items() if count >= KEEPING} | set(graph.results())
