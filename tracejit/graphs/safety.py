"""Indices of a graph that comes from a file: where nothing shows that they are in range, they are checked.

`gather` and `scatter_add` take indices in range and do not look (`ops.movement`). In a recorded graph a
`check_index` stands before them; a file may say anything. What this adds changes no result: a call with an
index out of range fails, as it does in the function.

>>> from tracejit.ir.text import parse_graph
>>> text = "graph(%0: float32[3], %1: int64[2]) { %2: float32[2] = gather(%0, %1) [axis=0] return %2 }"
>>> print(with_checked_indices(parse_graph(text, {})))
graph(%0: float32[3], %1: int64[2]) {
  %2: int64[2] = check_index(%1) [axis=0, extent=3]
  %3: float32[2] = gather(%0, %2) [axis=0]
  return %3
}
"""

from __future__ import annotations

import math

from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ops import add, check_index, constant, copy, full, gather, iota, multiply, scatter_add, view

Bounds = dict[Value, int]
"""Upper bounds, exclusive, of the elements of values that are nowhere negative."""


def with_checked_indices(graph: Graph) -> Graph:
    """The graph, with a check before each use of an index that may be out of range."""
    builder = Builder()
    new = {value: builder.input(value.type) for value in graph.inputs}
    bounds: Bounds = {}
    for node in graph.nodes:
        operands = [new[value] for value in node.inputs]
        if node.op in (gather, scatter_add):
            axis = node.attrs["axis"]
            extent = node.attrs["extent"] if node.op is scatter_add else node.inputs[0].type.shape[axis]
            if bounds.get(node.inputs[1], math.inf) > extent:
                operands[1] = builder.emit(
                    check_index, operands[1], location=node.location, extent=extent, axis=axis
                )
        new.update(zip(node.outputs, builder.copy(node, operands), strict=True))
        bound = _bound(node, bounds)
        if bound is not None:
            bounds[node.output] = bound
    effects = [Effect(new[effect.target], new[effect.value]) for effect in graph.effects]
    return builder.graph([new[value] for value in graph.outputs], effects)


def _bound(node: Node, bounds: Bounds) -> int | None:
    """The bound of a node's output; None if nothing is known."""
    if node.op is check_index:
        return int(node.attrs["extent"])
    if node.op is iota:
        return int(node.attrs["size"])
    if node.op is constant:
        value = node.attrs["value"]
        return value + 1 if isinstance(value, int) and value >= 0 else None
    known = [bounds[value] for value in node.inputs if value in bounds]
    if len(known) < len(node.inputs):
        return None
    if node.op in (view, copy, full):
        return known[0]
    if node.op is add:
        found = known[0] + known[1] - 1
    elif node.op is multiply:
        found = (known[0] - 1) * (known[1] - 1) + 1
    else:
        return None
    return found if found < 1 << 62 else None
