"""Widening of half-precision operands of operators that kernels compute in float32 only.

The operands of every operator that is not elementwise and does more than move elements (sums, products,
convolutions, sorting) are cast to float32, and the result is rounded once. So sums and products accumulate in
float32. Fusion moves the casts into the surrounding kernels:

    %2: float16[4] = sum(%0) [axes=(0,)]     =>     %3: float32[8,4] = astype(%0) [dtype=float32]
                                                    %4: float32[4] = sum(%3) [axes=(0,)]
                                                    %2: float16[4] = astype(%4) [dtype=float16]
"""

from __future__ import annotations

import numpy as np

from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.types import HALVES, ArrayType
from tracejit.ops import astype

SINGLE = np.dtype("float32")


def widen(graph: Graph) -> Graph:
    """Insert casts from and to float32 around the operators in `graph` that widen half-precision operands."""
    if not any(_is_widened(node) for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    single: dict[Value, Value] = {}  # half-precision values to their float32 versions
    for node in graph.nodes:
        if not _is_widened(node):
            nodes.append(node)
            continue
        for value in node.inputs:
            if _is_half(value) and value not in single:
                single[value] = _single_of(value)
                nodes.append(_cast(value, single[value], node))
        outputs = tuple([_single_of(value) if _is_half(value) else value for value in node.outputs])
        inputs = tuple([single.get(value, value) if _is_half(value) else value for value in node.inputs])
        nodes.append(Node(node.op, inputs, outputs, node.attrs, node.location))
        nodes += [
            _cast(wide, value, node)
            for wide, value in zip(outputs, node.outputs, strict=True)
            if wide is not value
        ]
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _is_half(value: Value) -> bool:
    return value.type.dtype in HALVES


def _is_widened(node: Node) -> bool:
    return node.op.widens and any(map(_is_half, node.inputs))


def _single_of(value: Value) -> Value:
    """Create a value of the same type except that its dtype is float32."""
    return Value(ArrayType(value.type.shape, SINGLE, value.type.device))


def _cast(source: Value, target: Value, node: Node) -> Node:
    """Create the cast from `source` to `target`, at the location of `node`."""
    return Node(astype, (source,), (target,), {"dtype": target.type.dtype}, node.location)
