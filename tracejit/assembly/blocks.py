"""Argument blocks of kernels, and the `fused` node around a single operator."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tracejit import ops
from tracejit.assembly.words import LaunchWord, ValueAddress
from tracejit.codegen.spec import IntegerSlot, Lowered
from tracejit.ir.graph import Builder, Node


def words_of(node: Node, lowered: Lowered) -> tuple[LaunchWord, ...]:
    """Return the argument block of a generated kernel."""
    operands = (*node.inputs, *node.outputs)
    words: list[LaunchWord] = []
    for slot in lowered.slots:
        if isinstance(slot, IntegerSlot):
            words.append(slot.value)
        else:
            words.append(ValueAddress(operands[slot.operand], slot.byte_offset))
    return tuple(words)


def row(slots: Mapping[Any, LaunchWord], names: Any) -> tuple[LaunchWord, ...]:
    """Return the words of a block whose slots are named, in the order of `names`, an enumeration."""
    return tuple([slots[name] for name in _members(names)])


@functools.cache
def _members(names: Any) -> tuple[Any, ...]:
    """Return the members of an enumeration. The result is cached, because listing them is slow."""
    return tuple(names)


def as_fused(node: Node) -> Node:
    """Return a `fused` node around one node. This includes a copy between CPU devices, which share memory."""
    body = Builder()
    inputs = [body.input(v.type) for v in node.inputs]
    outputs = body.copy(node, inputs) if node.op is not ops.copy_to else [body.emit(ops.copy, *inputs)]
    return Node(
        ops.fused, node.inputs, node.outputs, {"body": body.graph(outputs), "kind": "map"}, node.location
    )
