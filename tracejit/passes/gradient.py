"""Reverse-mode differentiation: appends the nodes that compute cotangents to a graph under construction.

The rules belong to the operators (`Op.gradient`); this module is the traversal that applies them. It visits
the nodes, in which every value is defined before it is used, in reverse order, so the cotangents of a node's
outputs are complete when it is visited:

    for node in reversed(nodes):
        cotangents of its inputs += rule(node, cotangents of its outputs)

Only nodes that depend on `wrt` are visited. The emitted nodes are ordinary nodes in the same builder, so
applying the function again computes derivatives of any order, and the recorder can call it in the middle of a
recording. Each emitted node has the location of the forward node it belongs to.

A `ReverseStep` in the list of nodes replaces or accompanies nodes, and has a rule of its own. Attention that
is computed from primitive operators uses the rule of the attention operator
(`tracejit.passes.attention_patterns`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext

from tracejit.errors import VerificationError
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ops import add
from tracejit.ops.symbolic import pull_back
from tracejit.passes.attention_patterns import attention_patterns_of


class ReverseStep:
    """An item in a list of nodes that has its own gradient rule.

    Its inputs are defined before it. Its outputs are defined by it, or by the nodes directly before it,
    through which cotangents do not propagate.
    """

    def __init__(self, inputs: Sequence[Value], outputs: Sequence[Value]):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """Return the cotangents of the inputs, from those of the outputs, which are not all None.

        Only the cotangents of inputs in `active` are used.
        """
        raise NotImplementedError

    def pulled_back(self, builder: Builder, totals: Sequence[Value | None]) -> None:
        """Notification that the cotangents of the inputs were accumulated; `totals` are the sums so far."""

    def pull_back_onto(
        self,
        builder: Builder,
        cotangents: Sequence[Value | None],
        active: Set[Value],
        totals: Sequence[Value | None],
    ) -> Sequence[Value | None] | None:
        """Add the step's cotangents to `totals`, those of the inputs so far; return the sums, or None.

        A step that represents many nodes can so accumulate in the order of these nodes. None means that the
        step does not accumulate, and that `pull_back` is to be called.
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
    """Append the gradient to `builder`; return the cotangents of `wrt`, from those of `outputs`.

    The cotangent of a value on which no output depends is None. `nodes` compute `outputs`, in order, and have
    been emitted already. `location` is that of sums which belong to no single node, for repeated outputs.
    Nodes are appended under `guard`, many at a time; steps are called without it. Raises VerificationError if
    the type of a cotangent differs from that of its output.
    """
    total: dict[Value, Value] = {}
    with guard():
        for output, seed in zip(outputs, cotangents, strict=True):
            if seed.type != output.type:
                raise VerificationError(
                    f"gradient: a cotangent {seed.type} was passed for a value {output.type}"
                )
            _accumulate(builder, total, output, seed, location)
    attentions = attention_patterns_of(nodes)
    nodes, active = nodes_between(nodes, wrt)

    def accumulate(operands: Sequence[Value], cotangents_of_inputs: Sequence[Value | None]) -> None:
        for value, cotangent in zip(operands, cotangents_of_inputs, strict=True):
            if cotangent is not None and value in active:
                _accumulate(builder, total, value, cotangent, location)

    for is_step, run in itertools.groupby(reversed(nodes), lambda node: isinstance(node, ReverseStep)):
        with nullcontext() if is_step else guard():
            for node in run:
                output_cotangents = [total.get(v) for v in node.outputs]
                if all(ct is None for ct in output_cotangents):
                    continue
                if isinstance(node, ReverseStep):
                    sums = node.pull_back_onto(
                        builder, output_cotangents, active, [total.get(v) for v in node.inputs]
                    )
                    if sums is not None:
                        total |= {v: ct for v, ct in zip(node.inputs, sums, strict=True) if ct is not None}
                        continue
                    cotangents_of_inputs = node.pull_back(builder, output_cotangents, active)
                    with guard():
                        accumulate(node.inputs, cotangents_of_inputs)
                    node.pulled_back(builder, [total.get(v) for v in node.inputs])
                    continue
                location, attention, ct = node.location, attentions.get(node), output_cotangents[0]
                if attention is not None and ct is not None and attention.covers_gradient(active, wrt):
                    accumulate(attention.operands, attention.pull_back(builder, ct))
                else:
                    accumulate(node.inputs, pull_back(builder, node, output_cotangents))
    return [total.get(v) for v in wrt]


def nodes_between(
    nodes: Iterable[Node | ReverseStep], wrt: Sequence[Value]
) -> tuple[list[Node | ReverseStep], set[Value]]:
    """The nodes through which cotangents can propagate to `wrt`, and all values that depend on `wrt`."""
    active = set(wrt)
    between = []
    for node in nodes:
        has_rule = isinstance(node, ReverseStep) or node.op.gradient is not None
        if has_rule and not active.isdisjoint(node.inputs):
            active.update(node.outputs)
            between.append(node)
    return between, active


def _accumulate(
    builder: Builder, total: dict[Value, Value], value: Value, cotangent: Value, location: str | None
) -> None:
    previous = total.get(value)
    total[value] = (
        cotangent if previous is None else builder.emit(add, previous, cotangent, location=location)
    )
