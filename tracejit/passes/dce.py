"""Dead code elimination: remove the nodes that no result needs.

Live nodes are those that an output or an effect depends on, and those with side effects:
`Trait.ORDERED` (callbacks) and `Trait.CAN_FAIL` (an index out of range is an error even if nobody
reads the element). The graph is linear and every value is defined before it is used, so one walk backwards
sees each value's uses before its definition.
"""

from __future__ import annotations

from tracejit.ir.graph import Graph, Node
from tracejit.ir.op import CAN_FAIL, ORDERED


def dce(graph: Graph) -> Graph:
    """`graph` without its dead nodes."""
    needed = set(graph.results())
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs) or _has_side_effect(node):
            needed.update(node.inputs)
            kept.append(node)
    return Graph(graph.inputs, tuple(reversed(kept)), graph.outputs, graph.effects)


def _has_side_effect(node: Node) -> bool:
    return ORDERED in node.op.traits or CAN_FAIL in node.op.traits
