"""Facts about a value that follow from the nodes which make it and its operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit import ops
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Op

Producers = Mapping[Value, Node]
"""The nodes that make values (see `tracejit.ir.graph.producers_of`)."""


def made_by(producers: Producers, value: Value, op: Op) -> Node | None:
    """The node that makes `value`, if it applies `op`."""
    node = producers.get(value)
    return node if node is not None and node.op is op else None


def base_of(producers: Producers, value: Value) -> Value:
    """The array behind a chain of views."""
    while (node := made_by(producers, value, ops.view)) is not None:
        (value,) = node.inputs
    return value


def number_of(producers: Producers, value: Value) -> Any:
    """The Python number that every element of `value` is known to be, or None."""
    node = producers.get(value)
    if node is not None and node.op is ops.full:
        node = producers.get(node.inputs[0])
    return node.attrs["value"] if node is not None and node.op is ops.constant else None


def is_zero(producers: Producers, value: Value) -> bool:
    """Whether every element of `value` is known to be 0, and not -0.0."""
    return str(number_of(producers, value)) in ("0", "0.0")
