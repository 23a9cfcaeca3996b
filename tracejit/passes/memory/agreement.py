"""Agreement: where ranks exchange arrays, a node makes all of them fail a call, or none.

A node `agree` comes after every check that can fail and, as it can fail itself, before everything that writes
storage. It sends the other ranks whether this one has failed, and what it is going to exchange:

        %2 = gather(%0, %1)                        %2 = gather(%0, %1)
        %3, = exchange(%2)               =>        agree() [digest=..., text="exchange(float32[8]) at a.py:7"]
                                                   %3, = exchange(%2)

Checks lie in the forward pass, so the agreement travels during the backward pass.
"""

from __future__ import annotations

from tracejit.ir.graph import Graph, Node
from tracejit.ops.communicate import COLLECTIVE, agree, digests
from tracejit.passes.memory.aliases import can_fail

TEXT = 300
"""The most characters of the description of the exchanges."""


def with_agreement(graph: Graph) -> Graph:
    """`graph` with a node `agree` after its last check, if all ranks take part in one of its nodes."""
    shared = [node for node in graph.nodes if node.op in COLLECTIVE]
    if not shared:
        return graph
    first = shared[0]
    operands = ", ".join(str(v.type) for v in first.inputs)
    place = f" at {first.location}" if first.location else ""
    more = f", and {len(shared) - 1} more" if len(shared) > 1 else ""
    text = f"{first.op.name}({operands[:TEXT]}){place}{more}"
    digest, within = digests(shared)
    attrs = {"digest": digest, "within": within, "text": text, "token": "agreement"}
    node = Node(agree, (), (), attrs, first.location)
    after = max((p for p, n in enumerate(graph.nodes) if can_fail(n)), default=-1) + 1
    nodes = (*graph.nodes[:after], node, *graph.nodes[after:])
    return Graph(graph.inputs, nodes, graph.outputs, graph.effects)
