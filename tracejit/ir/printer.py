"""Prints a graph as deterministic text, in which values are numbered in order of definition.

Golden tests, `f.graph()`, `TRACEJIT_DUMP` and the kernel store use this form. Nested graphs are indented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tracejit.ir.graph import Graph, Node, Value
    from tracejit.ir.types import ArrayType


class ValueNames:
    """Assigns ``%0``, ``%1``, ... to values in the order of their first use."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}

    def __call__(self, value: Value) -> str:
        return self._names.setdefault(value, f"%{len(self._names)}")


def print_graph(graph: Graph, *, locations: bool = False, indent: str = "") -> str:
    """Print a graph.

    locations: whether to append each node's user line as a comment.
    indent:    of all lines except the first.
    """

    def node_text(node: Node, name: ValueNames) -> str:
        return _print_node(node, name, locations, indent + "  ")

    return graph_text(graph, str, node_text, indent)


def graph_text(
    graph: Graph,
    type_text: Callable[[ArrayType], str],
    node_text: Callable[[Node, ValueNames], str],
    indent: str,
) -> str:
    """Write a graph, with functions that write its types and nodes."""
    name = ValueNames()
    inputs = ", ".join(f"{name(v)}: {type_text(v.type)}" for v in graph.inputs)
    lines = [f"graph({inputs}) {{"]
    lines += [f"{indent}  {node_text(node, name)}" for node in graph.nodes]
    lines += [f"{indent}  {name(effect.target)} <- {name(effect.value)}" for effect in graph.effects]
    lines.append(f"{indent}  return {', '.join(map(name, graph.outputs))}".rstrip())
    lines.append(indent + "}")
    return "\n".join(lines)


def _print_node(node: Node, name: ValueNames, locations: bool, indent: str) -> str:
    inputs = ", ".join(map(name, node.inputs))
    nested: list[str] = []
    attrs = []
    for key, value in sorted(node.attrs.items()):
        graphs = [value] if key == "body" else value if key == "branches" else ()
        if graphs:
            nested += [print_graph(graph, locations=locations, indent=indent) for graph in graphs]
        elif key == "dtype" and all(out.type.dtype == value for out in node.outputs):
            continue
        else:
            attrs.append(f"{key}={print_attribute(value)}")
    outputs = ", ".join(f"{name(v)}: {v.type}" for v in node.outputs)
    text = f"{outputs}{' = ' if outputs else ''}{node.op.name}({inputs})"
    if attrs:
        text += f" [{', '.join(attrs)}]"
    if nested:
        text += " " + " ".join(nested)
    if locations and node.location:
        text += f"  # {node.location}"
    return text


def print_attribute(value: Any) -> str:
    """Print an attribute."""
    if isinstance(value, np.dtype | float | int | str | bool | type(None)):
        return str(value)
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(print_attribute, value)) + ")"
    return str(value)
