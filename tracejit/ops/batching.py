"""Batching rules, which convert an operator that was recorded for one example to one on a batch of examples.

Some operands are *mapped*: they have an additional leading dimension, whose extent is the number of examples.
A rule computes the results of all examples, mapped in the same way:

    def rule(node):                      # the form of every `Op.batch`
        (x,) = node.inputs               # Syms; node.mapped tells for each whether it is mapped
        return node.apply(x, axis=node.attrs["axis"] + 1)

At least one operand is mapped, and there is at least one example. Most rules follow from the operator's
traits, or are created by `shifting` and `leading`:

- elementwise operators use mapped operands unchanged, and broadcast the others along the new dimension;
- a view gets a leading dimension, whose stride is the size of an example;
- reductions, and other operators along axes, increment their axis attributes (`shifting`);
- operators whose leading dimensions are batch dimensions need no change (`leading`).

Source: `vmap` of JAX (Bradbury et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.errors import ArgumentError
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ir.op import Op, Trait
from tracejit.ir.view import View
from tracejit.ops.symbolic import Sym, building, emit, number

BatchingRule = Callable[["BatchNode"], Any]


class BatchNode:
    """A node as seen by its batching rule.

    inputs: the operands; those for which `mapped` is true have a leading dimension of extent `size`.
    """

    __slots__ = ("attrs", "inputs", "mapped", "op", "size")

    def __init__(self, op: Op, inputs: Sequence[Sym], mapped: Sequence[bool], attrs: Any, size: int):
        self.op, self.inputs, self.mapped = op, tuple(inputs), tuple(mapped)
        self.attrs, self.size = attrs, size

    def mapped_operands(self) -> list[Sym]:
        """The operands, with each array mapped; host numbers are unchanged."""
        return [
            x if mapped or x.on_host else x.spread((0,), (self.size, *x.shape))
            for x, mapped in zip(self.inputs, self.mapped, strict=True)
        ]

    def apply(self, *operands: Sym, **changed: Any) -> Any:
        """Apply the node's operator to other operands, with some attributes changed."""
        return emit(self.op, *operands, **{**self.attrs, **changed})


def leading(node: BatchNode) -> Any:
    """The rule of an operator that treats the leading dimensions of its operands as batch dimensions."""
    return node.apply(*node.mapped_operands())


def shifting(*names: str) -> BatchingRule:
    """Return the rule of an operator along axes, which are the values of the attributes `names`."""

    def rule(node: BatchNode) -> Any:
        changed = {name: _shifted(node.attrs[name]) for name in names}
        return node.apply(*node.mapped_operands(), **changed)

    return rule


def _shifted(axes: Any) -> Any:
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)


def refusing(reason: str) -> BatchingRule:
    """Return the rule of an operator that cannot be batched; it raises ArgumentError with `reason`."""

    def rule(node: BatchNode) -> Any:
        raise ArgumentError(f"vmap: {reason}")

    return rule


def first_axis(x: Sym, axis: int) -> Sym:
    """Move one axis of `x` to the front."""
    return x.permute((axis, *(a for a in range(len(x.shape)) if a != axis)))


def axis_from_first(x: Sym, axis: int) -> Sym:
    """Move the first axis of `x` to position `axis`."""
    others = list(range(1, len(x.shape)))
    return x.permute((*others[:axis], 0, *others[axis:]))


def merged(x: Sym) -> Sym:
    """Merge the first two dimensions of `x`, which concatenates the examples of a batch."""
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def unmerged(x: Sym, size: int, axis: int = 0) -> Sym:
    """Split `axis` of `x` into (`size` examples, remainder) and move the examples first."""
    split = x.reshape((*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :]))
    return first_axis(split, axis)


def batched_view(view: View, size: int, elements: int) -> View:
    """Extend a view of an array of `elements` elements to `size` such arrays, stored consecutively."""
    return View(view.offset, (size, *view.shape), (elements, *view.strides))


def _view(node: BatchNode) -> Sym:
    (x,) = node.inputs
    return x.view(batched_view(node.attrs["view"], node.size, math.prod(x.shape[1:])))


_RULES_BY_TRAIT: dict[Trait, BatchingRule] = {
    Trait.ELEMENTWISE: leading,
    Trait.VIEW: _view,
    Trait.REDUCTION: shifting("axes"),
}


def rule_of(op: Op) -> BatchingRule | None:
    """The batching rule of an operator: its own, or the one that its traits imply; None if there is none."""
    if op.batch is not None:
        return op.batch
    if Trait.COMPILED in op.traits:
        return refusing(f"{op.name} is created by a pass; map the function before it is compiled")
    return next((rule for trait, rule in _RULES_BY_TRAIT.items() if trait in op.traits), None)


def maps(op: Op, mapped: Sequence[bool]) -> bool:
    """Whether the results of an operator are mapped: true if it uses the elements of a mapped operand."""
    return op.maps(mapped)


def batch(
    builder: Builder, node: Node, inputs: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    """Append nodes that compute `node` for a batch of `size` examples; return the mapped results.

    `inputs` replace the inputs of the node. If `size` is 0, the results are empty arrays. Raises
    ArgumentError if the operator has no batching rule.
    """
    rule = rule_of(node.op)
    if rule is None:
        raise ArgumentError(f"vmap: the operator {node.op.name} has no batching rule")
    with building(builder, node.location):
        if not size:
            return tuple([_empty_batch(value).value for value in node.outputs])
        batch_node = BatchNode(node.op, list(map(Sym, inputs)), mapped, node.attrs, size)
        results = rule(batch_node)
    return tuple([x.value for x in results]) if isinstance(results, tuple) else (results.value,)


def _empty_batch(value: Value) -> Sym:
    type = value.type
    zero = number(0, type.dtype)
    return zero.full((0, *type.shape), type.device)
