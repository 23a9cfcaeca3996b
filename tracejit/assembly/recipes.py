"""Parts of jobs: the kernels to load, and the words of their argument blocks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tracejit import ops
from tracejit.assembly.words import At, Word
from tracejit.codegen.objects.loader import Recipe
from tracejit.codegen.spec import IntegerSlot, KernelSpec, Lowered
from tracejit.ir.graph import Builder, Node


def generated_kernel(name: str, lowered: Lowered) -> Recipe:
    return Recipe(name, lowered.spec, lambda: source_of(lowered.spec))


def source_of(spec: KernelSpec) -> str:
    """The source of a generated kernel: ``kernel(block, lo, hi, scratch) -> status``."""
    from tracejit.codegen.cpu.emit import (
        emit_cpu,  # where all kernels are in the store, nothing writes source
    )

    return emit_cpu(spec)


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


def library_kernel(name: str, dtype: str, table: str = "LIBRARY") -> Recipe:
    source = (
        f"from tracejit.kernels.{table.lower()}.table import {table}\n\n"
        f'kernel = {table}["{name}", "{dtype}"]\n'
    )
    title = name if name == "copy" else f"{name} {dtype}"
    return Recipe(title, ("library", name, dtype), lambda: source, handwritten=True)


def row(slots: Mapping[Any, Word], names: Any) -> tuple[Word, ...]:
    """The words of a block whose slots have names."""
    return tuple([slots[name] for name in _members(names)])


@functools.cache
def _members(names: Any) -> tuple[Any, ...]:
    """The members of an enumeration, which takes its time to list them."""
    return tuple(names)


def as_fused(node: Node) -> Node:
    """A `fused` node around one node; a copy from elsewhere is one, as all CPU devices see all memory."""
    body = Builder()
    inputs = [body.input(v.type) for v in node.inputs]
    outputs = body.copy(node, inputs) if node.op is not ops.copy_to else [body.emit(ops.copy, *inputs)]
    return Node(
        ops.fused, node.inputs, node.outputs, {"body": body.graph(outputs), "kind": "map"}, node.location
    )
