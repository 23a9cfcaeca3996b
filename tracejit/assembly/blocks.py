"""Argument blocks of kernels, and the node that a kernel for a single operator is made of."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tracejit import ops
from tracejit.assembly.words import At, Word
from tracejit.codegen.spec import IntegerSlot, Lowered
from tracejit.ir.graph import Builder, Node


def words_of(node: Node, lowered: Lowered) -> tuple[Word, ...]:
    """The block of a generated kernel."""
    operands = (*node.inputs, *node.outputs)
    words: list[Word] = []
    for slot in lowered.slots:
        if isinstance(slot, IntegerSlot):
            words.append(slot.value)
        else:
            words.append(At(operands[slot.operand], slot.byte_offset))
    return tuple(words)


def row(slots: Mapping[Any, Word], names: Any) -> tuple[Word, ...]:
    """The words of a block whose slots have names."""
    return tuple([slots[name] for name in _members(names)])


@functools.cache
def _members(names: Any) -> tuple[Any, ...]:
    """The members of an enumeration, cached: listing them is slow."""
    return tuple(names)


def as_fused(node: Node) -> Node:
    """A `fused` node around one node. A copy between CPU devices is one, too: they share memory."""
    body = Builder()
    inputs = [body.input(v.type) for v in node.inputs]
    outputs = body.copy(node, inputs) if node.op is not ops.copy_to else [body.emit(ops.copy, *inputs)]
    return Node(
        ops.fused, node.inputs, node.outputs, {"body": body.graph(outputs), "kind": "map"}, node.location
    )
