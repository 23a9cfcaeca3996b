"""Adds checks of indices to a graph from a file, unless they are provably in range.

`gather`, `scatter` and `scatter_add` require indices in range and do not check them (`ops.movement`). In a
recorded graph a `check_index` precedes them, but a file may contain any text. The additional checks change no
result: a call with an index out of range fails, as in the exported function.

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
from tracejit.ops import (
    add,
    check_index,
    constant,
    copy,
    full,
    gather,
    iota,
    multiply,
    scatter,
    scatter_add,
    view,
)

Bounds = dict[Value, int]
"""Exclusive upper bounds of the elements of values that are provably nonnegative."""


def with_checked_indices(graph: Graph) -> Graph:
    """Return the graph with a check before each use of an index that may be out of range."""
    builder = Builder()
    new = {value: builder.input(value.type) for value in graph.inputs}
    bounds: Bounds = {}
    for node in graph.nodes:
        operands = [new[value] for value in node.inputs]
        if node.op in (gather, scatter, scatter_add):
            axis = node.attrs["axis"]
            extent = node.attrs["extent"] if node.op is scatter_add else node.inputs[0].type.shape[axis]
            if bounds.get(node.inputs[-1], math.inf) > extent:
                operands[-1] = builder.emit(
                    check_index, operands[-1], location=node.location, extent=extent, axis=axis
                )
        new.update(zip(node.outputs, builder.copy(node, operands), strict=True))
        bound = _bound(node, bounds)
        if bound is not None:
            bounds[node.output] = bound
    effects = [Effect(new[effect.target], new[effect.value]) for effect in graph.effects]
    return builder.graph([new[value] for value in graph.outputs], effects)


def _bound(node: Node, bounds: Bounds) -> int | None:
    """The exclusive upper bound of a node's output; None if it is unknown or may be negative."""
    if node.op is check_index:
        return int(node.attrs["extent"])
    if node.op is iota:
        return int(node.attrs["size"])
    if node.op is constant:
        value = node.attrs["value"]
        return value + 1 if isinstance(value, int) and value >= 0 else None
    input_bounds = [bounds[value] for value in node.inputs if value in bounds]
    if len(input_bounds) < len(node.inputs):
        return None
    if node.op in (view, copy, full):
        return input_bounds[0]
    if node.op is add:
        bound = input_bounds[0] + input_bounds[1] - 1
    elif node.op is multiply:
        bound = (input_bounds[0] - 1) * (input_bounds[1] - 1) + 1
    else:
        return None
    return bound if bound < 1 << 62 else None
