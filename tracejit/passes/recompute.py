"""Rematerialisation of cheap values for late uses, so that fewer arrays are live until then.

The backward pass of a network reads values of the forward pass: for a GELU its operand x, tanh of a
polynomial of x, and the result, an operand of the next product. The last two can be computed from x by a few
operators:

    y = gelu(x);  z = matmul(y, w)
    ...
    dw = matmul(y.T, dz)                =>      x1 = after(mark of dz, x);  y1 = gelu(x1)
                                                dw = matmul(y1.T, dz)

A use of a value is *late* if at least two products (or convolutions) are between definition and use. This is
measured by the *depth* of a value, the number of products on the longest path to it. A value with a late use
is *kept*, unless it is rematerialised: by a chain of elementwise operators, from values that are kept anyway,
from host numbers, and from arrays that are much smaller. The recomputed chain is placed `after` a value of
the backward pass, since nothing else would delay it until then. It is computed once, before the first late
use.

Rounding in a kernel depends on the other operators of the kernel (see docs/decisions/14-sums-of-products.md),
so a recomputed value may differ from the original by a rounding error.

The pass applies to large arrays, and to chains that cost little for each element (`MAX_CHAIN_COST`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Node, Value, producers_of
from tracejit.ir.op import CAN_FAIL, ELEMENTWISE, EXPENSIVE, LIBRARY
from tracejit.ir.view import View
from tracejit.passes.producers import base_of
from tracejit.tuning import tuning_of

MIN_BYTES = 1 << 18
"""The least size in bytes of a value that is recomputed; smaller ones hardly affect the peak memory."""

MIN_DEPTH_DIFFERENCE = 2
"""The least difference of depths of a late use: a product of a value, or a sum with it, is not a late use."""

MAX_CHAIN_COST = 48
"""The greatest number of operators in a chain, where an expensive one counts as `EXPENSIVE_COST`."""

EXPENSIVE_COST = 12

SMALL_RATIO = 8
"""The least ratio of sizes for which an array counts as small compared to another."""


def recompute(graph: Graph) -> Graph:
    """Rematerialise values in `graph` for their late uses."""
    late_uses = _LateUses(graph)
    chosen = _chosen(graph, late_uses)
    return _Rewriter(graph, late_uses, chosen).run() if chosen else graph


class _LateUses:
    """The producers of values, their depths, and the positions of last late uses."""

    def __init__(self, graph: Graph):
        self.producers = producers_of(graph.nodes)
        self.depth = dict.fromkeys(graph.inputs, 0)
        self.last_use: dict[Value, int] = {}
        for position, node in enumerate(graph.nodes):
            depth = max((self.depth[v] for v in node.inputs), default=0) + (LIBRARY in node.op.traits)
            self.depth.update(dict.fromkeys(node.outputs, depth))
            if node.op is not ops.view:
                self.last_use.update(dict.fromkeys(self.used_late(node), position))

    def used_late(self, node: Node) -> Iterable[Value]:
        """The arrays that `node` uses late, directly or through views."""
        depth = max((self.depth[v] for v in node.outputs), default=0)
        bases = [self.base(v) for v in node.inputs if not v.type.on_host]
        return [v for v in bases if depth - self.depth[v] >= MIN_DEPTH_DIFFERENCE]

    def base(self, value: Value) -> Value:
        """The array at the base of a chain of views."""
        return base_of(self.producers, value)

    def is_cheap(self, value: Value) -> bool:
        """Whether an elementwise operator on a device with this pass computes `value`."""
        node = self.producers.get(value)
        return (
            node is not None
            and ELEMENTWISE in node.op.traits
            and CAN_FAIL not in node.op.traits
            and node.op is not ops.after
            and not value.type.on_host
            and "recompute" in tuning_of(value.type.device).passes
        )


def _chosen(graph: Graph, late_uses: _LateUses) -> set[Value]:
    """The values to recompute for late uses, and the other values on their chains."""
    materialised = set(graph.results()) | {node.inputs[0] for node in graph.nodes if node.op is ops.update}
    rematerialised: set[Value] = set()
    recomputed: set[Value] = set()
    for node in graph.nodes:
        for value in node.outputs:
            if value in late_uses.last_use and value.type.nbytes >= MIN_BYTES and value not in materialised:
                chain = _chain(value, late_uses, rematerialised)
                if chain:
                    rematerialised.add(value)
                    recomputed.update(chain)
    return recomputed


def _chain(value: Value, late_uses: _LateUses, rematerialised: set[Value]) -> list[Value]:
    """The values to recompute for `value`; empty if it cannot be recomputed, or costs too much."""
    chain, cost = [value], 0
    for link in chain:
        if not late_uses.is_cheap(link):
            return []
        node = late_uses.producers[link]
        cost += EXPENSIVE_COST if EXPENSIVE in node.op.traits else 1
        if cost > MAX_CHAIN_COST:
            return []
        for operand in map(late_uses.base, node.inputs):
            is_small = operand.type.on_host or operand.type.nbytes * SMALL_RATIO <= value.type.nbytes
            is_kept = (
                late_uses.last_use.get(operand, -1) >= late_uses.last_use[value]
                and operand not in rematerialised
            )
            if not is_small and not is_kept and operand not in chain:
                chain.append(operand)
    return chain


class _Rewriter:
    """The graph under construction.

    copies: the recomputed values, by the original. marks: the bools that delay them, by the array they depend
    on.
    """

    def __init__(self, graph: Graph, late_uses: _LateUses, recomputed: set[Value]):
        self.graph, self.late_uses, self.recomputed = graph, late_uses, recomputed
        self.builder = Builder()
        self.builder.inputs.extend(graph.inputs)
        self.copies: dict[Value, Value] = {}
        self.marks: dict[Value, Value] = {}

    def run(self) -> Graph:
        """Append the nodes in order, with recomputed values in place of operands that are used late."""
        for node in self.graph.nodes:
            late = (
                self.recomputed.intersection(self.late_uses.used_late(node))
                if node.op is not ops.view
                else ()
            )
            if late:
                node = self.with_copies(node, late)
            self.builder.nodes.append(node)
        return self.builder.graph(self.graph.outputs, self.graph.effects)

    def with_copies(self, node: Node, late: Iterable[Value]) -> Node:
        """Replace the operands of `node` whose base is in `late` by recomputed values."""
        inputs = tuple([self.copy(v, node) if self.late_uses.base(v) in late else v for v in node.inputs])
        return Node(node.op, inputs, node.outputs, node.attrs, node.location)

    def copy(self, value: Value, user: Node) -> Value:
        """The recomputed version of a value, emitted for `user` if new; a kept value itself."""
        if value.type.on_host or self.late_uses.base(value) not in self.recomputed:
            return value
        if value not in self.copies:
            node = self.late_uses.producers[value]
            inputs = [self.copy(v, user) for v in node.inputs]
            if inputs == list(node.inputs):
                inputs = self.delayed(inputs, user)
            self.copies[value] = self.builder.copy(node, inputs)[0]
        return self.copies[value]

    def delayed(self, inputs: list[Value], user: Node) -> list[Value]:
        """Return `inputs`, with the largest delayed until shortly before the operands of `user`."""
        arrays = [v for v in inputs if not v.type.on_host]
        if not arrays:
            return inputs
        largest = max(arrays, key=lambda v: self.late_uses.base(v).type.nbytes)
        shape, emit = largest.type.shape, self.builder.emit
        mark = emit(ops.view, self.mark(user), location=user.location, view=View(0, shape, (0,) * len(shape)))
        late = emit(ops.after, mark, largest, location=user.location)
        return [late if v is largest else v for v in inputs]

    def mark(self, user: Node) -> Value:
        """A bool that depends on the deepest operand of `user`. If that is the result of a product, the bool
        depends on the deepest operand of the product instead, so that the product's kernel can recompute
        values.
        """
        deepest = self.deepest(user)
        producer = self.late_uses.producers.get(deepest)
        if producer is not None and LIBRARY in producer.op.traits:
            deepest = self.deepest(producer)
        if deepest not in self.marks:
            emit, location = self.builder.emit, user.location
            first = emit(ops.view, deepest, location=location, view=View(0, (), ()))
            self.marks[deepest] = emit(ops.equal, first, first, location=location)
        return self.marks[deepest]

    def deepest(self, node: Node) -> Value:
        """The array operand of `node` with the greatest depth."""
        arrays = [self.late_uses.base(v) for v in node.inputs if not v.type.on_host]
        return max(arrays, key=self.late_uses.depth.__getitem__)
