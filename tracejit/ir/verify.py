"""The verifier of graph invariants, which runs between passes in tests and with ``TRACEJIT_VERIFY=1``."""

from __future__ import annotations

from tracejit.errors import VerificationError
from tracejit.ir.graph import Graph, Node, Value


def verify(graph: Graph) -> Graph:
    """Return `graph`, or raise `VerificationError` naming the node that breaks an invariant."""
    defined: set[Value] = set()
    for value in graph.inputs:
        if value in defined:
            raise VerificationError(f"input {value} appears twice")
        defined.add(value)
    for position, node in enumerate(graph.nodes):
        _verify_node(node, position, defined)
    for value in graph.results():
        if value not in defined:
            raise VerificationError(f"result {value} is never defined")
    targets: set[Value] = set()
    for effect in graph.effects:
        if effect.target not in graph.inputs:
            raise VerificationError(f"effect on {effect.target}, which is not an input")
        if effect.target in targets:
            raise VerificationError(f"two effects on {effect.target}")
        if effect.target.type != effect.value.type:
            raise VerificationError(f"effect stores {effect.value.type} into {effect.target.type}")
        targets.add(effect.target)
    return graph


def _verify_node(node: Node, position: int, defined: set[Value]) -> None:
    where = f"node {position} ({node.op.name}, {node.location or 'no location'})"
    for value in node.inputs:
        if value not in defined:
            raise VerificationError(f"{where} uses {value} before its definition")
    types = node.op.infer(*(v.type for v in node.inputs), **node.attrs)
    types = types if isinstance(types, tuple) else (types,)
    if types != tuple(v.type for v in node.outputs):
        raise VerificationError(
            f"{where}: outputs are {[str(v.type) for v in node.outputs]}, "
            f"the typing rule says {[str(t) for t in types]}"
        )
    for value in node.outputs:
        if value in defined:
            raise VerificationError(f"{where} defines {value} again")
        defined.add(value)
