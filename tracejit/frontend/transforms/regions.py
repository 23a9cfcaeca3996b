"""Pieces of a recording as lists of nodes and steps: what they read and define."""

from __future__ import annotations

from tracejit.frontend.grad.tape import Items
from tracejit.ir.graph import Value


def defined_by(items: Items) -> list[Value]:
    """The values that nodes and steps define, in order."""
    return list(dict.fromkeys(value for item in items for value in item.outputs))


def read_from_outside(items: Items) -> list[Value]:
    """The values that nodes and steps read and do not define, in order."""
    inside = set(defined_by(items))
    return list(dict.fromkeys(v for item in items for v in item.inputs if v not in inside))
