"""Structural equality of graphs: a key that is equal for graphs with the same operations; copies of graphs.

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
    """Return a key of a graph: operators, attributes, data flow and input types.

    Identities of values are irrelevant. Types of other values follow from the input types.

    locations: whether to include the user's lines.
    """
    index_of = {value: i for i, value in enumerate(graph.inputs)}
    items: list[Hashable] = [len(index_of)]
    for value in graph.inputs:
        items += type_items(value)
    for node in graph.nodes:
        items.append(node.op)
        items += [index_of[value] for value in node.inputs]
        if node.attrs:
            items += attribute_items(node)
        for value in node.outputs:
            index_of[value] = len(index_of)
        if locations:
            items.append(node.location)
    items.append(len(graph.outputs))
    items += [index_of[v] for v in graph.outputs]
    for effect in graph.effects:
        items += (index_of[effect.target], index_of[effect.value])
    return tuple(items)


def attribute_items(node: Node) -> tuple[Hashable, ...]:
    """Return the attributes of a node as items of a key."""
    items: list[Hashable] = []
    for name, attribute in node.attrs.items():
        items += (name, repr(attribute) if attribute.__class__ is float else attribute)
    return tuple(items)


def type_items(value: Value) -> tuple[Hashable, ...]:
    """Return the type of an input as items of a key."""
    type_ = value.type
    return type_.shape, type_.dtype, type_.device.kind, type_.device.index


def copied(graph: Graph) -> Graph:
    """Copy a graph, with new values."""
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
