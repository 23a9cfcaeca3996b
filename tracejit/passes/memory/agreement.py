"""Agreement between ranks: a node that ensures that all ranks fail a call with collectives, or none does.

The node `agree` comes after every check that can fail and, as it can fail itself, before every task that
writes storage. It tells the other ranks whether this rank has failed, and which collectives it is going to
run:

        %2 = gather(%0, %1)                        %2 = gather(%0, %1)
        %3, = exchange(%2)               =>        agree() [digest=..., text="exchange(float32[8]) at a.py:7"]
                                                   %3, = exchange(%2)

Checks are in the forward pass, so the messages of the agreement overlap with the backward pass.
"""

from __future__ import annotations

from tracejit.ir.graph import Graph, Node
from tracejit.ops.communicate import COLLECTIVE, agree, digests
from tracejit.passes.memory.aliases import can_fail

MAX_CHARACTERS = 300
"""The greatest number of characters of the operand types in the attribute `text`."""


def with_agreement(graph: Graph) -> Graph:
    """Insert a node `agree` after the last check of `graph`, if it contains collectives."""
    collectives = [node for node in graph.nodes if node.op in COLLECTIVE]
    if not collectives:
        return graph
    first = collectives[0]
    operands = ", ".join(str(v.type) for v in first.inputs)
    location = f" at {first.location}" if first.location else ""
    others = f", and {len(collectives) - 1} more" if len(collectives) > 1 else ""
    text = f"{first.op.name}({operands[:MAX_CHARACTERS]}){location}{others}"
    digest, within = digests(collectives)
    attrs = {"digest": digest, "within": within, "text": text, "token": "agreement"}
    node = Node(agree, (), (), attrs, first.location)
    index = max((p for p, n in enumerate(graph.nodes) if can_fail(n)), default=-1) + 1
    nodes = (*graph.nodes[:index], node, *graph.nodes[index:])
    return Graph(graph.inputs, nodes, graph.outputs, graph.effects)
