"""Constants that are part of the program of a serial kernel (see `serial`), instead of slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ops.loops import nested_graphs, targets

LITERAL_OPERANDS = frozenset(
    {"floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift"}
    | {"bitwise_right_shift"}
)
"""Operators whose integer constants are part of the program: the processor divides and shifts faster by
numbers that are known when the kernel is compiled.
"""


LITERALS = frozenset({-1, 0, 1, 2, 1 << 52, -(1 << 52)})
"""Integers that are part of the program. They occur whatever the shapes are."""


def literal_constants(node: Node) -> set[int]:
    """Return the ids of the constants in the graphs of a node that are to be part of the program."""
    found: set[int] = set()

    def visit(graph: Graph, origins: Mapping[Value, Any]) -> None:
        origin_of: dict[Value, Any] = dict(origins)
        for inner in graph.nodes:
            operands = [origin_of.get(value) for value in inner.inputs]
            if inner.op is ops.constant and inner.output.type.dtype.kind in "iu":
                origin_of[inner.output] = inner
            if inner.op is ops.full and operands[0] is not None:
                origin_of[inner.output] = operands[0]
            if inner.op.name in LITERAL_OPERANDS:
                found.update(id(operand) for operand in operands if operand is not None)
            for nested in nested_graphs(inner):
                visit(nested, dict(zip(nested.inputs, operands[1:], strict=True)))

    body: Graph = node.attrs["body"]
    visit(body, {})
    carried = {body.inputs[i]: effect.value for i, effect in zip(targets(body), body.effects, strict=True)}
    for inner in body.nodes:
        if inner.op is ops.case and inner.inputs[0] in carried and inner.inputs[0].type.dtype != np.bool_:
            found |= _chosen_constants(body, carried[inner.inputs[0]])
    return found


def _chosen_constants(graph: Graph, value: Value) -> set[int]:
    """Return the ids of the constants among which branches choose a value of a graph."""
    node = producers_of(graph.nodes).get(value)
    if node is None:
        return set()
    if node.op is ops.full:
        return _chosen_constants(graph, node.inputs[0])
    if node.op is ops.constant:
        return {id(node)}
    if node.op is not ops.case:
        return set()
    k = node.outputs.index(value)
    return set().union(*(_chosen_constants(branch, branch.outputs[k]) for branch in node.attrs["branches"]))
