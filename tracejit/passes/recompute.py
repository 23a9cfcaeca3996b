"""Recomputation of cheap values where they are used late, so that fewer arrays are kept until then.

The backward pass of a net reads what the forward pass made: of a GELU its operand x, tanh of a polynomial of
x, and the result, an operand of the next product. The last two follow from x by a few operators:

    y = gelu(x);  z = matmul(y, w)
    ...
    dw = matmul(y.T, dz)                =>      x1 = after(mark of dz, x);  y1 = gelu(x1)
                                                dw = matmul(y1.T, dz)

A use of a value is *late* if two products (or convolutions, or more) lie between them. The *depth* of a
value, the number of products on the longest path to it, says so. A value that has a late use is *kept*,
unless it is computed again: by a chain of elementwise operators, from values that are kept anyway, from
numbers, and from arrays that are small beside it. The copies of a chain come `after` a value of the backward
pass; nothing else would delay them until then. They are made once, before the first late use.

What a kernel rounds depends on what it computes beside it (see docs/decisions/14-sums-of-products.md), so a
copy may be apart from the value by a rounding error.

It is done for large arrays, and where a chain costs little for each element (`MOST`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Node, Value, producers_of
from tracejit.ir.op import CAN_FAIL, ELEMENTWISE, EXPENSIVE, LIBRARY
from tracejit.ir.view import View
from tracejit.passes.producers import base_of
from tracejit.tuning import tuning_of

LEAST = 1 << 18
"""The least bytes of a value that is computed again; smaller ones hardly count."""

FAR = 2
"""The least difference of depths of a late use. A product of a value, or its sum with one, is no late use."""

MOST = 48
"""The most operators in a chain, of which an expensive one counts as `DEAR`."""

DEAR = 12

SMALL = 8
"""An array is small beside one that has as many times its bytes."""


def recompute(graph: Graph) -> Graph:
    """`graph` with late uses of values computed again."""
    lives = _Lives(graph)
    chosen = _chosen(graph, lives)
    return _Rewriter(graph, lives, chosen).run() if chosen else graph


class _Lives:
    """The producers of values, their depths, and the position of the last late use of those that have one."""

    def __init__(self, graph: Graph):
        self.producers = producers_of(graph.nodes)
        self.depth = dict.fromkeys(graph.inputs, 0)
        self.late: dict[Value, int] = {}
        for position, node in enumerate(graph.nodes):
            depth = max((self.depth[v] for v in node.inputs), default=0) + (LIBRARY in node.op.traits)
            self.depth.update(dict.fromkeys(node.outputs, depth))
            if node.op is not ops.view:
                self.late.update(dict.fromkeys(self.used_late(node), position))

    def used_late(self, node: Node) -> Iterable[Value]:
        """The arrays that `node` uses late, perhaps through views."""
        depth = max((self.depth[v] for v in node.outputs), default=0)
        bases = [self.base(v) for v in node.inputs if not v.type.on_host]
        return [v for v in bases if depth - self.depth[v] >= FAR]

    def base(self, value: Value) -> Value:
        """The array behind views."""
        return base_of(self.producers, value)

    def is_cheap(self, value: Value) -> bool:
        """Whether an elementwise operator computes the value faster than memory would be read."""
        node = self.producers.get(value)
        return (
            node is not None
            and ELEMENTWISE in node.op.traits
            and CAN_FAIL not in node.op.traits
            and node.op is not ops.after
            and not value.type.on_host
            and "recompute" in tuning_of(value.type.device).passes
        )


def _chosen(graph: Graph, lives: _Lives) -> set[Value]:
    """The values to compute again, and those that only their chains contain."""
    stay = set(graph.results()) | {node.inputs[0] for node in graph.nodes if node.op is ops.update}
    chosen: set[Value] = set()
    again: set[Value] = set()
    for node in graph.nodes:
        for value in node.outputs:
            if value in lives.late and value.type.nbytes >= LEAST and value not in stay:
                chain = _chain(value, lives, chosen)
                if chain:
                    chosen.add(value)
                    again.update(chain)
    return again


def _chain(value: Value, lives: _Lives, chosen: set[Value]) -> list[Value]:
    """The values to recompute for `value`; none if that is impossible, or costs too much."""
    chain, cost = [value], 0
    for found in chain:
        if not lives.is_cheap(found):
            return []
        node = lives.producers[found]
        cost += DEAR if EXPENSIVE in node.op.traits else 1
        if cost > MOST:
            return []
        for operand in map(lives.base, node.inputs):
            small = operand.type.on_host or operand.type.nbytes * SMALL <= value.type.nbytes
            lasts = lives.late.get(operand, -1) >= lives.late[value] and operand not in chosen
            if not small and not lasts and operand not in chain:
                chain.append(operand)
    return chain


class _Rewriter:
    """The graph under construction. `copies`: of values, by the original."""

    def __init__(self, graph: Graph, lives: _Lives, again: set[Value]):
        self.graph, self.lives, self.again = graph, lives, again
        self.builder = Builder()
        self.builder.inputs.extend(graph.inputs)
        self.copies: dict[Value, Value] = {}
        self.marks: dict[Value, Value] = {}

    def run(self) -> Graph:
        """The nodes in order, each with copies as the operands that it uses late."""
        for node in self.graph.nodes:
            late = self.again.intersection(self.lives.used_late(node)) if node.op is not ops.view else ()
            if late:
                node = self.with_copies(node, late)
            self.builder.nodes.append(node)
        return self.builder.graph(self.graph.outputs, self.graph.effects)

    def with_copies(self, node: Node, late: Iterable[Value]) -> Node:
        """`node` on copies of the values `late`."""
        inputs = tuple([self.copy(v, node) if self.lives.base(v) in late else v for v in node.inputs])
        return Node(node.op, inputs, node.outputs, node.attrs, node.location)

    def copy(self, value: Value, user: Node) -> Value:
        """The copy of a value, itself if it is kept; made for `user` if it has to be."""
        if value.type.on_host or self.lives.base(value) not in self.again:
            return value
        if value not in self.copies:
            node = self.lives.producers[value]
            inputs = [self.copy(v, user) for v in node.inputs]
            if inputs == list(node.inputs):
                inputs = self.delayed(inputs, user)
            self.copies[value] = self.builder.copy(node, inputs)[0]
        return self.copies[value]

    def delayed(self, inputs: list[Value], user: Node) -> list[Value]:
        """The operands, of which the largest is delayed until the operands of `user` are about to be
        computed.
        """
        arrays = [v for v in inputs if not v.type.on_host]
        if not arrays:
            return inputs
        largest = max(arrays, key=lambda v: self.lives.base(v).type.nbytes)
        shape, emit = largest.type.shape, self.builder.emit
        mark = emit(ops.view, self.mark(user), location=user.location, view=View(0, shape, (0,) * len(shape)))
        late = emit(ops.after, mark, largest, location=user.location)
        return [late if v is largest else v for v in inputs]

    def mark(self, user: Node) -> Value:
        """A bool that is computed when the deepest operand of `user` is. If that is the result of a product:
        when one of its operands is, so that copies can be in the product's kernel.
        """
        deepest = self.deepest(user)
        maker = self.lives.producers.get(deepest)
        if maker is not None and LIBRARY in maker.op.traits:
            deepest = self.deepest(maker)
        if deepest not in self.marks:
            emit, place = self.builder.emit, user.location
            first = emit(ops.view, deepest, location=place, view=View(0, (), ()))
            self.marks[deepest] = emit(ops.equal, first, first, location=place)
        return self.marks[deepest]

    def deepest(self, node: Node) -> Value:
        """The operand of the greatest depth."""
        arrays = [self.lives.base(v) for v in node.inputs if not v.type.on_host]
        return max(arrays, key=self.lives.depth.__getitem__)
