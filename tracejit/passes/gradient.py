"""Reverse-mode differentiation: appends the nodes that compute cotangents to a graph under construction.

The rules are the operators' own (`Op.gradient`); this is the walk around them. It goes backwards over nodes
in which every value is defined before it is used, so when a node is reached its outputs' cotangents are
complete:

    for node in reversed(nodes):
        cotangents of its inputs += rule(node, cotangents of its outputs)

Only nodes on a path from one of `wrt` are visited. Because the backward nodes are ordinary nodes in the
same builder, derivatives of any order come from applying the function again, and the recorder can call it
in the middle of a recording. Each emitted node carries the location of the forward node it comes from.

A `ReverseStep` may stand in the list in place of nodes, or beside them: it has a rule of its own. Attention
that is written out has the rule of the operator that it is (`tracejit.passes.attention_patterns`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext

from tracejit.errors import VerificationError
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ops import add
from tracejit.ops.symbolic import pull_back
from tracejit.passes.attention_patterns import written_out


class ReverseStep:
    """An item in a list of nodes with a gradient rule of its own.

    Its inputs are defined before it, its outputs by it or by nodes right before it that stop cotangents.
    """

    def __init__(self, inputs: Sequence[Value], outputs: Sequence[Value]):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """The cotangents of the inputs, from those of the outputs (not all None). Only those of inputs among
        `active` are used.
        """
        raise NotImplementedError

    def pulled_back(self, builder: Builder, totals: Sequence[Value | None]) -> None:
        """Called when its cotangents were added to those that its inputs had: these are the sums so far."""

    def pull_back_onto(
        self,
        builder: Builder,
        cotangents: Sequence[Value | None],
        active: Set[Value],
        totals: Sequence[Value | None],
    ) -> Sequence[Value | None] | None:
        """The cotangents of the inputs so far, `totals`, with its own added to them; None if it does not add.

        So a step that stands for many nodes can add in the order of these.
        """
        return None


Items = Sequence[Node | ReverseStep]


def gradient(
    builder: Builder,
    nodes: Items,
    outputs: Sequence[Value],
    cotangents: Sequence[Value],
    wrt: Sequence[Value],
    location: str | None = None,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Value | None]:
    """Append to `builder` the cotangents of `wrt`, from those of `outputs`; None: no dependence.

    `nodes` compute `outputs`, in order, and are already in `builder` or before it. `location` is for the
    sums that come from no single node: an output that is named twice. Nodes are appended under `guard`, many
    at once, but steps are queried without it.
    """
    total: dict[Value, Value] = {}
    with guard():
        for output, seed in zip(outputs, cotangents, strict=True):
            if seed.type != output.type:
                raise VerificationError(
                    f"gradient: a cotangent {seed.type} was passed for a value {output.type}"
                )
            _accumulate(builder, total, output, seed, location)
    attentions = written_out(nodes)
    nodes, active = nodes_between(nodes, wrt)

    def accumulate(operands: Sequence[Value], found: Sequence[Value | None]) -> None:
        for value, cotangent in zip(operands, found, strict=True):
            if cotangent is not None and value in active:
                _accumulate(builder, total, value, cotangent, location)

    for is_step, run in itertools.groupby(reversed(nodes), lambda node: isinstance(node, ReverseStep)):
        with nullcontext() if is_step else guard():
            for node in run:
                known = [total.get(v) for v in node.outputs]
                if all(ct is None for ct in known):
                    continue
                if isinstance(node, ReverseStep):
                    sums = node.pull_back_onto(builder, known, active, [total.get(v) for v in node.inputs])
                    if sums is not None:
                        total |= {v: ct for v, ct in zip(node.inputs, sums, strict=True) if ct is not None}
                        continue
                    found = node.pull_back(builder, known, active)
                    with guard():
                        accumulate(node.inputs, found)
                    node.pulled_back(builder, [total.get(v) for v in node.inputs])
                    continue
                location, attention, ct = node.location, attentions.get(node), known[0]
                if attention is not None and ct is not None and attention.takes_all(active, wrt):
                    accumulate(attention.operands, attention.pull_back(builder, ct))
                else:
                    accumulate(node.inputs, pull_back(builder, node, known))
    return [total.get(v) for v in wrt]


def nodes_between(
    nodes: Iterable[Node | ReverseStep], wrt: Sequence[Value]
) -> tuple[list[Node | ReverseStep], set[Value]]:
    """The nodes through which cotangents can reach `wrt`, and every value that depends on `wrt`."""
    active = set(wrt)
    kept = []
    for node in nodes:
        has_rule = isinstance(node, ReverseStep) or node.op.gradient is not None
        if has_rule and not active.isdisjoint(node.inputs):
            active.update(node.outputs)
            kept.append(node)
    return kept, active


def _accumulate(
    builder: Builder, total: dict[Value, Value], value: Value, cotangent: Value, location: str | None
) -> None:
    known = total.get(value)
    total[value] = cotangent if known is None else builder.emit(add, known, cotangent, location=location)
