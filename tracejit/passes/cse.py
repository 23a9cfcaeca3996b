"""Common subexpression elimination: a node that is equal to an earlier node is replaced by it.

Two nodes are equal if they apply the same operator to the same values with the same attributes; the
operands of a commutative operator may be exchanged. Equality is exact: ``0.0`` and ``-0.0`` are different
constants. Locations are ignored; the surviving node keeps its location. `Trait.ORDERED` nodes (callbacks) are
never merged. Random draws need no special case: the counter of a draw is an input, so different draws have
different inputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import COMMUTATIVE, ORDERED


def cse(graph: Graph) -> Graph:
    """Eliminate common subexpressions of `graph`."""
    number: dict[Value, int] = {value: position for position, value in enumerate(graph.inputs)}
    survivor: dict[Value, Value] = {}
    seen: dict[Hashable, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple([survivor.get(v, v) for v in node.inputs])
        if ORDERED not in node.op.traits:
            key = _key(node, [number[v] for v in inputs])
            earlier = seen.get(key)
            if earlier is not None:
                survivor.update(zip(node.outputs, earlier.outputs, strict=True))
                continue
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.outputs, node.attrs, node.location)
        if ORDERED not in node.op.traits:
            seen[key] = node
        for value in node.outputs:
            number[value] = len(number)
        nodes.append(node)
    return Graph(
        graph.inputs,
        tuple(nodes),
        tuple(survivor.get(v, v) for v in graph.outputs),
        tuple(Effect(e.target, survivor.get(e.value, e.value)) for e in graph.effects),
    )


def _key(node: Node, operands: list[int]) -> Hashable:
    if COMMUTATIVE in node.op.traits:
        operands.sort()
    return node.op, tuple(operands), attributes_key(node.attrs)


def attributes_key(attrs: Mapping[str, Any]) -> Hashable:
    """Return a key that is equal exactly for equal attributes; graphs are compared by identity."""
    return tuple([(name, _exact(attrs[name])) for name in sorted(attrs)]) if attrs else ()


def _exact(value: Any) -> Hashable:
    """Return a key for exact equality of `value`: 0.0 differs from -0.0, 1 from True, and nan equals nan."""
    if isinstance(value, float | int):
        return repr(value)
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return value
