"""Batching rules: one application of an operator to all examples of a batch, from that to a single example.

Some operands are *mapped*: they have one more dimension than the operator was recorded for, the first one, of
as many elements as there are examples. A rule makes the result for all of them, mapped in the same way:

    def rule(node):                      # the form of every `Op.batch`
        (x,) = node.inputs               # Syms; node.mapped says which of them are mapped
        return node.apply(x, axis=node.attrs["axis"] + 1)

At least one operand is mapped, and there is at least one example. Most rules follow from traits, or are made
by `shifting` and `leading`:

- elementwise operators take mapped operands as they are, and the others spread along the new dimension;
- a view gets a leading dimension, whose stride is the size of an example;
- reductions, and whatever works along axes, name axes that are one higher (`shifting`);
- operators for which leading dimensions are a batch anyway need nothing (`leading`).

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

    inputs: the operands, of which the `mapped` ones have a leading dimension of extent `size`.
    """

    __slots__ = ("attrs", "inputs", "mapped", "op", "size")

    def __init__(self, op: Op, inputs: Sequence[Sym], mapped: Sequence[bool], attrs: Any, size: int):
        self.op, self.inputs, self.mapped = op, tuple(inputs), tuple(mapped)
        self.attrs, self.size = attrs, size

    def spread(self) -> list[Sym]:
        """The operands, each of them mapped; numbers as they are."""
        return [
            x if mapped or x.on_host else x.spread((0,), (self.size, *x.shape))
            for x, mapped in zip(self.inputs, self.mapped, strict=True)
        ]

    def apply(self, *operands: Sym, **changed: Any) -> Any:
        """The operator on other operands, with some attributes changed."""
        return emit(self.op, *operands, **{**self.attrs, **changed})


def leading(node: BatchNode) -> Any:
    """The rule of an operator for which the first dimension of its operands is one of a batch, or like it."""
    return node.apply(*node.spread())


def shifting(*names: str) -> BatchingRule:
    """The rule of an operator that works along axes, which the attributes `names` number."""

    def rule(node: BatchNode) -> Any:
        changed = {name: _shifted(node.attrs[name]) for name in names}
        return node.apply(*node.spread(), **changed)

    return rule


def _shifted(axes: Any) -> Any:
    return axes + 1 if isinstance(axes, int) else tuple(axis + 1 for axis in axes)


def refusing(reason: str) -> BatchingRule:
    """The rule of an operator that cannot be batched."""

    def rule(node: BatchNode) -> Any:
        raise ArgumentError(f"vmap: {reason}")

    return rule


def first_axis(x: Sym, axis: int) -> Sym:
    """`x` with one axis moved to the front."""
    return x.permute((axis, *(a for a in range(len(x.shape)) if a != axis)))


def axis_from_first(x: Sym, axis: int) -> Sym:
    """`x` with its first axis moved to `axis`."""
    rest = list(range(1, len(x.shape)))
    return x.permute((*rest[:axis], 0, *rest[axis:]))


def merged(x: Sym) -> Sym:
    """`x` with its first two dimensions as one: the examples of a batch one after the other."""
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def parted(x: Sym, size: int, axis: int = 0) -> Sym:
    """The reverse: `axis` falls into (`size` examples, the rest), and examples come first."""
    split = x.reshape((*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :]))
    return first_axis(split, axis)


def batched_view(view: View, size: int, elements: int) -> View:
    """A view of an array of so many `elements`, as that of `size` such arrays, one after the other."""
    return View(view.offset, (size, *view.shape), (elements, *view.strides))


def _view(node: BatchNode) -> Sym:
    (x,) = node.inputs
    return x.view(batched_view(node.attrs["view"], node.size, math.prod(x.shape[1:])))


_OF_TRAITS: dict[Trait, BatchingRule] = {
    Trait.ELEMENTWISE: leading,
    Trait.VIEW: _view,
    Trait.REDUCTION: shifting("axes"),
}


def rule_of(op: Op) -> BatchingRule | None:
    """The batching rule of an operator: its own, or the one that its traits imply; None if it has none."""
    if op.batch is not None:
        return op.batch
    if Trait.COMPILED in op.traits:
        return refusing(f"{op.name} is made by a pass; map the function before it is compiled")
    return next((rule for trait, rule in _OF_TRAITS.items() if trait in op.traits), None)


def maps(op: Op, mapped: Sequence[bool]) -> bool:
    """Whether the results of an operator are mapped: if an operand is whose elements it uses."""
    return op.maps(mapped)


def batch(
    builder: Builder, node: Node, inputs: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    """Append to `builder` what computes `node` for a batch of `size` examples; its mapped results.

    `inputs` stand for those of the node. Without examples the results are empty arrays.
    """
    rule = rule_of(node.op)
    if rule is None:
        raise ArgumentError(f"vmap: the operator {node.op.name} has no batching rule")
    with building(builder, node.location):
        if not size:
            return tuple([_nothing(value).value for value in node.outputs])
        seen = BatchNode(node.op, list(map(Sym, inputs)), mapped, node.attrs, size)
        results = rule(seen)
    return tuple([x.value for x in results]) if isinstance(results, tuple) else (results.value,)


def _nothing(value: Value) -> Sym:
    kind = value.type
    zero = number(0, kind.dtype)
    return zero.full((0, *kind.shape), kind.device)
