"""Facts about a value that follow from the nodes that produce it and its operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit import ops
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Op

Producers = Mapping[Value, Node]
"""A mapping from values to the nodes that produce them (see `tracejit.ir.graph.producers_of`)."""


def produced_by(producers: Producers, value: Value, op: Op) -> Node | None:
    """The node that produces `value` if it applies `op`, else None."""
    node = producers.get(value)
    return node if node is not None and node.op is op else None


def base_of(producers: Producers, value: Value) -> Value:
    """The array at the base of a chain of views."""
    while (node := produced_by(producers, value, ops.view)) is not None:
        (value,) = node.inputs
    return value


def number_of(producers: Producers, value: Value) -> Any:
    """The Python number that all elements of `value` are known to equal, or None."""
    node = producers.get(value)
    if node is not None and node.op is ops.full:
        node = producers.get(node.inputs[0])
    return node.attrs["value"] if node is not None and node.op is ops.constant else None


def is_zero(producers: Producers, value: Value) -> bool:
    """Whether every element of `value` is known to be 0, and not -0.0."""
    return str(number_of(producers, value)) in ("0", "0.0")
