"""Structural equality of graphs: a key that is equal for graphs that compute the same, and copies.

>>> from tracejit.ir.graph import Builder
>>> from tracejit.ir.types import ArrayType
>>> import numpy as np
>>> from tracejit.ops import add
>>> def double(shape):
...     b = Builder()
...     x = b.input(ArrayType(shape, np.dtype("float32")))
...     return b.graph([b.emit(add, x, x)])
>>> structure(double((3,))) == structure(double((3,))), structure(double((3,))) == structure(double((4,)))
(True, False)
"""

from __future__ import annotations

from collections.abc import Hashable

from tracejit.ir.graph import Effect, Graph, Node, Value


def structure(graph: Graph, *, locations: bool = False) -> Hashable:
    """Operators, attributes, wiring and input types of a graph, and with `locations` the user's lines.

    Identities of values do not count. Types of other values follow from these.
    """
    number = {value: i for i, value in enumerate(graph.inputs)}
    parts: list[Hashable] = [len(number)]
    for value in graph.inputs:
        parts += type_facts(value)
    for node in graph.nodes:
        parts.append(node.op)
        parts += [number[value] for value in node.inputs]
        if node.attrs:
            parts += facts(node)
        for value in node.outputs:
            number[value] = len(number)
        if locations:
            parts.append(node.location)
    parts.append(len(graph.outputs))
    parts += [number[v] for v in graph.outputs]
    for effect in graph.effects:
        parts += (number[effect.target], number[effect.value])
    return tuple(parts)


def facts(node: Node) -> tuple[Hashable, ...]:
    """The attributes of a node for a structure."""
    found: list[Hashable] = []
    for name, attribute in node.attrs.items():
        found += (name, repr(attribute) if attribute.__class__ is float else attribute)
    return tuple(found)


def type_facts(value: Value) -> tuple[Hashable, ...]:
    """The type of an input for a structure."""
    kind = value.type
    return kind.shape, kind.dtype, kind.device.kind, kind.device.index


def copied(graph: Graph) -> Graph:
    """A copy of the graph, on new values."""
    new = {value: Value(value.type) for value in graph.inputs}
    inputs = tuple(new.values())
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple([new[value] for value in node.inputs])
        outputs = tuple([Value(value.type) for value in node.outputs])
        new.update(zip(node.outputs, outputs, strict=True))
        nodes.append(Node(node.op, operands, outputs, node.attrs, node.location))
    effects = [Effect(new[effect.target], new[effect.value]) for effect in graph.effects]
    return Graph(inputs, tuple(nodes), tuple([new[value] for value in graph.outputs]), tuple(effects))
